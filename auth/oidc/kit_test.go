package oidc_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	issuer  = "https://idp.example/realms/main"
	jwksURI = "https://idp.example/realms/main/certs"
	us      = "cotal-main-1b2c3d4e"
)

// testKeys are the key pairs of the tests, made once: an RSA key takes a while.
type testKeys struct {
	rsa, rsa2, rsa3, weak *rsa.PrivateKey
	p256, p384            *ecdsa.PrivateKey
	ed, ed2               ed25519.PrivateKey
}

var keys = sync.OnceValue(func() *testKeys {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	k := &testKeys{}
	for _, r := range []struct {
		to   **rsa.PrivateKey
		bits int
	}{{&k.rsa, 2048}, {&k.rsa2, 2048}, {&k.rsa3, 2048}, {&k.weak, 1024}} {
		var err error
		*r.to, err = rsa.GenerateKey(rand.Reader, r.bits)
		must(err)
	}
	var err error
	k.p256, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	k.p384, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(err)
	_, k.ed, err = ed25519.GenerateKey(rand.Reader)
	must(err)
	_, k.ed2, err = ed25519.GenerateKey(rand.Reader)
	must(err)
	return k
})

var b64 = base64.RawURLEncoding.EncodeToString

// jwk writes the public half of a key as RFC 7517 does, by hand. Members of extra replace or, when nil, remove.
func jwk(kid string, key any, extra map[string]any) map[string]any {
	out := map[string]any{"kid": kid, "use": "sig"}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		out["kty"], out["n"], out["e"] = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PrivateKey:
		point, err := k.PublicKey.Bytes()
		if err != nil {
			panic(err)
		}
		half := (len(point) - 1) / 2
		out["kty"], out["crv"], out["x"], out["y"] = "EC", k.Curve.Params().Name, b64(point[1:1+half]), b64(point[1+half:])
	case ed25519.PrivateKey:
		out["kty"], out["crv"], out["x"] = "OKP", "Ed25519", b64(k.Public().(ed25519.PublicKey))
	}
	for name, v := range extra {
		if out[name] = v; v == nil {
			delete(out, name)
		}
	}
	return out
}

// signature signs as RFC 7518 section 3 and RFC 8037 say, with the standard library alone.
func signature(alg string, key any, input []byte) []byte {
	var sig []byte
	var err error
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[alg[max(0, len(alg)-3):]]
	sum := func() []byte {
		h := hash.New()
		h.Write(input)
		return h.Sum(nil)
	}
	switch {
	case alg == "none":
	case strings.HasPrefix(alg, "HS"):
		mac := hmac.New(sha256.New, key.([]byte))
		mac.Write(input)
		sig = mac.Sum(nil)
	case strings.HasPrefix(alg, "RS"):
		sig, err = rsa.SignPKCS1v15(rand.Reader, key.(*rsa.PrivateKey), hash, sum())
	case strings.HasPrefix(alg, "PS"):
		sig, err = rsa.SignPSS(rand.Reader, key.(*rsa.PrivateKey), hash, sum(), &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	case strings.HasPrefix(alg, "ES"):
		k := key.(*ecdsa.PrivateKey)
		r, s, serr := ecdsa.Sign(rand.Reader, k, sum())
		size := (k.Curve.Params().BitSize + 7) / 8
		sig, err = make([]byte, 2*size), serr
		r.FillBytes(sig[:size])
		s.FillBytes(sig[size:])
	default:
		sig = ed25519.Sign(key.(ed25519.PrivateKey), input)
	}
	if err != nil {
		panic(err)
	}
	return sig
}

// login is one try to log in: what the provider publishes, what is pinned, and how the token is made. A test starts from
// one that is accepted and changes a thing.
type login struct {
	pin    oidc.Pin
	set    []map[string]any
	signAs string // the algorithm really used; the header's when empty
	key    any
	header map[string]any
	claims map[string]any
	// rawHeader and rawClaims replace what is made of the maps, and alter changes the finished token.
	rawHeader, rawClaims string
	alter                func(string) string
}

func newPin() oidc.Pin {
	return oidc.Pin{
		Issuer: issuer, Audience: us, ClientID: us, JWKSURI: jwksURI, Shape: oidc.ShapeOIDC,
		Algorithms: []string{"RS256", "ES256", "EdDSA"},
	}
}

func newLogin() *login {
	now := time.Now().Unix()
	return &login{
		pin: newPin(), set: []map[string]any{jwk("r1", keys().rsa, nil)}, key: keys().rsa,
		header: map[string]any{"alg": "RS256", "kid": "r1", "typ": "JWT"},
		claims: map[string]any{"iss": issuer, "aud": us, "sub": "user-1", "iat": now, "exp": now + 300},
	}
}

func (l *login) token() string {
	encode := func(raw string, v map[string]any) string {
		if raw == "" {
			data, err := json.Marshal(v)
			if err != nil {
				panic(err)
			}
			raw = string(data)
		}
		return b64([]byte(raw))
	}
	input := encode(l.rawHeader, l.header) + "." + encode(l.rawClaims, l.claims)
	alg := l.signAs
	if alg == "" {
		alg, _ = l.header["alg"].(string)
	}
	token := input + "." + b64(signature(alg, l.key, []byte(input)))
	if l.alter != nil {
		token = l.alter(token)
	}
	return token
}

func (l *login) verify(t *testing.T) (oidc.Claims, error) {
	t.Helper()
	v, _, _ := l.mesh(t)
	return v.Verify(t.Context(), l.token())
}

// mesh returns a verifier of the login's pin, and the key set and provider behind it.
func (l *login) mesh(t testing.TB) (*oidc.Verifier, *oidc.KeySet, *provider) {
	t.Helper()
	p := &provider{set: l.set}
	set := oidc.NewKeySet(l.pin.JWKSURI, &oidc.KeySetOptions{HTTP: p.client()})
	t.Cleanup(func() { _ = set.Close() })
	v, err := oidc.NewVerifier(l.pin, set, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v, set, p
}

// provider is an identity provider in memory. Its zero value publishes no key.
type provider struct {
	mu     sync.Mutex
	set    []map[string]any
	answer func(*http.Request) (*http.Response, error) // instead of the set
	header http.Header
	calls  int
}

func (p *provider) client() *http.Client { return &http.Client{Transport: p} }

// RoundTrip answers without a socket, so that it also works on fake time.
func (p *provider) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.calls++
	answer, set, header := p.answer, p.set, maps.Clone(p.header)
	p.mu.Unlock()
	if answer != nil {
		return answer(req)
	}
	data, err := json.Marshal(map[string]any{"keys": append([]map[string]any{}, set...)})
	return reply(200, "application/json", string(data), header), err
}

func (p *provider) publish(set ...map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = set
}

func (p *provider) answers(f func(*http.Request) (*http.Response, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = f
}

func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

func reply(status int, kind, body string, header http.Header) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", kind)
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}
}

