package bearer_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const exchange = "https://mesh.example/exchange"

func TestProofIsTakenOnce(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	c := bearer.NewProofChecker(nil)
	proof, err := bearer.Prove(t.Context(), key, "POST", exchange+"?a=b#c", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Check(proof, "POST", "http://127.0.0.1:4321/exchange", exchange)
	if err != nil || !got.Equal(publicOf(t, key)) {
		t.Fatalf("Check = %v, %v", got, err)
	}
	if _, err := c.Check(proof, "POST", exchange); trust.ReasonOf(err) != trust.ReasonReplayed || wire.CodeOf(err) != wire.CodeUnauthenticated {
		t.Errorf("the second time: %v", err)
	}
	if _, err := bearer.NewProofChecker(nil).Check(proof, "POST", exchange); err != nil {
		t.Errorf("at another checker: %v", err)
	}
	for name, try := range map[string]struct {
		key signer.Signer
		url string
	}{
		"no key": {signer.Refuse{}, exchange}, "relative": {key, "/exchange"}, "no URL": {key, ":"}, "other scheme": {key, "nats://mesh.example"},
		"with a password": {key, "https://ada:secret@mesh.example/exchange"}, "an account key": {accountKey(t), exchange},
	} {
		proof, err := bearer.Prove(t.Context(), try.key, "POST", try.url, time.Now())
		if proof != "" || wire.CodeOf(err) != wire.CodeBadRequest || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q, %v, want bad-request", name, proof, err)
		}
	}
}

func accountKey(t testing.TB) signer.Signer {
	t.Helper()
	key, err := signer.Generate(signer.Account)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// proofKey is a key with the header and the claims of a proof of now.
func proofKey(t testing.TB) (key ed25519.PrivateKey, header, payload fields) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	header = fields{"typ": "dpop+jwt", "alg": "EdDSA", "jwk": fields{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(public)}}
	return key, header, fields{"jti": "one", "htm": "POST", "htu": exchange, "iat": time.Now().Unix()}
}

// TestProofRules breaks every rule once, each beside what is still accepted. An empty reason means accepted.
func TestProofRules(t *testing.T) {
	t.Parallel()
	faketime.Test(t, proofRules)
}

func proofRules(t *testing.T) {
	key, header, payload := proofKey(t)
	now := payload["iat"].(int64)
	jwk := header["jwk"].(fields)
	weak := base64.RawURLEncoding.EncodeToString(append([]byte{1}, make([]byte, 31)...))
	no := trust.ReasonKeyProof
	check := func(what, proof string, want trust.Reason) {
		t.Helper()
		_, err := bearer.NewProofChecker(nil).Check(proof, "POST", exchange)
		checkReason(t, what, err, want)
	}
	for _, c := range []struct {
		member string
		value  any
		want   trust.Reason
	}{
		{"typ", "dpop+jwt", ""},
		{"typ", "JWT", no},
		{"typ", "DPoP+JWT", no},
		{"typ", nil, no},
		{"alg", "none", no},
		{"alg", "ES256", no},
		{"alg", "HS256", no},
		{"alg", "Ed25519", no},
		{"alg", nil, no},
		{"kid", "x", no},
		{"jku", "https://evil.example", no},
		{"x5c", []string{"AAAA"}, no},
		{"crit", []string{"b64"}, no},
		{"jwk", nil, no},
		{"jwk", fields{}, no},
		{"jwk", jwk.with("kid", "x").with("alg", "EdDSA").with("use", "sig"), ""},
		{"jwk.d", base64.RawURLEncoding.EncodeToString(key.Seed()), no},
		{"jwk.k", "AAAA", no},
		{"jwk.kty", "oct", no},
		{"jwk.kty", nil, no},
		{"jwk.crv", "Ed448", no},
		{"jwk.crv", nil, no},
		{"jwk.x", weak, no},
		{"jwk.x", base64.RawURLEncoding.EncodeToString(make([]byte, 31)), no},
		{"jwk.x", base64.RawURLEncoding.EncodeToString(ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)), no}, // somebody else's
		{"jwk.X", "x", no},
	} {
		check(fmt.Sprintf("header %s = %.60v", c.member, c.value), forge(t, key, header.with(c.member, c.value), payload), c.want)
	}
	for _, c := range []struct {
		member string
		value  any
		want   trust.Reason
	}{
		{"ath", "x", ""},
		{"nonce", "x", ""},
		{"exp", now + 60, ""},
		{"jti", strings.Repeat("j", 128), ""},
		{"jti", strings.Repeat("j", 129), no},
		{"jti", "", no},
		{"jti", "a b", no},
		{"jti", 5, no},
		{"jti", nil, no},
		{"htm", "GET", no},
		{"htm", "post", no},
		{"htm", nil, no},
		{"htu", nil, no},
		{"htu", "https://evil.example/exchange", no},
		{"iat", now - 60, ""},
		{"iat", now + 60, ""},
		{"iat", now - 61, no},
		{"iat", now + 61, no},
		{"iat", nil, no},
		{"iat", -1, no},
		{"iat", int64(1) << 62, no},
		{"iat", fmt.Sprint(now), no},
	} {
		check(fmt.Sprintf("claim %s = %.60v", c.member, c.value), forge(t, key, header, payload.with(c.member, c.value)), c.want)
	}
	good := forge(t, key, header, payload)
	parts := strings.Split(good, ".")
	check("good", good, "")
	check("empty", "", no)
	check("two parts", parts[0]+"."+parts[1], no)
	check("four parts", good+".", no)
	check("two proofs", good+", "+good, no)
	check("other claims", parts[0]+"."+part(t, payload.with("jti", "two"))+"."+parts[2], no)
	check("too large", forge(t, key, header, payload.with("pad", strings.Repeat("x", bearer.MaxProof))), no)
	check("doubled claim", forge(t, key, header, fmt.Sprintf(`{"jti":"a","htm":"POST","htu":%q,"iat":%d,"iat":%d}`, exchange, now, now)), no)
	if _, err := bearer.NewProofChecker(nil).Check(good, "POST"); err == nil {
		t.Error("a server without a URL took a proof")
	}
}

