package login_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer/signertest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

const (
	meshURL = "https://mesh.example"
	ada     = "u_g5mclrofwa6pirb3p4yeigemze"
	uid     = "uid12345678901234567890abc"
)

var _ endpoint.Source = (*login.CredentialSource)(nil)

// exchange is a token exchange. It gives out tokens that no broker would accept, and checks the proofs of keys as the real one does.
type exchange struct {
	t        testing.TB
	checker  *bearer.ProofChecker
	sentinel string
	life     time.Duration
	// script answers the requests in turn, nil grants; after its end all are granted.
	script []func(http.ResponseWriter)
	// change alters what is granted.
	change map[string]any
	// late is how far its clock is ahead.
	late time.Duration

	mu     sync.Mutex
	keys   []string // of the proofs that were accepted, as nkeys
	bodies []map[string]any
	auth   []string
	times  []time.Time
}

func newExchange(t testing.TB) *exchange {
	t.Helper()
	m, err := mint.Init(t.Context(), memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.AddSpace(t.Context(), "demo", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := m.EnsureCallout(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	sentinel, err := m.Sentinel(t.Context(), "demo", 0)
	if err != nil {
		t.Fatal(err)
	}
	return &exchange{t: t, checker: bearer.NewProofChecker(nil), sentinel: sentinel, life: 5 * time.Minute}
}

func (e *exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.Header().Set("Date", time.Now().Add(e.late).UTC().Format(http.TimeFormat))
	if r.Method != http.MethodPost || r.URL.String() != meshURL+"/exchange" || r.Header.Get("Content-Type") != "application/json" {
		http.NotFound(w, r)
		return
	}
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		e.t.Error(err)
	}
	e.bodies, e.auth, e.times = append(e.bodies, body), append(e.auth, r.Header.Get("Authorization")), append(e.times, time.Now())
	key, err := e.checker.Check(r.Header.Get("DPoP"), r.Method, meshURL+"/exchange")
	if e.late != 0 { // its checker has the clock of this process
		err = e.checkLate(r.Header.Get("DPoP"))
	}
	if err != nil {
		reply(w, 401, map[string]any{"error": err.Error(), "code": string(trust.ReasonOf(err))})
		return
	}
	if key != nil {
		public, err := nkeys.Encode(nkeys.PrefixByteUser, key)
		if err != nil {
			e.t.Error(err)
		}
		e.keys = append(e.keys, string(public))
	}
	if n := len(e.bodies); n <= len(e.script) && e.script[n-1] != nil {
		e.script[n-1](w)
		return
	}
	reply(w, 200, e.granted(body))
}

// checkLate refuses a proof that is not of the exchange's own time.
func (e *exchange) checkLate(proof string) error {
	_, rest, _ := strings.Cut(proof, ".")
	claims, _, _ := strings.Cut(rest, ".")
	var c struct {
		IssuedAt int64 `json:"iat"`
	}
	if err := decodeSegment(claims, &c); err != nil {
		return err
	}
	if time.Unix(c.IssuedAt, 0).Sub(time.Now().Add(e.late)).Abs() > time.Minute {
		return trust.Deny(wire.CodeUnauthenticated, trust.ReasonKeyProof, "not of this minute")
	}
	return nil
}

func (e *exchange) granted(body map[string]any) map[string]any {
	now := time.Now().Add(e.late)
	owner, _ := body["owner"].(string)
	if owner == "" {
		owner = ada
	}
	out := map[string]any{
		"token": fmt.Sprintf("eyJ.bearer-secret-%d.sig", len(e.bodies)), "owner": owner, "actor": body["actor"], "uid": uid, "epoch": 1,
		"iat": now.Unix(), "exp": now.Add(e.life).Unix(), "scope": []string{"spawn", "manager.spawn"}, "sentinel": e.sentinel, "inbox": uid,
		"role": "reviewer", "allowSubscribe": []string{"team.>"}, "allowPublish": []string{"team.>"}, "profile": "agent", "space": "demo",
		"server": "tls://mesh.example:4222",
	}
	if v := body["view"]; v != nil {
		out["view"], out["profile"] = v, "admin"
	}
	for k, v := range e.change {
		out[k] = v
		if v == nil {
			delete(out, k)
		}
	}
	return out
}

func refusal(status int, reason trust.Reason, more map[string]any) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		body := map[string]any{"error": "no, because of this", "code": string(reason)}
		for k, v := range more {
			body[k] = v
		}
		reply(w, status, body)
	}
}

