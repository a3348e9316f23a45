package oidc_test

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
)

// rotated publishes n Ed25519 or RSA keys and signs with the one at index by, without naming it.
func anonymous(n, by int) func(*login) {
	return func(l *login) {
		l.set = nil
		for i := range n {
			key := any(keys().ed2)
			if i == by {
				key = keys().ed
			}
			l.set = append(l.set, jwk(fmt.Sprint("e", i), key, nil))
		}
		l.key, l.header = keys().ed, map[string]any{"alg": "EdDSA"}
	}
}

func signedWith(alg string, key any, kid string, extra map[string]any) func(*login) {
	return func(l *login) {
		l.set = []map[string]any{jwk(kid, key, extra)}
		l.key, l.header["alg"], l.header["kid"] = key, alg, kid
		l.pin.Algorithms = oidc.Algorithms()
	}
}

// TestHostileSignatures is the table of what an attacker, or another provider, may try with keys and algorithms.
func TestHostileSignatures(t *testing.T) {
	t.Parallel()
	public, err := x509.MarshalPKIXPublicKey(&keys().rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	pairs := []pair{
		{"none", nil, both(header("alg", "none"), altered(func(s string) string { return s + "AA" })), trust.ReasonSignature},
		{"none without a signature", nil, header("alg", "none"), trust.ReasonMalformed},
		{"None in another case", nil, func(l *login) { l.header["alg"], l.signAs = "nOnE", "RS256" }, trust.ReasonSignature},
		{"HS256 with the RSA key", nil, func(l *login) { l.header["alg"], l.key = "HS256", public }, trust.ReasonSignature},
		{"RS256 said, HS256 done", nil, func(l *login) { l.signAs, l.key = "HS256", public }, trust.ReasonSignature},
		{"PS256 with an RS256-only key", signedWith("PS256", keys().rsa, "r1", nil),
			signedWith("PS256", keys().rsa, "r1", map[string]any{"alg": "RS256"}), trust.ReasonSignature},
		{"RS512 where it is not pinned", signedWith("RS512", keys().rsa, "r1", nil), header("alg", "RS512"), trust.ReasonSignature},
		{"ES256 with the key of another curve", signedWith("ES384", keys().p384, "c", nil), signedWith("ES256", keys().p384, "c", nil), trust.ReasonSignature},
		{"EdDSA with a key of ECDSA", signedWith("EdDSA", keys().ed, "e", nil), func(l *login) {
			signedWith("EdDSA", keys().ed, "e", nil)(l)
			l.set = []map[string]any{jwk("e", keys().p256, nil)}
		}, trust.ReasonSignature},
		{"alg is no text", nil, func(l *login) { l.header["alg"], l.signAs = 7, "RS256" }, trust.ReasonSignature},
		{"no alg in the header", nil, func(l *login) { delete(l.header, "alg"); l.signAs = "RS256" }, trust.ReasonSignature},
		{"wrong kid", nil, header("kid", "r2"), trust.ReasonSignature},
		{"kid of another key", nil, func(l *login) {
			l.set = append(l.set, jwk("r2", keys().rsa2, nil))
			l.header["kid"] = "r2"
		}, trust.ReasonSignature},
		{"kid is no text", nil, header("kid", []string{"r1"}), trust.ReasonMalformed},
		{"no kid, one key", header("kid", nil), both(header("kid", nil), func(l *login) { l.key = keys().rsa2 }), trust.ReasonSignature},
		{"no kid, three keys", anonymous(3, 2), anonymous(3, -1), trust.ReasonSignature},
		{"no kid, more keys than are tried", anonymous(5, 2), anonymous(5, 3), trust.ReasonSignature},
		{"no kid, no key of the type", header("kid", nil), both(header("kid", nil), func(l *login) {
			l.set = []map[string]any{jwk("e", keys().ed, nil), jwk("c", keys().p256, nil)}
		}), trust.ReasonSignature},
		{"key of another alg", signedWith("RS256", keys().rsa, "r1", map[string]any{"alg": "RS256"}),
			signedWith("RS256", keys().rsa, "r1", map[string]any{"alg": "RS512"}), trust.ReasonSignature},
		{"key for encryption", nil, signedWith("RS256", keys().rsa, "r1", map[string]any{"use": "enc"}), trust.ReasonSignature},
		{"key that does not verify", signedWith("RS256", keys().rsa, "r1", map[string]any{"use": nil, "key_ops": []string{"verify"}}),
			signedWith("RS256", keys().rsa, "r1", map[string]any{"use": nil, "key_ops": []string{"encrypt"}}), trust.ReasonSignature},
		{"key of 1024 bits", signedWith("RS256", keys().rsa, "r1", nil), signedWith("RS256", keys().weak, "r1", nil), trust.ReasonSignature},
		{"key with its private half", nil, signedWith("RS256", keys().rsa, "r1", map[string]any{"d": "AQAB"}), trust.ReasonSignature},
		{"another signature", nil, func(l *login) { l.key = keys().rsa2 }, trust.ReasonSignature},
		{"another body", nil, func(l *login) {
			other := newLogin()
			other.claims["sub"] = "user-2"
			body := strings.Split(other.token(), ".")[1]
			l.alter = func(s string) string { p := strings.Split(s, "."); return p[0] + "." + body + "." + p[2] }
		}, trust.ReasonSignature},
	}
	for _, name := range []string{"jku", "jwk", "x5u", "x5c", "crit", "b64"} {
		value := map[string]any{
			"jku": "https://evil.example/keys", "x5u": "https://evil.example/cert", "x5c": []string{"MIIB"},
			"jwk": jwk("evil", keys().rsa2, nil), "crit": []string{"exp"}, "b64": true,
		}[name]
		own := func(l *login) {
			if l.header[name] = value; name == "jwk" {
				l.key = keys().rsa2
			}
		}
		// What names a certificate by its digest brings no key, and some providers send it.
		pairs = append(pairs, pair{name, header("x5t", "dGVzdA"), own, trust.ReasonSignature})
	}
	runPairs(t, pairs)
}

// TestHostileIssuers is the table of tokens of others, or for others.
func TestHostileIssuers(t *testing.T) {
	t.Parallel()
	pinned := func(iss string) func(*login) { return func(l *login) { l.pin.Issuer = iss } }
	pairs := []pair{
		{"issuer with a slash", both(pinned(issuer+"/"), claim("iss", issuer+"/")), claim("iss", issuer+"/"), trust.ReasonIssuer},
		{"issuer without its slash", nil, pinned(issuer + "/"), trust.ReasonIssuer},
		{"issuer in another case", nil, claim("iss", strings.ToUpper(issuer)), trust.ReasonIssuer},
		{"issuer with a port", nil, claim("iss", "https://idp.example:443/realms/main"), trust.ReasonIssuer},
		{"another realm", nil, claim("iss", "https://idp.example/realms/other"), trust.ReasonIssuer},
		{"no issuer", nil, claim("iss", nil), trust.ReasonIssuer},
		{"issuers in a list", nil, claim("iss", []string{issuer}), trust.ReasonIssuer},
		{"issuer of another name", nil, func(l *login) { l.claims["ISS"] = issuer; l.claims["iss"] = "https://evil.example" }, trust.ReasonIssuer},
		{"audience of another mesh", claim("aud", us), claim("aud", "cotal-main-00000000"), trust.ReasonAudience},
		{"audience as a prefix", nil, claim("aud", us+"0"), trust.ReasonAudience},
		{"no audience", nil, claim("aud", nil), trust.ReasonAudience},
		{"empty audience list", claim("aud", []string{us}), claim("aud", []string{}), trust.ReasonAudience},
		{"audience list of others", claim("aud", []string{us}), claim("aud", []string{"x"}), trust.ReasonAudience},
		{"audience is a number", nil, claim("aud", 7), trust.ReasonAudience},
		{"audience list with a number", claim("aud", []any{us}), claim("aud", []any{us, 7}), trust.ReasonAudience},
		{"several audiences without azp", both(claim("aud", []string{"x", us}), claim("azp", us)), claim("aud", []string{"x", us}), trust.ReasonAudience},
		{"several audiences, azp of another", both(claim("aud", []string{"x", us}), claim("azp", us)),
			both(claim("aud", []string{"x", us}), claim("azp", "x")), trust.ReasonAudience},
		{"azp of another", claim("azp", us), claim("azp", "other"), trust.ReasonAudience},
		{"azp is no text", claim("azp", us), claim("azp", []string{us}), trust.ReasonAudience},
		{"azp is null", claim("azp", us), func(l *login) { l.claims["azp"] = jsonNull }, trust.ReasonAudience},
		{"client_id of another", claim("client_id", us), claim("client_id", "other"), trust.ReasonAudience},
		{"client_id of another beside azp", both(claim("client_id", us), claim("azp", us)),
			both(claim("client_id", "other"), claim("azp", us)), trust.ReasonAudience},
		{"logout token", nil, claim("events", map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}), trust.ReasonMalformed},
		{"logout token by type", header("typ", "id_token+jwt"), header("typ", "logout+jwt"), trust.ReasonMalformed},
		{"access token for nobody", both(header("typ", "at+jwt"), claim("client_id", us)), header("typ", "at+jwt"), trust.ReasonAudience},
		{"key proof by type", both(header("typ", "application/at+JWT"), claim("client_id", us)), header("typ", "dpop+jwt"), trust.ReasonMalformed},
		{"type is no text", header("typ", nil), header("typ", 1), trust.ReasonMalformed},
	}
	runPairs(t, pairs)
}