func TestProofURLs(t *testing.T) {
	t.Parallel()
	key, header, payload := proofKey(t)
	for _, c := range []struct {
		proof, own string
		want       bool
	}{
		{"https://mesh.example/exchange", "https://mesh.example/exchange", true},
		{"HTTPS://Mesh.EXAMPLE/exchange", "https://mesh.example/exchange", true},
		{"https://mesh.example:443/exchange", "https://mesh.example/exchange", true},
		{"https://mesh.example/exchange", "https://mesh.example:443/exchange", true},
		{"https://mesh.example:/exchange", "https://mesh.example/exchange", true},
		{"http://mesh.example:80", "http://mesh.example/", true},
		{"https://mesh.example/exchange?a=b#c", "https://mesh.example/exchange", true},
		{"https://mesh.example/%65xchange%2f", "https://mesh.example/exchange%2F", true},
		{"http://[::1]:8080/exchange", "http://[::1]:8080/exchange", true},
		{"http://mesh.example/exchange", "https://mesh.example/exchange", false},
		{"https://mesh.example:80/exchange", "https://mesh.example/exchange", false},
		{"https://mesh.example:8443/exchange", "https://mesh.example/exchange", false},
		{"https://mesh.example/Exchange", "https://mesh.example/exchange", false},
		{"https://mesh.example/exchange/", "https://mesh.example/exchange", false},
		{"https://mesh.example//exchange", "https://mesh.example/exchange", false},
		{"https://mesh.example/a%2Fexchange", "https://mesh.example/a/exchange", false},
		{"https://mesh.example/a/../exchange", "https://mesh.example/exchange", false},
		{"https://mesh.example.evil/exchange", "https://mesh.example/exchange", false},
		{"https://mesh.example@evil.example/exchange", "https://evil.example/exchange", false},
		{"https:mesh.example/exchange", "https://mesh.example/exchange", false},
		{"/exchange", "https://mesh.example/exchange", false},
		{"/exchange", "/exchange", false},
		{"", "", false},
		{"ftp://mesh.example/", "ftp://mesh.example/", false},
		{"https://mesh.example/%zz", "https://mesh.example/%zz", false},
	} {
		_, err := bearer.NewProofChecker(nil).Check(forge(t, key, header, payload.with("htu", c.proof)), "POST", "https://another.example/", c.own)
		if (err == nil) != c.want {
			t.Errorf("a proof for %q at %q: %v, want taken %v", c.proof, c.own, err, c.want)
		}
	}
}

