package js_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
)

// table is one of SPEC.md: its first column, and whether what it names may be absent.
type table map[string]bool

var codeRE = regexp.MustCompile("`([^`]+)`")

// peopleTables reads the tables of section 2.4, in their order, under names of this test.
func peopleTables(t *testing.T) map[string]table {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "SPEC.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### 2.4 ")
	section, _, _ = strings.Cut(section, "\n## 3. ")
	names := []string{
		"field of the file", "request", "field", "member", "field", "field", "reason", "parameter", "field of its answer", "field of its refusal", "claim",
	}
	called := []string{"file", "routes", "mesh", "members", "answer", "refusal", "reasons", "parameters", "form answer", "form refusal", "claims"}
	out := map[string]table{}
	var now table
	for line := range strings.Lines(section) {
		first, second, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			now = nil
		case strings.HasPrefix(first, "---"):
		case now == nil:
			if n := len(out); n >= len(names) || first != names[n] {
				t.Fatalf("table %d of section 2.4 begins with %q; this test wants %q", n+1, first, names)
			}
			now = table{}
			out[called[len(out)]] = now
		case ok:
			for _, m := range codeRE.FindAllStringSubmatch(first, -1) {
				now[m[1]] = strings.HasPrefix(second, "optional")
			}
		}
	}
	if len(out) != len(names) {
		t.Fatalf("section 2.4 has %d tables, this test knows %d", len(out), len(names))
	}
	return out
}

// holds compares answers with a table: what it names is there, what may be absent is in one of them at least, and nothing else is
// anywhere.
func (b table) holds(t *testing.T, what string, answers ...map[string]any) {
	t.Helper()
	seen := map[string]bool{}
	for i, a := range answers {
		has := map[string]bool{}
		b.walk(t, what, "", a, has)
		for name, optional := range b {
			if !optional && !has[name] {
				t.Errorf("%s, answer %d: SPEC.md has %q, the answer has not", what, i+1, name)
			}
		}
		maps.Copy(seen, has)
	}
	for name := range b {
		if !seen[name] {
			t.Errorf("%s: SPEC.md has %q, and no answer of %d", what, name, len(answers))
		}
	}
}

func (b table) walk(t *testing.T, what, prefix string, v map[string]any, has map[string]bool) {
	t.Helper()
	for k, member := range v {
		name := prefix + k
		_, known := b[name]
		inner, object := member.(map[string]any)
		switch {
		case known:
			has[name] = true
		case object:
			b.walk(t, what, name+".", inner, has)
		default:
			t.Errorf("%s: the answer has %q, SPEC.md has not", what, name)
		}
	}
}

// caller sends requests to the exchange as they are.
type caller struct {
	t   *testing.T
	c   *crowd
	key *signer.Local
	cap string
}

// send posts a body, with a proof of the key if there is one, and returns the answer and its status.
func (c *caller) send(address, kind string, body []byte) (map[string]any, int) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, address+"/exchange", bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	return c.do(req)
}

func (c *caller) do(req *http.Request) (map[string]any, int) {
	c.t.Helper()
	if c.key != nil {
		proof, err := bearer.Prove(c.t.Context(), c.key, http.MethodPost, req.URL.String(), time.Now())
		if err != nil {
			c.t.Fatal(err)
		}
		req.Header.Set(bearer.ProofHeader, proof)
	}
	if !strings.HasPrefix(req.URL.String(), c.c.public) {
		req.Header.Set("Authorization", "Bearer "+c.cap)
	}
	resp, err := c.c.idp.HTTP().Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		c.t.Fatalf("%s answered %q: %v", req.URL, text, err)
	}
	return out, resp.StatusCode
}

func (c *caller) json(address string, members map[string]any) map[string]any {
	c.t.Helper()
	body, err := json.Marshal(members)
	if err != nil {
		c.t.Fatal(err)
	}
	out, _ := c.send(address, "application/json", body)
	return out
}

func (c *caller) form(address string, values url.Values) map[string]any {
	c.t.Helper()
	out, _ := c.send(address, "application/x-www-form-urlencoded", []byte(values.Encode()))
	return out
}

func (c *caller) get(address, cap string) map[string]any {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	was := *c
	was.key, was.cap = nil, cap
	out, _ := was.do(req)
	return out
}

// claimsOf reads the header and the claims of a token.
func claimsOf(t *testing.T, answer map[string]any, field string) (header, claims map[string]any) {
	t.Helper()
	token, _ := answer[field].(string)
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%s is no JWS; the code is %v", field, answer["code"])
	}
	for i, v := range []*map[string]any{&header, &claims} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, v); err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}

