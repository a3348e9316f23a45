package signin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

type oidcPin = oidc.Pin

// thiefSeed is the seed of a key that nobody knows.
func thiefSeed(t *testing.T) []byte {
	t.Helper()
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	return key.Seed().Reveal()
}

// bearerOfAgent exchanges the secret of agent helper, whom ada started.
func bearerOfAgent(t *testing.T, x *login.Exchange, w *world, secret func() string) login.Bearer {
	t.Helper()
	b, err := x.Agent(t.Context(), login.AgentRequest{Owner: w.owner(t, "ada"), Actor: "helper", ActorToken: secret})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ledger is a log at its most talkative.
type ledger struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *ledger) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *ledger) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// hoard is what nobody may say.
type hoard map[string]string

// leaks names what of the hoard, or of the forms that any secret of ours has, stands in a text.
func (h hoard) leaks(text string) []string {
	var out []string
	for name, secret := range h {
		if len(secret) < 12 {
			out = append(out, fmt.Sprintf("%s is only %d long and proves nothing", name, len(secret)))
		}
		if strings.Contains(text, secret) {
			out = append(out, name)
		}
	}
	for name, form := range secretForms {
		if m := form.FindString(text); m != "" {
			out = append(out, fmt.Sprintf("%s: %.12s…", name, m))
		}
	}
	return out
}

