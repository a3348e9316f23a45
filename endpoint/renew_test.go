package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// minting is a source that mints a fresh credential of the same life each time but the first.
type minting struct {
	w     *world
	first *trust.Credentials
	ttl   time.Duration
	calls atomic.Int32
	spoil atomic.Pointer[func() (*trust.Credentials, error)] // takes over while set
}

func (m *minting) Credentials(context.Context) (*trust.Credentials, error) {
	if spoil := m.spoil.Load(); spoil != nil {
		return (*spoil)()
	}
	if m.calls.Add(1) == 1 {
		return m.first, nil
	}
	return m.w.again(m.first, m.ttl), nil
}

func (m *minting) set(fn func() (*trust.Credentials, error)) {
	if fn == nil {
		m.spoil.Store(nil)
		return
	}
	m.spoil.Store(&fn)
}

// TestRenewalUnderTraffic renews at three quarters of the credential's life, several times, while messages of every
// kind come and go: each arrives exactly once and in order.
func TestRenewalUnderTraffic(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		start := time.Now()
		creds := w.user("bob", role("reviewer"), lasting(time.Minute))
		w.durables(creds)
		src := &minting{w: w, first: creds, ttl: time.Minute}
		events := newJournal[endpoint.Event]()
		var renewed []time.Duration
		bobEP := w.connectFrom(src, &endpoint.Options{OnEvent: func(ev endpoint.Event) {
			if _, ok := ev.(endpoint.EventRenewed); ok {
				renewed = append(renewed, time.Since(start).Round(time.Second))
			}
			events.add(ev)
		}})
		live, direct, asked := newJournal[string](), newJournal[string](), newJournal[string]()
		must(bobEP.Listen(t.Context(), "team", func(d *endpoint.Delivery) { live.add(d.Message.Text()) }))(t)
		keep := func(j *journal[string]) func(*endpoint.Delivery) {
			return func(d *endpoint.Delivery) {
				j.add(d.Message.Text())
				check(t, "ack", d.Ack(t.Context()), nil)
			}
		}
		check(t, "direct", bobEP.HandleDirect(t.Context(), keep(direct)), nil)
		check(t, "role", bobEP.HandleRole(t.Context(), keep(asked)), nil)
		adaEP := w.connect(w.user("ada", lasting(time.Hour)), nil)
		w.serveRoster()
		const rounds = 2000
		for i := range rounds {
			text := endpoint.Text(fmt.Sprint(i))
			must(adaEP.Post(t.Context(), "team", text))(t)
			must(adaEP.Direct(t.Context(), bob, text))(t)
			must(bobEP.Ask(t.Context(), "reviewer", text))(t) // the renewing one sends, too
			must(bobEP.Roster(t.Context()))(t)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		for name, j := range map[string]*journal[string]{"live": live, "direct": direct, "role": asked} {
			all := j.list()
			for i, text := range all {
				if text != fmt.Sprint(i) {
					t.Fatalf("%s: message %d is %q", name, i, text)
				}
			}
			if len(all) != rounds {
				t.Errorf("%s: %d messages, want %d", name, len(all), rounds)
			}
		}
		if got, want := fmt.Sprint(renewed), "[45s 1m30s 2m15s 3m0s]"; got != want {
			t.Errorf("renewed at %s, want %s", got, want)
		}
		for _, ev := range events.list() {
			if _, ok := ev.(endpoint.EventRenewed); !ok {
				t.Errorf("event %T %v", ev, ev)
			}
		}
		if p := w.presence(bob); p == nil {
			t.Error("presence lapsed")
		}
	})
}

