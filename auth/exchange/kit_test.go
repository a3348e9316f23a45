package exchange_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// userSeed is what differs from one well-known document to the next.
var userSeed = regexp.MustCompile(`SU[A-Z2-7]{56}`)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	issuer = "https://idp.example"
	// owner is that of user-1 at the issuer, by the vector of the derivation.
	owner      = "u_g5mclrofwa6pirb3p4yeigemze"
	good       = "eyJ-good-login"
	agentToken = "agent-secret-of-the-last-start"
	uid        = wire.UID("aaaaaaaaaaaaaaaaaaaaaaaaaa")
)

// office is an authority of one person's grants. What a test sets replaces its answers.
type office struct {
	person   func(ctx context.Context, req auth.PersonRequest) (auth.Admission, error)
	agent    func(ctx context.Context, req auth.AgentRequest) (auth.Admission, error)
	until    time.Time
	asked    atomic.Int64
	mu       sync.Mutex // guards requests
	requests []auth.PersonRequest
}

func grant(actor string, kind trust.GrantKind) trust.Grant {
	return trust.Grant{
		Ver: trust.GrantVersion, Owner: owner, Actor: actor, UID: uid, Epoch: 3, Kind: kind, State: trust.GrantActive, Role: "reviewer",
		Scope: []string{trust.ScopeAdmin, trust.ScopeSpawn, "role:reviewer"}, AllowSubscribe: []string{"team.>"}, AllowPublish: []string{"team"},
		CreatedAt: time.Unix(1, 0), By: "operator",
	}
}

func (o *office) AdmitPerson(ctx context.Context, req auth.PersonRequest) (auth.Admission, error) {
	o.asked.Add(1)
	o.mu.Lock()
	o.requests = append(o.requests, req)
	o.mu.Unlock()
	if o.person != nil {
		return o.person(ctx, req)
	}
	actor := req.Actor
	if actor == "" {
		actor = "ada"
	}
	if actor != "ada" || req.Owner != owner {
		return auth.Admission{}, trust.Deny(wire.CodePermissionDenied, trust.ReasonNotGranted, "nobody granted this; ask the operator")
	}
	g := grant(actor, trust.KindInteractive)
	scope := req.Scope
	if scope == nil {
		scope = g.Scope
	}
	for _, e := range scope {
		if !slices.Contains(g.Scope, e) {
			return auth.Admission{}, trust.Deny(wire.CodePermissionDenied, trust.ReasonScope, "the grant does not hold the scope %q", e)
		}
	}
	return auth.Admission{Grant: g, Profile: req.View.Profile(), View: req.View, Scope: scope, Until: o.until}, nil
}

// blockUntil answers as the office does once release is closed, whatever becomes of its context.
func blockUntil(release <-chan struct{}) func(context.Context, auth.PersonRequest) (auth.Admission, error) {
	return func(context.Context, auth.PersonRequest) (auth.Admission, error) {
		<-release
		g := grant("ada", trust.KindInteractive)
		return auth.Admission{Grant: g, Profile: trust.Agent, Scope: g.Scope}, nil
	}
}

func (o *office) AdmitAgent(ctx context.Context, req auth.AgentRequest) (auth.Admission, error) {
	o.asked.Add(1)
	if o.agent != nil {
		return o.agent(ctx, req)
	}
	if req.Owner != owner || req.Actor != "helper" || string(req.Token) != agentToken {
		return auth.Admission{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonActorToken, "the authority's own words")
	}
	g := grant("helper", trust.KindManaged)
	g.Scope = []string{"role:reviewer"}
	g.Parent, g.ParentUID = owner+".ada", uid
	return auth.Admission{Grant: g, Profile: trust.Agent, Scope: g.Scope, Until: o.until}, nil
}

// provider knows tokens by heart. The zero life of a login is an hour.
type provider struct{ life time.Duration }

func (p provider) Verify(_ context.Context, token string) (oidc.Claims, error) {
	life := p.life
	if life == 0 {
		life = time.Hour
	}
	c := oidc.Claims{Issuer: issuer, Subject: "user-1", Expires: time.Now().Add(life).Truncate(time.Second)}
	deny := func(r trust.Reason, text string) (oidc.Claims, error) {
		return oidc.Claims{}, trust.Deny(wire.CodeUnauthenticated, r, "%s", text)
	}
	switch token {
	case good:
		return c, nil
	case "stranger":
		c.Subject = "user-2"
		return c, nil
	case "nobody":
		c.Subject = ""
		return c, nil
	case "other-client":
		return deny(trust.ReasonAudience, "the token is meant for another client: log in here")
	case "other-party":
		return deny(trust.ReasonAudience, "the token was given to another client: log in here")
	case "outage":
		return oidc.Claims{}, trust.Deny(wire.CodeUnavailable, trust.ReasonIDP, "the keys of the provider cannot be had; try again")
	case "broken":
		return oidc.Claims{}, errors.New("secret detail of an unknown failure")
	case "panic":
		panic("secret detail of a panic")
	}
	return deny(trust.ReasonSignature, "the token is signed by nobody we trust")
}

// counting signs with the real issuer and counts.
type counting struct {
	exchange.Bearers
	signed atomic.Int64
}

func (c *counting) Sign(ctx context.Context, claims bearer.Claims, life time.Duration) (string, bearer.Claims, error) {
	c.signed.Add(1)
	return c.Bearers.Sign(ctx, claims, life)
}

