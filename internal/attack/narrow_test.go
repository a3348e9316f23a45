package attack_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// texts collects what handlers are shown.
type texts struct {
	mu   sync.Mutex
	seen []string
}

func (x *texts) add(d *endpoint.Delivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = append(x.seen, d.Message.Text())
}

func (x *texts) has(text string) func() bool {
	return func() bool { return slices.Contains(x.all(), text) }
}

func (x *texts) all() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.seen)
}

// renewing connects an endpoint whose credential is whatever the pointer holds.
func renewing(t *testing.T, m *cotaltest.Mesh, now *atomic.Pointer[trust.Credentials], on func(endpoint.Event)) *endpoint.Endpoint {
	t.Helper()
	src := endpoint.SourceFunc(func(context.Context) (*trust.Credentials, error) { return now.Load(), nil })
	ep := must[*endpoint.Endpoint](t)(endpoint.Connect(t.Context(), "", src, &endpoint.Options{InProcess: m.InProcess(), OnEvent: on}))
	t.Cleanup(func() { _ = ep.Close() })
	return ep
}

func mustNotConnect(t *testing.T, m *cotaltest.Mesh, when string, creds *trust.Credentials) {
	t.Helper()
	nc, err := dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds, Name: "again"})
	if !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("%s: connect with the credential of before: %v, want unauthenticated", when, err)
	}
	if nc != nil {
		nc.Close()
	}
}

// TestNarrowedLive shows that a read list that loses a channel bites at once: the connection of before is closed, its
// credential is refused, also after a restart, and an endpoint that is handed the new credential goes on with what is left.
func TestNarrowedLive(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	boss := m.Endpoint(t, "boss", nil)
	calm := intrude(t, m, m.Credentials(t, "sibling", &cotaltest.Peer{Subscribe: []string{"team.>"}}))
	calm.nc.SetDisconnectErrHandler(func(*nats.Conn, error) { t.Error("sibling was disconnected") })
	wide := must[*trust.Credentials](t)(m.Node().Authority().Issue(t.Context(), auth.Request{
		Space: m.Space(), Actor: "mallory", Subscribe: []string{"team.>"}, Publish: []string{"team.>"}, TTL: 30 * 24 * time.Hour,
	}))
	var now atomic.Pointer[trust.Credentials]
	now.Store(wide)
	refused := make(chan struct{}, 1)
	ep := renewing(t, m, &now, func(e endpoint.Event) {
		if _, ok := e.(endpoint.EventRefused); ok {
			select {
			case refused <- struct{}{}:
			default:
			}
		}
	})
	var seen texts
	for _, channel := range []string{"team.secret", "team.open"} {
		if _, err := ep.Join(t.Context(), channel, seen.add, nil); err != nil {
			t.Fatal(err)
		}
	}
	say(t, boss, "team.secret", "before")
	eventually(t, "message of before", seen.has("before"))
	raw := intrude(t, m, wide)
	sub := must[*nats.Subscription](t)(raw.nc.SubscribeSync(must[string](t)(wire.LiveFilter(m.Space(), "team.secret"))))
	raw.barrier(t)
	ctl := operate(t, m)
	if n := alive(t, m, ctl, wide); n == 0 {
		t.Fatal("no connection of the wide credential is listed")
	}
	dropped := make(chan struct{}, 1)
	raw.nc.SetDisconnectErrHandler(func(*nats.Conn, error) { dropped <- struct{}{} })

	narrow, done, err := m.Node().Authority().Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "mallory", Subscribe: []string{"team.open"}})
	if err != nil {
		t.Fatal(err)
	}
	if !done.Narrowed || done.Keys != 1 {
		t.Errorf("renew = %+v, want narrowed with one key", done)
	}
	if n := alive(t, m, ctl, wide); n != 0 {
		t.Errorf("%d connections of before after Renew returned", n)
	}
	<-dropped
	mustNotConnect(t, m, "live", wide)
	<-refused
	say(t, boss, "team.secret", "after")
	say(t, boss, "team.open", "waits")
	now.Store(narrow)
	eventually(t, "message that waited", seen.has("waits"))
	say(t, boss, "team.secret", "after, live")
	say(t, boss, "team.open", "live")
	eventually(t, "live message", seen.has("live"))
	if got := seen.all(); slices.Contains(got, "after") || slices.Contains(got, "after, live") {
		t.Errorf("the endpoint saw %q of a channel that was taken away", got)
	}
	if msg, err := sub.NextMsg(time.Millisecond); err == nil {
		t.Errorf("the connection of before received %q", msg.Data)
	}
	calm.nc.SetDisconnectErrHandler(nil)
	raw.nc.Close()
	m.Restart(t)
	mustNotConnect(t, m, "after restart", wide)
	say(t, m.Connect(t, narrow, nil), "team.x", "the new credential works")
}

// TestNarrowedWays shows what takes a right away: a pattern of either list, a command, the role. A renewal that changes
// nothing, or gives more, closes nothing.
func TestNarrowedWays(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a, ctl := m.Node().Authority(), operate(t, m)
	first := auth.Request{
		Space: m.Space(), Actor: "ada", Subscribe: []string{"team.>"}, Publish: []string{"team.a", "team.b"},
		Commands: []string{"desk.open", "desk.close"}, Role: "clerk",
	}
	for name, c := range map[string]struct {
		change auth.Request
		narrow bool
	}{
		"nothing":       {auth.Request{}, false},
		"same":          {first, false},
		"label":         {auth.Request{Label: "new"}, false},
		"wider":         {auth.Request{Subscribe: []string{">"}, Publish: []string{"team.>"}, Commands: []string{"desk.open", "desk.close", "desk.see"}}, false},
		"read_list":     {auth.Request{Subscribe: []string{"team.a", "team.b"}}, true},
		"post_list":     {auth.Request{Publish: []string{"team.a"}}, true},
		"wider_and_not": {auth.Request{Publish: []string{"team.a", "other.>"}}, true},
		"command":       {auth.Request{Commands: []string{"desk.open"}}, true},
		"role":          {auth.Request{Role: "judge"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			req, change := first, c.change
			req.Actor, change.Actor, change.Space = name, name, m.Space()
			old := must[*trust.Credentials](t)(a.Issue(t.Context(), req))
			in := intrude(t, m, old)
			closed := make(chan struct{})
			var once sync.Once
			in.nc.SetDisconnectErrHandler(func(*nats.Conn, error) { once.Do(func() { close(closed) }) })
			if n := alive(t, m, ctl, old); n != 1 {
				t.Fatalf("%d connections of before are listed, want 1", n)
			}
			next, done, err := a.Renew(t.Context(), change)
			if err != nil {
				t.Fatal(err)
			}
			if done.Narrowed != c.narrow {
				t.Errorf("narrowed = %t, want %t", done.Narrowed, c.narrow)
			}
			intrude(t, m, next).barrier(t)
			if !c.narrow {
				in.barrier(t)
				intrude(t, m, old).barrier(t)
				return
			}
			if n := alive(t, m, ctl, old); n != 0 {
				t.Errorf("%d connections of before after Renew returned", n)
			}
			<-closed
			mustNotConnect(t, m, name, old)
			again := must[*trust.Credentials](t)(a.Issue(t.Context(), auth.Request{Space: m.Space(), Actor: name, Renew: true}))
			intrude(t, m, next).barrier(t) // a plain renewal after it refuses nothing
			intrude(t, m, again).barrier(t)
		})
	}
}
