package oidc_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
)

// TestO2IssuerIsStoredAndUsedUnchanged: the slash at the end is part of the issuer, in discovery, in the pin and in tokens.
func TestO2IssuerIsStoredAndUsedUnchanged(t *testing.T) {
	t.Parallel()
	for _, iss := range []string{"https://idp.example", "https://idp.example/", "https://idp.example//", "https://idp.example/a/"} {
		p := &provider{}
		var asked string
		p.answers(func(req *http.Request) (*http.Response, error) {
			asked = req.URL.String()
			return reply(200, "application/json", fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, iss, jwksURI), nil), nil
		})
		found, err := oidc.Discover(t.Context(), iss, &oidc.DiscoverOptions{HTTP: p.client()})
		if err != nil {
			t.Fatalf("discover %q: %v", iss, err)
		}
		pin, err := found.Pin(us, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := pin.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if pin, err = oidc.DecodePin(data); err != nil || pin.Issuer != iss {
			t.Errorf("pinned issuer = %q, %v, want %q", pin.Issuer, err, iss)
		}
		if want := iss[:len(iss)-len(suffix(iss))] + "/.well-known/openid-configuration"; asked != want {
			t.Errorf("issuer %q: asked %q, want %q", iss, asked, want)
		}
		for _, said := range []string{iss, iss + "/", suffixless(iss)} {
			l := newLogin()
			l.pin.Issuer, l.claims["iss"] = iss, said
			c, err := l.verify(t)
			if said == iss {
				accepted(t, c, err)
			} else {
				refused(t, c, err, trust.ReasonIssuer)
			}
		}
	}
}

func suffix(iss string) string {
	if iss[len(iss)-1] == '/' {
		return "/"
	}
	return ""
}

// suffixless takes a slash off, or changes the issuer otherwise when it has none.
func suffixless(iss string) string {
	if suffix(iss) == "" {
		return iss + "//"
	}
	return iss[:len(iss)-1]
}

// withKey is a login that one Ed25519 or RSA key signs.
func withKey(kid string, alg string, key any) string {
	l := newLogin()
	l.key, l.header["alg"], l.header["kid"] = key, alg, kid
	return l.token()
}

// TestO3RotationCostsOneFetch: a token of a new key is accepted after exactly one read, and one of the old key until that is
// gone.
func TestO3RotationCostsOneFetch(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		v, _, p := newLogin().mesh(t)
		try := func(kid string, key any) error {
			_, err := v.Verify(t.Context(), withKey(kid, "RS256", key))
			return err
		}
		if err := try("r1", keys().rsa); err != nil || p.count() != 1 {
			t.Fatalf("first login: %v, %d reads", err, p.count())
		}
		p.publish(jwk("r1", keys().rsa, nil), jwk("r2", keys().rsa2, nil))
		for range 3 {
			if err := try("r2", keys().rsa2); err != nil || p.count() != 2 {
				t.Fatalf("login with the new key: %v, %d reads, want 2", err, p.count())
			}
			if err := try("r1", keys().rsa); err != nil || p.count() != 2 {
				t.Fatalf("login with the old key: %v, %d reads, want 2", err, p.count())
			}
		}
		p.publish(jwk("r2", keys().rsa2, nil), jwk("r3", keys().rsa3, nil))
		time.Sleep(oidc.UnknownKeyGap)
		if err := try("r1", keys().rsa); err != nil {
			t.Fatalf("login with the old key before the set was read again: %v", err)
		}
		if err := try("r3", keys().rsa3); err != nil || p.count() != 3 {
			t.Fatalf("login with the third key: %v, %d reads, want 3", err, p.count())
		}
		if err := try("r1", keys().rsa); trust.ReasonOf(err) != trust.ReasonSignature {
			t.Errorf("login with the key that is gone = %v, want %s", err, trust.ReasonSignature)
		}
		// A key that goes while nothing new comes stops with the next read, which its age brings.
		p.publish(jwk("r3", keys().rsa3, nil))
		time.Sleep(2 * oidc.MinFresh)
		if err := try("r2", keys().rsa2); trust.ReasonOf(err) != trust.ReasonSignature {
			t.Errorf("login with a key that went ten minutes ago = %v, want %s", err, trust.ReasonSignature)
		}
	})
}