// TestHostileParties is the table of tokens for the audience of this mesh that another client of the provider got. Where the audience
// is a resource, access tokens are of that kind, and look like identity tokens: only the client in them tells.
func TestHostileParties(t *testing.T) {
	t.Parallel()
	const resource, other = "api://mesh", "another-client"
	at := func(more ...func(*login)) func(*login) {
		return both(append([]func(*login){func(l *login) { l.pin.Audience, l.claims["aud"] = resource, resource }}, more...)...)
	}
	var pairs []pair
	for _, typ := range []any{"JWT", nil, "at+jwt", "application/at+jwt", "id_token+jwt"} {
		for _, name := range []string{"azp", "client_id", "cid", "appid"} {
			pairs = append(pairs, pair{fmt.Sprintf("type %v, %s of another", typ, name),
				at(header("typ", typ), claim(name, us)), at(header("typ", typ), claim(name, other), claim("scp", "mesh.use")), trust.ReasonAudience})
		}
		pairs = append(pairs, pair{fmt.Sprintf("type %v, for nobody", typ), at(header("typ", typ), claim("azp", us)), at(header("typ", typ)), trust.ReasonAudience})
	}
	for _, name := range []string{"client_id", "cid", "appid"} {
		pairs = append(pairs, pair{name + " of another beside azp",
			at(claim("azp", us), claim(name, us)), at(claim("azp", us), claim(name, other)), trust.ReasonAudience})
	}
	pairs = append(pairs,
		pair{"azp of another beside the rest", at(claim("azp", us), claim("client_id", us), claim("cid", us), claim("appid", us)),
			at(claim("azp", other), claim("client_id", us), claim("cid", us), claim("appid", us)), trust.ReasonAudience},
		pair{"several audiences, for nobody", at(claim("aud", []string{resource, us}), claim("azp", us)), at(claim("aud", []string{resource, us})), trust.ReasonAudience},
		pair{"appid is no text", at(claim("appid", us)), at(claim("appid", []string{us})), trust.ReasonAudience},
		pair{"cid is null", at(claim("cid", us)), at(func(l *login) { l.claims["cid"] = jsonNull }), trust.ReasonAudience},
		pair{"empty appid", at(claim("appid", us)), at(claim("appid", "")), trust.ReasonAudience},
		pair{"party in another case of letters", at(claim("azp", us)), at(claim("Azp", us)), trust.ReasonAudience},
		// An API may have the id of the client that people log in with.
		pair{"appid of another for the client itself", claim("appid", us), claim("appid", other), trust.ReasonAudience},
		pair{"cid that is no client, in an identity token", claim("cid", "customer 7"), both(claim("cid", "customer 7"), header("typ", "at+jwt")), trust.ReasonAudience},
	)
	runPairs(t, pairs)

	better := newLogin() // whoever has a token of Better Auth signed in there
	at()(better)
	better.pin.Shape = oidc.ShapeBetterAuth
	better.claims["appid"], better.claims["cid"] = "7", "7"
	c, err := better.verify(t)
	accepted(t, c, err)
	better.claims["azp"] = other
	c, err = better.verify(t)
	refused(t, c, err, trust.ReasonAudience)

	nobody := newLogin()
	at()(nobody)
	if _, err := nobody.verify(t); err == nil || !strings.Contains(err.Error(), resource) || !strings.Contains(err.Error(), us) || !strings.Contains(err.Error(), "azp") {
		t.Errorf("refusal of a token for nobody = %v, want the audience, the client and what the provider must say", err)
	}
}

