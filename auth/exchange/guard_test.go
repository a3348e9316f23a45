package exchange_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/auth/exchange"
)

type guardCase struct {
	name   string
	ask    ask
	status int
	code   string
	header map[string]string
}

func guardCases() []guardCase {
	const form = "application/x-www-form-urlencoded"
	valid := personBody(good, "")
	header := func(name, value string) http.Header { return http.Header{name: {value}} }
	return []guardCase{
		{"a bearer", ask{body: valid}, 200, "", map[string]string{"Cache-Control": "no-store", "Content-Type": "application/json"}},
		{"a charset", ask{body: valid, kind: "application/json; charset=UTF-8"}, 200, "", nil},
		{"health", ask{method: "GET", path: "/health"}, 200, "", map[string]string{"Cache-Control": "no-store"}},
		{"keys", ask{method: "GET", path: "/jwks"}, 200, "", map[string]string{
			"Cache-Control": "public, max-age=300", "Content-Type": "application/jwk-set+json",
		}},
		{"well known", ask{method: "GET", path: "/.well-known/cotal-mesh"}, 200, "", map[string]string{"Cache-Control": "no-store"}},
		{"unknown path", ask{path: "/nothing", body: valid}, 404, "not-found", nil},
		{"path with a slash more", ask{path: "/exchange/", body: valid}, 404, "not-found", nil},
		{"path with an escape", ask{path: "/%65xchange", body: valid}, 404, "not-found", nil},
		{"path of another system", ask{path: "/manager-service-authority", body: valid}, 404, "not-found", nil},
		{"get of exchange", ask{method: "GET"}, 405, "malformed", map[string]string{"Allow": "POST"}},
		{"head of exchange", ask{method: "HEAD"}, 405, "", map[string]string{"Allow": "POST"}},
		{"preflight", ask{method: "OPTIONS", header: http.Header{"Origin": {"https://evil.example"}, "Access-Control-Request-Method": {"POST"}}}, 405,
			"malformed", map[string]string{"Allow": "POST"}},
		{"post of health", ask{path: "/health", body: valid}, 405, "malformed", map[string]string{"Allow": "GET, HEAD"}},
		{"delete of keys", ask{method: "DELETE", path: "/jwks"}, 405, "malformed", map[string]string{"Allow": "GET, HEAD"}},
		{"origin", ask{body: valid, header: header("Origin", "https://evil.example")}, 403, "permission-denied", nil},
		{"null origin", ask{body: valid, header: header("Origin", "null")}, 403, "permission-denied", nil},
		{"empty origin", ask{body: valid, header: header("Origin", "")}, 403, "permission-denied", nil},
		{"origin at health", ask{method: "GET", path: "/health", header: header("Origin", "http://127.0.0.1")}, 403, "permission-denied", nil},
		{"no content type", ask{body: valid, kind: "none"}, 415, "malformed", nil},
		{"text", ask{body: valid, kind: "text/plain"}, 415, "malformed", nil},
		{"a type that only begins so", ask{body: valid, kind: "application/json-patch+json"}, 415, "malformed", nil},
		{"another charset", ask{body: valid, kind: "application/json; charset=latin1"}, 415, "malformed", nil},
		{"two content types", ask{body: valid, header: http.Header{"Content-Type": {"application/json", "text/plain"}}}, 415, "malformed", nil},
		{"packed", ask{body: valid, header: header("Content-Encoding", "gzip")}, 415, "malformed", nil},
		{"large", ask{body: personBody(strings.Repeat("a", 64<<10), "")}, 413, "malformed", map[string]string{"Connection": "close"}},
		{"very large", ask{body: personBody(strings.Repeat("a", 4<<20), "")}, 413, "malformed", nil},
		{"large form", ask{kind: form, body: "subject_token=" + strings.Repeat("a", 64<<10)}, 413, "malformed", nil},
		{"as large as may be", ask{body: valid + strings.Repeat(" ", 64<<10-len(valid))}, 200, "", nil},
		{"no JSON", ask{body: `{"idpToken":`}, 400, "malformed", nil},
		{"empty", ask{}, 400, "malformed", nil},
		{"a list", ask{body: `[]`}, 400, "malformed", nil},
		{"null", ask{body: `null`}, 400, "malformed", nil},
		{"more after it", ask{body: valid + `{}`}, 400, "malformed", nil},
		{"a doubled member", ask{body: personBody(good, `,"idpToken":"x"`)}, 400, "malformed", nil},
		{"a doubled member by escape", ask{body: personBody(good, `,"idp\u0054oken":"x"`)}, 400, "malformed", nil},
		{"an unknown member", ask{body: personBody(good, `,"sessionGrant":"x"`)}, 400, "malformed", nil},
		{"another case", ask{body: `{"IdpToken":"` + good + `"}`}, 400, "malformed", nil},
		{"a wrong type", ask{body: personBody(good, `,"ttlSec":"900"`)}, 400, "malformed", nil},
		{"a broken number", ask{body: personBody(good, `,"ttlSec":1.5`)}, 400, "malformed", nil},
		{"not UTF-8", ask{body: personBody(good, `,"actor":"`+"\xff"+`"`)}, 400, "malformed", nil},
		{"a broken form", ask{kind: form, body: "grant_type=%zz"}, 400, "malformed", nil},
	}
}

