package exchange_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestValidPassesWhileItsPeerIsThrottled sends 100 bad exchanges and then a valid one from the same address (field case C41).
func TestValidPassesWhileItsPeerIsThrottled(t *testing.T) {
	for _, face := range faces() {
		for name, body := range map[string]func(token string) string{
			"person": func(token string) string { return personBody(token, "") },
			"agent":  func(token string) string { return agentBody(token, "") },
		} {
			t.Run(string(face)+"/"+name, func(t *testing.T) {
				faketime.Test(t, func(t *testing.T) {
					k := newKit(t, nil)
					statuses := map[int]int{}
					for range 100 {
						r := k.call(face, ask{body: body("forged")})
						checkHeaders(t, r)
						statuses[r.status]++
					}
					if statuses[401] != 30 || statuses[429] != 70 {
						t.Errorf("100 bad exchanges = %v, want 30 with their reason and 70 throttled", statuses)
					}
					token := good
					if name == "agent" {
						token = agentToken
					}
					k.call(face, ask{body: body(token)}).want(t, 200, "")
					if d := k.decided()[99]; !d.Throttled || d.Status != 429 || d.Reason == "" || d.Reason == "too-many-requests" {
						t.Errorf("the audit of a throttled refusal = %+v, want its reason", d)
					}
				})
			})
		}
	}
}

func TestRefusalsRoll(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, nil)
		bad := ask{body: personBody("forged", "")}
		for range 30 {
			k.call(exchange.Public, bad).want(t, 401, "bad-signature")
			time.Sleep(time.Second)
		}
		r := k.call(exchange.Public, bad)
		r.want(t, 429, "too-many-requests")
		m := r.members(t)
		wait, _ := m["retryAfter"].(float64)
		if r.header.Get("Retry-After") != fmt.Sprint(wait) || m["limit"] != "refusals" || wait < 1 || wait > 31 {
			t.Errorf("retry after %v, limit %v, header %q", wait, m["limit"], r.header.Get("Retry-After"))
		}
		time.Sleep(time.Duration(wait-1) * time.Second)
		k.call(exchange.Public, bad).want(t, 429, "too-many-requests")
		time.Sleep(time.Second)
		k.call(exchange.Public, bad).want(t, 401, "bad-signature")
		k.call(exchange.Public, bad).want(t, 429, "too-many-requests")
		k.call(exchange.Public, ask{body: bad.body, peer: "198.51.100.7:1"}).want(t, 401, "bad-signature")
		k.call(exchange.Loopback, bad).want(t, 401, "bad-signature")
		k.call(exchange.Public, ask{body: "{", peer: "192.0.2.1:9"}).want(t, 429, "too-many-requests")
		form := ask{kind: formKind, body: "grant_type=x"}
		if r := k.call(exchange.Public, form); r.status != 429 || r.members(t)["error"] != "temporarily_unavailable" {
			t.Errorf("a form over the limit = %d %s", r.status, r.body)
		}
	})
}

func TestBearersAreLimited(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, func(o *exchange.Options) { o.Limits.PerOwner = 90 })
		person, agent := ask{body: personBody(good, "")}, ask{body: agentBody(agentToken, "")}
		other := ask{body: personBody(good, `,"actor":"ada_2"`)}
		k.office.person = func(_ context.Context, req auth.PersonRequest) (auth.Admission, error) {
			actor := req.Actor
			if actor == "" {
				actor = "ada"
			}
			g := grant(actor, trust.KindInteractive)
			return auth.Admission{Grant: g, Profile: trust.Agent, Scope: g.Scope}, nil
		}
		limit := func(a ask, want string) {
			t.Helper()
			r := k.call(exchange.Public, a)
			r.want(t, 429, "too-many-requests")
			if r.members(t)["limit"] != want {
				t.Errorf("limit = %s, want %s", r.body, want)
			}
		}
		for range 60 {
			k.call(exchange.Public, person).want(t, 200, "")
			k.call(exchange.Loopback, agent).want(t, 200, "")
		}
		limit(person, "actor")
		limit(agent, "actor")
		for range 30 { // what agents asked for is not counted here
			k.call(exchange.Public, other).want(t, 200, "")
		}
		limit(other, "owner")
		asked := k.office.asked.Load()
		k.call(exchange.Public, person).want(t, 429, "too-many-requests")
		if k.office.asked.Load() != asked {
			t.Error("the authority was asked for somebody over the limit of the owner")
		}
		// Nobody who proved nothing learns that an owner is over the limit.
		k.call(exchange.Public, ask{body: agentBody("forged", "")}).want(t, 401, "actor-token-refused")
		time.Sleep(61 * time.Second)
		k.call(exchange.Public, person).want(t, 200, "")
	})
}

