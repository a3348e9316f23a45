package delivery_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// next takes the next message from a queue, as its reader does.
func (m *mesh) next(t testing.TB, stream, durable string) jetstream.Msg {
	t.Helper()
	c, err := m.js.Consumer(ctxFor(t), stream, durable)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := c.Next(jetstream.FetchMaxWait(5 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// notices collects what senders are told, until the broker has sent all of it.
func (m *mesh) notices(t testing.TB) (next func() wire.ReceiptEvent, none func()) {
	t.Helper()
	filter, err := wire.EventFilter(lab, wire.DeliveryEndpoint, wire.TopicReceipt+".>")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan *nats.Msg, 64)
	if _, err := m.nc.ChanSubscribe(filter, heard); err != nil {
		t.Fatal(err)
	}
	m.flush(t)
	next = func() wire.ReceiptEvent {
		t.Helper()
		var e wire.ReceiptEvent
		select {
		case msg := <-heard:
			if sub, err := wire.ParseEventSubject(msg.Subject); err != nil || sub.Topic != "receipt.local.ada" {
				t.Errorf("notice on %q, want the topic of its sender", msg.Subject)
			}
			if err := json.Unmarshal(msg.Data, &e); err != nil {
				t.Fatal(err)
			}
		case <-ctxFor(t).Done():
			t.Fatal("no notice")
		}
		return e
	}
	none = func() {
		t.Helper()
		if len(heard) != 0 {
			t.Errorf("one notice too many: %s", (<-heard).Data)
		}
	}
	return next, none
}

// A dead letter that an operator puts back is followed under its new place. Of two deliveries one tells the sender.
func TestReceiptOfARequeuedMessage(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	m.serve(t, nil)
	next, none := m.notices(t)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.grantAs(t, ada, nil)
	m.grantAs(t, bob, nil)
	m.durables(t, bob, "")
	stream, durable := wire.DirectStream(lab), wire.DirectDurable(bob)
	id := wire.NewID()
	sequence := m.send(t, ada.Principal, to(ada.Principal, bob.Principal, id))
	c := m.caller(t, ada)
	check := func(what string, in wire.ReceiptRequest, sequence uint64, stage wire.Stage) {
		t.Helper()
		if r := ask[wire.ReceiptReply](t, c, wire.CommandReceipt, in); r.Sequence != sequence || r.Stage != stage {
			t.Errorf("%s: receipt = %+v, want %d, %s", what, r, sequence, stage)
		}
	}
	if err := m.next(t, stream, durable).TermWithReason("cannot"); err != nil {
		t.Fatal(err)
	}
	if e := next(); e.ID != id || e.Kind != "direct" || e.Sequence != sequence || e.Recipient != (wire.RecipientReceipt{
		Principal: "local.bob", Stage: wire.StageDead, Reason: "cannot", Attempts: 1,
	}) {
		t.Errorf("notice = %+v", e)
	}
	in := wire.ReceiptRequest{ID: id}
	check("refused", in, sequence, wire.StageDead)
	letters, _, err := space.DeadLetters(ctxFor(t), m.js, lab, 0, 0)
	if err != nil || len(letters) != 1 {
		t.Fatalf("dead letters = %+v, %v, want one", letters, err)
	}
	again, err := space.Requeue(ctxFor(t), m.js, lab, letters[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	check("put back", in, again, wire.StageStored)
	check("put back, asked by its old place", wire.ReceiptRequest{ID: id, Kind: "direct", Sequence: sequence}, again, wire.StageStored)
	msg := m.next(t, stream, durable)
	check("handed over again", in, again, wire.StageHanded)
	if err := msg.DoubleAck(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	check("handled", in, again, wire.StageHandled)
	// The second delivery would have told by now: what it heard, it heard before this.
	for range 2 {
		ask[wire.RosterReply](t, c, wire.CommandRoster, nil)
	}
	m.flush(t)
	none()
}

// In an open space nobody has a grant: who is there is whom the roster lists, and its queue that of the life it names.
func TestReceiptsInAnOpenSpace(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, &delivery.Options{Open: true})
	ada, bob, eve := lifecycle("ada"), lifecycle("bob"), lifecycle("eve")
	c := m.caller(t, ada)
	id, job := wire.NewID(), wire.NewID()
	m.durables(t, bob, "reviewer")
	sequence := m.send(t, ada.Principal, to(ada.Principal, bob.Principal, id))
	m.send(t, ada.Principal, to(ada.Principal, "reviewer", job))
	want := func(what, id string, stage wire.Stage, reason string) {
		t.Helper()
		r := ask[wire.ReceiptReply](t, c, wire.CommandReceipt, wire.ReceiptRequest{ID: id})
		if len(r.Recipients) != 1 || r.Recipients[0].Stage != stage || r.Recipients[0].Reason != reason {
			t.Errorf("%s: receipt = %+v, want %s, %q", what, r, stage, reason)
		}
	}
	reach := func(in wire.ReachRequest, tier string, live int) {
		t.Helper()
		if r := ask[wire.ReachReply](t, c, wire.CommandReach, in); r.Tier != tier || r.Live != live {
			t.Errorf("reach %+v = %+v, want %s, %d", in, r, tier, live)
		}
	}
	want("bob was never seen", id, wire.StageStored, "no such participant")
	want("nobody is there", job, wire.StageStored, "offline")
	reach(wire.ReachRequest{To: "local.bob"}, wire.ReachNobody, 0)
	reach(wire.ReachRequest{Role: "reviewer"}, wire.ReachStored, 0)
	m.beat(t, bob, wire.StatusIdle, "")
	m.flush(t)
	want("bob is there", id, wire.StageStored, "")
	reach(wire.ReachRequest{To: "local.bob"}, wire.ReachLive, 1)
	if err := m.next(t, wire.DirectStream(lab), wire.DirectDurable(bob)).DoubleAck(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	want("bob handled it", id, wire.StageHandled, "")
	if r := ask[wire.ReceiptReply](t, m.caller(t, bob), wire.CommandReceipt, wire.ReceiptRequest{ID: id}); r.Sequence != sequence {
		t.Errorf("receipt for bob = %+v, want %d", r, sequence)
	}
	if _, err := try[wire.ReceiptReply](t, m.caller(t, eve), wire.CommandReceipt, wire.ReceiptRequest{ID: id}); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("receipt for a stranger: %v, want not-found", err)
	}
}

// What the stream has dropped for its age or for room is gone, for an operator; where the stream begins is not for everybody
// to know. What is still kept is not found under another id.
func TestReceiptBeyondRetention(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, eve := lifecycle("ada"), lifecycle("eve")
	m.grantAs(t, ada, nil)
	m.grantAs(t, eve, nil)
	msg := message(ada.Principal, "general", "hello")
	first := m.send(t, ada.Principal, msg)
	second := m.post(t, ada.Principal, "general", "hello again")
	st, err := m.js.Stream(ctxFor(t), wire.ChatStream(lab))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(ctxFor(t), jetstream.WithPurgeSequence(second)); err != nil {
		t.Fatal(err)
	}
	r := ask[wire.ReceiptReply](t, m.caller(t, ada), wire.CommandTrace, wire.ReceiptRequest{ID: msg.ID, Kind: "channel", Sequence: first})
	if r.Stage != wire.StageGone || r.Sender != "" || r.Channel != "" || len(r.Recipients) != 1 {
		t.Errorf("trace = %+v, want gone and nothing else", r)
	}
	for _, l := range []wire.Lifecycle{ada, eve} {
		c := m.caller(t, l)
		for _, in := range []wire.ReceiptRequest{
			{ID: msg.ID, Kind: "channel", Sequence: first}, {ID: msg.ID, Kind: "channel", Sequence: second}, {ID: msg.ID, Kind: "channel", Sequence: second + 1}, {ID: msg.ID},
		} {
			if r, err := try[wire.ReceiptReply](t, c, wire.CommandReceipt, in); !errors.Is(err, wire.ErrNotFound) {
				t.Errorf("receipt %+v for %s = %+v, %v, want not-found", in, l.Principal, r, err)
			}
		}
	}
}
