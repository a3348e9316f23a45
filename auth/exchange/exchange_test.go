package exchange_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files of this package")

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }

// stamped signs nothing, so that golden answers do not change.
type stamped struct{}

func (stamped) Sign(_ context.Context, c bearer.Claims, life time.Duration) (string, bearer.Claims, error) {
	now := time.Now().Truncate(time.Second)
	c.IssuedAt, c.NotBefore, c.ID = now, now, "jti"
	if end := now.Add(life); c.Expires.IsZero() || end.Before(c.Expires) {
		c.Expires = end
	}
	return "header.payload.signature", c, nil
}

// TestAnswers compares whole answers with testdata.
func TestAnswers(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	subject := func(more ...string) string {
		return formBody(append([]string{"grant_type", exchange.GrantType, "subject_token", good, "subject_token_type", exchange.TypeIDToken}, more...)...)
	}
	for name, c := range map[string]struct {
		face exchange.Face
		ask  ask
	}{
		"person":            {exchange.Public, ask{body: personBody(good, "")}},
		"person_view":       {exchange.Loopback, ask{body: personBody(good, `,"actor":"ada","view":"purger","scope":["admin"],"ttlSec":60`)}},
		"agent":             {exchange.Public, ask{body: agentBody(agentToken, "")}},
		"form":              {exchange.Public, ask{kind: form, body: subject("audience", "main", "scope", "spawn role:reviewer")}},
		"form_access_token": {exchange.Public, ask{kind: form, body: subject("requested_token_type", exchange.TypeAccessToken)}},
		"refused":           {exchange.Public, ask{body: personBody("forged", "")}},
		"refused_agent":     {exchange.Public, ask{body: agentBody("forged", "")}},
		"refused_grant":     {exchange.Public, ask{body: personBody("stranger", "")}},
		"refused_form":      {exchange.Public, ask{kind: form, body: subject("audience", "other")}},
		"refused_idp":       {exchange.Public, ask{body: personBody("outage", "")}},
		"broken":            {exchange.Public, ask{body: personBody("broken", "")}},
		"health":            {exchange.Public, ask{method: "GET", path: "/health"}},
		"well_known":        {exchange.Public, ask{method: "GET", path: "/.well-known/cotal-mesh"}},
	} {
		t.Run(name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				k := newKit(t, func(o *exchange.Options) { o.Bearers = stamped{} })
				r := k.call(c.face, c.ask)
				var got bytes.Buffer
				fmt.Fprintf(&got, "%d\n", r.status)
				for _, h := range []string{"Content-Type", "Cache-Control", "WWW-Authenticate", "Retry-After"} {
					if v := r.header.Get(h); v != "" {
						fmt.Fprintf(&got, "%s: %s\n", h, v)
					}
				}
				got.WriteByte('\n')
				if err := json.Indent(&got, r.body, "", "  "); err != nil {
					t.Fatal(err)
				}
				golden(t, filepath.Join("testdata", name+".txt"), userSeed.ReplaceAll(got.Bytes(), []byte("SU…")))
			})
		})
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), run with -update to accept:\n%s", path, diff)
	}
}