// TestHostileTimes is the table of clocks, each at the edge of the leeway of one minute. It runs on fake time, so that edges
// are exact.
func TestHostileTimes(t *testing.T) {
	t.Parallel()
	at := func(name string, d time.Duration) func(*login) {
		return func(l *login) { l.claims[name] = time.Now().Add(d).Unix() }
	}
	for _, p := range []pair{
		{"expired", at("exp", -59*time.Second), at("exp", -60*time.Second), trust.ReasonExpired},
		{"issued ahead", at("iat", time.Minute), at("iat", 61*time.Second), trust.ReasonNotYet},
		{"not yet", at("nbf", time.Minute), at("nbf", 61*time.Second), trust.ReasonNotYet},
		{"no exp", nil, claim("exp", nil), trust.ReasonMalformed},
		{"no iat", nil, claim("iat", nil), trust.ReasonMalformed},
		{"exp is a text", nil, claim("exp", "2147483647"), trust.ReasonMalformed},
		{"exp is beyond every calendar", claim("exp", 4102444800), claim("exp", 1e300), trust.ReasonMalformed},
		{"exp is negative", nil, claim("exp", -1), trust.ReasonMalformed},
		{"nbf is null", nil, func(l *login) { l.claims["nbf"] = jsonNull }, trust.ReasonMalformed},
		{"ends before it begins", nil, both(at("exp", -30*time.Second), at("iat", 0)), trust.ReasonMalformed},
		{"fractions", func(l *login) { l.claims["exp"] = float64(time.Now().Unix()) + 0.5 }, at("exp", -time.Hour), trust.ReasonMalformed},
	} {
		t.Run(p.name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				// iat is early enough for an exp in the past not to come before it.
				fresh := func() *login {
					l := newLogin()
					at("iat", -10*time.Minute)(l)
					return l
				}
				l := fresh()
				if p.honest != nil {
					p.honest(l)
				}
				c, err := l.verify(t)
				accepted(t, c, err)
				l = fresh()
				p.evil(l)
				c, err = l.verify(t)
				refused(t, c, err, p.reason)
			})
		})
	}
}