func fileOf(t *testing.T, dir string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, capabilityFile))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPeopleAnswersAreAsWritten holds what a space of people says against the tables of SPEC.md 2.4, so that neither changes alone.
func TestPeopleAnswersAreAsWritten(t *testing.T) {
	tables := peopleTables(t)
	c := newCrowd(t, idptest.Zitadel)
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	here, there := fileOf(t, c.dir), fileOf(t, c.otherDir)
	tables["file"].holds(t, "the file of the loopback address", here, there)
	bound := &caller{t, c, key, here["cap"].(string)}
	plain := &caller{t, c, nil, bound.cap}
	loopback := here["url"].(string)
	tables["mesh"].holds(t, "the well-known document",
		bound.get(c.public+"/.well-known/cotal-mesh", ""), bound.get(there["url"].(string)+"/.well-known/cotal-mesh", there["cap"].(string)))

	owner, agentToken := c.grantAll(t)
	src, err := c.signIn(t.Context(), t, "ada")
	if err != nil {
		t.Fatal(err)
	}
	proof, _, err := src.IDToken(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	person := bound.json(c.public, map[string]any{"idpToken": proof})
	view := bound.json(loopback, map[string]any{"idpToken": proof, "actor": "ada", "view": "admin"})
	agent := plain.json(loopback, map[string]any{"owner": owner, "actor": "helper", "actorToken": agentToken})
	tables["answer"].holds(t, "an answer", person, view, agent)

	var claims []map[string]any
	for _, a := range []map[string]any{person, view, agent} {
		h, cl := claimsOf(t, a, "token")
		if got := slices.Sorted(maps.Keys(h)); !slices.Equal(got, []string{"alg", "kid"}) {
			t.Errorf("header of a bearer: %v", h)
		}
		claims = append(claims, cl)
	}
	tables["claims"].holds(t, "a bearer", claims...)

	form := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {proof},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"}, "actor": {"ada"},
	}
	of := func(c *caller, scope string) map[string]any {
		f := maps.Clone(form)
		f.Set("scope", scope)
		return c.form(loopback, f)
	}
	tables["form answer"].holds(t, "an answer of RFC 8693", of(bound, "admin"), plain.form(loopback, url.Values{
		"grant_type": form["grant_type"], "subject_token": {agentToken}, "subject_token_type": {"urn:cotal:params:token-type:actor-token"},
		"owner": {owner}, "actor": {"helper"},
	}))
	checkMembers(t, tables, plain, form)
	checkRoutes(t, tables["routes"], plain)
	checkReasons(t, tables["reasons"])

	no := plain.json(c.public, map[string]any{"idpToken": "x"})
	noForm := of(&caller{t, c, nil, bound.cap}, "spawn")
	for range 40 { // until it is over the limit
		plain.json(c.public, map[string]any{"idpToken": "x"})
	}
	tables["refusal"].holds(t, "a refusal", no, plain.json(c.public, map[string]any{"idpToken": "x"}))
	form.Set("subject_token", "x")
	tables["form refusal"].holds(t, "a refusal of RFC 8693", noForm, plain.form(c.public, form))
}

// grantAll grants ada, and an agent under her, and returns the owner and the agent's secret.
func (c *crowd) grantAll(t *testing.T) (owner, secret string) {
	t.Helper()
	who, err := c.owner(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	owner = who["owner"].(string)
	role := "reviewer"
	ada, err := c.Node().Authority().Grant(t.Context(), auth.GrantRequest{
		Space: c.Space(), Owner: owner, Actor: "ada", Subscribe: []string{"general"}, Publish: []string{"general"}, Role: &role,
		Scope: []string{trust.ScopeAdmin, trust.ScopeRole(role)},
	})
	if err != nil {
		t.Fatal(err)
	}
	life := ada.Grant.Lifecycle()
	agent, err := authtest.Grant(t.Context(), c.Node().Authority(), auth.GrantRequest{Space: c.Space(), Actor: "helper", Parent: &life})
	if err != nil {
		t.Fatal(err)
	}
	return owner, agent.Secret()
}

// checkMembers: the exchange says itself which members it takes, and refuses a parameter that is there twice if it knows it.
func checkMembers(t *testing.T, tables map[string]table, c *caller, form url.Values) {
	t.Helper()
	said, _ := c.json(c.c.public, map[string]any{"color": "red"})["error"].(string)
	_, list, _ := strings.Cut(said, "the members are ")
	if got, want := strings.Split(list, ", "), slices.Sorted(maps.Keys(tables["members"])); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("members of a request: the exchange has %v, SPEC.md %v", got, want)
	}
	twice := func(name string) map[string]any {
		f := maps.Clone(form)
		f[name] = []string{"a", "b"}
		return c.form(fileOf(t, c.c.dir)["url"].(string), f)
	}
	for name := range tables["parameters"] {
		if a := twice(name); a["code"] != string(trust.ReasonMalformed) || !strings.Contains(a["error_description"].(string), name+" is there twice") {
			t.Errorf("parameter %s twice: code %v", name, a["code"])
		}
	}
	if a := twice("color"); a["access_token"] == nil {
		t.Errorf("a parameter that nobody knows, twice: code %v", a["code"])
	}
}

// checkRoutes: each is there under its method.
func checkRoutes(t *testing.T, routes table, c *caller) {
	t.Helper()
	for r := range routes {
		method, path, _ := strings.Cut(r, " ")
		a := c.get(c.c.public+path, "")
		if missed := a["code"] == "not-found"; missed || method == http.MethodGet && a["code"] != nil {
			t.Errorf("%s: %v", r, a)
		}
	}
}

// checkReasons: the table has the constants of package trust, but for those that no exchange gives.
func checkReasons(t *testing.T, reasons table) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "trust", "reason.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := v.Type.(*ast.Ident); ok && name.Name == "Reason" {
			word, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, word)
		}
		return false
	})
	got = slices.DeleteFunc(got, func(r string) bool { return r == string(trust.ReasonUserMode) || r == string(trust.ReasonStaticMode) })
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(reasons)); !slices.Equal(got, want) {
		t.Errorf("reasons: package trust has %v, SPEC.md %v", got, want)
	}
}