// kit is a server and what it was made of.
type kit struct {
	*exchange.Server
	office    *office
	bearers   *counting
	keys      *bearer.Keys
	cap       exchange.Capability
	log       *lockedBuffer
	mu        sync.Mutex // guards decisions
	decisions []exchange.Decision
}

type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (k *kit) decided() []exchange.Decision {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.decisions)
}

func (k *kit) last(t testing.TB) exchange.Decision {
	t.Helper()
	all := k.decided()
	if len(all) == 0 {
		t.Fatal("no decision was told")
	}
	return all[len(all)-1]
}

// newKit makes a server with both faces. change may adjust its options.
func newKit(t testing.TB, change func(o *exchange.Options)) *kit {
	t.Helper()
	raw := make([]byte, 32)
	for i := range raw {
		raw[i] = byte(i)
	}
	secret, err := trust.NewOwnerSecret(raw)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := bearer.EnsureKeys(t.Context(), memstore.New(), "main")
	if err != nil {
		t.Fatal(err)
	}
	k := &kit{office: &office{}, keys: keys, log: &lockedBuffer{}}
	k.bearers = &counting{Bearers: bearer.NewIssuer("main", keys)}
	k.cap, err = exchange.NewCapability(strings.Repeat("5a", 32))
	if err != nil {
		t.Fatal(err)
	}
	o := exchange.Options{
		Space: "main", Authority: k.office, Identity: provider{}, Owner: secret.Owner, Bearers: k.bearers, Keys: keys,
		Sentinel: func(context.Context) (string, error) { return "sentinel.jwt", nil },
		Mesh: func() exchange.WellKnown {
			return exchange.WellKnown{
				Server: "tls://mesh.example:4222", TLSRequired: true,
				UserAuth: exchange.UserAuth{IDP: exchange.IDP{Issuer: issuer, ClientID: "cotal-main-1b2c3d4e", Audience: "cotal-main-1b2c3d4e"}},
			}
		},
		Proofs: bearer.NewProofChecker(nil), Public: "127.0.0.1:0", PublicURL: "https://mesh.example", Capability: k.cap,
		Logger: slog.New(slog.NewTextHandler(k.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnDecision: func(_ context.Context, d exchange.Decision) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.decisions = append(k.decisions, d)
		},
	}
	if change != nil {
		change(&o)
	}
	if k.Server, err = exchange.New(o); err != nil {
		t.Fatal(err)
	}
	return k
}

// run serves on real listeners until the test ends.
func (k *kit) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	select {
	case <-k.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("Run = %v", err)
	}
}

// ask is one request of a test.
type ask struct {
	method, path string // default POST /exchange
	kind         string // default application/json
	body         string
	header       http.Header
	peer         string // default 192.0.2.1
	noCap        bool
}

func (a ask) request(k *kit, face exchange.Face, base string) *http.Request {
	method, path := a.method, a.path
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = "/exchange"
	}
	r := httptest.NewRequest(method, base+path, strings.NewReader(a.body))
	for name, values := range a.header {
		r.Header[name] = values
	}
	if kind := a.kind; kind != "none" {
		if kind == "" {
			kind = "application/json"
		}
		if r.Header.Get("Content-Type") == "" {
			r.Header.Set("Content-Type", kind)
		}
	}
	if face == exchange.Loopback && !a.noCap && r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer "+k.cap.Reveal())
	}
	r.RemoteAddr = "192.0.2.1:4711"
	if a.peer != "" {
		r.RemoteAddr = a.peer
	}
	return r
}

// call asks a face without a socket.
func (k *kit) call(face exchange.Face, a ask) *reply {
	h := k.PublicHandler()
	if face == exchange.Loopback {
		h = k.LoopbackHandler()
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, a.request(k, face, "http://127.0.0.1"))
	return &reply{status: w.Code, header: w.Header(), body: w.Body.Bytes()}
}

// dial asks a face over its socket.
func (k *kit) dial(t testing.TB, face exchange.Face, a ask) *reply {
	t.Helper()
	addr := k.PublicAddr()
	if face == exchange.Loopback {
		addr = k.LoopbackAddr()
	}
	r := a.request(k, face, "http://"+addr)
	r.RequestURI = ""
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read answer: %v", r.Method, r.URL.Path, err)
	}
	return &reply{status: resp.StatusCode, header: resp.Header, body: body}
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

// members reads the body, which is always one JSON object.
func (r *reply) members(t testing.TB) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(r.body, &out); err != nil {
		t.Fatalf("the answer %d is no JSON object: %v: %.200q", r.status, err, r.body)
	}
	return out
}

// want checks the status and the code of an answer; the code of a bearer is empty.
func (r *reply) want(t testing.TB, status int, code string) {
	t.Helper()
	got, _ := r.members(t)["code"].(string)
	if r.status != status || got != code {
		t.Errorf("answer = %d %q, want %d %q: %s", r.status, got, status, code, r.body)
	}
}

func personBody(token, more string) string { return `{"idpToken":"` + token + `"` + more + `}` }

func agentBody(token, more string) string {
	return `{"owner":"` + owner + `","actor":"helper","actorToken":"` + token + `"` + more + `}`
}

// formBody writes pairs as a form.
func formBody(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v.Encode()
}

func faces() []exchange.Face { return []exchange.Face{exchange.Loopback, exchange.Public} }
