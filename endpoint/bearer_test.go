package endpoint_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// signedIn is a source of bearers of one life, each numbered and with a key of its own.
type signedIn struct {
	w        *world
	sentinel string
	life     wire.Lifecycle
	ttl      time.Duration
	calls    atomic.Int32
}

func (s *signedIn) Credentials(context.Context) (*trust.Credentials, error) {
	key, err := signer.Generate(signer.User)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return trust.NewBearerCredentials(trust.Bearer{
		Sentinel: s.sentinel, Token: fmt.Sprintf("bearer-%d", s.calls.Add(1)), Seed: key.Seed().Reveal(), Identity: trust.Identity{
			Space: lab, Profile: trust.Agent, Lifecycle: s.life, Inbox: string(s.life.UID), Subscribe: []string{">"}, Publish: []string{">"},
			IssuedAt: now, Expires: now.Add(s.ttl),
		},
	})
}

// letIn makes the space sign people in: whoever knocks with a bearer is let in as life, until the bearer ends. It returns the
// bearers in the order in which they were shown, and what refuses the next ones.
func (w *world) letIn(life wire.Lifecycle, ttl time.Duration) (seen func() []string, refuse func(n int)) {
	w.tb.Helper()
	ctx := w.tb.Context()
	for _, a := range must(w.mint.EnsureCallout(ctx, lab))(w.tb).Accounts() {
		check(w.tb, "push", w.ctl.PutAccount(ctx, a.Public, a.JWT), nil)
	}
	keys := must(w.mint.CalloutResponder(ctx, lab))(w.tb)
	nc := w.raw(must(w.mint.CalloutUser(ctx, lab, 0))(w.tb))
	w.tb.Cleanup(func() { shut(nc) })
	var mu sync.Mutex
	var shown []string
	var refusals int
	must(nc.QueueSubscribe(wire.CalloutSubject, wire.CalloutQueue, func(m *nats.Msg) {
		xkey := m.Header.Get(wire.CalloutKeyHeader)
		q := must(jwt.DecodeAuthorizationRequestClaims(string(must(keys.Open(m.Data, xkey))(w.tb))))(w.tb)
		mu.Lock()
		shown = append(shown, q.ConnectOptions.Token)
		away := refusals > 0
		refusals--
		mu.Unlock()
		a := jwt.NewAuthorizationResponseClaims(q.UserNkey)
		a.Audience = q.Server.ID
		if away {
			a.Error = "nobody decides"
			check(w.tb, "answer", m.Respond(must(keys.Seal([]byte(must(keys.SignResponse(ctx, a))(w.tb)), xkey))(w.tb)), nil)
			return
		}
		a.Jwt = must(w.mint.ConnectionJWT(ctx, lab, mint.ConnectionRequest{
			UserRequest: mint.UserRequest{Profile: trust.Agent, Principal: life.Principal, UID: life.UID, Subscribe: []string{">"}, Publish: []string{">"}},
			UserKey:     q.UserNkey, Expires: time.Now().Add(ttl),
		}))(w.tb)
		check(w.tb, "answer", m.Respond(must(keys.Seal([]byte(must(keys.SignResponse(ctx, a))(w.tb)), xkey))(w.tb)), nil)
	}))(w.tb)
	check(w.tb, "flush", nc.Flush(), nil)
	seen = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(shown)
	}
	return seen, func(n int) {
		mu.Lock()
		defer mu.Unlock()
		refusals = n
	}
}

// adasLife is a life of somebody who was signed in.
func adasLife() wire.Lifecycle {
	return wire.Lifecycle{Principal: wire.Principal{Owner: "u_" + "abcdefghijklmnopqrstuvwxya", Actor: "ada"}, UID: wire.NewUID()}
}

// TestBearerIsRenewed: an endpoint that was signed in shows each bearer that its source gives, in time, and comes back with the
// one in use; nobody who listens misses anything.
func TestBearerIsRenewed(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		life := adasLife()
		const ttl = 5 * time.Minute
		shown, _ := w.letIn(life, ttl)
		src := &signedIn{w: w, sentinel: must(w.mint.Sentinel(t.Context(), lab, 0))(t), life: life, ttl: ttl}
		ada := w.connectFrom(src, nil)
		heard := newJournal[string]()
		bob := w.connect(w.user("bob"), nil)
		must(bob.Listen(t.Context(), "team", func(d *endpoint.Delivery) { heard.add(d.Message.Text()) }))(t)
		const posts = 60
		for i := range posts {
			must(ada.Post(t.Context(), "team", endpoint.Text(fmt.Sprint(i))))(t)
			time.Sleep(15 * time.Second)
		}
		synctest.Wait()
		if got := heard.list(); len(got) != posts {
			t.Errorf("bob heard %d of %d posts", len(got), posts)
		}
		got := shown()
		if want := []string{"bearer-1", "bearer-2", "bearer-3", "bearer-4", "bearer-5"}; !slices.Equal(got, want) {
			t.Errorf("in 15 minutes ada showed %q, want %q", got, want)
		}
		rec := must(w.mint.Account(t.Context(), lab))(t)
		if n, err := w.ctl.EvictTagged(t.Context(), rec.Public, "uid:"+string(life.UID)); err != nil || n != 1 {
			t.Fatalf("EvictTagged = %d, %v", n, err)
		}
		time.Sleep(10 * time.Second)
		must(ada.Post(t.Context(), "team", endpoint.Text("back")))(t)
		if got := shown(); len(got) != 6 || got[5] != "bearer-5" {
			t.Errorf("after the connection was ended ada showed %q, want the bearer in use", got)
		}
	})
}

// TestOneRefusalAsksForNoBearer: after the broker came back nobody decides for a moment. Who is refused once tries with the bearer that it
// has, so that a hundred who come back at once do not spend the allowance of their person; who is refused again asks for another.
func TestOneRefusalAsksForNoBearer(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		life := adasLife()
		shown, refuse := w.letIn(life, time.Hour)
		src := &signedIn{w: w, sentinel: must(w.mint.Sentinel(t.Context(), lab, 0))(t), life: life, ttl: time.Hour}
		ada := w.connectFrom(src, nil)
		rec := must(w.mint.Account(t.Context(), lab))(t)
		want := []string{"bearer-1"}
		for _, c := range []struct {
			refusals int
			shown    []string
		}{{1, []string{"bearer-1", "bearer-1"}}, {2, []string{"bearer-1", "bearer-1", "bearer-2"}}} {
			refuse(c.refusals)
			if n, err := w.ctl.EvictTagged(t.Context(), rec.Public, "uid:"+string(life.UID)); err != nil || n != 1 {
				t.Fatalf("EvictTagged = %d, %v", n, err)
			}
			time.Sleep(20 * time.Second)
			must(ada.Post(t.Context(), "team", endpoint.Text("back")))(t)
			want = append(want, c.shown...)
			if got := shown(); !slices.Equal(got, want) {
				t.Errorf("refused %d times in a row, ada showed %q, want %q", c.refusals, got, want)
			}
		}
	})
}