func newClient(t testing.TB, h http.Handler) *login.Exchange {
	t.Helper()
	x, err := login.NewExchange(&login.ExchangeOptions{URL: meshURL + "/", HTTP: overWire(h)})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func held(s string) func() string { return func() string { return s } }

func askHuman(ctx context.Context, x *login.Exchange) (login.Bearer, error) {
	return x.Human(ctx, login.HumanRequest{IDToken: held("id-token-secret"), Actor: "ada"})
}

func TestExchange(t *testing.T) {
	t.Parallel()
	e := newExchange(t)
	x, err := login.NewExchange(&login.ExchangeOptions{
		URL: meshURL, HTTP: overWire(e), Capability: func(context.Context) (string, error) { return "open-sesame", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := x.Human(t.Context(), login.HumanRequest{
		IDToken: held("id-token-secret"), Actor: "ada", Scope: []string{"manager.spawn"}, TTL: 1500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := x.Agent(t.Context(), login.AgentRequest{Owner: ada, Actor: "bob", ActorToken: held("actor-token-secret")})
	if err != nil {
		t.Fatal(err)
	}
	v, err := x.Human(t.Context(), login.HumanRequest{IDToken: held("id-token-secret"), Actor: "ada", View: trust.ViewAdmin})
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{"idpToken": "id-token-secret", "actor": "ada", "scope": []any{"manager.spawn"}, "ttlSec": 2.0},
		{"owner": ada, "actor": "bob", "actorToken": "actor-token-secret"},
		{"idpToken": "id-token-secret", "actor": "ada", "view": "admin"},
	}
	if diff := cmp.Diff(want, e.bodies); diff != "" {
		t.Errorf("bodies (-want +got):\n%s", diff)
	}
	if !slices.Equal(e.keys, []string{x.UserKey(), x.UserKey(), x.UserKey()}) || e.auth[0] != "Bearer open-sesame" {
		t.Errorf("keys %q, Authorization %q, want %s each time", e.keys, e.auth, x.UserKey())
	}
	id := b.Identity()
	wantID := trust.Identity{
		Space: "demo", Profile: trust.Agent, Lifecycle: wire.Lifecycle{Principal: wire.Principal{Owner: ada, Actor: "ada"}, UID: uid},
		Inbox: uid, Role: "reviewer", Subscribe: []string{"team.>"}, Publish: []string{"team.>"}, Commands: []string{"manager.spawn"}, Spawns: true,
		UserKey: x.UserKey(), IssuedAt: b.IssuedAt, Expires: b.IssuedAt.Add(5 * time.Minute),
	}
	if diff := cmp.Diff(wantID, id); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	if a.Actor != "bob" || v.View != trust.ViewAdmin || v.Identity().Role != "" || v.Profile != trust.Admin || b.Server != "tls://mesh.example:4222" {
		t.Errorf("bearers %+v, %+v, %+v", b, a, v)
	}
	creds, err := b.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	sig, err := creds.Sign([]byte("nonce"))
	if err != nil {
		t.Fatal(err)
	}
	if pub, err := nkeys.FromPublicKey(x.UserKey()); err != nil || pub.Verify([]byte("nonce"), sig) != nil {
		t.Errorf("the credential does not sign with the key that was proved: %v", err)
	}
	if other := newClient(t, e); other.UserKey() == x.UserKey() {
		t.Error("two exchanges share a key")
	}
}

func TestBearersPrintNothingSecret(t *testing.T) {
	t.Parallel()
	x := newClient(t, newExchange(t))
	b, err := askHuman(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.Reveal(), "bearer-secret") || (login.Bearer{}).Reveal() != "" {
		t.Errorf("token = %q", b.Reveal())
	}
	if _, err := (login.Bearer{}).Credentials(); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("credentials of no bearer = %v", err)
	}
	req := login.HumanRequest{IDToken: held("id-token-secret"), Actor: "ada"}
	for _, v := range []any{b, &b, []login.Bearer{b}, struct{ B login.Bearer }{b}, x, req, login.AgentRequest{ActorToken: held("id-token-secret")}} {
		if !strings.Contains(fmt.Sprintf("%T", v), "Request") {
			signertest.CheckHidden(t, v, []byte("bearer-secret"), login.SeedOf(x))
		}
		text := fmt.Sprintf("%v %+v %#v", v, v, v)
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("value", "v", v)
		for _, s := range []string{"bearer-secret", "id-token-secret", string(login.SeedOf(x))} {
			if strings.Contains(text+log.String(), s) {
				t.Errorf("a %T prints as %s", v, text)
			}
		}
	}
}

// TestRefusalsKeepTheirReason: every status and reason comes through as a code and a reason, and a refusal is not asked twice.
func TestRefusalsKeepTheirReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		reason trust.Reason
		want   wire.Code
		kept   trust.Reason
	}{
		{400, trust.ReasonMalformed, wire.CodeBadRequest, trust.ReasonMalformed},
		{401, trust.ReasonExpired, wire.CodeUnauthenticated, trust.ReasonExpired},
		{401, trust.ReasonAudience, wire.CodeUnauthenticated, trust.ReasonAudience},
		{401, trust.ReasonCapability, wire.CodeUnauthenticated, trust.ReasonCapability},
		{403, trust.ReasonRevoked, wire.CodePermissionDenied, trust.ReasonRevoked},
		{403, "a-reason-of-later", wire.CodePermissionDenied, "a-reason-of-later"},
		{403, "Not A Reason", wire.CodePermissionDenied, ""},
		{404, trust.ReasonNotGranted, wire.CodeNotFound, trust.ReasonNotGranted},
		{409, trust.ReasonStaticMode, wire.CodeFailedPrecondition, trust.ReasonStaticMode},
		{409, trust.ReasonSuperseded, wire.CodeConflict, trust.ReasonSuperseded},
		{413, trust.ReasonMalformed, wire.CodeResourceExhausted, trust.ReasonMalformed},
		{500, trust.Reason(wire.CodeInternal), wire.CodeInternal, ""},
		{400, trust.Reason(wire.CodeUnsupportedVersion), wire.CodeUnsupportedVersion, ""},
	} {
		e := newExchange(t)
		e.script = []func(http.ResponseWriter){refusal(c.status, c.reason, nil)}
		_, err := askHuman(t.Context(), newClient(t, e))
		if wire.CodeOf(err) != c.want || trust.ReasonOf(err) != c.kept || !strings.Contains(err.Error(), "no, because of this") || len(e.bodies) != 1 {
			t.Errorf("%d %q: %v (%s, %q) after %d requests, want %s, %q after one",
				c.status, c.reason, err, wire.CodeOf(err), trust.ReasonOf(err), len(e.bodies), c.want, c.kept)
		}
	}
}

// page is one answer that is no document.
func page(status int, header, value string) []func(http.ResponseWriter) {
	return []func(http.ResponseWriter){func(w http.ResponseWriter) {
		w.Header().Set(header, value)
		w.WriteHeader(status)
		_, _ = w.Write([]byte("<html>sign in to the network"))
	}}
}

func TestExchangeTriesAgain(t *testing.T) {
	t.Parallel()
	busy := refusal(429, trust.ReasonTooMany, map[string]any{"retryAfter": 3})
	for name, c := range map[string]struct {
		script   []func(http.ResponseWriter)
		want     error
		requests int
		took     time.Duration // at least
		most     time.Duration
	}{
		"bad gateway":      {[]func(http.ResponseWriter){badGateway, badGateway}, nil, 3, 0, 2 * time.Second},
		"busy":             {[]func(http.ResponseWriter){refusal(503, trust.ReasonBusy, nil)}, nil, 2, 0, time.Second},
		"retry after":      {[]func(http.ResponseWriter){busy, busy}, nil, 3, 6 * time.Second, 7 * time.Second},
		"retry too late":   {[]func(http.ResponseWriter){refusal(429, trust.ReasonTooMany, map[string]any{"retryAfter": 60})}, wire.ErrExhausted, 1, 0, time.Second},
		"identity outage":  {[]func(http.ResponseWriter){refusal(503, trust.ReasonIDP, nil)}, wire.ErrUnavailable, 1, 0, time.Second},
		"out for long":     {slices.Repeat([]func(http.ResponseWriter){badGateway}, 100), wire.ErrUnavailable, 0, 15 * time.Second, 20 * time.Second},
		"header says when": {page(502, "Retry-After", "4"), nil, 2, 4 * time.Second, 5 * time.Second},
		"HTML with 200":    {page(200, "Content-Type", "text/html"), wire.ErrUnavailable, 1, 0, time.Second},
		"HTML with 404":    {page(404, "Content-Type", "text/html"), wire.ErrUnavailable, 1, 0, time.Second},
		"redirect":         {page(307, "Location", "https://x.example/"), wire.ErrUnavailable, 1, 0, time.Second},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			faketime.Test(t, func(t *testing.T) {
				e := newExchange(t)
				e.script = c.script
				began := time.Now()
				_, err := askHuman(t.Context(), newClient(t, e))
				took := time.Since(began)
				if !errors.Is(err, c.want) || c.requests != 0 && len(e.bodies) != c.requests || took < c.took || took > c.most {
					t.Errorf("%v after %d requests and %s, want %v after %d and %s to %s", err, len(e.bodies), took, c.want, c.requests, c.took, c.most)
				}
				if err != nil && trust.ReasonOf(err) == "" && !strings.Contains(err.Error(), meshURL+"/exchange") {
					t.Errorf("%v does not name the address", err)
				}
			})
		})
	}
	faketime.Test(t, func(t *testing.T) {
		e := newExchange(t)
		e.script = slices.Repeat([]func(http.ResponseWriter){badGateway}, 100)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		_, err := askHuman(ctx, newClient(t, e))
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, wire.ErrUnavailable) || time.Since(began) > 2*time.Second {
			t.Errorf("with a context of 2 s: %v after %s", err, time.Since(began))
		}
		d := dead{}
		down, err := login.NewExchange(&login.ExchangeOptions{URL: meshURL, HTTP: &http.Client{Transport: &d}, Patience: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if _, err := askHuman(t.Context(), down); !errors.Is(err, wire.ErrUnavailable) || time.Since(began) > 3*time.Second || d.tries < 3 {
			t.Errorf("nobody there: %v after %s and %d tries", err, time.Since(began), d.tries)
		}
	})
}

func TestAnExchangeThatNeverAnswers(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		hc := &http.Client{Transport: wired{newExchange(t), func() time.Duration { return time.Hour }}}
		x, err := login.NewExchange(&login.ExchangeOptions{URL: meshURL, HTTP: hc})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := askHuman(t.Context(), x); !isAnd(err, wire.ErrUnavailable, meshURL) || time.Since(began) > 20*time.Second {
			t.Errorf("%v after %s, want unavailable within 20 s", err, time.Since(began))
		}
	})
}