// TestHostileSubjects: a subject is only ever hashed, so it may be strange, but not empty, endless or a control sequence.
func TestHostileSubjects(t *testing.T) {
	t.Parallel()
	for _, sub := range []string{
		"auth0|5f7c8ec7c33c6c004bbafe82", "a.b", "*", ">", "a b", " ", "$SYS.>", "../..", "имя", "姓名", "👩‍🚀", "null", "[\"x\",\"y\"]", `"`, "\\",
		strings.Repeat("x", oidc.MaxSubject), "u_g5mclrofwa6pirb3p4yeigemze", "\u2028", "A\u0301",
	} {
		l := newLogin()
		l.claims["sub"] = sub
		c, err := l.verify(t)
		accepted(t, c, err)
		if c.Subject != sub {
			t.Errorf("subject = %q, want %q", c.Subject, sub)
		}
	}
	runPairs(t, []pair{
		{"empty", claim("sub", "-"), claim("sub", ""), trust.ReasonSubject},
		{"absent", nil, claim("sub", nil), trust.ReasonSubject},
		{"a number", claim("sub", "7"), claim("sub", 7), trust.ReasonSubject},
		{"null", claim("sub", "null"), func(l *login) { l.claims["sub"] = jsonNull }, trust.ReasonSubject},
		{"too long", claim("sub", strings.Repeat("x", 255)), claim("sub", strings.Repeat("x", 256)), trust.ReasonSubject},
		{"line break", claim("sub", "a b"), claim("sub", "a\nb"), trust.ReasonSubject},
		{"zero byte", claim("sub", "a b"), claim("sub", "a\x00b"), trust.ReasonSubject},
		{"control of the second block", nil, claim("sub", "a\u0085b"), trust.ReasonSubject},
		{"in another case only", nil, func(l *login) { l.claims["Sub"] = "user-1"; delete(l.claims, "sub") }, trust.ReasonSubject},
		{"half a character", raw(`"sub":"\ud83d\ude80"`), raw(`"sub":"\ud83d"`), trust.ReasonMalformed},
		{"bytes that are no text", raw(`"sub":"é"`), raw("\"sub\":\"\xe9\""), trust.ReasonMalformed},
	})
	l := newLogin()
	l.claims["Sub"], l.claims["Email"] = "user-2", "Ada@example.com"
	c, err := l.verify(t)
	accepted(t, c, err)
	if c.Subject != "user-1" || c.Email != "" {
		t.Errorf("claims in another case were read: %+v", c)
	}
}

// raw writes the claims as text, with members in place of the subject.
func raw(members string) func(*login) {
	return func(l *login) {
		l.rawClaims = fmt.Sprintf(`{"iss":%q,"aud":%q,"iat":%d,"exp":%d,%s}`, issuer, us, l.claims["iat"], l.claims["exp"], members)
	}
}