var secretForms = map[string]*regexp.Regexp{
	"a seed of NATS": regexp.MustCompile(`\bS[UAOCNX][A-Z2-7]{56}\b`),
	"a signed token": regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{8,}`),
}

// records adds every private text of the secret store.
func (h hoard) records(t *testing.T, w *world) {
	t.Helper()
	store, ok := w.Store().(*memstore.Store)
	if !ok {
		t.Fatalf("the mesh keeps its records in a %T", w.Store())
	}
	keys, err := store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		data, err := w.Store().Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(key, ".nk") {
			h[key] = strings.TrimSpace(string(data))
			continue
		}
		var doc any
		if err := json.Unmarshal(data, &doc); err != nil {
			continue
		}
		h.walk(key, doc)
	}
}

func (h hoard) walk(path string, doc any) {
	switch v := doc.(type) {
	case map[string]any:
		for k, e := range v {
			if text, ok := e.(string); ok && (k == "seed" || k == "secretB64") {
				h[path+"."+k+"."+fmt.Sprint(len(h))] = text
			}
			h.walk(path+"."+k, e)
		}
	case []any:
		for i, e := range v {
			h.walk(fmt.Sprint(path, i), e)
		}
	}
}

// session adds what a sign-in holds.
func (h hoard) session(t *testing.T, src *login.Source) login.Session {
	t.Helper()
	s, err := src.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := s.Reveal()
	if err != nil {
		t.Fatal(err)
	}
	var tokens struct {
		Refresh string `json:"refresh"`
		ID      string `json:"idToken"`
	}
	if err := json.Unmarshal(data, &tokens); err != nil || tokens.Refresh == "" || tokens.ID == "" {
		t.Fatalf("a session without tokens, %v", err)
	}
	h["refresh token"], h["id token"], h["signature of the id token"] = tokens.Refresh, tokens.ID, tokens.ID[strings.LastIndexByte(tokens.ID, '.')+1:]
	return s
}

func (h hoard) bearer(name string, b login.Bearer) {
	token := b.Reveal()
	h[name], h["signature of "+name] = token, token[strings.LastIndexByte(token, '.')+1:]
}

// TestNoSecretIsSaid runs whole sign-ins, of a person, with a view, of an agent, and everything that can be refused about them, with every
// component at its most talkative. Then nothing secret stands in the log, in an error, or in what any value prints as.
func TestNoSecretIsSaid(t *testing.T) {
	t.Parallel()
	var log ledger
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w := &world{idp: idptest.Start(t, idptest.Zitadel, nil), dir: t.TempDir()}
	w.pin = w.idp.Pin(t)
	people := cotal.PeopleOptions{Provider: &w.pin, HTTP: w.idp.HTTP()}
	w.Mesh = cotaltest.New(t, &cotaltest.Options{Listen: true, StateDir: w.dir, Logger: logger, People: people})
	a, secrets := w.Node().Authority(), hoard{}
	secrets.records(t, w)
	c := w.capability(t)
	secrets["capability"] = c.Cap()
	life := w.grant(t, "ada", "ada", func(r *auth.GrantRequest) { r.Scope = []string{trust.ScopeSpawn, trust.ScopeAdmin} }).Lifecycle()
	src, x := w.signIn(t, "ada"), w.exchange(t)
	session := secrets.session(t, src)
	person := login.HumanSource(x, src, login.HumanRequest{Actor: "ada"})
	b := bearerOf(t, x, src)
	secrets.bearer("bearer", b)
	helper, err := authtest.Grant(t.Context(), a, auth.GrantRequest{Space: w.Space(), Actor: "helper", Parent: &life, Subscribe: []string{"general"}})
	if err != nil {
		t.Fatal(err)
	}
	secrets["actor token"] = helper.Secret()
	grants, err := a.List(t.Context(), w.Space())
	if err != nil {
		t.Fatal(err)
	}
	agent := bearerOfAgent(t, x, w, helper.Secret)
	secrets.bearer("bearer of the agent", agent)
	view, err := x.Human(t.Context(), login.HumanRequest{IDToken: func() string { return secrets["id token"] }, Actor: "ada", View: trust.ViewAdmin})
	if err != nil {
		t.Fatal(err)
	}
	secrets.bearer("bearer with a view", view)
	creds, err := b.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	ep, err := endpoint.Connect(t.Context(), w.URL(), person, &endpoint.Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ep.Post(t.Context(), "general", endpoint.Text("hello")); err != nil {
		t.Fatal(err)
	}
	status, err := w.Node().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refusals := refuseEverything(t, w, secrets, x)
	if _, err := a.Revoke(t.Context(), w.Space(), life.Principal); err != nil {
		t.Fatal(err)
	}
	refusals = append(refusals, knock(t, w, creds))
	_, err = person.Credentials(t.Context())
	refusals = append(refusals, err)
	_ = ep.Close()
	w.Restart(t)
	w.Stop()

	if len(secrets) < 20 {
		t.Fatalf("%d secrets, too few to prove anything", len(secrets))
	}
	said := log.text()
	for _, component := range []string{"component=callout", "component=exchange", "component=auth", "component=authority"} {
		if !strings.Contains(said, component) {
			t.Errorf("nothing of %s in the log, so nothing is proved", component)
		}
	}
	if found := secrets.leaks(said); len(found) > 0 {
		t.Errorf("the log says %q", found)
	}
	secrets.notInErrors(t, refusals)
	secrets.notInPrints(t, map[string]any{
		"session": session, "session pointer": &session, "bearer": b, "bearer pointer": &b, "view": view, "credentials": creds, "exchange": x, "source": src, "person": person,
		"agent request": login.AgentRequest{Owner: helper.Owner, Actor: "helper", ActorToken: helper.Secret}, "grants": grants, "status": status, "capability": c, "options": people, "bearers": []login.Bearer{b, agent},
		"struct": struct{ B, b login.Bearer }{b, b}, "request": login.HumanRequest{IDToken: func() string { return secrets["id token"] }},
	})
}

// notInErrors fails for a refusal that is none, or says something of the hoard.
func (h hoard) notInErrors(t *testing.T, refusals []error) {
	t.Helper()
	for i, err := range refusals {
		if err == nil {
			t.Errorf("refusal %d is none", i)
			continue
		}
		data, _ := json.Marshal(err)
		if found := h.leaks(fmt.Sprintf("%v %+v %#v %s", err, err, err, data)); len(found) > 0 {
			t.Errorf("refusal %d says %q", i, found)
		}
	}
}

// notInPrints fails for a value that shows something of the hoard however it is printed, encoded or logged.
func (h hoard) notInPrints(t *testing.T, values map[string]any) {
	t.Helper()
	for name, v := range values {
		data, _ := json.Marshal(v) // a value with a function in it cannot be encoded
		var logged bytes.Buffer
		slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "v", v)
		if found := h.leaks(fmt.Sprintf("%v %+v %#v %s %q", v, v, v, v, v) + string(data) + logged.String()); len(found) > 0 {
			t.Errorf("%s prints %q", name, found)
		}
	}
}

// refuseEverything makes the mesh refuse what is wrong with a good proof in it, and returns the refusals.
func refuseEverything(t *testing.T, w *world, secrets hoard, x *login.Exchange) []error {
	t.Helper()
	token, capability := secrets["id token"], secrets["capability"]
	human := func(token, actor string, view trust.View, scope ...string) error {
		_, err := x.Human(t.Context(), login.HumanRequest{IDToken: func() string { return token }, Actor: actor, View: view, Scope: scope})
		return err
	}
	out := []error{
		human(token+"x", "ada", ""), human(token, "nobody", ""), human(token, token, ""), human(token, "ada", trust.View(token)),
		human(token, "ada", "", token), human(secrets["bearer"], "ada", ""), human(secrets["actor token"], "ada", ""), human(capability, "ada", ""),
		human(strings.Repeat(token, 100), "ada", ""),
	}
	for _, secret := range []string{secrets["actor token"] + "x", token, secrets["bearer of the agent"]} {
		_, err := x.Agent(t.Context(), login.AgentRequest{Owner: w.owner(t, "ada"), Actor: "helper", ActorToken: func() string { return secret }})
		out = append(out, err)
	}
	for _, body := range []string{
		`{"idpToken":` + token, `{"idpToken":"` + token + `","idpToken":"` + token + `"}`, `{"` + token + `":"x"}`, token,
		"grant_type=urn:ietf:params:oauth:grant-type:token-exchange&subject_token=" + token + "&audience=" + token, `{"actorToken":"` + secrets["actor token"] + `"}`,
	} {
		out = append(out, postRaw(t, w, body, capability), postRaw(t, w, body, capability+"x"))
	}
	thief, err := trust.NewBearerCredentials(trust.Bearer{Sentinel: sentinelOf(t, w), Token: secrets["bearer"], Seed: thiefSeed(t), Identity: stranger(w)})
	if err != nil {
		t.Fatal(err)
	}
	out = append(out, knock(t, w, thief))
	_, err = trust.NewBearerCredentials(trust.Bearer{Sentinel: secrets["bearer"], Token: token, Seed: []byte(secrets["refresh token"]), Identity: stranger(w)})
	out = append(out, err)
	_, err = login.ParseSession([]byte(secrets["refresh token"]))
	out = append(out, err)
	_, err = exchange.NewCapability(capability + "x")
	out = append(out, err)
	return out
}

// postRaw sends a body that no client of ours sends and returns the refusal.
func postRaw(t *testing.T, w *world, body, capability string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.capability(t).URL+"/exchange", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(body, "grant_type") {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Authorization", "Bearer "+capability)
	resp, err := w.idp.HTTP().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode < 400 {
		return nil
	}
	return fmt.Errorf("%s: %s %v", resp.Status, text.String(), resp.Header)
}

func sentinelOf(t *testing.T, w *world) string {
	t.Helper()
	token, err := w.Node().Authority().Mint().Sentinel(t.Context(), w.Space(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// stranger is an identity that its bearer does not have.
func stranger(w *world) trust.Identity {
	id := trust.Identity{Space: w.Space(), Profile: trust.Agent, Lifecycle: wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "x"}, UID: wire.NewUID()}}
	id.Inbox = string(id.UID)
	id.IssuedAt, id.Expires = nowAnd()
	return id
}

// nowAnd is a life that has just begun.
func nowAnd() (from, until time.Time) {
	now := time.Now()
	return now, now.Add(time.Minute)
}