// TestO4RandomKeyIDsDoNotFlood: a thousand key ids that do not exist, within ten seconds, cost two reads, and logins go on.
func TestO4RandomKeyIDsDoNotFlood(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		v, set, p := newLogin().mesh(t)
		good := newLogin().token()
		forged := make([]string, 1000)
		for i := range forged {
			forged[i] = withKey(fmt.Sprint("random-", i), "EdDSA", keys().ed2)
		}
		began := time.Now()
		for i, token := range forged {
			c, err := v.Verify(t.Context(), token)
			refused(t, c, err, trust.ReasonSignature)
			if i%50 == 0 {
				c, err = v.Verify(t.Context(), good)
				accepted(t, c, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took != 10*time.Second || p.count() > 2 {
			t.Errorf("%d reads in %s, want at most 2", p.count(), took)
		}
		if st := set.Status(); st.Failures != 0 || st.Stale {
			t.Errorf("status = %+v", st)
		}
		time.Sleep(oidc.UnknownKeyGap)
		_, _ = v.Verify(t.Context(), forged[0])
		if p.count() != 3 {
			t.Errorf("%d reads a minute later, want 3", p.count())
		}
	})
}

// TestO5KeyIsTiedToItsAlgorithm names the three confusions of the case; TestHostileSignatures has the others.
func TestO5KeyIsTiedToItsAlgorithm(t *testing.T) {
	t.Parallel()
	public := x509.MarshalPKCS1PublicKey(&keys().rsa.PublicKey)
	runPairs(t, []pair{
		{"HS256 signed with the RSA public key", nil, func(l *login) { l.header["alg"], l.key = "HS256", public }, trust.ReasonSignature},
		{"none", nil, func(l *login) { l.header["alg"] = "none"; l.alter = func(s string) string { return s + "AAAA" } }, trust.ReasonSignature},
		{
			"PS256 with an RS256-only key", signedWith("RS256", keys().rsa, "r1", map[string]any{"alg": "RS256"}),
			signedWith("PS256", keys().rsa, "r1", map[string]any{"alg": "RS256"}), trust.ReasonSignature,
		},
	})
}

// TestO7KeysWithoutAlgAreUsed tries every algorithm with keys that do not name theirs, and with keys that do.
func TestO7KeysWithoutAlgAreUsed(t *testing.T) {
	t.Parallel()
	for alg, key := range map[string]any{
		"RS256": keys().rsa, "RS384": keys().rsa, "RS512": keys().rsa, "PS256": keys().rsa, "ES256": keys().p256, "ES384": keys().p384, "EdDSA": keys().ed,
	} {
		for _, extra := range []map[string]any{nil, {"use": nil}, {"alg": alg}, {"alg": alg, "use": nil, "key_ops": []string{"sign", "verify"}}} {
			l := newLogin()
			signedWith(alg, key, "k", extra)(l)
			c, err := l.verify(t)
			accepted(t, c, err)
		}
	}
	l := newLogin()
	signedWith("EdDSA", keys().ed, "k", map[string]any{"alg": "Ed25519"})(l) // RFC 9864
	c, err := l.verify(t)
	accepted(t, c, err)
	// A certificate that does not parse is not the key's fault.
	l = newLogin()
	signedWith("RS256", keys().rsa, "k", map[string]any{"x5c": []string{"MIIB"}, "x5t": "!"})(l)
	c, err = l.verify(t)
	accepted(t, c, err)
}

// TestO8WithoutKeyIDFewKeysAreTried: one suitable key is enough, of several at most three are tried, of the right type
// only, and none means no.
func TestO8WithoutKeyIDFewKeysAreTried(t *testing.T) {
	t.Parallel()
	others := func(l *login) {
		l.set = append([]map[string]any{
			jwk("a", keys().rsa, nil), jwk("b", keys().rsa2, nil), jwk("c", keys().rsa3, nil), jwk("d", keys().p256, nil),
			jwk("e", keys().ed2, map[string]any{"use": "enc"}), jwk("f", keys().ed2, map[string]any{"alg": "X"}),
		}, l.set...)
	}
	for _, tc := range []struct {
		name   string
		change func(*login)
		want   trust.Reason
	}{
		{"one suitable", anonymous(1, 0), ""},
		{"one suitable behind six others", both(anonymous(1, 0), others), ""},
		{"third of three", anonymous(3, 2), ""},
		{"third of five", anonymous(5, 2), ""},
		{"fourth of five", anonymous(5, 3), trust.ReasonSignature},
		{"none suitable", both(anonymous(0, 0), others), trust.ReasonSignature},
		{"no key at all", anonymous(0, 0), trust.ReasonSignature},
		{"empty key id", both(anonymous(1, 0), header("kid", "")), ""},
		{"keys without ids", func(l *login) {
			anonymous(3, 2)(l)
			for _, k := range l.set {
				delete(k, "kid")
			}
		}, ""},
		{"behind three of another curve", func(l *login) {
			other := jwk("c", keys().p384, nil)
			l.set = []map[string]any{other, other, other, jwk("d", keys().p256, nil)}
			l.key, l.header = keys().p256, map[string]any{"alg": "ES256"}
		}, ""},
		{"a key id, and keys without", func(l *login) {
			anonymous(1, 0)(l)
			l.header["kid"] = "e0"
			delete(l.set[0], "kid")
		}, trust.ReasonSignature},
	} {
		l := newLogin()
		tc.change(l)
		c, err := l.verify(t)
		if tc.want == "" {
			accepted(t, c, err)
		} else {
			refused(t, c, err, tc.want)
		}
	}
}

// TestO9AudienceForms is the list of the case.
func TestO9AudienceForms(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		aud, azp any
		ok       bool
	}{
		{us, nil, true},
		{[]string{us}, nil, true},
		{[]string{"x", us}, us, true},
		{[]string{us, "x"}, us, true},
		{us, us, true},
		{[]string{"x"}, nil, false},
		{[]string{"x"}, us, false},
		{[]string{}, nil, false},
		{[]string{}, us, false},
		{7, nil, false},
		{map[string]any{us: us}, nil, false},
		{jsonNull, nil, false},
		{[]string{"x", us}, "x", false},
		{[]string{"x", us}, nil, false},
		{us + " x", nil, false},
	} {
		l := newLogin()
		l.claims["aud"] = tc.aud
		set(l.claims, "azp", tc.azp)
		c, err := l.verify(t)
		if !tc.ok {
			refused(t, c, err, trust.ReasonAudience)
			continue
		}
		accepted(t, c, err)
		if (tc.azp != nil) != (c.AuthorizedParty == us) || len(c.Audience) == 0 {
			t.Errorf("aud %v, azp %v: claims = %+v", tc.aud, tc.azp, c)
		}
	}
	// An audience that is not the client: what an access token for this mesh carries.
	l := newLogin()
	l.pin.Audience, l.claims["azp"] = "https://mesh.example", us
	l.claims["aud"] = []string{"https://mesh.example", "https://idp.example/userinfo"}
	c, err := l.verify(t)
	accepted(t, c, err)
}