// TestRenewalUnderLoad moves the endpoint again and again, in real time, while others flood it.
func TestRenewalUnderLoad(t *testing.T) {
	w := newWorld(t)
	creds := w.user("bob", role("reviewer"))
	w.durables(creds)
	events := newJournal[endpoint.Event]()
	bobEP := w.connect(creds, &endpoint.Options{OnEvent: events.add})
	const senders, each = 3, 2500
	type list = map[string][]string // texts by sender and kind
	var mu sync.Mutex
	got, total := list{}, 0
	all := make(chan struct{})
	receive := func(d *endpoint.Delivery) {
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("ack: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		key := d.Kind.String() + " " + d.Sender.Actor
		got[key] = append(got[key], d.Message.Text())
		if total++; total == 3*senders*each {
			close(all)
		}
	}
	must(bobEP.Listen(t.Context(), "team", receive))(t)
	check(t, "direct", bobEP.HandleDirect(t.Context(), receive), nil)
	check(t, "role", bobEP.HandleRole(t.Context(), receive), nil)
	var wg sync.WaitGroup
	for i := range senders {
		ep := bobEP // one of the senders moves itself
		if i > 0 {
			ep = w.connect(w.user(fmt.Sprint("sender", i)), nil)
		}
		wg.Go(func() {
			for n := range each {
				text := endpoint.Text(fmt.Sprint(n))
				_, err1 := ep.Post(t.Context(), "team", text)
				_, err2 := ep.Direct(t.Context(), bob, text)
				_, err3 := ep.Ask(t.Context(), "reviewer", text)
				if err := errors.Join(err1, err2, err3); err != nil {
					t.Errorf("send: %v", err)
					return
				}
			}
		})
	}
	sent := make(chan struct{})
	go func() { wg.Wait(); close(sent) }()
	moves := 0
	for moving := true; moving || moves < 2; moves++ { // a fast machine may have sent all of it during the first
		old := bobEP.LinkClosed()
		check(t, "renew", bobEP.Renew(t.Context(), w.again(creds, time.Hour)), nil)
		if !moving {
			<-old
			continue
		}
		select {
		case <-sent:
			moving = false
		case <-old:
		}
	}
	select {
	case <-all:
	case <-time.After(20 * time.Second):
		t.Error("not everything arrived")
	}
	mu.Lock()
	defer mu.Unlock()
	for _, ev := range events.list() {
		if _, ok := ev.(endpoint.EventRenewed); !ok {
			t.Errorf("event %T %v", ev, ev)
		}
	}
	t.Logf("%d messages over %d moves", total, moves)
	for key, texts := range got {
		for i, text := range texts {
			if text != fmt.Sprint(i) {
				t.Fatalf("%s: message %d is %q", key, i, text)
			}
		}
	}
	if len(got) != 3*senders || moves < 2 {
		t.Errorf("received %d lists in %d moves", len(got), moves)
	}
}

// serveRoster answers roster requests until the test ends.
func (w *world) serveRoster() {
	w.tb.Helper()
	s := control.New(wire.DeliveryEndpoint, nil)
	control.Handle(s, control.Command{Name: wire.CommandRoster, Effect: control.Read},
		func(context.Context, *control.Request, wire.RosterRequest) (wire.RosterReply, error) {
			return wire.RosterReply{Instance: "one", Epoch: "1", Entries: []wire.RosterEntry{}}, nil
		})
	nc := w.raw(w.user("delivery", func(r *mint.UserRequest) { r.Profile, r.Subscribe, r.Publish = trust.Delivery, nil, nil }))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx, nc, lab); err != nil {
			w.tb.Errorf("serve: %v", err)
		}
	})
	<-s.Ready()
	w.tb.Cleanup(func() {
		cancel()
		wg.Wait()
		shut(nc)
	})
}