func TestWrongCapabilitiesHaveTheirOwnLimit(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, nil)
		wrong := ask{body: personBody(good, ""), header: http.Header{"Authorization": {"Bearer " + strings.Repeat("00", 32)}}}
		for range 30 {
			k.call(exchange.Loopback, wrong).want(t, 401, "capability-missing")
		}
		elsewhere := wrong
		elsewhere.peer = "127.0.0.9:1"
		r := k.call(exchange.Loopback, elsewhere)
		r.want(t, 429, "too-many-requests")
		if r.members(t)["limit"] != "capability" {
			t.Errorf("limit = %s, want capability", r.body)
		}
		k.call(exchange.Loopback, ask{body: personBody(good, "")}).want(t, 200, "")
		k.call(exchange.Loopback, ask{body: personBody("forged", "")}).want(t, 401, "bad-signature")
		if d := k.decided()[0]; d.Reason != "capability-missing" || d.Face != exchange.Loopback {
			t.Errorf("decision = %+v", d)
		}
	})
}

func TestReadsAreLimited(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, func(o *exchange.Options) { o.Limits.Reads = 5 })
		paths := []string{"/health", "/jwks", "/.well-known/cotal-mesh", "/exchange", "/nothing"}
		for i, want := range []int{200, 200, 200, 405, 404, 429, 429, 429, 429, 429} {
			r := k.call(exchange.Public, ask{method: "GET", path: paths[i%len(paths)]})
			if r.status != want {
				t.Errorf("GET %s = %d, want %d", paths[i%len(paths)], r.status, want)
			}
			checkHeaders(t, r)
		}
		k.call(exchange.Public, ask{body: personBody(good, "")}).want(t, 200, "")
		k.call(exchange.Public, ask{method: "GET", path: "/health", peer: "198.51.100.7:1"}).want(t, 200, "")
	})
}

// TestPeersCannotBeFlushed cycles through addresses to lose a history.
func TestPeersCannotBeFlushed(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, nil)
		bad := personBody("forged", "")
		for range 40 {
			k.call(exchange.Public, ask{body: bad})
		}
		reasons := 0
		for i := range 5000 {
			if r := k.call(exchange.Public, ask{body: bad, peer: fmt.Sprintf("10.1.%d.%d:1", i/250, i%250)}); r.status == 401 {
				reasons++
			}
		}
		if want := 1023 + 30; reasons != want {
			t.Errorf("5000 addresses got %d reasons, want %d: one for each with a place, and 30 for all others", reasons, want)
		}
		k.call(exchange.Public, ask{body: bad}).want(t, 429, "too-many-requests")
		k.call(exchange.Public, ask{body: personBody(good, ""), peer: "203.0.113.9:1"}).want(t, 200, "")
		for i := range 100 { // one IPv6 network is one peer
			k.call(exchange.Public, ask{body: bad, peer: fmt.Sprintf("[2001:db8:1:2::%x]:1", i)})
		}
		time.Sleep(62 * time.Second)
		k.call(exchange.Public, ask{body: bad, peer: "203.0.113.9:1"}).want(t, 401, "bad-signature")
		for i := range 40 {
			r := k.call(exchange.Public, ask{body: bad, peer: fmt.Sprintf("[2001:db8:1:2::%x]:1", i)})
			if want := map[bool]int{true: 401, false: 429}[i < 30]; r.status != want {
				t.Fatalf("address %d of one network = %d, want %d", i, r.status, want)
			}
		}
	})
}

