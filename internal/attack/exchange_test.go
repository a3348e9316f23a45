package attack_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
)

// letter is a request to an exchange that no client of ours writes.
type letter struct {
	url, capability, kind, body string
	header                      map[string][]string
}

// answered is what came back.
type answered struct {
	status int
	body   string
	code   string // of a refusal
	token  string // of a bearer
}

// post sends a letter.
func (l letter) post(t testing.TB) answered {
	t.Helper()
	req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost, l.url+"/exchange", bytes.NewReader([]byte(l.body))))
	req.Header.Set("Content-Type", l.kind)
	if l.kind == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if l.capability != "" {
		req.Header.Set("Authorization", "Bearer "+l.capability)
	}
	for k, vs := range l.header {
		for _, v := range vs {
			req.Header.Add(k, v)
		}
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp := must[*http.Response](t)((&http.Client{Transport: transport}).Do(req))
	defer func() { _ = resp.Body.Close() }()
	out := answered{status: resp.StatusCode, body: string(must[[]byte](t)(io.ReadAll(io.LimitReader(resp.Body, 1<<20))))}
	var doc struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
		Code        string `json:"code"`
	}
	_ = json.Unmarshal([]byte(out.body), &doc) // the 404 of a path that is none is no document of ours
	out.code, out.token = doc.Code, doc.Token+doc.AccessToken
	return out
}

// publicTown has both faces.
func publicTown(t testing.TB) (*town, login.Capability, string) {
	t.Helper()
	port := freePort(t)
	opts := &cotaltest.Options{People: cotal.PeopleOptions{PublicPort: port}}
	w := newTown(t, opts)
	return w, w.desk(t, w.Space()), "http://127.0.0.1:" + strconv.Itoa(port)
}

