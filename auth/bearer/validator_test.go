package bearer_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func TestSignedIsValid(t *testing.T) {
	t.Parallel()
	d, c := newDesk(t), claims(t)
	token, signed, err := d.issuer.Sign(t.Context(), c, bearer.MaxAgentLife)
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.validator.Validate(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, signed); diff != "" {
		t.Errorf("what is read differs from what Sign says it signed:\n%s", diff)
	}
	if got.Issuer != "urn:cotal:auth:main" || got.Audience != "main" || len(got.ID) != 26 || got.NotBefore != got.IssuedAt ||
		got.Expires.Sub(got.IssuedAt) != bearer.MaxAgentLife {
		t.Errorf("filled in: %+v", got)
	}
	c.Issuer, c.Audience, c.ID, c.IssuedAt, c.NotBefore, c.Expires = got.Issuer, got.Audience, got.ID, got.IssuedAt, got.NotBefore, got.Expires
	if diff := cmp.Diff(got, c); diff != "" {
		t.Errorf("what is read differs from what was given:\n%s", diff)
	}
	kid, exp, err := d.validator.Peek(token)
	if err != nil || kid != d.record(t).ActiveKid || !exp.Equal(got.Expires) {
		t.Errorf("Peek = %q, %v, %v", kid, exp, err)
	}
	other := newDesk(t)
	for name, v := range map[string]*bearer.Validator{
		"other keys": other.validator, "other space": bearer.NewValidator("other", d.keys, nil),
		"shorter life": bearer.NewValidator(space, d.keys, &bearer.Options{MaxLife: 299 * time.Second}),
	} {
		if _, err := v.Validate(t.Context(), token); err == nil {
			t.Errorf("a validator with %s took the bearer", name)
		}
	}
}

// repeat is a list of n scope entries.
func repeat(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("role:r%d", i)
	}
	return out
}

// TestValidateRules breaks every rule once, each beside what is still accepted. An empty reason means accepted.
func TestValidateRules(t *testing.T) {
	t.Parallel()
	faketime.Test(t, validateRules) // where time stands still
}