// dead is a network in which nobody answers.
type dead struct{ tries int }

func (d *dead) RoundTrip(*http.Request) (*http.Response, error) {
	d.tries++
	return nil, errors.New("connection refused")
}

func TestAnswersThatAreNotUsed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]any{
		"another actor": {"actor": "bob"}, "another owner": {"owner": "u_aaaaaaaaaaaaaaaaaaaaaaaaaa"}, "a view": {"view": "admin"}, "no token": {"token": nil},
		"no sentinel": {"sentinel": nil}, "no uid": {"uid": ""}, "other inbox": {"inbox": "someone"}, "no life": {"exp": 1}, "life of years": {"exp": 99999999999},
		"no space": {"space": ""}, "bad pattern": {"allowPublish": []string{"a b"}}, "profile": {"profile": "root"}, "numbers": {"actor": 7},
	} {
		e := newExchange(t)
		e.change = change
		_, err := newClient(t, e).Agent(t.Context(), login.AgentRequest{Owner: ada, Actor: "ada", ActorToken: held("s")})
		if !errors.Is(err, wire.ErrUnavailable) || !strings.Contains(err.Error(), "mesh.example") || strings.Contains(err.Error(), "bearer-secret") {
			t.Errorf("%s: %v, want unavailable", name, err)
		}
	}
	e := newExchange(t)
	e.change = map[string]any{"iat": time.Now().Add(-time.Hour).Unix(), "exp": time.Now().Add(-time.Minute).Unix()}
	if _, err := askHuman(t.Context(), newClient(t, e)); trust.ReasonOf(err) != trust.ReasonExpired || !strings.Contains(err.Error(), "clock") {
		t.Errorf("a bearer that has ended = %v, want a sentence about the clock", err)
	}
	e = newExchange(t)
	e.change = map[string]any{"sentinel": "not.a.jwt"}
	b, err := askHuman(t.Context(), newClient(t, e))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Credentials(); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("credentials with a foreign sentinel = %v", err)
	}
}