// TestBearerIsAccepted checks a bearer of each kind as the callout will.
func TestBearerIsAccepted(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	public, err := bearer.PublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	prove := func(target string) map[string][]string {
		proof, err := bearer.Prove(t.Context(), key, "POST", target, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return map[string][]string{"Dpop": {proof}}
	}
	for _, c := range []struct {
		name string
		ask  ask
		act  bearer.Act
		life time.Duration
	}{
		{"person", ask{body: personBody(good, "")}, bearer.Act{Owner: owner, Actor: "ada", UID: uid, Epoch: 3, Inbox: string(uid)}, bearer.MaxHumanLife},
		{
			"agent", ask{body: agentBody(agentToken, "")},
			bearer.Act{Owner: owner, Actor: "helper", UID: uid, Epoch: 3, Inbox: string(uid), Parent: owner + ".ada"}, bearer.MaxAgentLife,
		},
		{
			"view", ask{body: personBody(good, `,"view":"admin"`)},
			bearer.Act{Owner: owner, Actor: "ada", UID: uid, Epoch: 3, Inbox: string(uid), View: trust.ViewAdmin}, bearer.MaxHumanLife,
		},
	} {
		for _, bound := range []bool{false, true} {
			face, target := exchange.Public, "https://mesh.example/exchange"
			if c.act.View != trust.ViewNone {
				face, target = exchange.Loopback, "http://127.0.0.1:0/exchange" // as it stands in the options: nothing listens
			}
			if bound {
				c.ask.header = prove(target)
			}
			r := k.call(face, c.ask)
			r.want(t, 200, "")
			token, _ := r.members(t)["token"].(string)
			claims, err := bearer.NewValidator("main", k.keys, nil).Validate(t.Context(), token)
			if err != nil {
				t.Fatalf("%s: the bearer is refused: %v", c.name, err)
			}
			if diff := cmp.Diff(c.act, claims.Act); diff != "" {
				t.Errorf("%s: act (-want +got):\n%s", c.name, diff)
			}
			if got := claims.Expires.Sub(claims.IssuedAt); got != c.life {
				t.Errorf("%s: it lives %s, want %s", c.name, got, c.life)
			}
			if got := claims.Confirmation.Equal(public); got != bound {
				t.Errorf("%s: bound to the key is %t, want %t", c.name, got, bound)
			}
			if d := k.last(t); !d.Allowed() || d.Bound != bound || d.TokenID != claims.ID || d.Lifecycle.Actor != c.act.Actor || d.Status != 200 {
				t.Errorf("%s: decision = %+v", c.name, d)
			}
		}
	}
}

func TestKeyProof(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.run(t)
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	prove := func(method, target string) string {
		proof, err := bearer.Prove(t.Context(), key, method, target, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return proof
	}
	own, once := "http://"+k.LoopbackAddr()+"/exchange", prove("POST", "http://"+k.LoopbackAddr()+"/exchange")
	for _, c := range []struct {
		name   string
		face   exchange.Face
		proofs []string
		status int
		code   string
	}{
		{"of the face", exchange.Loopback, []string{once}, 200, ""},
		{"again", exchange.Loopback, []string{once}, 401, "replayed"},
		{"by name", exchange.Loopback, []string{prove("POST", strings.Replace(own, "127.0.0.1", "localhost", 1))}, 200, ""},
		{"of the other face", exchange.Public, []string{prove("POST", own)}, 401, "key-proof-refused"},
		{"of the proxy", exchange.Public, []string{prove("POST", "https://mesh.example/exchange")}, 200, ""},
		{"of the proxy's other route", exchange.Public, []string{prove("POST", "https://mesh.example/jwks")}, 401, "key-proof-refused"},
		{"of another method", exchange.Loopback, []string{prove("GET", own)}, 401, "key-proof-refused"},
		{"two", exchange.Loopback, []string{prove("POST", own), prove("POST", own)}, 401, "key-proof-refused"},
		{"empty", exchange.Loopback, []string{""}, 401, "key-proof-refused"},
	} {
		signed := k.bearers.signed.Load()
		r := k.dial(t, c.face, ask{body: personBody(good, ""), header: map[string][]string{"Dpop": c.proofs}})
		r.want(t, c.status, c.code)
		checkHeaders(t, r)
		if c.status == 401 && (!strings.HasPrefix(r.header.Get("WWW-Authenticate"), "DPoP ") || k.bearers.signed.Load() != signed) {
			t.Errorf("%s: challenge %q, %d signed", c.name, r.header.Get("WWW-Authenticate"), k.bearers.signed.Load()-signed)
		}
	}
	// A stranger's proof takes no room in the memory: it is looked at after the credential.
	again := prove("POST", own)
	k.dial(t, exchange.Loopback, ask{body: personBody("forged", ""), header: map[string][]string{"Dpop": {again}}}).want(t, 401, "bad-signature")
	k.dial(t, exchange.Loopback, ask{body: personBody(good, ""), header: map[string][]string{"Dpop": {again}}}).want(t, 200, "")

	none := newKit(t, func(o *exchange.Options) { o.Proofs = nil })
	none.call(exchange.Public, ask{body: personBody(good, ""), header: map[string][]string{"Dpop": {prove("POST", own)}}}).want(t, 401, "key-proof-refused")
}

func TestLives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		login, grant time.Duration // until the end; 0 for an hour, and none
		body         string
		want         int // seconds, 0 for refused
		code         string
	}{
		{"a person's", 0, 0, personBody(good, ""), 900, ""},
		{"shorter", 0, 0, personBody(good, `,"ttlSec":60`), 60, ""},
		{"the shortest", 0, 0, personBody(good, `,"ttlSec":1`), 1, ""},
		{"clamped", 0, 0, personBody(good, `,"ttlSec":86400`), 900, ""},
		{"clamped at the end of numbers", 0, 0, personBody(good, `,"ttlSec":9223372036854775807`), 900, ""},
		{"null", 0, 0, personBody(good, `,"ttlSec":null`), 900, ""},
		{"zero", 0, 0, personBody(good, `,"ttlSec":0`), 0, "malformed"},
		{"negative", 0, 0, personBody(good, `,"ttlSec":-1`), 0, "malformed"},
		{"not beyond the login", 100 * time.Second, 0, personBody(good, ""), 100, ""},
		{"not beyond the grant", 0, 200 * time.Second, personBody(good, ""), 200, ""},
		{"the earlier", 300 * time.Second, 200 * time.Second, personBody(good, ""), 200, ""},
		{"the earlier still", 100 * time.Second, 200 * time.Second, personBody(good, ""), 100, ""},
		{"of little left", 5 * time.Second, 0, personBody(good, ""), 5, ""},
		{"of too little left", 4 * time.Second, 0, personBody(good, ""), 0, "expired"},
		{"of a login within the leeway", -30 * time.Second, 0, personBody(good, ""), 0, "expired"},
		{"of too little grant left", 0, 4 * time.Second, personBody(good, ""), 0, "grant-expired"},
		{"an agent's", 0, 0, agentBody(agentToken, ""), 300, ""},
		{"an agent's, clamped", 0, 0, agentBody(agentToken, `,"ttlSec":900`), 300, ""},
		{"an agent's, not beyond the grant", 0, 20 * time.Second, agentBody(agentToken, ""), 20, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				k := newKit(t, func(o *exchange.Options) { o.Identity = provider{life: c.login} })
				if c.grant != 0 {
					k.office.until = time.Now().Add(c.grant)
				}
				r := k.call(exchange.Public, ask{body: c.body})
				if c.want == 0 {
					if got := r.members(t)["code"]; got != c.code || k.bearers.signed.Load() != 0 {
						t.Errorf("code = %v, want %q; %d signed", got, c.code, k.bearers.signed.Load())
					}
					return
				}
				r.want(t, 200, "")
				m := r.members(t)
				if got := int(m["exp"].(float64) - m["iat"].(float64)); got != c.want {
					t.Errorf("lives %d s, want %d", got, c.want)
				}
			})
		})
	}
}

