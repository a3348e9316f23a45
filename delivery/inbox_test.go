package delivery_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// C1: delivery is stopped, the peer is dead, and a message is sent. The send says that it is stored; nobody claims more. Once
// delivery is back it is listed; once the peer is back it is handled, once.
func TestC1(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{DeliveryElsewhere: true})
		stop := m.ServeDelivery(t)
		ctx := t.Context()
		bobs := agent(t, m, "bob", "")
		ada := asker(t, m, agent(t, m, "ada", ""))
		boss := asker(t, m, issue(t, m, "boss", auth.Request{Profile: trust.Operator, Subscribe: []string{">"}, Publish: []string{">"}}))
		var mu sync.Mutex
		var got []string
		take := func(d *endpoint.Delivery) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, d.Message.ID)
			_ = d.Confirm(ctx)
		}
		bob := start(t, m, bobs, endpoint.Options{}, take)
		soon()
		stop()
		bob.kill()
		soon() // before the broker notices it hands the message to a dead connection
		sent, err := ada.Direct(ctx, bob.Principal(), endpoint.Text("are you there?"))
		if err != nil || sent.Sequence == 0 {
			t.Fatalf("send = %+v, %v, want it stored", sent, err)
		}
		req := wire.ReceiptRequest{ID: sent.ID}
		if _, err := ada.Reach(ctx, wire.ReachRequest{To: "local.bob"}); !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("reach without delivery: %v, want unavailable", err)
		}
		if _, err := ada.Receipt(ctx, req); !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("receipt without delivery: %v, want unavailable", err)
		}

		m.ServeDelivery(t)
		ended()
		want := wire.RecipientReceipt{Principal: "local.bob", Stage: wire.StageStored, Reason: "offline"}
		wantFate(t, "bob is dead", req, want, []*endpoint.Endpoint{ada}, nil)
		if r, err := ada.Reach(ctx, wire.ReachRequest{To: "local.bob"}); err != nil || r.Tier != wire.ReachStored || r.Waiting != 1 {
			t.Errorf("reach = %+v, %v, want stored with one waiting", r, err)
		}
		in, err := boss.Inbox(ctx, wire.InboxRequest{Principal: "local.bob"})
		if err != nil || in.Waiting != 1 || in.Held != 0 || len(in.Messages) != 1 || in.Messages[0].ID != sent.ID || in.Messages[0].Stage != wire.StageStored {
			t.Errorf("inbox = %+v, %v, want the one message as stored", in, err)
		}

		start(t, m, bobs, endpoint.Options{}, take)
		soon()
		if mu.Lock(); !slices.Equal(got, []string{sent.ID}) {
			t.Errorf("bob got %v, want %s once", got, sent.ID)
		}
		mu.Unlock()
		wantFate(t, "bob is back", req, wire.RecipientReceipt{Principal: "local.bob", Stage: wire.StageHandled}, []*endpoint.Endpoint{ada}, nil)
		if in, err := boss.Inbox(ctx, wire.InboxRequest{Principal: "local.bob"}); err != nil || in.Waiting+in.Held != 0 || len(in.Messages) != 0 {
			t.Errorf("inbox = %+v, %v, want nothing", in, err)
		}
	})
}

// C2: the recipient is alive and takes messages in without handling them. What it holds is listed with ids and sizes, and once
// it goes on all is handled in order.
func TestC2(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		ctx := t.Context()
		ada := asker(t, m, agent(t, m, "ada", ""))
		boss := asker(t, m, issue(t, m, "boss", auth.Request{Profile: trust.Operator, Subscribe: []string{">"}, Publish: []string{">"}}))
		intake := make(chan *endpoint.Delivery, 8)
		bob := start(t, m, agent(t, m, "bob", ""), endpoint.Options{}, func(d *endpoint.Delivery) { intake <- d })
		soon()
		var ids []string
		for i := range 2 {
			sent, err := ada.Direct(ctx, bob.Principal(), endpoint.Text(fmt.Sprintf("message %d", i)))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, sent.ID)
		}
		soon()
		in, err := boss.Inbox(ctx, wire.InboxRequest{Principal: "local.bob"})
		if err != nil || in.Held != 2 || in.Waiting != 0 || in.UID != bob.Lifecycle().UID || len(in.Messages) != 2 {
			t.Fatalf("inbox = %+v, %v, want two held", in, err)
		}
		for i, e := range in.Messages {
			if e.ID != ids[i] || e.Sender != "local.ada" || e.Size == 0 || e.TimeMS == 0 || e.Stage != wire.StageHanded {
				t.Errorf("entry %d = %+v, want message %s of ada, held", i, e, ids[i])
			}
		}
		sender := []*endpoint.Endpoint{ada}
		fate := wire.RecipientReceipt{Principal: "local.bob", Stage: wire.StageHanded}
		wantFate(t, "held", wire.ReceiptRequest{ID: ids[0]}, fate, sender, nil)
		first, second := <-intake, <-intake
		if first.Message.ID != ids[0] || second.Message.ID != ids[1] {
			t.Errorf("bob took %s, then %s, want %v", first.Message.ID, second.Message.ID, ids)
		}
		// Handled out of order: the broker does not tell, so that nothing more is claimed until the first is handled too.
		if err := second.Confirm(ctx); err != nil {
			t.Fatal(err)
		}
		wantFate(t, "handled out of order", wire.ReceiptRequest{ID: ids[1]}, fate, sender, nil)
		if err := first.Confirm(ctx); err != nil {
			t.Fatal(err)
		}
		fate.Stage = wire.StageHandled
		for _, id := range ids {
			wantFate(t, "handled", wire.ReceiptRequest{ID: id}, fate, sender, nil)
		}
		if len(intake) != 0 {
			t.Errorf("bob took %s again", (<-intake).Message.ID)
		}
		if _, err := ada.Inbox(ctx, wire.InboxRequest{Principal: "local.bob"}); !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("inbox for an agent: %v, want permission-denied", err)
		}
	})
}