func validateRules(t *testing.T) {
	d := newDesk(t)
	header, payload := d.good(t)
	now := payload["iat"].(int64)
	other := "u_" + strings.Repeat("a", 26)
	weak := base64.RawURLEncoding.EncodeToString(append([]byte{1}, make([]byte, 31)...))
	jwk := payload["cnf"].(fields)["jwk"].(fields)
	for _, c := range []struct {
		member string
		value  any
		want   trust.Reason
	}{
		{"iss", "urn:cotal:auth:main", ""},
		{"iss", "urn:cotal:auth:other", trust.ReasonIssuer},
		{"iss", "urn:cotal:auth:Main", trust.ReasonIssuer},
		{"iss", nil, trust.ReasonIssuer},
		{"iss", 5, trust.ReasonMalformed},
		{"aud", []string{"main"}, ""},
		{"aud", []string{"main", "other"}, trust.ReasonAudience},
		{"aud", []string{"main", "main"}, trust.ReasonAudience},
		{"aud", []string{}, trust.ReasonAudience},
		{"aud", []any{nil}, trust.ReasonAudience},
		{"aud", "other", trust.ReasonAudience},
		{"aud", "", trust.ReasonAudience},
		{"aud", 5, trust.ReasonAudience},
		{"aud", fields{"main": "main"}, trust.ReasonAudience},
		{"aud", json.RawMessage("null"), trust.ReasonAudience},
		{"aud", nil, trust.ReasonAudience},
		{"sub", other, trust.ReasonSubject}, // act.owner is another
		{"sub", "local", trust.ReasonSubject},
		{"sub", owner + "a", trust.ReasonSubject},
		{"sub", nil, trust.ReasonSubject},
		{"iat", now - 100, ""},
		{"iat", now + 5, ""},
		{"iat", now + 6, trust.ReasonNotYet},
		{"iat", nil, trust.ReasonMalformed},
		{"iat", -now, trust.ReasonMalformed},
		{"iat", json.RawMessage(fmt.Sprint(now, ".0")), trust.ReasonMalformed},
		{"iat", fmt.Sprint(now), trust.ReasonMalformed},
		{"iat", now - 301, trust.ReasonMalformed}, // exp is 901 s later
		{"iat", now - 300, ""},
		{"nbf", now - 1000, ""},
		{"nbf", now + 5, ""},
		{"nbf", now + 6, trust.ReasonNotYet},
		{"nbf", nil, trust.ReasonMalformed},
		{"exp", now + 900, ""},
		{"exp", now + 901, trust.ReasonMalformed},
		{"exp", now + 1, ""},
		{"exp", now - 1, trust.ReasonExpired},
		{"exp", now, trust.ReasonExpired},
		{"exp", nil, trust.ReasonMalformed},
		{"exp", json.RawMessage("1e30"), trust.ReasonMalformed},
		{"exp", json.RawMessage("9223372036854775807"), trust.ReasonMalformed},
		{"jti", strings.Repeat("j", 128), ""},
		{"jti", strings.Repeat("j", 129), trust.ReasonMalformed},
		{"jti", "a b", trust.ReasonMalformed},
		{"jti", "a\nb", trust.ReasonMalformed},
		{"jti", "é", trust.ReasonMalformed},
		{"jti", "", trust.ReasonMalformed},
		{"jti", nil, trust.ReasonMalformed},
		{"ver", 2, trust.ReasonMalformed},
		{"ver", "1", trust.ReasonMalformed},
		{"ver", nil, trust.ReasonMalformed},
		{"scope", []string{}, ""},
		{"scope", []string{"admin", "supervise"}, ""},
		{"scope", repeat(trust.MaxCommands), ""},
		{"scope", repeat(trust.MaxCommands + 1), trust.ReasonMalformed},
		{"scope", []string{"spawn", "spawn"}, trust.ReasonMalformed},
		{"scope", []string{"everything"}, trust.ReasonMalformed},
		{"scope", []string{""}, trust.ReasonMalformed},
		{"scope", []any{nil}, trust.ReasonMalformed},
		{"scope", "spawn", trust.ReasonMalformed},
		{"scope", json.RawMessage("null"), trust.ReasonMalformed},
		{"scope", nil, trust.ReasonMalformed},
		{"act", nil, trust.ReasonSubject},
		{"act", json.RawMessage("null"), trust.ReasonMalformed},
		{"act.owner", other, trust.ReasonSubject},
		{"act.owner", nil, trust.ReasonSubject},
		{"act.actor", strings.Repeat("x", 64), ""},
		{"act.actor", strings.Repeat("x", 65), trust.ReasonSubject},
		{"act.actor", "a.b", trust.ReasonSubject},
		{"act.actor", "*", trust.ReasonSubject},
		{"act.actor", nil, trust.ReasonSubject},
		{"act.uid", strings.Repeat("b", 26), trust.ReasonSubject}, // the inbox is of another
		{"act.uid", strings.Repeat("A", 26), trust.ReasonSubject},
		{"act.uid", nil, trust.ReasonSubject},
		{"act.epoch", 1, ""},
		{"act.epoch", 0, trust.ReasonSubject},
		{"act.epoch", -1, trust.ReasonMalformed},
		{"act.epoch", nil, trust.ReasonSubject},
		{"act.inbox", strings.Repeat("b", 26), trust.ReasonSubject},
		{"act.inbox", nil, trust.ReasonSubject},
		{"act.view", "admin", ""},
		{"act.view", "purger", ""},
		{"act.view", "channel-writer", ""},
		{"act.view", nil, ""},
		{"act.view", "Admin", trust.ReasonView},
		{"act.view", "authority", trust.ReasonView},
		{"act.parent", nil, ""},
		{"act.parent", "local.ada", ""},
		{"act.parent", "ada", trust.ReasonSubject},
		{"act.parent", owner + ".a.b", trust.ReasonSubject},
		{"act.parent", "stranger.ada", trust.ReasonSubject},
		{"act.scope", []string{}, trust.ReasonMalformed},
		{"act.Owner", owner, trust.ReasonMalformed},
		{"cnf", nil, ""},
		{"cnf", fields{}, trust.ReasonMalformed},
		{"cnf", fields{"jkt": "x"}, trust.ReasonMalformed},
		{"cnf", fields{"jwk": jwk, "kid": "x"}, trust.ReasonMalformed},
		{"cnf", fields{"jwk": jwk.with("d", "x")}, trust.ReasonMalformed},
		{"cnf", fields{"jwk": jwk.with("kty", "EC")}, trust.ReasonMalformed},
		{"cnf", fields{"jwk": jwk.with("crv", "X25519")}, trust.ReasonMalformed},
		{"cnf", fields{"jwk": jwk.with("x", "AAAA")}, trust.ReasonMalformed},
		{"cnf", fields{"jwk": jwk.with("x", jwk["x"].(string)+"=")}, trust.ReasonMalformed},
		{"cnf", fields{"jwk": jwk.with("x", weak)}, trust.ReasonMalformed},
		{"more", 1, trust.ReasonMalformed},
		{"azp", "x", trust.ReasonMalformed},
		{"Exp", now + 1, trust.ReasonMalformed},
	} {
		token := forge(t, d.private(t, 0), header, payload.with(c.member, c.value))
		_, err := d.validator.Validate(t.Context(), token)
		checkReason(t, fmt.Sprintf("%s = %.80v", c.member, c.value), err, c.want)
	}
	for end, want := range map[int64]trust.Reason{
		now + 4: trust.ReasonMalformed, now + 5: trust.ReasonMalformed, now + 6: "", now + 905: "", now + 906: trust.ReasonMalformed,
	} {
		_, err := d.validator.Validate(t.Context(), forge(t, d.private(t, 0), header, payload.with("iat", now+5).with("exp", end)))
		checkReason(t, fmt.Sprintf("from 5 s ahead to %d s ahead", end-now), err, want)
	}
}