// TestRefusals names what each wrong request is told. Nothing is signed for a token of another client, for one that was given
// to another client, or without a proof (field cases O22 and O25).
func TestRefusals(t *testing.T) {
	t.Parallel()
	admin := `,"view":"admin"`
	for _, c := range []struct {
		name   string
		face   exchange.Face
		body   string
		status int
		code   string
	}{
		{"no proof", exchange.Public, `{}`, 400, "malformed"},
		{"an actor alone", exchange.Public, `{"actor":"ada"}`, 400, "malformed"},
		{"both proofs", exchange.Public, personBody(good, `,"actorToken":"x"`), 400, "malformed"},
		{"an owner with a login", exchange.Public, personBody(good, `,"owner":"`+owner+`"`), 400, "malformed"},
		{"an agent without owner", exchange.Public, `{"actor":"helper","actorToken":"x"}`, 400, "malformed"},
		{"an agent without actor", exchange.Public, `{"owner":"` + owner + `","actorToken":"x"}`, 400, "malformed"},
		{"a bad actor", exchange.Public, personBody(good, `,"actor":"a.b"`), 400, "malformed"},
		{"a bad scope", exchange.Public, personBody(good, `,"scope":["everything"]`), 400, "malformed"},
		{"a doubled scope", exchange.Public, personBody(good, `,"scope":["spawn","spawn"]`), 400, "malformed"},
		{"a scope that is a word", exchange.Public, personBody(good, `,"scope":"spawn"`), 400, "malformed"},
		{"an unknown view", exchange.Loopback, personBody(good, `,"view":"root"`), 400, "malformed"},
		{"a view at the public face", exchange.Public, personBody(good, admin), 403, "view-refused"},
		{"a view at the loopback face", exchange.Loopback, personBody(good, admin), 200, ""},
		{"a view of an agent", exchange.Loopback, agentBody(agentToken, admin), 403, "view-refused"},
		{"forged", exchange.Public, personBody("forged", ""), 401, "bad-signature"},
		{"another client's", exchange.Public, personBody("other-client", ""), 401, "wrong-audience"},
		{"given to another client", exchange.Public, personBody("other-party", ""), 401, "wrong-audience"},
		{"without subject", exchange.Public, personBody("nobody", ""), 401, "bad-subject"},
		{"not granted", exchange.Public, personBody("stranger", ""), 403, "not-granted"},
		{"another's actor", exchange.Public, personBody(good, `,"actor":"bob"`), 403, "not-granted"},
		{"a scope beyond the grant", exchange.Public, personBody(good, `,"scope":["supervise"]`), 403, "scope-missing"},
		{"no scope at all", exchange.Public, personBody(good, `,"scope":[]`), 200, ""},
		{"the provider is away", exchange.Public, personBody("outage", ""), 503, "idp-unavailable"},
		{"an unknown failure", exchange.Public, personBody("broken", ""), 500, "internal"},
		{"a panic", exchange.Public, personBody("panic", ""), 500, "internal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t, nil)
			r := k.call(c.face, ask{body: c.body})
			r.want(t, c.status, c.code)
			checkHeaders(t, r)
			if text := string(r.body); strings.Contains(text, "secret detail") || strings.Contains(text, good) {
				t.Errorf("the answer tells too much: %s", text)
			}
			if signed := k.bearers.signed.Load(); c.status != 200 && signed != 0 {
				t.Errorf("%d bearers were signed", signed)
			}
			d := k.last(t)
			if d.Status != c.status || d.Face != c.face || d.Peer != "192.0.2.1" || string(d.Reason) != c.code && string(d.Code) != c.code {
				t.Errorf("decision = %+v", d)
			}
			if c.status == 500 && (strings.Contains(d.Message, "secret detail") || !strings.Contains(k.log.String(), "request failed")) {
				t.Errorf("decision says %q, log %q", d.Message, k.log)
			}
		})
	}
}

