package oidc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func TestPinValidate(t *testing.T) {
	t.Parallel()
	good := []func(*oidc.Pin){
		func(*oidc.Pin) {},
		func(p *oidc.Pin) { p.Issuer = "http://localhost:8080/realms/x" },
		func(p *oidc.Pin) { p.Issuer = "http://127.0.0.1" },
		func(p *oidc.Pin) { p.JWKSURI = "http://[::1]:1/keys" },
		func(p *oidc.Pin) { p.JWKSURI += "?p=policy" },
		func(p *oidc.Pin) { p.Algorithms = oidc.Algorithms() },
		func(p *oidc.Pin) { p.Shape, p.Issuer = oidc.ShapeBetterAuth, "my app" },
		func(p *oidc.Pin) { p.Audience, p.ClientID = "https://mesh.example", "a client:1" },
		func(p *oidc.Pin) { p.Scopes = []string{"openid", "urn:x:y"} },
	}
	for i, change := range good {
		p := newPin()
		change(&p)
		data, err := p.Encode()
		if err != nil {
			t.Errorf("good pin %d: %v", i, err)
			continue
		}
		back, err := oidc.DecodePin(data)
		if err != nil || !cmp.Equal(back, p) {
			t.Errorf("good pin %d: %v\n%s", i, err, cmp.Diff(p, back))
		}
		again, err := back.Encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("good pin %d encodes to %s, then to %s", i, data, again)
		}
	}
	bad := map[string]func(*oidc.Pin){
		"shape":                 func(p *oidc.Pin) { p.Shape = "saml" },
		"no shape":              func(p *oidc.Pin) { p.Shape = "" },
		"no issuer":             func(p *oidc.Pin) { p.Issuer = "" },
		"issuer over http":      func(p *oidc.Pin) { p.Issuer = "http://idp.example" },
		"issuer in a network":   func(p *oidc.Pin) { p.Issuer = "http://10.0.0.1" },
		"issuer like loopback":  func(p *oidc.Pin) { p.Issuer = "http://localhost.evil.example" },
		"issuer with loopback":  func(p *oidc.Pin) { p.Issuer = "http://127.0.0.1.evil.example" },
		"issuer with a query":   func(p *oidc.Pin) { p.Issuer += "?" },
		"issuer with fragment":  func(p *oidc.Pin) { p.Issuer += "#" },
		"issuer with a user":    func(p *oidc.Pin) { p.Issuer = "https://user@idp.example" },
		"issuer with a space":   func(p *oidc.Pin) { p.Issuer += " " },
		"issuer without a host": func(p *oidc.Pin) { p.Issuer = "https:///x" },
		"issuer as a word":      func(p *oidc.Pin) { p.Issuer = "idp.example" },
		"issuer opaque":         func(p *oidc.Pin) { p.Issuer = "https:idp.example" },
		"issuer endless":        func(p *oidc.Pin) { p.Issuer += strings.Repeat("x", 1024) },
		"control in an issuer":  func(p *oidc.Pin) { p.Shape, p.Issuer = oidc.ShapeBetterAuth, "a\n" },
		"no audience":           func(p *oidc.Pin) { p.Audience = "" },
		"audience endless":      func(p *oidc.Pin) { p.Audience = strings.Repeat("x", 256) },
		"no client":             func(p *oidc.Pin) { p.ClientID = "" },
		"no key set":            func(p *oidc.Pin) { p.JWKSURI = "" },
		"key set over http":     func(p *oidc.Pin) { p.JWKSURI = "http://idp.example/keys" },
		"key set in a file":     func(p *oidc.Pin) { p.JWKSURI = "file:///keys" },
		"device over http":      func(p *oidc.Pin) { p.DeviceEndpoint = "http://idp.example" },
		"token over ftp":        func(p *oidc.Pin) { p.TokenEndpoint = "ftp://idp.example" },
		"no algorithm":          func(p *oidc.Pin) { p.Algorithms = nil },
		"algorithm none":        func(p *oidc.Pin) { p.Algorithms = []string{"RS256", "none"} },
		"shared secret":         func(p *oidc.Pin) { p.Algorithms = []string{"HS256"} },
		"algorithm twice":       func(p *oidc.Pin) { p.Algorithms = []string{"RS256", "RS256"} },
		"scope with a space":    func(p *oidc.Pin) { p.Scopes = []string{"a b"} },
		"scope twice":           func(p *oidc.Pin) { p.Scopes = []string{"a", "a"} },
		"scopes endless":        func(p *oidc.Pin) { p.Scopes = make([]string, 33) },
	}
	for name, change := range bad {
		p := newPin()
		change(&p)
		if err := p.Validate(); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %v, want bad-request", name, err)
		}
		if data, err := p.Encode(); err == nil {
			t.Errorf("%s: encoded as %s", name, data)
		}
	}
}