func checkReason(t *testing.T, what string, err error, want trust.Reason) {
	t.Helper()
	if trust.ReasonOf(err) != want || (err == nil) != (want == "") {
		t.Errorf("%s: %v (reason %q), want reason %q", what, err, trust.ReasonOf(err), want)
	}
	code := wire.CodeUnauthenticated
	if want == trust.ReasonExpired {
		code = wire.CodeExpired
	}
	if err != nil && wire.CodeOf(err) != code {
		t.Errorf("%s: code %q, want %q", what, wire.CodeOf(err), code)
	}
}

// TestHeaderRules breaks every rule of the header and of the form. Peek refuses the same.
func TestHeaderRules(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	header, payload := d.good(t)
	active, next := d.private(t, 0), d.private(t, 1)
	stranger := ed25519.NewKeyFromSeed(make([]byte, 32))
	good := forge(t, active, header, payload)
	parts := strings.Split(good, ".")
	own := fields{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(stranger.Public().(ed25519.PublicKey))}
	nextKid := d.record(t).Keys[1].Kid
	text, kid := part(t, payload), header["kid"].(string)
	for _, c := range []struct {
		name, token string
		want        trust.Reason
	}{
		{"good", good, ""},
		{"another order and spaces", forge(t, active, `{ "kid" : "`+kid+`", "alg":"EdDSA" }`, payload), ""},
		{"typ", forge(t, active, header.with("typ", "JWT"), payload), ""},
		{"typ in lower case", forge(t, active, header.with("typ", "jwt"), payload), ""},
		{"the key that follows", forge(t, next, header.with("kid", nextKid), payload), ""},
		{"typ of a proof", forge(t, active, header.with("typ", "dpop+jwt"), payload), trust.ReasonMalformed},
		{"alg none", part(t, header.with("alg", "none")) + "." + text + ".", trust.ReasonMalformed},
		{"alg none with a signature", forge(t, active, header.with("alg", "none"), payload), trust.ReasonSignature},
		{"alg HS256", forge(t, active, header.with("alg", "HS256"), payload), trust.ReasonSignature},
		{"alg in another case", forge(t, active, header.with("alg", "eddsa"), payload), trust.ReasonSignature},
		{"no alg", forge(t, active, header.with("alg", nil), payload), trust.ReasonSignature},
		{"alg twice", forge(t, active, `{"alg":"EdDSA","alg":"EdDSA","kid":"`+kid+`"}`, payload), trust.ReasonSignature},
		{"no kid", forge(t, active, header.with("kid", nil), payload), trust.ReasonSignature},
		{"unknown kid", forge(t, stranger, header.with("kid", bearer.Thumbprint(stranger.Public().(ed25519.PublicKey))), payload), trust.ReasonSignature},
		{"kid of another form", forge(t, active, header.with("kid", "../../etc/passwd"), payload), trust.ReasonSignature},
		{"jwk", forge(t, stranger, header.with("jwk", own), payload), trust.ReasonSignature},
		{"jku", forge(t, stranger, header.with("jku", "https://evil.example/jwks"), payload), trust.ReasonSignature},
		{"x5u", forge(t, active, header.with("x5u", "https://evil.example"), payload), trust.ReasonSignature},
		{"x5c", forge(t, active, header.with("x5c", []string{"AAAA"}), payload), trust.ReasonSignature},
		{"crit", forge(t, active, header.with("crit", []string{"exp"}), payload), trust.ReasonSignature},
		{"b64", forge(t, active, header.with("b64", false), payload), trust.ReasonSignature},
		{"zip", forge(t, active, header.with("zip", "DEF"), payload), trust.ReasonSignature},
		{"header no object", forge(t, active, `[]`, payload), trust.ReasonSignature},
		{"empty", "", trust.ReasonMalformed},
		{"one part", parts[0], trust.ReasonMalformed},
		{"two parts", parts[0] + "." + parts[1], trust.ReasonMalformed},
		{"four parts", good + ".", trust.ReasonMalformed},
		{"line break", good + "\n", trust.ReasonMalformed},
		{"line break inside", good[:10] + "\n" + good[10:], trust.ReasonMalformed},
		{"padding", good + "==", trust.ReasonMalformed},
		{"standard base64", strings.NewReplacer("-", "+", "_", "/").Replace(good) + "+", trust.ReasonMalformed},
		{"short signature", good[:len(good)-4], trust.ReasonMalformed},
		{"too large", forge(t, active, header, payload.with("jti", strings.Repeat("x", bearer.MaxToken))), trust.ReasonMalformed},
		{"claims no object", forge(t, active, header, `"x"`), trust.ReasonMalformed},
		{"claims empty", forge(t, active, header, ``), trust.ReasonMalformed},
		{"claims doubled", forge(t, active, header, `{"exp":99999999999,"exp":99999999999}`), trust.ReasonMalformed},
		{"trailing data", forge(t, active, header, string(mustJSON(t, payload))+"{}"), trust.ReasonMalformed},
	} {
		_, err := d.validator.Validate(t.Context(), c.token)
		checkReason(t, c.name, err, c.want)
		_, _, err = d.validator.Peek(c.token)
		checkReason(t, "peek: "+c.name, err, c.want)
	}
	// What only the signature shows. Spare bits of the last character would be another spelling of one signature.
	last := good[:len(good)-1] + string(good[len(good)-1]+1)
	for name, c := range map[string]struct {
		token string
		want  trust.Reason
	}{
		"other claims":            {parts[0] + "." + part(t, payload.with("jti", "two")) + "." + parts[2], trust.ReasonSignature},
		"other header":            {part(t, header.with("typ", "JWT")) + "." + parts[1] + "." + parts[2], trust.ReasonSignature},
		"signed by the other key": {forge(t, next, header, payload), trust.ReasonSignature},
		"kid of the other key":    {forge(t, active, header.with("kid", nextKid), payload), trust.ReasonSignature},
		"signature of zeros":      {parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64)), trust.ReasonSignature},
		"spare bits":              {last, trust.ReasonMalformed},
	} {
		_, err := d.validator.Validate(t.Context(), c.token)
		checkReason(t, name, err, c.want)
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestAnotherLibraryAgrees signs with go-jose what is checked here, and checks there what is signed here.
func TestAnotherLibraryAgrees(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	header, payload := d.good(t)
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: d.private(t, 0), KeyID: header["kid"].(string)}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.Sign(mustJSON(t, payload))
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.validator.Validate(t.Context(), token); err != nil {
		t.Errorf("a bearer of another library: %v", err)
	}

	set, err := d.keys.JWKS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var published jose.JSONWebKeySet
	if err := json.Unmarshal(set, &published); err != nil {
		t.Fatal(err)
	}
	parsed, err := jose.ParseSignedCompact(d.sign(t, claims(t)), []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	keys := published.Key(parsed.Signatures[0].Header.KeyID)
	if len(published.Keys) != 2 || len(keys) != 1 || !keys[0].Valid() || keys[0].Use != "sig" || keys[0].Algorithm != "EdDSA" || !keys[0].IsPublic() {
		t.Fatalf("the published set is %s", set)
	}
	if _, err := parsed.Verify(keys[0]); err != nil {
		t.Errorf("another library does not verify a bearer: %v", err)
	}
}

func TestBearerEnds(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		d := newDesk(t)
		token, signed, err := d.issuer.Sign(t.Context(), claims(t), bearer.MaxAgentLife)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(signed.Expires) - time.Nanosecond)
		if _, err := d.validator.Validate(t.Context(), token); err != nil {
			t.Errorf("just before its end: %v", err)
		}
		time.Sleep(time.Nanosecond)
		_, err = d.validator.Validate(t.Context(), token)
		checkReason(t, "at its end", err, trust.ReasonExpired)
		_, _, err = d.validator.Peek(token)
		checkReason(t, "peek at its end", err, trust.ReasonExpired)
	})
}