func TestRefusedRenewals(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w, foreign := newWorld(t), newWorld(t)
		creds := w.user("bob", lasting(time.Hour))
		src := &minting{w: w, first: creds, ttl: time.Hour}
		events := newJournal[endpoint.Event]()
		ep := w.connectFrom(src, &endpoint.Options{OnEvent: events.add})
		time.Sleep(44 * time.Minute)
		if n := src.calls.Load(); n != 1 {
			t.Fatalf("source asked %d times before three quarters", n)
		}
		steps := []struct {
			name  string
			spoil func() (*trust.Credentials, error)
		}{
			{"the_same", func() (*trust.Credentials, error) { return creds, nil }},
			{"nothing", func() (*trust.Credentials, error) { return nil, nil }},
			{"an_error", func() (*trust.Credentials, error) { return nil, fmt.Errorf("vault is sealed") }},
			{"another_principal", func() (*trust.Credentials, error) { return w.user("eve"), nil }},
			{"another_life", func() (*trust.Credentials, error) { return w.user("bob"), nil }},
			{"another_role", func() (*trust.Credentials, error) {
				return w.user("bob", role("boss"), func(r *mint.UserRequest) { r.UID = creds.Identity().UID }), nil
			}},
			{"sooner_over", func() (*trust.Credentials, error) { return w.again(creds, time.Minute), nil }},
			{"foreign_broker", func() (*trust.Credentials, error) { return foreign.again(creds, time.Hour), nil }},
		}
		src.set(steps[0].spoil)
		time.Sleep(time.Minute)
		for _, step := range steps {
			src.set(step.spoil)
			before := countEvents[endpoint.EventRenewalFailed](events)
			time.Sleep(70 * time.Second) // longer than the longest pause
			synctest.Wait()
			if countEvents[endpoint.EventRenewalFailed](events) == before {
				t.Errorf("%s: accepted, or not reported", step.name)
			}
			must(ep.Post(t.Context(), "team", endpoint.Text(step.name)))(t) // the old one works on
			if got := ep.Identity().Expires; !got.Equal(creds.Identity().Expires) {
				t.Errorf("%s: in use is one until %v", step.name, got)
			}
		}
		if n := countEvents[endpoint.EventRenewed](events); n != 0 {
			t.Errorf("renewed %d times", n)
		}
		src.set(nil)
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if n := countEvents[endpoint.EventRenewed](events); n != 1 {
			t.Errorf("renewed %d times after the source recovered, want 1", n)
		}
		time.Sleep(30 * time.Minute) // beyond the first credential's end
		must(ep.Post(t.Context(), "team", endpoint.Text("still here")))(t)
		if n := countEvents[endpoint.EventDisconnected](events); n != 0 {
			t.Errorf("disconnected %d times", n)
		}
	})
}

// TestExpiryAndReturn lets the credential run out: the endpoint goes, never presents it again, and comes back by
// itself once its source has another.
func TestExpiryAndReturn(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob", lasting(time.Hour))
		w.durables(creds)
		src := &minting{w: w, first: creds, ttl: time.Hour}
		src.set(func() (*trust.Credentials, error) { return creds, nil })
		dials := &counting{provider: w.srv.InProcess()}
		events, got := newJournal[endpoint.Event](), newJournal[string]()
		ep, err := endpoint.Connect(t.Context(), "", src, &endpoint.Options{InProcess: dials, OnEvent: events.add})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		must(ep.Listen(t.Context(), "team", func(d *endpoint.Delivery) { got.add(d.Message.Text()) }))(t)
		check(t, "direct", ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			got.add(d.Message.Text())
			check(t, "ack", d.Ack(t.Context()), nil)
		}), nil)
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		if ep.Connected() {
			t.Fatal("connected with an expired credential")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = ep.Post(short, "team", endpoint.Text("x"))
		cancel()
		wantError(t, err, wire.CodeUnavailable, wire.OutcomeNotExecuted)
		sender := w.connect(w.user("ada"), nil)
		must(sender.Direct(t.Context(), bob, endpoint.Text("while away")))(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := dials.presented.Load(); n != 1 {
			t.Errorf("a credential was presented %d times, want once", n)
		}
		src.set(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !ep.Connected() {
			t.Fatal("not back with a good credential")
		}
		must(sender.Post(t.Context(), "team", endpoint.Text("live again")))(t)
		synctest.Wait()
		if got := fmt.Sprint(got.list()); got != "[while away live again]" {
			t.Errorf("received %s", got)
		}
	})
}

// TestRevokedAndReplaced takes the credential away while its source has a newer one: the endpoint notices by the
// refusal and does not wait for its time.
func TestRevokedAndReplaced(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob", lasting(time.Hour))
		src := &minting{w: w, first: creds, ttl: 2 * time.Hour}
		events := newJournal[endpoint.Event]()
		ep := w.connectFrom(src, &endpoint.Options{OnEvent: events.add})
		time.Sleep(time.Minute)
		rec := must(w.mint.Revoke(t.Context(), lab, mint.Revocation{UserKey: creds.Identity().UserKey}))(t)
		check(t, "push", w.ctl.PutAccount(t.Context(), rec.Public, rec.JWT), nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !ep.Connected() {
			t.Fatalf("not back: %v", events.list())
		}
		must(ep.Post(t.Context(), "team", endpoint.Text("back")))(t)
		if countEvents[endpoint.EventRefused](events) == 0 || countEvents[endpoint.EventRenewed](events) != 1 {
			t.Errorf("events %v", events.list())
		}
	})
}