func altered(f func(string) string) func(*login) { return func(l *login) { l.alter = f } }

// loose pads the claims until their last character has bits that say nothing: four of them, or two with more padding.
func loose(more string) func(*login) {
	return func(l *login) {
		raw(`"sub":"user-1"`)(l)
		for len(l.rawClaims)%3 != 1 {
			l.rawClaims += " "
		}
		l.rawClaims += more
	}
}

func rawHeader(s string) func(*login) { return func(l *login) { l.rawHeader = s } }

// TestHostileForms is the table of tokens that are large, ambiguous or not tokens.
func TestHostileForms(t *testing.T) {
	t.Parallel()
	pad := func(to int) func(*login) {
		return func(l *login) {
			l.claims["x"] = ""
			l.claims["x"] = strings.Repeat("x", (to-len(l.token()))*3/4)
		}
	}
	replaced := func(with string) func(*login) {
		return func(l *login) { l.alter = func(string) string { return with } }
	}
	runPairs(t, []pair{
		{"huge", pad(oidc.MaxToken - 3), pad(oidc.MaxToken + 4), trust.ReasonMalformed},
		{"very huge", nil, replaced(strings.Repeat("a", 64<<20)), trust.ReasonMalformed},
		{"empty", nil, replaced(""), trust.ReasonMalformed},
		{"two dots", nil, replaced(".."), trust.ReasonMalformed},
		{"two parts", nil, altered(func(s string) string { return s[:strings.LastIndex(s, ".")] }), trust.ReasonMalformed},
		{"four parts", nil, altered(func(s string) string { return s + ".AA" }), trust.ReasonMalformed},
		{"five parts", nil, altered(func(s string) string { return s + ".AA.AA" }), trust.ReasonMalformed},
		{"space around", nil, altered(func(s string) string { return s + "\n" }), trust.ReasonMalformed},
		{"line break within", nil, altered(func(s string) string { return s[:40] + "\r\n" + s[40:] }), trust.ReasonMalformed},
		{"padding", nil, altered(func(s string) string { return s + "==" }), trust.ReasonMalformed},
		{"loose bits", nil, altered(func(s string) string { return s[:len(s)-1] + string(s[len(s)-1]+1) }), trust.ReasonMalformed},
		{"loose bits of the claims", loose(" "), both(loose(" "), altered(func(s string) string {
			at := strings.LastIndex(s, ".") - 1
			return s[:at] + string(s[at]+1) + s[at+1:]
		})), trust.ReasonMalformed},
		{"loose bits of shorter claims", loose(""), both(loose(""), altered(func(s string) string {
			at := strings.LastIndex(s, ".") - 1
			return s[:at] + string(s[at]+1) + s[at+1:]
		})), trust.ReasonMalformed},
		{"JSON serialization", nil, replaced(`{"payload":"e30","signatures":[]}`), trust.ReasonMalformed},
		{"claims twice", raw(`"sub":"user-1","x":"user-2"`), raw(`"sub":"user-1","sub":"user-2"`), trust.ReasonMalformed},
		{"claims twice by escape", raw(`"\u0073ub":"user-1"`), raw(`"sub":"user-1","\u0073ub":"user-2"`), trust.ReasonMalformed},
		{"twice deep inside", raw(`"sub":"u","x":{"a":1,"b":1}`), raw(`"sub":"u","x":{"a":1,"a":1}`), trust.ReasonMalformed},
		{"deep", raw(`"sub":"u","x":[[[[1]]]]`), raw(`"sub":"u","x":` + strings.Repeat("[", 4000) + strings.Repeat("]", 4000)), trust.ReasonMalformed},
		{"header twice", rawHeader(`{"alg":"RS256","kid":"r1"}`), rawHeader(`{"alg":"RS256","alg":"none","kid":"r1"}`), trust.ReasonMalformed},
		{"claims are a list", nil, func(l *login) { l.rawClaims = `["iss"]` }, trust.ReasonMalformed},
		{"claims are null", nil, func(l *login) { l.rawClaims = `null` }, trust.ReasonMalformed},
		{"claims and more", nil, func(l *login) { raw(`"sub":"u"`)(l); l.rawClaims += "{}" }, trust.ReasonMalformed},
		{"jti is a number", claim("jti", "1"), claim("jti", 1), trust.ReasonMalformed},
	})
}

