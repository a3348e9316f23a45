package login_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/login"
)

const (
	issuer = "https://idp.example"
	client = "cotal-demo-0123abcd"
	person = "user-1"
)

// wired is a RoundTripper that hands each request to a handler in this process, so that it works on fake time. delay is how long a
// request and an answer travel, each.
type wired struct {
	handler http.Handler
	delay   func() time.Duration
}

func (w wired) RoundTrip(req *http.Request) (*http.Response, error) {
	travel := func() error {
		if w.delay == nil {
			return req.Context().Err()
		}
		t := time.NewTimer(w.delay())
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-req.Context().Done():
			return req.Context().Err()
		}
	}
	if err := travel(); err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, req)
	if err := travel(); err != nil {
		return nil, err
	}
	return rec.Result(), nil
}

// overWire is a client whose requests arrive at h.
func overWire(h http.Handler) *http.Client { return &http.Client{Transport: wired{handler: h}} }

// slowly is one whose requests and answers travel for up to most, each.
func slowly(h http.Handler, most time.Duration) *http.Client {
	return &http.Client{Transport: wired{h, func() time.Duration { return rand.N(most) }}}
}

// idp is an identity provider. It gives tokens that nobody could verify, which is not what is tested here; its device and refresh
// grants are strict.
type idp struct {
	issuer   string
	audience string
	life     time.Duration // of an id token; default 10 minutes

	// script answers the polls of the device grant in turn; the last stays. Empty grants at once.
	script []func(w http.ResponseWriter)
	// lock makes a poll before the interval of 5 s answer slow_down for ever after.
	lock bool
	// down refuses everything as a proxy does whose server is gone.
	down bool
	// hold is called by a refresh before it answers.
	hold func()
	// noJWT gives id tokens on refresh that are none.
	noJWT bool
	// noOffline refuses the scope offline_access.
	noOffline bool

	mu        sync.Mutex
	polls     []time.Time
	forms     []map[string]string // of the device grant, as they came
	challenge string
	refresh   string // the one refresh token that is good
	refreshes int
	issued    int
	revoked   []string
	ended     bool
	locked    bool
}

func newIDP() *idp {
	return &idp{issuer: issuer, audience: client, life: 10 * time.Minute, refresh: "refresh-0-very-secret"}
}

func (p *idp) provider() login.Provider {
	return login.Provider{
		Issuer: p.issuer, ClientID: client, Shape: login.ShapeOIDC, DeviceEndpoint: p.issuer + "/device", TokenEndpoint: p.issuer + "/token",
		RevocationEndpoint: p.issuer + "/revoke",
	}
}

func (p *idp) betterAuth() login.Provider {
	return login.Provider{
		Issuer: p.issuer, ClientID: client, Shape: login.ShapeBetterAuth, DeviceEndpoint: p.issuer + "/api/auth/device/code",
		TokenEndpoint: p.issuer + "/api/auth/device/token", JWTEndpoint: p.issuer + "/api/auth/token", RevocationEndpoint: p.issuer + "/api/auth/sign-out",
	}
}

// idToken is a new id token of the person; the caller holds the mutex or is alone.
func (p *idp) idToken(sub string) string {
	p.issued++
	now := time.Now()
	return jwtOf(map[string]any{
		"iss": p.issuer, "aud": p.audience, "sub": sub, "iat": now.Unix(), "exp": now.Add(p.life).Unix(), "jti": fmt.Sprint(p.issued),
	})
}

