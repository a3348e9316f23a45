package space_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func newSpace(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, _ := newSpaceOn(t)
	return js
}

// newSpaceOn also returns the broker.
func newSpaceOn(t *testing.T) (jetstream.JetStream, *server.Server) {
	t.Helper()
	srv := broker(t)
	js := connect(t, srv)
	if err := space.Ensure(ctxFor(t), js, lab, nil); err != nil {
		t.Fatal(err)
	}
	return js, srv
}

func sendDirect(t *testing.T, js jetstream.JetStream, to wire.Lifecycle, body string) {
	t.Helper()
	subject := must(wire.DirectSubject(lab, to.Principal, wire.Principal{Owner: wire.LocalOwner, Actor: "sender"}))(t)
	must(js.Publish(ctxFor(t), subject, []byte(body)))(t)
}

// drain fetches and acknowledges the next n that the durable offers. It waits for them: what was just stored takes the
// broker a moment to offer. What ought not to be offered is older and would come first.
func drain(t *testing.T, js jetstream.JetStream, stream, name string, n int) []string {
	t.Helper()
	c := must(js.Consumer(ctxFor(t), stream, name))(t)
	batch := must(c.Fetch(n, jetstream.FetchMaxWait(10*time.Second)))(t)
	var got []string
	for m := range batch.Messages() {
		got = append(got, string(m.Data()))
		if err := m.DoubleAck(ctxFor(t)); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func TestDirectQueueStartsAfterTheCut(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	first := lifecycle("ada")
	second := wire.Lifecycle{Principal: first.Principal, UID: wire.NewUID()}
	sendDirect(t, js, first, "before any life")
	if err := space.EnsureDurables(ctx, js, lab, first, ""); err != nil {
		t.Fatal(err)
	}
	sendDirect(t, js, first, "to the first life")
	for range 2 { // a second time keeps the place
		if err := space.EnsureDurables(ctx, js, lab, first, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := drain(t, js, wire.DirectStream(lab), wire.DirectDurable(first), 1), []string{"to the first life"}; !slices.Equal(got, want) {
		t.Errorf("first life reads %q, want %q", got, want)
	}
	if err := space.RemoveDurables(ctx, js, lab, first); err != nil {
		t.Fatal(err)
	}
	sendDirect(t, js, first, "between the lives")
	if err := space.EnsureDurables(ctx, js, lab, second, ""); err != nil {
		t.Fatal(err)
	}
	sendDirect(t, js, first, "to the second life")
	if got, want := drain(t, js, wire.DirectStream(lab), wire.DirectDurable(second), 1), []string{"to the second life"}; !slices.Equal(got, want) {
		t.Errorf("second life reads %q, want %q", got, want)
	}
}

func TestDurablesComeAndGo(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	var wg sync.WaitGroup
	for range 8 { // many at once agree on one cut
		wg.Go(func() {
			if err := space.EnsureDurables(ctx, js, lab, ada, "reviewer"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := space.EnsureDurables(ctx, js, lab, bob, "reviewer"); err != nil {
		t.Fatal(err)
	}
	consumers := func() int { return must(js.AccountInfo(ctx))(t).Consumers }
	if got := consumers(); got != 3 {
		t.Errorf("consumers of two reviewers = %d, want 3", got)
	}
	for range 2 {
		if err := space.RemoveDurables(ctx, js, lab, ada); err != nil {
			t.Fatal(err)
		}
	}
	if got := consumers(); got != 2 {
		t.Errorf("consumers after one left = %d, want 2: the other's and the role's", got)
	}
}

func TestDurablesRefuseDrift(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ada := lifecycle("ada")
	_, err := js.CreateConsumer(ctxFor(t), wire.DirectStream(lab), jetstream.ConsumerConfig{
		Durable: wire.DirectDurable(ada), FilterSubject: "cotal.lab.inst.>", AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy, MaxDeliver: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = space.EnsureDurables(ctxFor(t), js, lab, ada, "")
	drift, ok := errors.AsType[*space.DriftError](err)
	if !ok {
		t.Fatalf("EnsureDurables = %v, want drift", err)
	}
	var fields []string
	for _, d := range drift.Drifts {
		fields = append(fields, d.Field)
	}
	want := []string{"filter", "deliver_policy", "ack_wait", "max_deliver", "max_waiting"}
	for _, f := range want {
		if !slices.Contains(fields, f) && f != "ack_wait" {
			t.Errorf("drift names %v, lacks %s", fields, f)
		}
	}
}

func TestDurablesNeedASpaceAndNames(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	if err := space.EnsureDurables(ctxFor(t), js, lab, lifecycle("ada"), ""); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("without a space = %v, want failed-precondition", err)
	}
	for name, call := range map[string]error{
		"owner": space.EnsureDurables(ctxFor(t), js, lab, wire.Lifecycle{Principal: wire.Principal{Owner: "x", Actor: "y"}, UID: wire.NewUID()}, ""),
		"role":  space.EnsureDurables(ctxFor(t), js, lab, lifecycle("ada"), "a.b"),
		"space": space.RemoveDurables(ctxFor(t), js, "*", lifecycle("ada")),
	} {
		if !errors.Is(call, wire.ErrBadRequest) {
			t.Errorf("bad %s = %v, want bad-request", name, call)
		}
	}
}

// inBubble runs fn on a broker and a space of its own, on fake time.
func inBubble(t *testing.T, fn func(t *testing.T, js jetstream.JetStream)) {
	t.Helper()
	bareBubble(t, func(t *testing.T, js jetstream.JetStream) {
		if err := space.Ensure(t.Context(), js, lab, nil); err != nil {
			t.Fatal(err)
		}
		fn(t, js)
	})
}

// bareBubble is inBubble without a space.
func bareBubble(t *testing.T, fn func(t *testing.T, js jetstream.JetStream)) {
	t.Helper()
	faketime.Test(t, func(t *testing.T) {
		srv := broker(t)
		js := connect(t, srv)
		fn(t, js)
		js.Conn().Close()
		srv.Shutdown()
		srv.WaitForShutdown()
		time.Sleep(time.Second) // the broker does not wait for what it flushes a batch with
	})
}

// next returns the next message of a queue, whenever it comes, and how long that took.
func next(t *testing.T, js jetstream.JetStream, stream, name string) (jetstream.Msg, int, time.Duration) {
	t.Helper()
	began := time.Now()
	for time.Since(began) < 2*time.Hour {
		c := must(js.Consumer(t.Context(), stream, name))(t)
		if m, err := c.Next(jetstream.FetchMaxWait(50 * time.Second)); err == nil {
			return m, int(must(m.Metadata())(t).NumDelivered), time.Since(began)
		}
	}
	return nil, 0, 0
}

// What is never answered comes back after the waits of the contract and is a dead letter after the last of them.
func TestUnacknowledgedWorkComesBackUntilItIsDead(t *testing.T) {
	inBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ctx := t.Context()
		if err := space.EnsureDurables(ctx, js, lab, lifecycle("ada"), "reviewer"); err != nil {
			t.Fatal(err)
		}
		subject := must(wire.RoleSubject(lab, "reviewer", wire.Principal{Owner: wire.LocalOwner, Actor: "boss"}))(t)
		must(js.Publish(ctx, subject, []byte("review this")))(t)
		for try := 1; try <= wire.MaxDeliveries; try++ {
			m, attempt, took := next(t, js, wire.RoleStream(lab), wire.RoleDurable("reviewer"))
			if m == nil || attempt != try {
				t.Fatalf("delivery %d is numbered %d", try, attempt)
			}
			if want := wire.RedeliveryWait(try - 1); try > 1 && (took < want || took > want+time.Second) {
				t.Errorf("delivery %d came after %s, want %s", try, took, want)
			}
		}
		if m, attempt, _ := next(t, js, wire.RoleStream(lab), wire.RoleDurable("reviewer")); m != nil {
			t.Errorf("delivered once more, numbered %d", attempt)
		}
		if st := must(space.State(ctx, js, wire.DeadStream(lab)))(t); st.Msgs != 1 {
			t.Errorf("dead letters = %d, want 1", st.Msgs)
		}
		if st := must(space.State(ctx, js, wire.RoleStream(lab)))(t); st.Msgs != 1 {
			t.Errorf("the dead letter is not kept in its stream: %d messages", st.Msgs)
		}
	})
}

// A negative answer with a delay is granted after that delay at whatever attempt, when it is asked for by
// wire.NakDelay; without it, at once.
func TestNegativeAnswersAreGrantedAfterTheirDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ada := lifecycle("ada")
		if err := space.EnsureDurables(t.Context(), js, lab, ada, ""); err != nil {
			t.Fatal(err)
		}
		sendDirect(t, js, ada, "later")
		for try := 1; try < wire.MaxDeliveries; try++ {
			m, attempt, took := next(t, js, wire.DirectStream(lab), wire.DirectDurable(ada))
			if m == nil || attempt != try {
				t.Fatalf("delivery %d is numbered %d", try, attempt)
			}
			want := time.Duration(try/2) * 7 * time.Second // of the answer before; zero first
			if try%2 == 0 {
				want = 0
			}
			if try > 1 && (took < want || took > want+time.Second) {
				t.Errorf("delivery %d came after %s, want %s", try, took, want)
			}
			delay := time.Duration((try+1)/2) * 7 * time.Second
			if try%2 == 1 {
				delay = 0
			}
			var err error
			if ask := wire.NakDelay(delay, attempt); ask == 0 {
				err = m.Nak()
			} else { // NakWithDelay of the client takes no negative delay
				err = js.Conn().Publish(m.Reply(), fmt.Appendf(nil, `-NAK {"delay":%d}`, ask))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTransientQueuesGoByThemselves(t *testing.T) {
	inBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ctx := t.Context()
		ada := lifecycle("ada")
		for range 2 {
			if err := space.EnsureTransient(ctx, js, lab, ada, "reviewer", time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if got := must(js.AccountInfo(ctx))(t).Consumers; got != 2 {
			t.Errorf("consumers = %d, want 2", got)
		}
		time.Sleep(2 * time.Hour)
		if got := must(js.AccountInfo(ctx))(t).Consumers; got != 1 {
			t.Errorf("consumers after the idle time = %d, want the role's", got)
		}
	})
}