func TestSignBoundsLife(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		d := newDesk(t)
		now := time.Now().Truncate(time.Second)
		for _, c := range []struct {
			end  time.Duration // of the upstream proof; 0: none
			life time.Duration
			want time.Duration // 0: refused
			code wire.Code
		}{
			{0, bearer.MaxHumanLife, bearer.MaxHumanLife, ""},
			{0, bearer.MaxHumanLife + 1, 0, wire.CodeBadRequest},
			{0, 0, 0, wire.CodeBadRequest},
			{0, -time.Second, 0, wire.CodeBadRequest},
			{0, 1500 * time.Millisecond, time.Second, ""},
			{time.Hour, bearer.MaxAgentLife, bearer.MaxAgentLife, ""},
			{10 * time.Second, bearer.MaxAgentLife, 10 * time.Second, ""},
			{10*time.Second + 900*time.Millisecond, bearer.MaxAgentLife, 10 * time.Second, ""},
			{900 * time.Millisecond, bearer.MaxAgentLife, 0, wire.CodeExpired},
			{-time.Second, bearer.MaxAgentLife, 0, wire.CodeExpired},
		} {
			in := claims(t)
			if c.end != 0 {
				in.Expires = now.Add(c.end)
			}
			token, signed, err := d.issuer.Sign(t.Context(), in, c.life)
			if (err == nil) != (c.want > 0) || err != nil && wire.CodeOf(err) != c.code || err != nil && token != "" {
				t.Errorf("end %s, life %s: %v, want %q", c.end, c.life, err, c.code)
			}
			if got := signed.Expires.Sub(signed.IssuedAt); err == nil && got != c.want {
				t.Errorf("end %s, life %s: lives %s, want %s", c.end, c.life, got, c.want)
			}
		}
	})
}