// TestWindow compares with a list of all that was let through.
func TestWindow(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		limit := 1 + r.IntN(10)
		w := exchange.NewWindow(limit)
		var passed []int64
		tick, told := int64(0), int64(-1)
		for range 400 {
			tick += r.Int64N(1 + r.Int64N(30))
			if r.IntN(50) == 0 {
				tick += 200
			}
			recent := 0
			for _, p := range passed {
				if tick-p <= 60 {
					recent++
				}
			}
			wait := w.Take(tick)
			if (wait == 0) != (recent < limit) {
				t.Fatalf("limit %d, tick %d, %d in the last minute: wait %d", limit, tick, recent, wait)
			}
			if wait == 0 && told > tick || wait > 0 && told >= 0 && told != tick+int64(wait) && told > tick {
				t.Fatalf("limit %d, tick %d: told %d, now wait %d", limit, tick, told, wait)
			}
			told = -1
			if wait == 0 {
				passed = append(passed, tick)
				continue
			}
			told = tick + int64(wait)
		}
	}
}

func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	table := exchange.NewTable(2, 4)
	r := rand.New(rand.NewPCG(3, 4))
	for tick := range int64(5000) {
		for range r.IntN(5) {
			table.Take(fmt.Sprint("k", r.IntN(20)), tick)
		}
		if keys, order := table.Len(); keys > 4 || keys != order {
			t.Fatalf("tick %d: %d keys, %d in order, room 4", tick, keys, order)
		}
	}
}

func TestPeers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		remote  string
		hops    []string
		trusted bool
		want    string
	}{
		{"192.0.2.1:80", nil, false, "192.0.2.1"},
		{"192.0.2.1:80", []string{"203.0.113.5"}, false, "192.0.2.1"},
		{"192.0.2.1:80", nil, true, "192.0.2.1"},
		{"192.0.2.1:80", []string{"203.0.113.5"}, true, "203.0.113.5"},
		{"192.0.2.1:80", []string{"9.9.9.9, 203.0.113.5"}, true, "203.0.113.5"},
		{"192.0.2.1:80", []string{"9.9.9.9", "8.8.8.8 ,203.0.113.5 "}, true, "203.0.113.5"},
		{"192.0.2.1:80", []string{"203.0.113.5:4711"}, true, "203.0.113.5"},
		{"192.0.2.1:80", []string{"[2001:db8::1]:4711"}, true, "2001:db8::/64"},
		{"192.0.2.1:80", []string{"[2001:db8::1]"}, true, "2001:db8::/64"},
		{"192.0.2.1:80", []string{"203.0.113.5, unknown"}, true, "192.0.2.1"},
		{"192.0.2.1:80", []string{""}, true, "192.0.2.1"},
		{"[2001:db8:1:2:3:4:5:6]:80", nil, false, "2001:db8:1:2::/64"},
		{"[::ffff:192.0.2.1]:80", nil, false, "192.0.2.1"},
		{"[fe80::1%eth0]:80", nil, false, "fe80::/64"},
		{"@", nil, false, "unknown"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{}}
		if c.hops != nil {
			r.Header["X-Forwarded-For"] = c.hops
		}
		if got := exchange.PeerOf(r, c.trusted); got != c.want {
			t.Errorf("peer of %q through %q, trusted %t = %q, want %q", c.remote, c.hops, c.trusted, got, c.want)
		}
	}
}

// TestTrustedProxyIsForThePublicFace only.
func TestTrustedProxyIsForThePublicFace(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *exchange.Options) { o.TrustedProxy = true })
	for face, want := range map[exchange.Face]string{exchange.Public: "203.0.113.5", exchange.Loopback: "192.0.2.1"} {
		k.call(face, ask{body: personBody(good, ""), header: http.Header{"X-Forwarded-For": {"203.0.113.5"}}})
		if got := k.last(t).Peer; got != want {
			t.Errorf("peer at the %s face = %q, want %q", face, got, want)
		}
	}
}