// TestGuards sends what must not pass, and what must, to both faces over real sockets.
func TestGuards(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *exchange.Options) { o.Limits = exchange.Limits{Refusals: 1000, PerActor: 1000, PerOwner: 1000} })
	k.run(t)
	for _, face := range faces() {
		for _, c := range guardCases() {
			t.Run(string(face)+"/"+c.name, func(t *testing.T) {
				r := k.dial(t, face, c.ask)
				if c.ask.method != "HEAD" {
					r.want(t, c.status, c.code)
				} else if r.status != c.status || len(r.body) != 0 {
					t.Errorf("answer = %d with %d bytes, want %d with none", r.status, len(r.body), c.status)
				}
				for name, want := range c.header {
					if got := r.header.Get(name); got != want && (name != "Connection" || r.header.Get(name) != "") {
						t.Errorf("%s = %q, want %q", name, got, want)
					}
				}
				checkHeaders(t, r)
			})
		}
	}
}

// checkHeaders holds of every answer.
func checkHeaders(t testing.TB, r *reply) {
	t.Helper()
	if got := r.header.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options = %q, want nosniff", got)
	}
	if r.header.Get("Cache-Control") == "" || r.header.Get("X-Request-Id") == "" {
		t.Errorf("no Cache-Control or no X-Request-Id: %v", r.header)
	}
	for name := range r.header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("the answer has the CORS header %s", name)
		}
	}
	if r.status == 401 && r.header.Get("WWW-Authenticate") == "" {
		t.Error("a 401 without WWW-Authenticate")
	}
	if (r.status == 429 || r.status == 503) && r.header.Get("Retry-After") == "" {
		t.Errorf("a %d without Retry-After", r.status)
	}
}

// TestHead has the headers of GET and no body.
func TestHead(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.run(t)
	for _, face := range faces() {
		for _, path := range []string{"/health", "/jwks", "/.well-known/cotal-mesh"} {
			get, head := k.dial(t, face, ask{method: "GET", path: path}), k.dial(t, face, ask{method: "HEAD", path: path})
			if head.status != 200 || len(head.body) != 0 || head.header.Get("Content-Length") != get.header.Get("Content-Length") {
				t.Errorf("HEAD %s of %s = %d, %d bytes, length %q; GET has %q", path, face, head.status, len(head.body),
					head.header.Get("Content-Length"), get.header.Get("Content-Length"))
			}
		}
	}
}