// durables makes the queues of a lifecycle.
func (m *mesh) durables(t testing.TB, l wire.Lifecycle, role string) {
	t.Helper()
	if err := space.EnsureDurables(ctxFor(t), m.js, lab, l, role); err != nil {
		t.Fatal(err)
	}
}

func TestInboxPages(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.send(t, ada.Principal, to(ada.Principal, bob.Principal, "for an earlier bob"))
	m.grantAs(t, bob, func(g *trust.Grant) { g.Cut = 1 })
	c := m.caller(t, ada)
	list := func(in wire.InboxRequest) wire.InboxReply {
		t.Helper()
		in.Principal = "local.bob"
		return ask[wire.InboxReply](t, c, wire.CommandInbox, in)
	}
	m.send(t, ada.Principal, to(ada.Principal, bob.Principal, "m0"))
	if in := list(wire.InboxRequest{}); len(in.Messages) != 1 || in.Messages[0].ID != "m0" {
		t.Errorf("inbox whose queue is missing = %+v, want what came since the life began", in)
	}
	if err := space.EnsureQueues(ctxFor(t), m.js, lab, space.Queues{Lifecycle: bob, Cut: 1}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 25; i++ {
		m.send(t, ada.Principal, to(ada.Principal, bob.Principal, fmt.Sprint("m", i)))
	}
	if _, err := m.js.Publish(ctxFor(t), subjectOf(t, ada.Principal, to(ada.Principal, bob.Principal, "x")), []byte("no message")); err != nil {
		t.Fatal(err)
	}
	var ids []string
	pages := 0
	for after := uint64(0); ; pages++ {
		in := list(wire.InboxRequest{After: after, Limit: 10})
		// A queue counts what was stored a moment after it was stored.
		if in.Waiting > 26 || in.Held != 0 || len(in.Messages) > 10 {
			t.Fatalf("page %d = %+v, want up to 26 waiting and at most 10 of them", pages, in)
		}
		for _, e := range in.Messages {
			ids = append(ids, e.ID)
			if e.Sender != "local.ada" || e.Stage != wire.StageStored {
				t.Errorf("entry = %+v, want one of ada, stored", e)
			}
		}
		if after = in.Next; after == 0 {
			break
		}
	}
	if len(ids) != 26 || ids[0] != "m0" || ids[24] != "m24" || ids[25] != "" || pages != 2 {
		t.Errorf("%d pages list %v, want m0 to m24 and one without an id on three", pages+1, ids)
	}
	for principal, code := range map[string]wire.Code{"bob": wire.CodeBadRequest, "local.zoe": wire.CodeNotFound} {
		if _, err := try[wire.InboxReply](t, c, wire.CommandInbox, wire.InboxRequest{Principal: principal}); wire.CodeOf(err) != code {
			t.Errorf("inbox of %q: %v, want %s", principal, err, code)
		}
	}
	for _, limit := range []int{-1, wire.MaxInboxPage + 1} {
		if _, err := try[wire.InboxReply](t, c, wire.CommandInbox, wire.InboxRequest{Principal: "local.bob", Limit: limit}); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("inbox with limit %d: %v, want bad-request", limit, err)
		}
	}
}

// What the queue gave up is told apart from what its recipient holds.
func TestInboxShowsDeadLetters(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		ctx := t.Context()
		ada := asker(t, m, agent(t, m, "ada", ""))
		boss := asker(t, m, issue(t, m, "boss", auth.Request{Profile: trust.Operator, Subscribe: []string{">"}, Publish: []string{">"}}))
		bob := start(t, m, agent(t, m, "bob", ""), endpoint.Options{}, func(d *endpoint.Delivery) {
			if d.Message.Text() == "poison" {
				_ = d.Term(ctx, "no")
			}
		})
		for _, text := range []string{"first", "poison", "last"} {
			if _, err := ada.Direct(ctx, bob.Principal(), endpoint.Text(text)); err != nil {
				t.Fatal(err)
			}
		}
		soon()
		in, err := boss.Inbox(ctx, wire.InboxRequest{Principal: "local.bob"})
		if err != nil {
			t.Fatal(err)
		}
		var stages []wire.Stage
		for _, e := range in.Messages {
			stages = append(stages, e.Stage)
		}
		if want := []wire.Stage{wire.StageHanded, wire.StageDead, wire.StageHanded}; !slices.Equal(stages, want) || in.Held != 2 {
			t.Errorf("inbox = %+v, want stages %v and two held", in, want)
		}
	})
}
