package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// queueInfo is the broker's view of a queue.
func (w *world) queueInfo(stream, durable string) *jetstream.ConsumerInfo {
	w.tb.Helper()
	js, done := w.jetstream("authority")
	defer done()
	return must(must(js.Consumer(w.tb.Context(), stream, durable))(w.tb).Info(w.tb.Context()))(w.tb)
}

func TestDirectWaitsForItsReader(t *testing.T) {
	w := newWorld(t)
	creds := w.user("bob")
	w.durables(creds)
	ada := w.connect(w.user("ada"), nil)
	for i := range 300 {
		must(ada.Direct(t.Context(), bob, endpoint.Text(fmt.Sprint(i))))(t)
	}
	got := newJournal[*endpoint.Delivery]()
	ep := w.connect(creds, nil)
	if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("ack: %v", err)
		}
		got.add(d)
	}); err != nil {
		t.Fatal(err)
	}
	for i, d := range got.waitLen(t, 300) {
		if d.Message.Text() != fmt.Sprint(i) || d.Redelivered || d.Sender != ada.Principal() || d.Sequence != uint64(i+1) {
			t.Fatalf("message %d = %+v", i, d)
		}
	}
	if err := ep.HandleDirect(t.Context(), func(*endpoint.Delivery) {}); wire.CodeOf(err) != wire.CodeAlreadyExists {
		t.Errorf("handling twice: %v", err)
	}
	if err := ep.HandleRole(t.Context(), func(*endpoint.Delivery) {}); wire.CodeOf(err) != wire.CodeFailedPrecondition {
		t.Errorf("handling a role without one: %v", err)
	}
	if err := ep.Close(); err != nil {
		t.Fatal(err)
	}
	// The broker takes note of acknowledgements a little later.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for ctx.Err() == nil && w.queueInfo("DM_lab", wire.DirectDurable(creds.Identity().Lifecycle)).NumAckPending > 0 {
	}
	check(t, "every message acknowledged", ctx.Err(), nil)
}

func TestMissingQueue(t *testing.T) {
	w := newWorld(t)
	ep := w.connect(w.user("bob", role("reviewer")), nil)
	for name, handle := range map[string]error{
		"direct": ep.HandleDirect(t.Context(), func(*endpoint.Delivery) {}),
		"role":   ep.HandleRole(t.Context(), func(*endpoint.Delivery) {}),
	} {
		if got := wire.CodeOf(handle); got != wire.CodeNotFound {
			t.Errorf("%s: code = %q (%v), want %q", name, got, handle, wire.CodeNotFound)
		}
	}
}

func TestQueueWithoutRight(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ep := w.connect(w.user("bob", func(r *mint.UserRequest) { r.Profile, r.Subscribe, r.Publish = "observer", nil, nil }), nil)
		start := time.Now()
		err := ep.HandleDirect(t.Context(), func(*endpoint.Delivery) {})
		wantError(t, err, wire.CodePermissionDenied, wire.OutcomeNotExecuted)
		if took := time.Since(start); took > time.Second {
			t.Errorf("denial took %v", took)
		}
	})
}

func TestMalformedDirectIsTerminated(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds, mallory := w.user("bob"), w.user("mallory")
		w.durables(creds)
		raw := w.raw(mallory)
		defer shut(raw)
		subject := must(wire.DirectSubject(lab, bob, mallory.Identity().Principal))(t)
		direct := func(from, to wire.Principal) []byte {
			m := &wire.Message{
				ID: wire.NewID(), TS: 1, Space: lab, From: wire.EndpointRef{ID: from.String(), Name: "x"}, To: to.String(),
				Parts: []wire.Part{wire.Text("hello")},
			}
			return must(m.AppendJSON(nil))(t)
		}
		w.publish(raw, subject, nil, []byte("not json"))
		w.publish(raw, subject, map[string][]string{"Status": {"404"}}, nil) // looks like the broker's own word
		w.publish(raw, subject, nil, direct(ada, bob))                       // another sender
		w.publish(raw, subject, nil, direct(mallory.Identity().Principal, ada))
		w.publish(raw, subject, nil, direct(mallory.Identity().Principal, bob))
		events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
		ep := w.connect(creds, &endpoint.Options{OnEvent: events.add})
		if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			got.add(d)
			_ = d.Ack(t.Context())
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // several ack waits
		synctest.Wait()
		if n := len(got.list()); n != 1 {
			t.Errorf("surfaced %d messages, want 1", n)
		}
		var reasons []string
		for _, ev := range events.list() {
			if d, ok := ev.(endpoint.EventDropped); ok {
				reasons = append(reasons, string(d.Reason))
			}
		}
		if got, want := strings.Join(reasons, " "), "malformed-json malformed-json sender-mismatch sender-mismatch"; got != want {
			t.Errorf("dropped %q, want %q: each once", got, want)
		}
		info := w.queueInfo("DM_lab", wire.DirectDurable(creds.Identity().Lifecycle))
		if info.NumAckPending != 0 || info.NumRedelivered != 0 {
			t.Errorf("unacknowledged %d, redelivered %d, want none", info.NumAckPending, info.NumRedelivered)
		}
	})
}