func TestDecodePin(t *testing.T) {
	t.Parallel()
	data, err := newPin().Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"ver":1,"issuer":"https://idp.example/realms/main","audience":"cotal-main-1b2c3d4e","clientId":"cotal-main-1b2c3d4e",` +
		`"jwksUri":"https://idp.example/realms/main/certs","algorithms":["RS256","ES256","EdDSA"],"shape":"oidc"}`
	if string(data) != want {
		t.Errorf("encoded = %s, want %s", data, want)
	}
	for name, in := range map[string]string{
		"empty":         "",
		"null":          "null",
		"no version":    strings.Replace(want, `"ver":1,`, "", 1),
		"version 2":     strings.Replace(want, `"ver":1`, `"ver":2`, 1),
		"unknown field": strings.Replace(want, `{`, `{"extra":1,`, 1),
		"twice":         strings.Replace(want, `{`, `{"issuer":"https://evil.example",`, 1),
		"another case":  strings.Replace(want, `{`, `{"Issuer":"https://evil.example",`, 1),
		"and more":      want + "{}",
		"not valid":     strings.Replace(want, "RS256", "none", 1),
		"huge":          want + strings.Repeat(" ", oidc.MaxPin),
	} {
		if p, err := oidc.DecodePin([]byte(in)); err == nil || p.Issuer != "" {
			t.Errorf("%s: decoded to %+v, %v", name, p, err)
		}
	}
}

const document = `{"issuer":"https://idp.example/realms/main","jwks_uri":"https://keys.example/certs","token_endpoint":"https://idp.example/token",
	"device_authorization_endpoint":"https://idp.example/device","revocation_endpoint":"https://idp.example/revoke","unknown":{"a":[1]},
	"id_token_signing_alg_values_supported":["HS256","RS256","none","EdDSA","ES512"],"scopes_supported":["openid","email","offline_access","phone"],
	"code_challenge_methods_supported":["plain","S256"]}`

func says(status int, kind, body string) *http.Client {
	p := &provider{}
	p.answers(func(*http.Request) (*http.Response, error) { return reply(status, kind, body, nil), nil })
	return p.client()
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	m, err := oidc.Discover(t.Context(), issuer, &oidc.DiscoverOptions{HTTP: says(200, "application/json", document)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Pin(us, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := oidc.Pin{
		Issuer: issuer, Audience: us, ClientID: us, JWKSURI: "https://keys.example/certs", Algorithms: []string{"RS256", "EdDSA"}, Shape: oidc.ShapeOIDC,
		DeviceEndpoint: "https://idp.example/device", TokenEndpoint: "https://idp.example/token", RevocationEndpoint: "https://idp.example/revoke",
		PKCE: true, Scopes: []string{"openid", "email", "offline_access"},
	}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("pin (-want +got):\n%s", d)
	}
	if p, err = m.Pin(us, "https://mesh.example", []string{"ES384"}); err != nil || p.Audience != "https://mesh.example" || !slices.Equal(p.Algorithms, []string{"ES384"}) {
		t.Errorf("pin with audience and algorithm = %+v, %v", p, err)
	}
	if _, err = m.Pin(us, "", []string{"HS256"}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("pin of HS256 = %v", err)
	}
	m.Algorithms = []string{"HS256", "none"}
	if _, err = m.Pin(us, "", nil); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("pin of a provider with no acceptable algorithm = %v", err)
	}
	_, err = oidc.Discover(t.Context(), issuer, &oidc.DiscoverOptions{HTTP: says(200, "text/html", "Sorry")})
	if err == nil || !strings.Contains(err.Error(), "a web page instead of JSON") {
		t.Errorf("a web page is called %v", err)
	}
	least := fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, issuer, jwksURI)
	if m, err = oidc.Discover(t.Context(), issuer, &oidc.DiscoverOptions{HTTP: says(200, "text/html", least)}); err != nil {
		t.Fatal(err)
	}
	if p, err = m.Pin(us, "", nil); err != nil || !slices.Equal(p.Algorithms, []string{"RS256"}) || len(p.Scopes) != 3 || p.PKCE {
		t.Errorf("pin of the least document = %+v, %v", p, err)
	}
}

func TestDiscoverRefuses(t *testing.T) {
	t.Parallel()
	swap := func(old, to string) string {
		if !strings.Contains(document, old) {
			t.Fatalf("no %q in the document", old)
		}
		return strings.Replace(document, old, to, 1)
	}
	for _, tc := range []struct {
		name, issuer string
		status       int
		kind, body   string
		want         trust.Reason
	}{
		{"slash more", issuer + "/", 200, "application/json", document, trust.ReasonIssuer},
		{"slash less", issuer, 200, "application/json", swap("realms/main\"", "realms/main/\""), trust.ReasonIssuer},
		{"another issuer", issuer, 200, "application/json", swap("idp.example/realms", "evil.example/realms"), trust.ReasonIssuer},
		{"issuer is no text", issuer, 200, "application/json", swap(`"issuer":`, `"issuer":1,"x":`), trust.ReasonIssuer},
		{"HTML", issuer, 200, "text/html", "<html>", trust.ReasonIDP},
		{"HTML that says it is JSON", issuer, 200, "application/json", " <html>", trust.ReasonIDP},
		{"not found", issuer, 404, "application/json", document, trust.ReasonIDP},
		{"issuer twice", issuer, 200, "application/json", swap("{", `{"issuer":"`+issuer+`",`), trust.ReasonIDP},
		{"no key set", issuer, 200, "application/json", swap("jwks_uri", "x"), trust.ReasonIDP},
		{"key set over http", issuer, 200, "application/json", swap("https://keys", "http://keys"), trust.ReasonIDP},
		{"key set on this machine", issuer, 200, "application/json", swap("https://keys.example", "https://localhost"), trust.ReasonIDP},
		{"key set on this machine over http", issuer, 200, "application/json", swap("https://keys.example", "http://127.0.0.1:9"), trust.ReasonIDP},
		{"device with a user", issuer, 200, "application/json", swap("https://idp.example/device", "https://a@idp.example/device"), trust.ReasonIDP},
		{"algorithms are no list", issuer, 200, "application/json", swap(`["HS256","RS256","none","EdDSA","ES512"]`, `"RS256"`), trust.ReasonIDP},
		{"over http", "http://idp.example", 200, "application/json", document, ""},
		{"no address", "idp.example", 200, "application/json", document, ""},
		{"with a query", issuer + "?x", 200, "application/json", document, ""},
	} {
		m, err := oidc.Discover(t.Context(), tc.issuer, &oidc.DiscoverOptions{HTTP: says(tc.status, tc.kind, tc.body)})
		if err == nil || trust.ReasonOf(err) != tc.want || m.JWKSURI != "" {
			t.Errorf("%s: %+v, %v (reason %q), want reason %q", tc.name, m, err, trust.ReasonOf(err), tc.want)
		}
		if tc.want == "" && !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %v, want bad-request", tc.name, err)
		}
	}
	if _, err := oidc.Discover(t.Context(), issuer, &oidc.DiscoverOptions{Shape: "saml"}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("shape saml: %v", err)
	}
	if _, err := oidc.Discover(t.Context(), issuer, &oidc.DiscoverOptions{Issuer: "https://other.example"}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("two issuers: %v", err)
	}
}

func TestDiscoverBetterAuth(t *testing.T) {
	t.Parallel()
	opts := &oidc.DiscoverOptions{HTTP: says(200, "application/json", `{"keys":[]}`), Shape: oidc.ShapeBetterAuth}
	for _, base := range []string{"https://app.example:8443/api/auth", "https://app.example:8443/api/auth/"} {
		m, err := oidc.Discover(t.Context(), base, opts)
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Pin(us, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		want := oidc.Pin{
			Issuer: "https://app.example:8443", Audience: us, ClientID: us, JWKSURI: "https://app.example:8443/api/auth/jwks", Algorithms: []string{"EdDSA"},
			Shape: oidc.ShapeBetterAuth, DeviceEndpoint: "https://app.example:8443/api/auth/device/code",
			TokenEndpoint: "https://app.example:8443/api/auth/device/token", JWTEndpoint: "https://app.example:8443/api/auth/token",
			Scopes: []string{"openid", "profile", "email"},
		}
		if d := cmp.Diff(want, p); d != "" {
			t.Errorf("pin (-want +got):\n%s", d)
		}
	}
	l := newLogin()
	l.set = []map[string]any{jwk("c", keys().p256, map[string]any{"alg": "ES256"}), jwk("e", keys().ed, nil)}
	p := &provider{set: l.set}
	m, err := oidc.Discover(t.Context(), "https://app.example/api/auth", &oidc.DiscoverOptions{HTTP: p.client(), Shape: oidc.ShapeBetterAuth, Issuer: "my app"})
	if err != nil || m.Issuer != "my app" || !slices.Equal(m.Algorithms, []string{"ES256"}) {
		t.Errorf("metadata = %+v, %v", m, err)
	}
	for _, client := range []*http.Client{says(404, "text/html", "<p>"), says(200, "application/json", `{}`), says(200, "application/json", `[]`)} {
		opts := &oidc.DiscoverOptions{HTTP: client, Shape: oidc.ShapeBetterAuth}
		if _, err := oidc.Discover(t.Context(), "https://app.example/api/auth", opts); trust.ReasonOf(err) != trust.ReasonIDP {
			t.Errorf("no key set: %v", err)
		}
	}
}

// TestOverTheNetwork uses the client that is made when the host gives none, on a real socket.
func TestOverTheNetwork(t *testing.T) {
	t.Parallel()
	p := &provider{set: newLogin().set}
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	defer srv.Close()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, srv.URL, srv.URL+"/moved")
	})
	mux.HandleFunc("GET /moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) })
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		resp, err := p.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(w, resp.Body)
	})
	m, err := oidc.Discover(t.Context(), srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	pin, err := m.Pin(us, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	set := oidc.NewKeySet(pin.JWKSURI, nil)
	defer set.Close()
	v, err := oidc.NewVerifier(pin, set, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newLogin()
	l.claims["iss"] = srv.URL
	c, err := v.Verify(t.Context(), l.token())
	accepted(t, c, err)
}
