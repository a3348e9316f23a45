package bearer_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const space wire.Space = "main"

const owner = "u_g5mclrofwa6pirb3p4yeigemze"

var uid = wire.UID(strings.Repeat("a", 26))

// desk is the issuer of a space over a store in memory, and a validator beside it.
type desk struct {
	store     *memstore.Store
	keys      *bearer.Keys
	issuer    *bearer.Issuer
	validator *bearer.Validator
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	d := &desk{store: memstore.New()}
	var err error
	if d.keys, err = bearer.EnsureKeys(t.Context(), d.store, space); err != nil {
		t.Fatal(err)
	}
	d.issuer, d.validator = bearer.NewIssuer(space, d.keys), bearer.NewValidator(space, d.keys, nil)
	return d
}

// claims are those of ada, with a key.
func claims(t testing.TB) bearer.Claims {
	t.Helper()
	return bearer.Claims{
		Subject: owner, Scope: []string{trust.ScopeSpawn, trust.ScopeRole("tester")},
		Act:          bearer.Act{Owner: owner, Actor: "ada", UID: uid, Epoch: 7, Inbox: string(uid), View: trust.ViewDeployer, Parent: owner + ".bob"},
		Confirmation: publicOf(t, newKey(t)),
	}
}

func (d *desk) sign(t testing.TB, c bearer.Claims) string {
	t.Helper()
	token, _, err := d.issuer.Sign(t.Context(), c, bearer.MaxHumanLife)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// record is the private half of the issuer, as its record has it.
type record struct {
	Ver       int
	Issuer    string
	ActiveKid string
	Keys      []struct {
		Kid, Seed string
		Created   time.Time
		Retired   *time.Time
	}
}

func (d *desk) record(t testing.TB) record {
	t.Helper()
	data, err := d.store.Get(t.Context(), bearer.KeysKey(space))
	if err != nil {
		t.Fatal(err)
	}
	var rec record
	if err := json.Unmarshal(data, &rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

// private is a private key of the record: 0 signs, 1 follows.
func (d *desk) private(t testing.TB, i int) ed25519.PrivateKey {
	t.Helper()
	seed, err := base64.RawURLEncoding.DecodeString(d.record(t).Keys[i].Seed)
	if err != nil {
		t.Fatal(err)
	}
	return ed25519.NewKeyFromSeed(seed)
}

func newKey(t testing.TB) *signer.Local {
	t.Helper()
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicOf(t testing.TB, key signer.Signer) ed25519.PublicKey {
	t.Helper()
	public, err := bearer.PublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// forge makes a compact JWS of whatever it is given. A string or a json.RawMessage is taken as it is.
func forge(t testing.TB, key ed25519.PrivateKey, header, payload any) string {
	t.Helper()
	signed := part(t, header) + "." + part(t, payload)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(signed)))
}

func part(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if s, ok := v.(string); ok {
		data, err = []byte(s), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// fields are a JSON object that a test changes.
type fields map[string]any

// with returns a copy with one member set, or left out for nil. A name "a.b" is member b of object a.
func (f fields) with(name string, value any) fields {
	out := maps.Clone(f)
	outer, inner, nested := strings.Cut(name, ".")
	switch {
	case nested:
		out[outer] = out[outer].(fields).with(inner, value)
	case value == nil:
		delete(out, name)
	default:
		out[name] = value
	}
	return out
}

// good are the header and the claims of a bearer of now, as fields.
func (d *desk) good(t testing.TB) (header, payload fields) {
	t.Helper()
	now := time.Now().Unix()
	key := publicOf(t, newKey(t))
	header = fields{"alg": "EdDSA", "kid": d.record(t).ActiveKid}
	payload = fields{
		"iss": "urn:cotal:auth:main", "aud": "main", "sub": owner, "iat": now, "nbf": now, "exp": now + 600, "jti": "one", "ver": 1,
		"scope": []string{"spawn", "role:tester", "delivery.purge"},
		"act": fields{
			"owner": owner, "actor": "ada", "uid": uid, "epoch": 7, "inbox": uid, "view": "deployer", "parent": owner + ".bob",
		},
		"cnf": fields{"jwk": fields{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(key)}},
	}
	return header, payload
}

// cutLast returns what the signature of a token is over, and the signature.
func cutLast(token string) (signed, signature []byte, ok bool) {
	i := strings.LastIndexByte(token, '.')
	sig, err := base64.RawURLEncoding.DecodeString(token[i+1:])
	return []byte(token[:i]), sig, err == nil
}