// TestInFlight fills every place: the half that people may have, and then the rest.
func TestInFlight(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, func(o *exchange.Options) { o.Limits.PerActor, o.Limits.Refusals = 1000, 1000 })
		release := make(chan struct{})
		k.office.person = blockUntil(release)
		person, agent := ask{body: personBody(good, "")}, ask{body: agentBody(agentToken, "")}
		answers := make(chan *reply, 65)
		begin := func(n int, face exchange.Face, a ask) {
			for range n {
				go func() { answers <- k.call(face, a) }()
			}
			synctest.Wait()
		}
		busy := func(a ask) {
			t.Helper()
			r := k.call(exchange.Public, a)
			r.want(t, 503, "busy")
			checkHeaders(t, r)
			if k.last(t).Reason != "busy" {
				t.Errorf("decision = %+v", k.last(t))
			}
		}
		begin(32, exchange.Public, person)
		busy(person)
		k.call(exchange.Public, agent).want(t, 200, "")
		k.office.agent = func(context.Context, auth.AgentRequest) (auth.Admission, error) {
			<-release
			return auth.Admission{}, trust.Deny(wire.CodePermissionDenied, trust.ReasonRevoked, "revoked")
		}
		begin(32, exchange.Public, agent)
		busy(agent)
		busy(person)
		// The other face has places of its own, and health needs none.
		k.call(exchange.Public, ask{method: "GET", path: "/health"}).want(t, 200, "")
		begin(1, exchange.Loopback, person)
		close(release)
		statuses := map[int]int{}
		for range 65 {
			statuses[(<-answers).status]++
		}
		if statuses[200] != 33 || statuses[403] != 32 {
			t.Errorf("answers = %v, want 33 of people and 32 refused agents", statuses)
		}
		for range 33 { // no place was lost
			k.call(exchange.Public, person).want(t, 200, "")
		}
	})
}

// TestAgentsComeInWhileTheProviderHangs: identity tokens with key ids that nobody knows wait for the provider, more of them than there are places,
// and exchanges that need no provider are answered all the time.
func TestAgentsComeInWhileTheProviderHangs(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		hangs := func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		k := newKit(t, func(o *exchange.Options) { o.Identity = provides(t, "https://idp.example/jwks", hangs) })
		enc := base64.RawURLEncoding.EncodeToString
		junk := enc([]byte(`{"alg":"EdDSA","kid":"x"}`)) + "." + enc([]byte(`{"iss":"`+issuer+`"}`)) + "." + enc(make([]byte, 64))
		stop := time.Now().Add(12 * time.Second)
		var all sync.WaitGroup
		for range 80 {
			all.Go(func() {
				for time.Now().Before(stop) {
					if r := k.call(exchange.Public, ask{body: personBody(junk, "")}); r.status != 503 {
						t.Errorf("junk = %d %s, want 503", r.status, r.body)
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		for time.Now().Before(stop) {
			synctest.Wait()
			k.call(exchange.Public, ask{body: agentBody(agentToken, "")}).want(t, 200, "")
			time.Sleep(time.Second)
		}
		all.Wait()
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestDeadline has an authority that heeds no context: the client gets its answer, the place is kept until it returns, and what it
// then decides goes nowhere.
func TestDeadline(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, func(o *exchange.Options) { o.Limits.InFlight = 1 })
		release := make(chan struct{})
		k.office.person = blockUntil(release)
		began := time.Now()
		r := k.call(exchange.Public, ask{body: personBody(good, "")})
		r.want(t, 503, "unavailable")
		checkHeaders(t, r)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("answered after %s, want 10s", took)
		}
		k.call(exchange.Public, ask{body: personBody(good, "")}).want(t, 503, "busy")
		close(release)
		synctest.Wait()
		k.call(exchange.Public, ask{body: personBody(good, "")}).want(t, 200, "")
		allowed := 0
		for _, d := range k.decided() {
			if d.Allowed() {
				allowed++
			}
		}
		if allowed != 1 {
			t.Errorf("%d decisions say that a bearer was handed out, want 1", allowed)
		}
	})
}

// TestDependencyThatHeedsItsContext fails with the error of the context.
func TestDependencyThatHeedsItsContext(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, func(o *exchange.Options) {
			o.Sentinel = func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		})
		for _, face := range faces() {
			r := k.call(face, ask{method: "GET", path: "/.well-known/cotal-mesh"})
			r.want(t, 503, "unavailable")
			checkHeaders(t, r)
		}
	})
}