// TestHostileEmails: an address that nobody checked is said to be so, and names nobody either way.
func TestHostileEmails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		verified any
		shape    oidc.Shape
		member   string
		want     bool
	}{
		{"verified", true, oidc.ShapeOIDC, "email_verified", true},
		{"unverified", false, oidc.ShapeOIDC, "email_verified", false},
		{"not said", nil, oidc.ShapeOIDC, "email_verified", false},
		{"said as a text", "true", oidc.ShapeOIDC, "email_verified", false},
		{"said as a number", 1, oidc.ShapeOIDC, "email_verified", false},
		{"said as another shape does", true, oidc.ShapeOIDC, "emailVerified", false},
		{"said as that shape does", true, oidc.ShapeBetterAuth, "emailVerified", true},
	} {
		l := newLogin()
		l.pin.Shape = tc.shape
		l.claims["email"], l.claims["name"] = "ada@example.com", "Ada"
		set(l.claims, tc.member, tc.verified)
		c, err := l.verify(t)
		accepted(t, c, err)
		if c.EmailVerified != tc.want || c.Email != "ada@example.com" || c.Name != "Ada" || c.Subject != "user-1" {
			t.Errorf("%s: claims = %+v, want verified %v", tc.name, c, tc.want)
		}
	}
	l := newLogin()
	l.claims["email"], l.claims["email_verified"] = "a\x1b[2Jb@example.com", true
	l.claims["name"], l.claims["preferred_username"] = strings.Repeat("x", 256), "ada"
	c, err := l.verify(t)
	accepted(t, c, err)
	if c.Email != "" || c.EmailVerified || c.Name != "ada" {
		t.Errorf("unfit texts are shown: %+v", c)
	}
}

// TestHostileProviders: a provider that is down, slow or answers with something else costs little and lets nobody in; the
// first login after it is well again works.
func TestHostileProviders(t *testing.T) {
	t.Parallel()
	large := strings.Repeat(" ", 1<<20)
	text := func(status int, body string) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) { return reply(status, "application/json", body, nil), nil }
	}
	var many strings.Builder
	for i := range 101 {
		fmt.Fprintf(&many, `,{"kty":"x","kid":"%d"}`, i)
	}
	for _, tc := range []struct {
		name   string
		answer func(*http.Request) (*http.Response, error)
	}{
		{"down", down},
		{"slow", hangs},
		{"HTML", broken},
		{"HTML that says it is JSON", text(200, "\n <html>")},
		{"error with a key set", text(500, `{"keys":[]}`)},
		{"not found", text(404, `{}`)},
		{"empty", text(200, "")},
		{"no list", text(200, `{"keys":{}}`)},
		{"null list", text(200, `{"keys":null}`)},
		{"twice", text(200, `{"keys":[],"keys":[]}`)},
		{"more than a mebibyte", text(200, `{"keys":[]}`+large)},
		{"more than a hundred keys", text(200, `{"keys":[`+many.String()[1:]+`]}`)},
		{"cut short", text(200, `{"keys":[`)},
		{"redirect to another host", func(req *http.Request) (*http.Response, error) {
			if req.URL.Host != "idp.example" {
				t.Errorf("followed to %s", req.URL)
			}
			return reply(302, "text/plain", "", http.Header{"Location": {"https://evil.example/keys"}}), nil
		}},
		{"redirect to http", func(req *http.Request) (*http.Response, error) {
			if req.URL.Scheme != "https" {
				t.Errorf("followed to %s", req.URL)
			}
			return reply(302, "text/plain", "", http.Header{"Location": {strings.Replace(jwksURI, "https", "http", 1)}}), nil
		}},
		{"redirect in a circle", func(*http.Request) (*http.Response, error) {
			return reply(302, "text/plain", "", http.Header{"Location": {jwksURI}}), nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				v, set, p := newLogin().mesh(t)
				p.answers(tc.answer)
				began := time.Now()
				c, err := v.Verify(t.Context(), newLogin().token())
				refused(t, c, err, trust.ReasonIDP)
				if strings.ContainsAny(err.Error(), "<{") {
					t.Errorf("the error quotes the answer: %v", err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("refused after %s", took)
				}
				if n := p.count(); n > 4 {
					t.Errorf("%d requests for one read", n)
				}
				if st := set.Status(); st.Failures != 1 || st.Err == "" || st.Keys != 0 {
					t.Errorf("status = %+v", st)
				}
				p.answers(nil)
				time.Sleep(oidc.MinPause)
				c, err = v.Verify(t.Context(), newLogin().token())
				accepted(t, c, err)
			})
		})
	}
}
