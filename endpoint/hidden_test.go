package endpoint_test

import (
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/header/headertest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestLiveHiddenHeaders: a publisher who ends his header block early hides where the broker stored his message. It is
// dropped, and no gap of others is hidden with it.
func TestLiveHiddenHeaders(t *testing.T) {
	w := newWorld(t)
	creds := w.user("mallory")
	raw := headertest.Dial(t, w.srv.InProcess(), creds)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	ep, sender := w.connect(w.user("bob"), &endpoint.Options{OnEvent: events.add}), w.connect(w.user("ada"), nil)
	must(ep.Listen(t.Context(), ">", got.add))(t)
	mallory := creds.Identity().Principal
	subject := must(wire.ChannelSubject(lab, mallory, "noise"))(t)
	position := "Nats-Sequence: 99\r\nNats-Last-Sequence: 0\r\nNats-Time-Stamp: 2099-01-01T00:00:00Z\r\n"
	blocks := []string{
		"NATS/1.0\r\n" + position + "\r\nx: y\r\n\r\n",
		"NATS/1.0\r\nnocolon\r\n" + position + "\r\n",
		"NATS/1.0 404\r\n" + position + "\r\nx: y\r\n\r\n",
	}
	for _, block := range blocks {
		raw.Publish(t, subject, block, encode(t, mallory, "noise", wire.NewID(), "hidden"))
	}
	must(sender.Post(t.Context(), "team", endpoint.Text("honest")))(t)
	if d := got.waitLen(t, 1)[0]; d.Message.Text() != "honest" || d.Sequence != uint64(len(blocks))+1 {
		t.Errorf("received %q at %d, want the honest message alone", d.Message.Text(), d.Sequence)
	}
	events.waitFor(t, "a dropped message for each block", func([]endpoint.Event) bool {
		return countEvents[endpoint.EventDropped](events) == len(blocks)
	})
	if n := countEvents[endpoint.EventGap](events); n != 0 {
		t.Errorf("%d gaps, want none", n)
	}
}

// TestOneSendersStepBack: what the position of one sender does says nothing about the positions of others.
func TestOneSendersStepBack(t *testing.T) {
	w := newOpenWorld(t)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	ep := w.connect("carol", &endpoint.Options{OnEvent: events.add})
	must(ep.Listen(t.Context(), "team", got.add))(t)
	w.liveCopy(ada, "team", 50, 0, encode(t, ada, "team", "1", "1"))
	w.liveCopy(bob, "team", 60, 0, encode(t, bob, "team", "2", "2"))
	w.liveCopy(bob, "team", 3, 0, encode(t, bob, "team", "3", "a duplicate: older by number and time"))
	w.liveCopyAt(bob, "team", 3, 0, time.Now(), encode(t, bob, "team", "4", "3"))
	w.liveCopy(ada, "team", 70, 65, encode(t, ada, "team", "5", "4"))
	if all := texts(got.waitLen(t, 4)); all != "1 2 3 4" {
		t.Errorf("received %q", all)
	}
	if gap := wantEvent[endpoint.EventGap](t, events, nil); gap != (endpoint.EventGap{Sender: ada, Channel: "team", From: 51, To: 65}) {
		t.Errorf("gap = %+v, want that of ada from 51 to 65", gap)
	}
}

// TestGapBeforeTheFirstMessage: what is lost between the join and the first message is reported as possibly missed.
func TestGapBeforeTheFirstMessage(t *testing.T) {
	w := newWorld(t)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	creds := w.user("bob")
	d := &door{provider: w.srv.InProcess()}
	opts := w.inProcess(&endpoint.Options{OnEvent: events.add})
	opts.InProcess = d
	ep := must(endpoint.Connect(t.Context(), "", endpoint.Static(creds), opts))(t)
	t.Cleanup(func() { _ = ep.Close() })
	quiet := newJournal[endpoint.Event]()
	other, heard := w.connect(w.user("carol"), &endpoint.Options{OnEvent: quiet.add}), newJournal[*endpoint.Delivery]()
	sender := w.connect(w.user("ada"), nil)
	post := func(text string) { must(sender.Post(t.Context(), "team", endpoint.Text(text)))(t) }
	post("before the join")
	must(ep.Listen(t.Context(), "team", got.add))(t)
	must(other.Listen(t.Context(), "team", heard.add))(t)

	d.shut.Store(true)
	w.kick(creds)
	wantEvent[endpoint.EventDisconnected](t, events, nil)
	post("lost")
	heard.waitLen(t, 1)
	d.shut.Store(false)
	wantEvent[endpoint.EventConnected](t, events, nil)
	must(ep.Post(t.Context(), "other", endpoint.Text("the broker has the subscription back")))(t)
	post("received")
	got.waitLen(t, 1)
	want := endpoint.EventGap{Sender: sender.Principal(), Channel: "team", From: 1, To: 2, Possible: true}
	if gap := wantEvent[endpoint.EventGap](t, events, nil); gap != want {
		t.Errorf("gap = %+v, want %+v", gap, want)
	}
	heard.waitLen(t, 2)
	post("in order")
	got.waitLen(t, 2)
	if n := countEvents[endpoint.EventGap](events); n != 1 {
		t.Errorf("%d gaps, want 1", n)
	}
	if n := countEvents[endpoint.EventGap](quiet); n != 0 {
		t.Errorf("%d gaps of who was not interrupted, want none", n)
	}
}

// TestHandlersThatEndTheirGoroutine: as a failing test's handler does. It is reported like a panic, and what comes next
// is received.
func TestHandlersThatEndTheirGoroutine(t *testing.T) {
	w := newWorld(t)
	events, live, direct := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery](), newJournal[*endpoint.Delivery]()
	creds := w.user("bob")
	w.durables(creds)
	ep, sender := w.connect(creds, &endpoint.Options{OnEvent: events.add}), w.connect(w.user("ada"), nil)
	handler := func(j *journal[*endpoint.Delivery]) func(*endpoint.Delivery) {
		ended := false
		return func(d *endpoint.Delivery) {
			if !ended {
				ended = true
				runtime.Goexit()
			}
			j.add(d)
			if err := d.Ack(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	must(ep.Listen(t.Context(), "team", handler(live)))(t)
	if err := ep.HandleDirect(t.Context(), handler(direct)); err != nil {
		t.Fatal(err)
	}
	must(sender.Post(t.Context(), "team", endpoint.Text("fatal")))(t)
	must(sender.Direct(t.Context(), ep.Principal(), endpoint.Text("fatal")))(t)
	events.waitFor(t, "two panics", func([]endpoint.Event) bool { return countEvents[endpoint.EventPanic](events) == 2 })
	// The direct message comes again; a channel message may fall into the gap, which then is reported.
	if d := direct.waitLen(t, 1)[0]; d.Message.Text() != "fatal" || !d.Redelivered {
		t.Errorf("direct message %q, redelivered %v, want the first one again", d.Message.Text(), d.Redelivered)
	}
	for len(live.list()) == 0 {
		must(sender.Post(t.Context(), "team", endpoint.Text("again")))(t)
	}
	start := time.Now()
	if err := ep.Close(); err != nil {
		t.Errorf("Close = %v after %s, want nil: no handler runs", err, time.Since(start))
	}
}

// TestQueueHiddenHeaders: a stored message is never taken for what the broker says about a queue.
func TestQueueHiddenHeaders(t *testing.T) {
	w := newWorld(t)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	creds, mallory := w.user("bob"), w.user("mallory")
	w.durables(creds)
	ep, sender := w.connect(creds, &endpoint.Options{OnEvent: events.add}), w.connect(w.user("ada"), nil)
	raw := headertest.Dial(t, w.srv.InProcess(), mallory)
	subject := must(wire.DirectSubject(lab, ep.Principal(), mallory.Identity().Principal))(t)
	for _, block := range []string{
		"NATS/1.0 404\r\n\r\nsome: more lines\r\n\r\n", // each hides its end and has no body, like a status of the broker
		"NATS/1.0 409 Consumer Deleted\r\n\r\nsome: more lines than a status saves\r\n\r\n",
		"NATS/1.0\r\nnocolon\r\n\r\n",
	} {
		raw.Publish(t, subject, block, nil)
	}
	raw.Publish(t, subject, "NATS/1.0\r\nStatus: 409\r\nDescription: Consumer Deleted\r\n\r\n", nil)
	must(sender.Direct(t.Context(), ep.Principal(), endpoint.Text("honest")))(t)
	if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		if err := d.Confirm(t.Context()); err != nil {
			t.Error(err)
		}
		got.add(d)
	}); err != nil {
		t.Fatal(err)
	}
	if d := got.waitLen(t, 1)[0]; d.Message.Text() != "honest" {
		t.Errorf("received %q", d.Message.Text())
	}
	if n := countEvents[endpoint.EventQueueLost](events); n != 0 {
		t.Errorf("the queue was taken for lost %d times", n)
	}
	events.waitFor(t, "four dropped messages", func([]endpoint.Event) bool { return countEvents[endpoint.EventDropped](events) == 4 })
	js, done := w.jetstream(trust.Authority)
	defer done()
	c := must(js.Consumer(t.Context(), wire.DirectStream(lab), wire.DirectDurable(creds.Identity().Lifecycle)))(t)
	if info := must(c.Info(t.Context()))(t); info.NumAckPending != 0 || info.NumPending != 0 {
		t.Errorf("queue holds %d unsettled and %d waiting, want none", info.NumAckPending, info.NumPending)
	}
}

// door lets connections in unless it is shut.
type door struct {
	provider nats.InProcessConnProvider
	shut     atomic.Bool
}

func (d *door) InProcessConn() (net.Conn, error) {
	if d.shut.Load() {
		return nil, errors.New("shut")
	}
	return d.provider.InProcessConn()
}