// TestProofMemory: what was taken is remembered until it is too old anyway, whoever else comes, and then forgotten.
func TestProofMemory(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		key, other, c := newKey(t), newKey(t), bearer.NewProofChecker(&bearer.ProofOptions{Memory: 3})
		prove := func(key signer.Signer, ahead time.Duration) string {
			t.Helper()
			proof, err := bearer.Prove(t.Context(), key, "POST", exchange, time.Now().Add(ahead))
			if err != nil {
				t.Fatal(err)
			}
			return proof
		}
		check := func(proof string) trust.Reason {
			_, err := c.Check(proof, "POST", exchange)
			return trust.ReasonOf(err)
		}
		ahead := prove(key, bearer.ProofWindow) // can be used for two minutes
		for name, proof := range map[string]string{"ahead": ahead, "now": prove(key, 0), "behind": prove(other, -bearer.ProofWindow)} {
			if got := check(proof); got != "" {
				t.Fatalf("%s: %q", name, got)
			}
		}
		_, err := c.Check(prove(key, 0), "POST", exchange)
		if trust.ReasonOf(err) != trust.ReasonBusy || wire.CodeOf(err) != wire.CodeResourceExhausted {
			t.Errorf("a fourth proof: %v", err)
		}
		for range 120 {
			time.Sleep(time.Second)
			if got := check(ahead); got != trust.ReasonReplayed {
				t.Fatalf("replayed: %q", got)
			}
		}
		time.Sleep(time.Second)
		if got := check(ahead); got != trust.ReasonKeyProof {
			t.Errorf("after two minutes: %q", got)
		}
		time.Sleep(2 * time.Minute)
		for i := range 3 {
			if got := check(prove(key, 0)); got != "" {
				t.Errorf("proof %d after a pause: %q", i, got)
			}
		}
	})
}

// TestProofsRace: of many at once with one proof, one gets through. Ids of different keys do not meet.
func TestProofsRace(t *testing.T) {
	t.Parallel()
	c := bearer.NewProofChecker(nil)
	var taken, used atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		key, header, payload := proofKey(t) // all with the id "one"
		proof := forge(t, key, header, payload)
		for range 8 {
			wg.Go(func() {
				_, err := c.Check(proof, "POST", exchange)
				switch trust.ReasonOf(err) {
				case "":
					taken.Add(1)
				case trust.ReasonReplayed:
					used.Add(1)
				default:
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if taken.Load() != 4 || used.Load() != 28 {
		t.Errorf("of 4 proofs 8 times each, %d were taken and %d refused as used", taken.Load(), used.Load())
	}
}

// TestAnotherLibraryProves checks a proof of go-jose here and reads one of ours there.
func TestAnotherLibraryProves(t *testing.T) {
	t.Parallel()
	key, _, payload := proofKey(t)
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, (&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.Sign(mustJSON(t, payload))
	if err != nil {
		t.Fatal(err)
	}
	proof, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	got, err := bearer.NewProofChecker(nil).Check(proof, "POST", exchange)
	if err != nil || !got.Equal(key.Public()) {
		t.Errorf("a proof of another library: %v, %v", got, err)
	}

	mine := newKey(t)
	if proof, err = bearer.Prove(t.Context(), mine, "POST", exchange, time.Now()); err != nil {
		t.Fatal(err)
	}
	parsed, err := jose.ParseSignedCompact(proof, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	jwk := parsed.Signatures[0].Protected.JSONWebKey
	if jwk == nil || !publicOf(t, mine).Equal(jwk.Key) {
		t.Fatalf("the key in a proof is %v", jwk)
	}
	if _, err := parsed.Verify(jwk); err != nil {
		t.Error(err)
	}
}

// TestBearersAreNoProofs: neither passes for the other, whatever they have in common.
func TestBearersAreNoProofs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if _, err := bearer.NewProofChecker(nil).Check(d.sign(t, claims(t)), "POST", exchange); trust.ReasonOf(err) != trust.ReasonKeyProof {
		t.Errorf("a bearer as a proof: %v", err)
	}
	proof, err := bearer.Prove(t.Context(), newKey(t), "POST", exchange, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.validator.Validate(t.Context(), proof); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("a proof as a bearer: %v", err)
	}
}

// TestProofMemoryWhenTheClockGoesBack: what was forgotten as too old is not taken again when it is young once more.
func TestProofMemoryWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	m, now := bearer.NewMemory(), time.Unix(1_800_000_000, 0)
	if !m.Take("one", now.Unix(), now) || m.Take("one", now.Unix(), now) {
		t.Fatal("a proof is not taken exactly once")
	}
	later := now.Add(5 * time.Minute)
	if !m.Take("two", later.Unix(), later) {
		t.Fatal("a second proof is refused")
	}
	if m.Take("one", now.Unix(), now) {
		t.Error("a proof was taken again after the clock went back")
	}
}