// TestO11LeewayIsAMinute: two minutes after the end is too late.
func TestO11LeewayIsAMinute(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		l := newLogin()
		v, _, _ := l.mesh(t)
		token := l.token()
		for _, step := range []struct {
			after time.Duration
			ok    bool
		}{
			{5 * time.Minute, true},
			{59 * time.Second, true},
			{time.Second, false},
			{time.Minute, false},
			{24 * time.Hour, false},
		} {
			time.Sleep(step.after)
			c, err := v.Verify(t.Context(), token)
			if step.ok {
				accepted(t, c, err)
			} else {
				refused(t, c, err, trust.ReasonExpired)
			}
		}
		exact, err := oidc.NewVerifier(l.pin, resolver(nil), &oidc.Options{Leeway: 6 * time.Minute})
		if exact != nil || err == nil {
			t.Error("a leeway of 6 minutes was taken")
		}
	})
}

// TestO25TokenOfAnotherClientIsRefused: valid in everything but to whom it was given.
func TestO25TokenOfAnotherClientIsRefused(t *testing.T) {
	t.Parallel()
	runPairs(t, []pair{
		{"azp of another", claim("azp", us), claim("azp", "other"), trust.ReasonAudience},
		{"azp of another in several audiences", both(claim("aud", []string{us, "other"}), claim("azp", us)),
			both(claim("aud", []string{us, "other"}), claim("azp", "other")), trust.ReasonAudience},
		{"access token of another", both(header("typ", "at+jwt"), claim("client_id", us)),
			both(header("typ", "at+jwt"), claim("client_id", "other")), trust.ReasonAudience},
		{"empty azp", claim("azp", us), claim("azp", ""), trust.ReasonAudience},
	})
}