// freePort is a port that nobody listens on at this moment.
func freePort(t testing.TB) int {
	t.Helper()
	l := must[net.Listener](t)(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return must[int](t)(strconv.Atoi(port))
}

// TestViewsAreForPeopleOnTheMachine: a view needs its scope, a person, and the loopback face. An agent never gets one, over neither
// face, whatever its grant holds.
func TestViewsAreForPeopleOnTheMachine(t *testing.T) {
	t.Parallel()
	w, desk, public := publicTown(t)
	wide := func(r *auth.GrantRequest) { r.Scope = []string{trust.ScopeAdmin, trust.ScopeSpawn} }
	boss := w.grant(t, "ada", "boss", wide)
	w.grant(t, "bob", "clerk", func(r *auth.GrantRequest) { r.Scope = []string{} })
	life := boss.Lifecycle()
	agent := must[*authtest.Agent](t)(authtest.Grant(t.Context(), w.authority(), auth.GrantRequest{
		Space: w.Space(), Actor: "helper", Parent: &life, Subscribe: []string{"general"},
	}))
	must[auth.GrantChange](t)(w.authority().Grant(t.Context(), auth.GrantRequest{ // what no supervisor asks for
		Space: w.Space(), Owner: agent.Owner, Actor: "helper", Kind: trust.KindManaged, Scope: []string{trust.ScopeAdmin, trust.ScopeSpawn},
	}))
	person := func(sub, actor string, view trust.View) string {
		return jsonOf(t, map[string]any{"idpToken": "proof " + sub, "actor": actor, "view": view})
	}
	helper := func(view trust.View) string {
		return jsonOf(t, map[string]any{"owner": agent.Owner, "actor": "helper", "actorToken": agent.Secret(), "view": view})
	}
	for _, view := range []trust.View{trust.ViewAdmin, trust.ViewPurger, trust.ViewChannelWriter, trust.ViewDeployer} {
		for name, l := range map[string]letter{
			"a person over the public face":       {url: public, body: person("ada", "boss", view)},
			"a person without the scope":          {url: desk.URL, capability: desk.Cap(), body: person("bob", "clerk", view)},
			"an agent over the loopback face":     {url: desk.URL, capability: desk.Cap(), body: helper(view)},
			"an agent over the public face":       {url: public, body: helper(view)},
			"a person as the agent":               {url: desk.URL, capability: desk.Cap(), body: person("ada", "helper", view)},
			"the right one without a capability":  {url: desk.URL, body: person("ada", "boss", view)},
			"the right one with another":          {url: desk.URL, capability: strings.Repeat("0", 64), body: person("ada", "boss", view)},
			"the capability at the public face":   {url: public, capability: desk.Cap(), body: person("ada", "boss", view)},
			"over the public face, in a header":   {url: public, body: person("ada", "boss", view), header: map[string][]string{"X-Forwarded-For": {"127.0.0.1"}, "Host": {"127.0.0.1"}}},
			"a wish for a view that there is not": {url: desk.URL, capability: desk.Cap(), body: person("ada", "boss", "operator")},
		} {
			if got := l.post(t); got.token != "" || got.status < 400 {
				t.Errorf("view %q, %s: status %d", view, name, got.status)
			}
		}
		if got := (letter{url: desk.URL, capability: desk.Cap(), body: person("ada", "boss", view)}).post(t); got.status != http.StatusOK || got.token == "" {
			t.Errorf("view %q of who may have it: %d %s", view, got.status, got.code)
		}
	}
	for name, l := range map[string]letter{
		"agent":  {url: public, body: helper("")},
		"person": {url: public, body: person("ada", "boss", "")},
	} {
		if got := l.post(t); got.status != http.StatusOK {
			t.Errorf("the same %s without a view: %d %s", name, got.status, got.code)
		}
	}
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	return string(must[[]byte](t)(json.Marshal(v)))
}

// TestASecretOfAStartIsOver: the secret of an agent that was started again, or stopped, gives no bearer, and what was open under it
// is closed. Nor is it the secret of another agent.
func TestASecretOfAStartIsOver(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	life := w.grant(t, "ada", "ada", nil).Lifecycle()
	born := func(actor string) (*authtest.Agent, func() string) {
		req := auth.GrantRequest{Space: w.Space(), Actor: actor, Parent: &life, Subscribe: []string{"general"}}
		agent := must[*authtest.Agent](t)(authtest.Grant(t.Context(), w.authority(), req))
		return agent, agent.Secret
	}
	helper, first := born("helper")
	other, foreign := born("other")
	x := w.exchange(t, w.Space())
	as := func(actor string, secret func() string) (login.Bearer, error) {
		return x.Agent(t.Context(), login.AgentRequest{Owner: helper.Owner, Actor: actor, ActorToken: secret})
	}
	b, err := as("helper", first)
	if err != nil {
		t.Fatal(err)
	}
	old := must[*trust.Credentials](t)(b.Credentials())
	open := w.watch(t, old)
	ctl := w.control(t)
	second := must[func() string](t)(helper.Start(t.Context(), w.authority(), w.Space()))
	if n := w.connections(t, ctl, helper.UID); n != 0 {
		t.Errorf("%d connections of the start before", n)
	}
	<-open.gone
	for name, try := range map[string]func() (login.Bearer, error){
		"the secret of the start before": func() (login.Bearer, error) { return as("helper", first) },
		"the secret of another agent":    func() (login.Bearer, error) { return as("helper", foreign) },
		"its secret as another agent":    func() (login.Bearer, error) { return as("other", second) },
		"its secret as who started it":   func() (login.Bearer, error) { return as("ada", second) },
		"its secret as nobody":           func() (login.Bearer, error) { return as("nobody", second) },
		"its secret as an identity token": func() (login.Bearer, error) {
			return x.Human(t.Context(), login.HumanRequest{IDToken: second, Actor: "helper"})
		},
		"its bearer as a secret": func() (login.Bearer, error) {
			return x.Agent(t.Context(), login.AgentRequest{Owner: helper.Owner, Actor: "helper", ActorToken: b.Reveal})
		},
		"its bearer as an identity token": func() (login.Bearer, error) {
			return x.Human(t.Context(), login.HumanRequest{IDToken: b.Reveal, Actor: "helper"})
		},
	} {
		if _, err := try(); err == nil {
			t.Errorf("%s gave a bearer", name)
		}
	}
	if err := w.knock(t, old); err == nil {
		t.Error("the bearer of the start before connects")
	}
	if _, err := as("helper", second); err != nil {
		t.Errorf("the secret of the start of now: %v", err)
	}
	if err := helper.Stop(t.Context(), w.authority(), w.Space()); err != nil {
		t.Fatal(err)
	}
	if _, err := as("helper", second); trust.ReasonOf(err) != trust.ReasonActorToken {
		t.Errorf("the secret of an agent that was stopped: %v", err)
	}
	if _, err := as("other", foreign); err != nil {
		t.Errorf("the other agent, %s: %v", other.Lifecycle, err)
	}
}

// TestProofsOfKeysAreForOneRequest: a proof that was seen is no good again, for another address, another method, another time, or in the
// hands of who does not have the key.
func TestProofsOfKeysAreForOneRequest(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	w.grant(t, "ada", "ada", nil)
	desk := w.desk(t, w.Space())
	key := newKey(t)
	prove := func(method, url string, at time.Time) string {
		return must[string](t)(bearer.Prove(t.Context(), key, method, url, at))
	}
	ask := func(proofs ...string) answered {
		return letter{
			url: desk.URL, capability: desk.Cap(), body: jsonOf(t, map[string]any{"idpToken": "proof ada", "actor": "ada"}), header: map[string][]string{"DPoP": proofs},
		}.post(t)
	}
	good := prove("POST", desk.URL+"/exchange", time.Now())
	if got := ask(good); got.status != http.StatusOK {
		t.Fatalf("a proof in order: %d %s", got.status, got.code)
	}
	now := time.Now()
	for name, proofs := range map[string][]string{
		"again":               {good},
		"for another address": {prove("POST", "https://mesh.example/exchange", now)},
		"for another path":    {prove("POST", desk.URL+"/jwks", now)},
		"for another method":  {prove("GET", desk.URL+"/exchange", now)},
		"of an hour ago":      {prove("POST", desk.URL+"/exchange", now.Add(-time.Hour))},
		"of the next hour":    {prove("POST", desk.URL+"/exchange", now.Add(time.Hour))},
		"two at once":         {prove("POST", desk.URL+"/exchange", now), prove("POST", desk.URL+"/exchange", now)},
		"changed":             {rewrite(t, prove("POST", desk.URL+"/exchange", now), func(_, c map[string]any) { c["jti"] = "another" }, nil)},
		"with another key put in": {rewrite(t, prove("POST", desk.URL+"/exchange", now), func(h, _ map[string]any) {
			h["jwk"] = map[string]any{"kty": "OKP", "crv": "Ed25519", "x": strings.Repeat("A", 43)}
		}, nil)},
		"a bearer in place of one": {ask().token},
		"nothing":                  {""},
	} {
		if got := ask(proofs...); got.token != "" || got.status != http.StatusUnauthorized && got.status != http.StatusConflict {
			t.Errorf("%s: %d %s", name, got.status, got.code)
		}
	}
	if got := ask(prove("POST", desk.URL+"/exchange", time.Now())); got.status != http.StatusOK {
		t.Errorf("the next proof in order: %d %s", got.status, got.code)
	}
}

// TestGuessTheCapability: the file of the capability is its user's alone, guesses are answered a bounded number of times a
// minute, and whoever knows it is served meanwhile.
func TestGuessTheCapability(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	w.grant(t, "ada", "ada", nil)
	path := cotal.CapabilityFile(w.dir, string(w.Space()))
	if info := must[os.FileInfo](t)(os.Stat(path)); runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v of the capability file, want 0600", info.Mode().Perm())
	}
	desk := w.desk(t, w.Space())
	body := jsonOf(t, map[string]any{"idpToken": "proof ada", "actor": "ada"})
	guesses := []string{"", "x", strings.Repeat("0", 64), desk.Cap()[:63], desk.Cap() + "0", strings.ToUpper(desk.Cap()), desk.Cap()[1:] + desk.Cap()[:1]}
	seen := map[int]int{}
	for i := range 60 {
		got := letter{url: desk.URL, capability: guesses[i%len(guesses)], body: body}.post(t)
		if got.token != "" {
			t.Fatalf("guess %q gave a bearer", guesses[i%len(guesses)])
		}
		if strings.Contains(got.body, desk.Cap()) {
			t.Errorf("a refusal shows the capability")
		}
		seen[got.status]++
	}
	if seen[http.StatusUnauthorized] > 31 || seen[http.StatusTooManyRequests] == 0 || len(seen) != 2 {
		t.Errorf("sixty guesses were answered with %v, want about thirty 401 and then 429", seen)
	}
	if got := (letter{url: desk.URL, capability: desk.Cap(), body: body}).post(t); got.status != http.StatusOK {
		t.Errorf("whoever knows it, meanwhile: %d %s", got.status, got.code)
	}
	w.Restart(t)
	after := w.desk(t, w.Space())
	if after.Cap() == desk.Cap() {
		t.Error("the capability outlives the node")
	}
	if got := (letter{url: after.URL, capability: desk.Cap(), body: body}).post(t); got.token != "" {
		t.Error("the capability of the run before opens the exchange")
	}
	w.Stop()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the capability file is left after the node: %v", err)
	}
}