// TestOrderOfGuards has requests with everything wrong from one guard on.
func TestOrderOfGuards(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	large := strings.Repeat("x", 70<<10)
	origin := http.Header{"Origin": {"https://evil.example"}}
	for _, c := range []struct {
		ask    ask
		status int
	}{
		{ask{method: "PUT", path: "/nothing", header: origin, kind: "text/plain", body: large, noCap: true}, 404},
		{ask{method: "PUT", header: origin, kind: "text/plain", body: large, noCap: true}, 405},
		{ask{header: origin, kind: "text/plain", body: large, noCap: true}, 403},
		{ask{kind: "text/plain", body: large, noCap: true}, 401},
		{ask{kind: "text/plain", body: large}, 415},
		{ask{body: large}, 413},
		{ask{body: "x"}, 400},
	} {
		if r := k.call(exchange.Loopback, c.ask); r.status != c.status {
			t.Errorf("%+v = %d, want %d", c.ask.method, r.status, c.status)
		}
	}
	if got := k.office.asked.Load(); got != 0 {
		t.Errorf("the authority was asked %d times", got)
	}
}

func TestCapabilityOpensTheLoopbackFace(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	valid := k.cap.Reveal()
	for _, c := range []struct {
		name   string
		header []string
		status int
	}{
		{"right", []string{"Bearer " + valid}, 200},
		{"scheme in another case", []string{"bearer " + valid}, 200},
		{"none", nil, 401},
		{"empty", []string{""}, 401},
		{"scheme alone", []string{"Bearer "}, 401},
		{"another scheme", []string{"Basic " + valid}, 401},
		{"no scheme", []string{valid}, 401},
		{"cut", []string{"Bearer " + valid[:63]}, 401},
		{"longer", []string{"Bearer " + valid + "0"}, 401},
		{"upper case", []string{"Bearer " + strings.ToUpper(valid)}, 401},
		{"twice", []string{"Bearer " + valid, "Bearer " + valid}, 401},
		{"wrong", []string{"Bearer " + strings.Repeat("a5", 32)}, 401},
	} {
		h := http.Header{}
		if c.header != nil {
			h["Authorization"] = c.header
		}
		r := k.call(exchange.Loopback, ask{body: personBody(good, ""), header: h, noCap: true})
		if r.status != c.status {
			t.Errorf("%s: %d, want %d: %s", c.name, r.status, c.status, r.body)
		}
		if c.status == 401 {
			r.want(t, 401, "capability-missing")
			checkHeaders(t, r)
		}
	}
	for path, status := range map[string]int{"/health": 200, "/jwks": 200, "/.well-known/cotal-mesh": 401} {
		if r := k.call(exchange.Loopback, ask{method: "GET", path: path, noCap: true}); r.status != status {
			t.Errorf("GET %s without capability = %d, want %d", path, r.status, status)
		}
	}
	r := k.call(exchange.Loopback, ask{kind: "application/x-www-form-urlencoded", noCap: true})
	if r.status != 401 || r.members(t)["error"] != "invalid_client" {
		t.Errorf("a form without capability = %d %s", r.status, r.body)
	}
}

// FuzzPublicRoutes sends any path to the public face: four answer.
func FuzzPublicRoutes(f *testing.F) {
	for _, p := range []string{
		"/exchange", "/health", "/jwks", "/.well-known/cotal-mesh", "/", "", "//exchange", "/exchange/", "/EXCHANGE", "/exchange/..", "/./health",
		"/%68ealth", "/.well-known/openid-configuration", "/managed-lifecycle/retire", "/interactive-lifecycle/retire", "/debug/pprof/", "/health\x00",
		"/manager-service-authority/verify-enrollment", "/jwks.json", "/health;x", "*", "/.well-known", "/.well-known/cotal-mesh/",
	} {
		f.Add(p)
	}
	k := newKit(f, func(o *exchange.Options) { o.Limits.Reads, o.Limits.Refusals = 60_000, 60_000 })
	open := []string{"/exchange", "/health", "/jwks", "/.well-known/cotal-mesh"}
	f.Fuzz(func(t *testing.T, path string) {
		for _, method := range []string{"GET", "POST"} {
			a := ask{method: method, body: "{}"}
			r := a.request(k, exchange.Public, "http://127.0.0.1")
			r.URL = &url.URL{Path: path}
			w := newRecorder()
			k.PublicHandler().ServeHTTP(w, r)
			if known := slices.Contains(open, path); known == (w.Code == 404) && w.Code != 429 {
				t.Errorf("%s %q = %d", method, path, w.Code)
			}
		}
	})
}
