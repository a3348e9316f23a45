package bearer_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// fixed is a key that is the same in every process, so that inputs mean the same in all of them, and a validator of it.
func fixed(t testing.TB) (ed25519.PrivateKey, string, *bearer.Validator) {
	t.Helper()
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", 32)))
	public := key.Public().(ed25519.PublicKey)
	kid := bearer.Thumbprint(public)
	set, err := bearer.ParseJWKS(fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q,"kid":%q,"alg":"EdDSA","use":"sig"}]}`,
		base64.RawURLEncoding.EncodeToString(public), kid))
	if err != nil {
		t.Fatal(err)
	}
	return key, kid, bearer.NewValidator(space, set, nil)
}

// seedClaims are claims that are taken now.
func seedClaims() string {
	now := time.Now().Unix()
	return fmt.Sprintf(`{"iss":"urn:cotal:auth:main","aud":"main","sub":%q,"iat":%d,"nbf":%d,"exp":%d,"jti":"one","ver":1,"scope":["spawn"],`+
		`"act":{"owner":%q,"actor":"ada","uid":%q,"epoch":7,"inbox":%q,"view":"admin"}}`, owner, now, now, now+900, owner, uid, uid)
}

// FuzzToken looks for a token that passes without the key.
func FuzzToken(f *testing.F) {
	key, kid, v := fixed(f)
	good := forge(f, key, fields{"alg": "EdDSA", "kid": kid}, seedClaims())
	if _, err := v.Validate(f.Context(), good); err != nil {
		f.Fatal(err)
	}
	signed := good[:strings.LastIndexByte(good, '.')]
	for _, seed := range []string{good, signed + ".", "..", good + "=", strings.Repeat(".", 9000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		_, err := v.Validate(t.Context(), token)
		if err == nil && len(token) != len(good) { // a later process makes its seeds at another time
			t.Errorf("%q passes", token)
		}
		if err != nil && trust.ReasonOf(err) == "" {
			t.Errorf("%q is refused without a reason: %v", token, err)
		}
	})
}

// FuzzClaims signs whatever it is given, as a thief of the key would, and looks for claims that should not pass.
func FuzzClaims(f *testing.F) {
	key, kid, v := fixed(f)
	header := `{"alg":"EdDSA","kid":"` + kid + `"}`
	f.Add(header, seedClaims())
	f.Add(`{"alg":"EdDSA","kid":"`+kid+`","typ":"JWT"}`, strings.Replace(seedClaims(), `"main"`, `["main"]`, 1))
	f.Add(`{"alg":"none"}`, `{}`)
	f.Fuzz(func(t *testing.T, header, payload string) {
		token := forge(t, key, header, payload)
		c, err := v.Validate(t.Context(), token)
		if err != nil {
			if trust.ReasonOf(err) == "" {
				t.Errorf("refused without a reason: %v", err)
			}
			return
		}
		life, left := c.Expires.Sub(c.IssuedAt), time.Until(c.Expires)
		switch {
		case c.Audience != string(space), c.Subject != c.Act.Owner, trust.ValidateOwner(c.Subject) != nil, c.Act.Lifecycle().Validate() != nil:
			t.Errorf("claims %+v pass", c)
		case life <= 0, life > bearer.MaxHumanLife, left < -time.Second, c.Act.Epoch == 0, c.ID == "", c.Act.Inbox != string(c.Act.UID):
			t.Errorf("claims %+v pass", c)
		}
		if _, exp, err := v.Peek(token); err != nil || !exp.Equal(c.Expires) {
			t.Errorf("peek refuses what is valid: %v", err)
		}
	})
}

// FuzzProof signs whatever it is given and looks for a proof that should not pass.
func FuzzProof(f *testing.F) {
	key, _, _ := fixed(f)
	x := base64.RawURLEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	header := `{"typ":"dpop+jwt","alg":"EdDSA","jwk":{"crv":"Ed25519","kty":"OKP","x":"` + x + `"}}`
	f.Add(header, fmt.Sprintf(`{"jti":"one","htm":"POST","htu":%q,"iat":%d}`, exchange, time.Now().Unix()))
	f.Add(header, fmt.Sprintf(`{"jti":"one","htm":"POST","htu":"HTTPS://MESH.example:443/%%65xchange?x","iat":%d}`, time.Now().Unix()))
	f.Add(`{}`, `{}`)
	f.Fuzz(func(t *testing.T, header, payload string) {
		proof := forge(t, key, header, payload)
		c := bearer.NewProofChecker(nil)
		got, err := c.Check(proof, "POST", exchange)
		if err != nil {
			if trust.ReasonOf(err) == "" {
				t.Errorf("refused without a reason: %v", err)
			}
			return
		}
		if !got.Equal(key.Public()) {
			t.Errorf("it is of key %x", got)
		}
		if _, err := c.Check(proof, "POST", exchange); trust.ReasonOf(err) != trust.ReasonReplayed {
			t.Errorf("taken twice: %v", err)
		}
	})
}

// FuzzRecords reads the record of the keys and a published set, which are files that anything may have happened to.
func FuzzRecords(f *testing.F) {
	d := newDesk(f)
	data, err := d.store.Get(f.Context(), bearer.KeysKey(space))
	if err != nil {
		f.Fatal(err)
	}
	set, err := d.keys.JWKS(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(set)
	f.Add([]byte(`{"ver":1,"issuer":"urn:cotal:auth:main","activeKid":"","keys":[{},{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := bearer.ParseJWKS(data); err != nil && wire.CodeOf(err) != wire.CodeBadRequest {
			t.Error(err)
		}
		store := memstore.New()
		if err := store.Put(t.Context(), bearer.KeysKey(space), data); err != nil {
			return
		}
		keys, err := bearer.EnsureKeys(t.Context(), store, space)
		if err != nil {
			if wire.CodeOf(err) != wire.CodeFailedPrecondition {
				t.Error(err)
			}
			return
		}
		if set, err := keys.JWKS(t.Context()); err != nil {
			t.Error(err)
		} else if _, err := bearer.ParseJWKS(set); err != nil {
			t.Error(err)
		}
	})
}

// FuzzNonce looks for a signature that passes without the key.
func FuzzNonce(f *testing.F) {
	key, _, _ := fixed(f)
	public := key.Public().(ed25519.PublicKey)
	sig := ed25519.Sign(key, []byte("PXoWU7zWAMt75FY"))
	f.Add([]byte(public), "PXoWU7zWAMt75FY", base64.RawURLEncoding.EncodeToString(sig))
	f.Add([]byte(public), "PXoWU7zWAMt75FY", base64.StdEncoding.EncodeToString(sig))
	f.Add(make([]byte, 32), "", "")
	f.Fuzz(func(t *testing.T, key []byte, nonce, text string) {
		if bearer.SignsNonce(key, nonce, text) && (string(key) != string(public) || nonce != "PXoWU7zWAMt75FY") {
			t.Errorf("key %x, nonce %q, signature %q pass", key, nonce, text)
		}
	})
}