// TestAgentRefusalsAreOne has whatever is wrong with an agent answered by the same bytes, until its secret is proved.
func TestAgentRefusalsAreOne(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	first := k.call(exchange.Public, ask{body: agentBody("wrong", "")})
	first.want(t, 401, "actor-token-refused")
	for name, body := range map[string]string{
		"no such agent":     `{"owner":"` + owner + `","actor":"nobody","actorToken":"x"}`,
		"no such owner":     `{"owner":"u_aaaaaaaaaaaaaaaaaaaaaaaaaa","actor":"helper","actorToken":"x"}`,
		"no owner's form":   `{"owner":"local","actor":"helper","actorToken":"x"}`,
		"no name's form":    `{"owner":"*","actor":">","actorToken":"x"}`,
		"a person's actor":  `{"owner":"` + owner + `","actor":"ada","actorToken":"x"}`,
		"with a scope":      agentBody("wrong", `,"scope":["spawn"]`),
		"with a short life": agentBody("wrong", `,"ttlSec":5`),
	} {
		before := k.office.asked.Load()
		r := k.call(exchange.Public, ask{body: body})
		if r.status != first.status || !bytes.Equal(r.body, first.body) {
			t.Errorf("%s: %d %s, want %d %s", name, r.status, r.body, first.status, first.body)
		}
		if got := k.office.asked.Load() - before; got != 1 {
			t.Errorf("%s: the authority was asked %d times, want once as for any other", name, got)
		}
	}
	for _, c := range []struct {
		err  error
		same bool
		code string
	}{
		{wire.Errorf(wire.CodeNotFound, "no grant"), true, ""},
		{wire.Errorf(wire.CodeBadRequest, "bad name"), true, ""},
		{trust.Deny(wire.CodePermissionDenied, trust.ReasonNotGranted, "not granted"), true, ""},
		{trust.Deny(wire.CodePermissionDenied, trust.ReasonRevoked, "revoked"), false, "grant-revoked"},
		{fmt.Errorf("x: %w", trust.Deny(wire.CodeFailedPrecondition, trust.ReasonRetiring, "retiring")), false, "grant-retiring"},
		{wire.Errorf(wire.CodeUnavailable, "the broker is away"), false, "unavailable"},
		{errors.New("x"), false, "internal"},
	} {
		k.office.agent = func(context.Context, auth.AgentRequest) (auth.Admission, error) { return auth.Admission{}, c.err }
		r := k.call(exchange.Public, ask{body: agentBody(agentToken, "")})
		if same := bytes.Equal(r.body, first.body); same != c.same || !same && r.members(t)["code"] != c.code {
			t.Errorf("%v: %d %s", c.err, r.status, r.body)
		}
	}
}