// TestProofFollowsTheClockOfTheExchange: the clock of this machine is off; the second proof is dated by the answer to the first.
func TestProofFollowsTheClockOfTheExchange(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		e := newExchange(t)
		e.late = 10 * time.Minute
		x := newClient(t, e)
		for range 2 {
			if _, err := askHuman(t.Context(), x); err != nil {
				t.Errorf("with a clock that is 10 min behind: %v", err)
			}
		}
		if len(e.bodies) != 3 {
			t.Errorf("%d requests, want one more than bearers", len(e.bodies))
		}
	})
	e := newExchange(t)
	e.script = []func(http.ResponseWriter){refusal(401, trust.ReasonKeyProof, nil)}
	if _, err := askHuman(t.Context(), newClient(t, e)); trust.ReasonOf(err) != trust.ReasonKeyProof || len(e.bodies) != 1 {
		t.Errorf("a proof refused for something else = %v after %d requests", err, len(e.bodies))
	}
}

func TestExchangesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "mesh.example", "http://mesh.example", "https://u:p@mesh.example", meshURL + "?a=b", meshURL + "#x"} {
		if x, err := login.NewExchange(&login.ExchangeOptions{URL: address}); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%q: %v, %v", address, x, err)
		}
	}
	x := newClient(t, newExchange(t))
	if _, err := x.Human(t.Context(), login.HumanRequest{}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("no id token = %v", err)
	}
	if _, err := x.Agent(t.Context(), login.AgentRequest{}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("no actor token = %v", err)
	}
	closed := errors.New("no such file")
	x, err := login.NewExchange(&login.ExchangeOptions{URL: "http://127.0.0.1:1", Capability: func(context.Context) (string, error) { return "", closed }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := askHuman(t.Context(), x); !errors.Is(err, closed) {
		t.Errorf("a capability that cannot be read = %v", err)
	}
}