func TestSettling(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		w.durables(creds)
		sender := w.connect(w.user("ada"), nil)
		type seen struct {
			text string
			at   time.Duration
			redo bool
		}
		start, got := time.Now(), newJournal[seen]()
		naks := 0
		ep := w.connect(creds, nil)
		if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			got.add(seen{d.Message.Text(), time.Since(start).Round(time.Second), d.Redelivered})
			switch d.Message.Text() {
			case "nak":
				if naks++; naks == 1 {
					check(t, "nak", d.Nak(t.Context(), 10*time.Second), nil)
					return
				}
				check(t, "ack", d.Ack(t.Context()), nil)
			case "term":
				check(t, "term", d.Term(t.Context(), "no\r\nthanks"), nil)
			case "confirm":
				check(t, "confirm", d.Confirm(t.Context()), nil)
				check(t, "ack again", d.Ack(t.Context()), endpoint.ErrSettled)
				check(t, "extend", d.InProgress(t.Context()), endpoint.ErrSettled)
			case "forgotten":
				if d.Redelivered {
					check(t, "ack", d.Ack(t.Context()), nil)
				}
			case "slow":
				for range 3 { // three half ack waits, extended each time
					time.Sleep(30 * time.Second)
					check(t, "extend", d.InProgress(t.Context()), nil)
				}
				check(t, "ack", d.Ack(t.Context()), nil)
			}
		}); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"nak", "term", "confirm", "forgotten"} {
			must(sender.Direct(t.Context(), bob, endpoint.Text(text)))(t)
		}
		time.Sleep(2 * time.Minute)
		must(sender.Direct(t.Context(), bob, endpoint.Text("slow")))(t)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		want := []seen{
			{"nak", 0, false}, {"term", 0, false}, {"confirm", 0, false}, {"forgotten", 0, false}, {"nak", 10 * time.Second, true},
			{"forgotten", time.Minute, true}, {"slow", 2 * time.Minute, false},
		}
		if fmt.Sprint(got.list()) != fmt.Sprint(want) {
			t.Errorf("deliveries %v, want %v", got.list(), want)
		}
	})
}

func check(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestDirectPanicComesAgain(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		w.durables(creds)
		events := newJournal[endpoint.Event]()
		var tries []time.Duration
		start := time.Now()
		ep := w.connect(creds, &endpoint.Options{OnEvent: events.add})
		if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			tries = append(tries, time.Since(start).Round(time.Second))
			if len(tries) < 4 {
				panic(len(tries))
			}
			check(t, "ack", d.Ack(t.Context()), nil)
		}); err != nil {
			t.Fatal(err)
		}
		must(ep.Direct(t.Context(), bob, endpoint.Text("x")))(t)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if want := "[0s 1s 3s 7s]"; fmt.Sprint(tries) != want {
			t.Errorf("tries at %v, want %s", tries, want)
		}
		if n := countEvents[endpoint.EventPanic](events); n != 3 {
			t.Errorf("%d panics reported, want 3", n)
		}
	})
}