// TestSuspended has the client see a stable code and the log the reason (field case N1).
func TestSuspended(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.office.person = func(context.Context, auth.PersonRequest) (auth.Admission, error) {
		return auth.Admission{}, fmt.Errorf("admit: %w", trust.Deny(wire.CodePermissionDenied, trust.ReasonRevoked, "the grant was revoked; ask the operator"))
	}
	k.call(exchange.Public, ask{body: personBody(good, `,"actor":"ada"`)}).want(t, 403, "grant-revoked")
	if log := k.log.String(); !strings.Contains(log, "level=INFO") || !strings.Contains(log, "reason=grant-revoked") || !strings.Contains(log, owner+".ada") {
		t.Errorf("the log does not say who was refused and why: %s", log)
	}
}

// TestAuthorityErrors has the status and code of what an authority says of a person.
func TestAuthorityErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{trust.Deny(wire.CodePermissionDenied, trust.ReasonRevoked, "suspended"), 403, "grant-revoked"},
		{trust.Deny(wire.CodeFailedPrecondition, trust.ReasonRetiring, "x"), 403, "grant-retiring"},
		{trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode, "x"), 403, "static-mode"},
		{trust.Deny(wire.CodeBadRequest, trust.ReasonMalformed, "you can sign in as ada, bob"), 400, "malformed"},
		{trust.Deny(wire.CodeUnavailable, trust.ReasonBusy, "x"), 503, "busy"},
		{trust.Deny(wire.CodeResourceExhausted, trust.ReasonBusy, "x"), 503, "busy"},
		{wire.Errorf(wire.CodeNotFound, "secret detail"), 409, "not-found"},
		{wire.Errorf(wire.CodeConflict, "x"), 409, "conflict"},
		{wire.Errorf(wire.CodeResourceExhausted, "x"), 429, "resource-exhausted"},
		{wire.Errorf(wire.CodeUnavailable, "secret detail"), 503, "unavailable"},
		{trust.Deny(wire.CodeInternal, trust.ReasonScope, "secret detail"), 500, "scope-missing"},
		{context.DeadlineExceeded, 503, "unavailable"},
		{wire.Errorf("com.acme.odd", "x"), 500, "internal"},
	} {
		k := newKit(t, nil)
		k.office.person = func(context.Context, auth.PersonRequest) (auth.Admission, error) {
			return auth.Admission{}, fmt.Errorf("admit person: %w", c.err)
		}
		r := k.call(exchange.Public, ask{body: personBody(good, "")})
		r.want(t, c.status, c.code)
		checkHeaders(t, r)
		if strings.Contains(string(r.body), "secret detail") {
			t.Errorf("%v: the answer tells too much: %s", c.err, r.body)
		}
		if d := k.last(t); d.Lifecycle.Owner != owner {
			t.Errorf("%v: the owner was proved, the decision has %q", c.err, d.Lifecycle.Owner)
		}
	}
}

// TestAdmissionMustFit has an authority that answers something else than was asked.
func TestAdmissionMustFit(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(a *auth.Admission){
		"another owner":   func(a *auth.Admission) { a.Grant.Owner = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa" },
		"another actor":   func(a *auth.Admission) { a.Grant.Actor = "bob" },
		"an agent":        func(a *auth.Admission) { a.Grant.Kind = trust.KindManaged },
		"retired":         func(a *auth.Admission) { a.Grant.State = trust.GrantRetired },
		"a view":          func(a *auth.Admission) { a.View = trust.ViewAdmin },
		"a profile":       func(a *auth.Admission) { a.Profile = trust.Admin },
		"beyond the wish": func(a *auth.Admission) { a.Scope = []string{trust.ScopeAdmin} },
		"beyond all":      func(a *auth.Admission) { a.Scope = []string{trust.ScopeSupervise} },
		"beyond the grant": func(a *auth.Admission) {
			a.Grant.Scope = nil // and within the wish
		},
		"no uid": func(a *auth.Admission) { a.Grant.UID = "" },
	} {
		k := newKit(t, nil)
		k.office.person = func(_ context.Context, req auth.PersonRequest) (auth.Admission, error) {
			a := auth.Admission{Grant: grant("ada", trust.KindInteractive), Profile: trust.Agent, Scope: []string{trust.ScopeSpawn}}
			change(&a)
			return a, nil
		}
		r := k.call(exchange.Public, ask{body: personBody(good, `,"actor":"ada","scope":["spawn"]`)})
		if r.status != 500 {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
}