// TestSignRefusesWhatIsNotValid: nothing leaves that a validator would refuse.
func TestSignRefusesWhatIsNotValid(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for name, c := range map[string]struct {
		change func(*bearer.Claims)
		code   wire.Code
		reason trust.Reason
	}{
		"static owner":  {func(c *bearer.Claims) { c.Subject, c.Act.Owner = wire.LocalOwner, wire.LocalOwner }, wire.CodeBadRequest, trust.ReasonSubject},
		"other owner":   {func(c *bearer.Claims) { c.Act.Owner = "u_" + strings.Repeat("a", 26) }, wire.CodeBadRequest, trust.ReasonSubject},
		"other inbox":   {func(c *bearer.Claims) { c.Act.Inbox = strings.Repeat("b", 26) }, wire.CodeBadRequest, trust.ReasonSubject},
		"no epoch":      {func(c *bearer.Claims) { c.Act.Epoch = 0 }, wire.CodeBadRequest, trust.ReasonSubject},
		"unknown view":  {func(c *bearer.Claims) { c.Act.View = "root" }, wire.CodeBadRequest, trust.ReasonView},
		"unknown scope": {func(c *bearer.Claims) { c.Scope = []string{"root"} }, wire.CodeBadRequest, trust.ReasonMalformed},
		"short key":     {func(c *bearer.Claims) { c.Confirmation = c.Confirmation[:31] }, wire.CodeBadRequest, trust.ReasonMalformed},
		"too large": {func(c *bearer.Claims) {
			c.Scope = nil
			for i := range trust.MaxCommands {
				c.Scope = append(c.Scope, fmt.Sprintf("%s%02d.%s", strings.Repeat("e", 62), i, strings.Repeat("c", 32)))
			}
		}, wire.CodeResourceExhausted, ""},
	} {
		in := claims(t)
		c.change(&in)
		token, _, err := d.issuer.Sign(t.Context(), in, bearer.MaxHumanLife)
		if token != "" || wire.CodeOf(err) != c.code || trust.ReasonOf(err) != c.reason {
			t.Errorf("%s: %v (reason %q), want %q with reason %q", name, err, trust.ReasonOf(err), c.code, c.reason)
		}
	}
	empty := claims(t)
	empty.Scope, empty.Confirmation, empty.Act.View, empty.Act.Parent = nil, nil, trust.ViewNone, ""
	got, err := d.validator.Validate(t.Context(), d.sign(t, empty))
	if err != nil || len(got.Scope) != 0 || got.Confirmation != nil {
		t.Errorf("without anything optional: %+v, %v", got, err)
	}
}

// down is a source whose keys are not to be had.
type down struct{}

func (down) Cached(string) (ed25519.PublicKey, bool) { return nil, false }
func (down) Key(context.Context, string) (ed25519.PublicKey, error) {
	return nil, trust.Deny(wire.CodeUnavailable, trust.ReasonUnavailable, "down")
}

func TestValidatorFailsClosed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	token := d.sign(t, claims(t))
	if _, err := bearer.NewValidator(space, down{}, nil).Validate(t.Context(), token); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("without keys: %v", err)
	}
	for name, build := range map[string]func(){
		"no keys":        func() { bearer.NewValidator(space, nil, nil) },
		"no space":       func() { bearer.NewValidator("", d.keys, nil) },
		"too long":       func() { bearer.NewValidator(space, d.keys, &bearer.Options{MaxLife: time.Hour}) },
		"negative":       func() { bearer.NewValidator(space, d.keys, &bearer.Options{MaxLife: -1}) },
		"issuer, none":   func() { bearer.NewIssuer(space, nil) },
		"issuer, others": func() { bearer.NewIssuer("other", d.keys) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: did not panic", name)
				}
			}()
			build()
		}()
	}
}
