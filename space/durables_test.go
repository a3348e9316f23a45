package space_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

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
	if got := consumers(); got != 5 {
		t.Errorf("consumers of two reviewers = %d, want 5", got)
	}
	for range 2 {
		if err := space.RemoveDurables(ctx, js, lab, ada); err != nil {
			t.Fatal(err)
		}
	}
	if got := consumers(); got != 3 {
		t.Errorf("consumers after one left = %d, want 3: the other's two and the role's", got)
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

// Redelivery has no bound and the role's queue survives its members; on fake time.
func TestUnacknowledgedWorkComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := broker(t)
		js := connect(t, srv)
		ctx := t.Context()
		if err := space.Ensure(ctx, js, lab, nil); err != nil {
			t.Fatal(err)
		}
		if err := space.EnsureDurables(ctx, js, lab, lifecycle("ada"), "reviewer"); err != nil {
			t.Fatal(err)
		}
		subject := must(wire.RoleSubject(lab, "reviewer", wire.Principal{Owner: wire.LocalOwner, Actor: "boss"}))(t)
		must(js.Publish(ctx, subject, []byte("review this")))(t)
		c := must(js.Consumer(ctx, wire.RoleStream(lab), wire.RoleDurable("reviewer")))(t)
		for try := range 20 {
			m := must(c.Next(jetstream.FetchMaxWait(50 * time.Second)))(t)
			meta := must(m.Metadata())(t)
			if meta.NumDelivered != uint64(try+1) {
				t.Fatalf("delivery %d is numbered %d", try+1, meta.NumDelivered)
			}
			time.Sleep(61 * time.Second)
		}
		js.Conn().Close()
		srv.Shutdown()
		srv.WaitForShutdown()
	})
}

func TestTransientQueuesGoByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := broker(t)
		js := connect(t, srv)
		ctx := t.Context()
		if err := space.Ensure(ctx, js, lab, nil); err != nil {
			t.Fatal(err)
		}
		ada := lifecycle("ada")
		for range 2 {
			if err := space.EnsureTransient(ctx, js, lab, ada, "reviewer", time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if got := must(js.AccountInfo(ctx))(t).Consumers; got != 3 {
			t.Errorf("consumers = %d, want 3", got)
		}
		time.Sleep(2 * time.Hour)
		if got := must(js.AccountInfo(ctx))(t).Consumers; got != 1 {
			t.Errorf("consumers after the idle time = %d, want the role's", got)
		}
		js.Conn().Close()
		srv.Shutdown()
		srv.WaitForShutdown()
	})
}