func down(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }

func hangs(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func broken(*http.Request) (*http.Response, error) {
	return reply(200, "text/html; charset=utf-8", "<!doctype html><title>Sorry</title>", nil), nil
}

// refused fails unless a token was refused for a reason, with the code that belongs to it and no claims.
func refused(t *testing.T, c oidc.Claims, err error, want trust.Reason) {
	t.Helper()
	code := wire.CodeUnauthenticated
	if want == trust.ReasonIDP {
		code = wire.CodeUnavailable
	}
	if trust.ReasonOf(err) != want || wire.CodeOf(err) != code {
		t.Fatalf("verify = %+v, %v (code %q, reason %q), want code %q, reason %q", c, err, wire.CodeOf(err), trust.ReasonOf(err), code, want)
	}
	if c.Subject != "" || c.Issuer != "" {
		t.Errorf("refused, and claims are %+v", c)
	}
}

func accepted(t *testing.T, c oidc.Claims, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("verify = %v (reason %q), want accepted", err, trust.ReasonOf(err))
	}
	if c.Issuer == "" || c.Subject == "" || c.Expires.IsZero() {
		t.Errorf("accepted with claims %+v", c)
	}
}

// pair is a hostile login beside the honest one that differs from it in nothing else.
type pair struct {
	name   string
	honest func(*login)
	evil   func(*login)
	reason trust.Reason
}

func runPairs(t *testing.T, pairs []pair) {
	t.Helper()
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			l := newLogin()
			if p.honest != nil {
				p.honest(l)
			}
			c, err := l.verify(t)
			accepted(t, c, err)
			l = newLogin()
			p.evil(l)
			c, err = l.verify(t)
			refused(t, c, err, p.reason)
		})
	}
}

// header and claim are changes to a login.
func header(name string, v any) func(*login) { return func(l *login) { set(l.header, name, v) } }
func claim(name string, v any) func(*login)  { return func(l *login) { set(l.claims, name, v) } }

func both(changes ...func(*login)) func(*login) {
	return func(l *login) {
		for _, c := range changes {
			c(l)
		}
	}
}

func set(m map[string]any, name string, v any) {
	if m[name] = v; v == nil {
		delete(m, name)
	}
}

// jsonNull is null as a value, where nil means absent.
var jsonNull = json.RawMessage("null")