func TestDuplicateDirectIsShownOnce(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		w.durables(creds)
		sender, other := w.connect(w.user("ada"), nil), w.connect(w.user("eve"), nil)
		got := newJournal[*endpoint.Delivery]()
		ep := w.connect(creds, nil)
		if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			got.add(d)
			check(t, "ack", d.Ack(t.Context()), nil)
		}); err != nil {
			t.Fatal(err)
		}
		draft := endpoint.Draft{ID: "the-same", Parts: []wire.Part{wire.Text("x")}}
		first := must(sender.Direct(t.Context(), bob, draft))(t)
		if r := must(sender.Direct(t.Context(), bob, draft))(t); !r.Duplicate || r.Sequence != first.Sequence {
			t.Errorf("second receipt = %+v", r)
		}
		time.Sleep(3 * time.Minute) // beyond the broker's own window
		if r := must(sender.Direct(t.Context(), bob, draft))(t); r.Duplicate {
			t.Errorf("receipt after the window = %+v", r)
		}
		time.Sleep(3 * time.Minute)
		must(other.Direct(t.Context(), bob, draft))(t)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		var from []string
		for _, d := range got.list() {
			from = append(from, d.Sender.Actor)
		}
		if fmt.Sprint(from) != "[ada eve]" {
			t.Errorf("surfaced from %v, want one of each sender", from)
		}
		if n := w.queueInfo("DM_lab", wire.DirectDurable(creds.Identity().Lifecycle)).NumAckPending; n != 0 {
			t.Errorf("%d duplicates unacknowledged", n)
		}
	})
}

func TestRoleIsShared(t *testing.T) {
	w := newWorld(t)
	one, two := w.user("one", role("reviewer")), w.user("two", role("reviewer"))
	w.durables(one)
	w.durables(two)
	asker := w.connect(w.user("ada"), nil)
	var kept atomic.Pointer[endpoint.Delivery]
	busy, free := newJournal[*endpoint.Delivery](), newJournal[*endpoint.Delivery]()
	first := w.connect(one, nil)
	if err := first.HandleRole(t.Context(), func(d *endpoint.Delivery) { // keeps what it gets
		kept.Store(d)
		busy.add(d)
	}); err != nil {
		t.Fatal(err)
	}
	must(asker.Ask(t.Context(), "reviewer", endpoint.Text("0")))(t)
	busy.waitLen(t, 1)
	second := w.connect(two, nil)
	if err := second.HandleRole(t.Context(), func(d *endpoint.Delivery) {
		check(t, "ack", d.Ack(t.Context()), nil)
		free.add(d)
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		must(asker.Ask(t.Context(), "reviewer", endpoint.Text(fmt.Sprint(i+1))))(t)
	}
	if got := len(free.waitLen(t, 50)); got != 50 || len(busy.list()) != 1 {
		t.Errorf("the free one took %d, the busy one %d; want 50 and 1", got, len(busy.list()))
	}
	check(t, "ack", kept.Load().Ack(t.Context()), nil)
	asked := 51
	for ; len(busy.list()) == 1 && asked < 20000; asked++ { // the first takes part again, and keeps the next
		must(asker.Ask(t.Context(), "reviewer", endpoint.Text(fmt.Sprint(asked))))(t)
	}
	free.waitLen(t, asked-2)
	if n := len(busy.list()); n != 2 {
		t.Errorf("the busy one took %d of %d", n, asked)
	}
	_, err := asker.Ask(t.Context(), "no role", endpoint.Text("x"))
	wantError(t, err, wire.CodeBadRequest, "")
}

func TestCloseGivesBackWhatWasNotHandled(t *testing.T) {
	w := newWorld(t)
	one, two := w.user("one", role("reviewer")), w.user("two", role("reviewer"))
	w.durables(one)
	w.durables(two)
	asker := w.connect(w.user("ada"), nil)
	hold, entered := make(chan struct{}), make(chan struct{}, 1000)
	var handled atomic.Int32
	first, err := endpoint.Connect(t.Context(), "", endpoint.Static(one), w.inProcess(nil))
	if err != nil {
		t.Fatal(err)
	}
	const all = 200
	for i := range all {
		must(asker.Ask(t.Context(), "reviewer", endpoint.Text(fmt.Sprint(i))))(t)
	}
	if err := first.HandleRole(t.Context(), func(d *endpoint.Delivery) {
		if handled.Add(1) > all/2 {
			entered <- struct{}{}
			<-hold
		}
		check(t, "ack", d.Ack(t.Context()), nil)
	}); err != nil {
		t.Fatal(err)
	}
	<-entered
	closed := make(chan error)
	go func() { closed <- first.Close() }()
	<-first.Quitting() // it gives back, from here on
	close(hold)
	check(t, "close", <-closed, nil)
	rest := newJournal[*endpoint.Delivery]()
	second := w.connect(two, nil)
	if err := second.HandleRole(t.Context(), func(d *endpoint.Delivery) {
		check(t, "ack", d.Ack(t.Context()), nil)
		rest.add(d)
	}); err != nil {
		t.Fatal(err)
	}
	rest.waitLen(t, all-int(handled.Load())) // at once, not after the ack wait
}