func jwtOf(claims map[string]any) string {
	text, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"EdDSA","kid":"k"}`)) + "." + enc(text) + "." + enc([]byte("a signature nobody checks here"))
}

func (p *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		badGateway(w)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /device", "POST /api/auth/device/code":
		p.device(w, r)
	case "POST /token", "POST /api/auth/device/token", "POST /elsewhere/device_token":
		p.token(w, r)
	case "GET /api/auth/token":
		p.jwt(w, r)
	case "POST /revoke":
		p.revoked = append(p.revoked, params(r)["token"])
	case "POST /api/auth/sign-out":
		p.revoked = append(p.revoked, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	default:
		http.NotFound(w, r)
	}
}

// params are the parameters of a form or of a JSON document.
func params(r *http.Request) map[string]string {
	out := map[string]string{}
	if r.Header.Get("Content-Type") == "application/json" {
		_ = json.NewDecoder(r.Body).Decode(&out)
		return out
	}
	_ = r.ParseForm()
	for k := range r.PostForm {
		out[k] = r.PostForm.Get(k)
	}
	return out
}

func (p *idp) device(w http.ResponseWriter, r *http.Request) {
	f := params(r)
	p.challenge = f["code_challenge"]
	if p.noOffline && strings.Contains(f["scope"], "offline_access") {
		reply(w, 400, map[string]any{"error": "invalid_scope"})
		return
	}
	p.forms = append(p.forms, f)
	reply(w, 200, map[string]any{
		"device_code": "device-code-secret", "user_code": "WDJB-MJHT", "verification_uri": p.issuer + "/activate",
		"verification_uri_complete": p.issuer + "/activate?user_code=WDJB-MJHT", "expires_in": 600,
	})
}

func (p *idp) token(w http.ResponseWriter, r *http.Request) {
	f := params(r)
	if f["grant_type"] == "refresh_token" {
		p.renew(w, f)
		return
	}
	now := time.Now()
	if n := len(p.polls); n > 0 && p.lock && now.Sub(p.polls[n-1]) < 5*time.Second {
		p.locked = true
	}
	p.polls, p.forms = append(p.polls, now), append(p.forms, f)
	if p.locked {
		reply(w, 400, map[string]any{"error": "slow_down"})
		return
	}
	if n := len(p.script); n > 0 {
		step := p.script[min(len(p.polls), n)-1]
		if step != nil {
			step(w)
			return
		}
	}
	if strings.HasPrefix(r.URL.Path, "/api/auth/") {
		reply(w, 200, map[string]any{"access_token": p.refresh, "token_type": "Bearer", "expires_in": 7 * 24 * 3600})
		return
	}
	reply(w, 200, map[string]any{"access_token": "unused-access", "id_token": p.idToken(person), "refresh_token": p.refresh, "expires_in": 300})
}

func (p *idp) renew(w http.ResponseWriter, f map[string]string) {
	if p.hold != nil {
		p.hold()
	}
	if p.ended || f["refresh_token"] != p.refresh || f["client_id"] != client {
		p.ended = true // what a provider with reuse detection does
		reply(w, 400, map[string]any{"error": "invalid_grant"})
		return
	}
	p.refreshes++
	p.refresh = fmt.Sprintf("refresh-%d-very-secret", p.refreshes)
	id := p.idToken(person)
	if p.noJWT {
		id = "opaque"
	}
	reply(w, 200, map[string]any{"access_token": "unused-access", "id_token": id, "refresh_token": p.refresh})
}

func (p *idp) jwt(w http.ResponseWriter, r *http.Request) {
	if p.ended || r.Header.Get("Authorization") != "Bearer "+p.refresh {
		w.WriteHeader(401)
		return
	}
	p.refreshes++
	reply(w, 200, map[string]any{"token": p.idToken(person)})
}

// requiresPKCE answers as a provider that wants both the verifier and the client id on every poll.
func (p *idp) requiresPKCE(w http.ResponseWriter) {
	last := p.forms[len(p.forms)-1]
	sum := sha256.Sum256([]byte(last["code_verifier"]))
	if p.challenge == "" || base64.RawURLEncoding.EncodeToString(sum[:]) != p.challenge {
		reply(w, 400, map[string]any{"error": "invalid_grant", "error_description": "PKCE verification failed"})
		return
	}
	if last["client_id"] != client {
		reply(w, 401, map[string]any{"error": "invalid_client"})
		return
	}
	reply(w, 200, map[string]any{"access_token": "unused-access", "id_token": p.idToken(person), "refresh_token": p.refresh})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func oauthError(name string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { reply(w, 400, map[string]any{"error": name}) }
}

func badGateway(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(502)
	_, _ = w.Write([]byte("<html><h1>502 Bad Gateway</h1></html>"))
}

// prompted is options that only remember the prompt.
func prompted(hc *http.Client, seen *login.Prompt) *login.DeviceOptions {
	return &login.DeviceOptions{HTTP: hc, Prompt: func(_ context.Context, p login.Prompt) error {
		if seen != nil {
			*seen = p
		}
		return nil
	}}
}

// signedIn is a session as the provider gives it, whose id token lasts for life.
func signedIn(t testing.TB, p *idp, at login.Provider, life time.Duration) login.Session {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.life
	p.life = life
	defer func() { p.life = was }()
	s, err := login.NewSession(at, p.refresh, p.idToken(person), time.Now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// files opens sessions in a folder, sealed with a key file.
func files(t testing.TB, dir string) login.Sessions {
	t.Helper()
	s, err := login.Open(t.Context(), &login.StoreOptions{Dir: dir, Prefer: login.KindFile})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// isAnd says whether err is of a kind and says something.
func isAnd(err, kind error, says string) bool {
	return errors.Is(err, kind) && strings.Contains(err.Error(), says)
}

// decodeSegment decodes one part of a JWS.
func decodeSegment(text string, v any) error {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}