// TestO5KnownKeyOfAnotherAlgorithmIsNotAskedFor: only a key id that is not there is a reason to read the set again.
func TestO5KnownKeyOfAnotherAlgorithmIsNotAskedFor(t *testing.T) {
	t.Parallel()
	l := newLogin()
	signedWith("PS256", keys().rsa, "r1", map[string]any{"alg": "RS256"})(l)
	v, _, p := l.mesh(t)
	for range 3 {
		c, err := v.Verify(t.Context(), l.token())
		refused(t, c, err, trust.ReasonSignature)
	}
	if p.count() != 1 {
		t.Errorf("%d reads, want 1", p.count())
	}
}

// TestN14ErrorsDoNotEchoKeys: what is said of a malformed key or token quotes nothing of it.
func TestN14ErrorsDoNotEchoKeys(t *testing.T) {
	t.Parallel()
	const secret = "SUAKEYMATERIAL"
	p := &provider{}
	for _, body := range []string{secret, `{"keys":"` + secret + `"}`, `{"keys":[{"kty":"RSA","d":"` + secret + `","n":"` + secret + `"}]}`, `{"` + secret} {
		p.answers(func(*http.Request) (*http.Response, error) { return reply(200, "application/json", body, nil), nil })
		set := oidc.NewKeySet(jwksURI, &oidc.KeySetOptions{HTTP: p.client()})
		v, err := oidc.NewVerifier(newPin(), set, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = v.Verify(t.Context(), newLogin().token())
		noEcho(t, secret, err, set.Status().Err)
		_ = set.Close()
	}
	for _, change := range []func(*login){
		claim("sub", secret+"\n"), claim("azp", secret), claim("jti", []string{secret}), header("kid", secret), header("alg", secret), header("typ", secret),
		header("crit", secret), claim("exp", secret), claim("events", secret), func(l *login) { l.alter = func(string) string { return secret } },
	} {
		l := newLogin()
		l.signAs = "RS256"
		change(l)
		_, err := l.verify(t)
		noEcho(t, secret, err, "")
	}
}

func noEcho(t *testing.T, secret string, err error, more string) {
	t.Helper()
	if err == nil {
		t.Error("accepted")
		return
	}
	if s := fmt.Sprintf("%v %+v %#v %s", err, err, err, more); strings.Contains(s, secret) {
		t.Errorf("the error quotes what it was given: %s", s)
	}
}

// resolver is the KeyResolver of a host.
type resolver func(ctx context.Context, kid, alg string) ([]jose.JSONWebKey, error)

func (r resolver) Keys(ctx context.Context, kid, alg string) ([]jose.JSONWebKey, error) {
	return r(ctx, kid, alg)
}
