package delivery_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// The recipient is killed between every two stages. The receipt is what the broker knows, for sender and recipient alike, and a
// stranger learns nothing.
func TestReceiptOfADirectMessage(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bobs := agent(t, m, "bob", "")
		ada, eve := asker(t, m, agent(t, m, "ada", "")), asker(t, m, agent(t, m, "eve", ""))
		both := []*endpoint.Endpoint{ada, asker(t, m, bobs)}
		ctx, bob := t.Context(), bobs.Identity().Principal
		soon()
		sent, err := ada.Direct(ctx, bob, endpoint.Text("hello"))
		if err != nil {
			t.Fatal(err)
		}
		byID := wire.ReceiptRequest{ID: sent.ID}
		byPlace := wire.ReceiptRequest{ID: sent.ID, Kind: "direct", Sequence: sent.Sequence}
		check := func(what string, want wire.RecipientReceipt) {
			t.Helper()
			want.Principal = bob.String()
			wantFate(t, what, byID, want, both, eve)
			wantFate(t, what+", by place", byPlace, want, both, eve)
		}
		check("bob was never there", wire.RecipientReceipt{Stage: wire.StageStored, Reason: "offline"})

		first := start(t, m, bobs, endpoint.Options{}, func(*endpoint.Delivery) {})
		soon()
		check("bob has it", wire.RecipientReceipt{Stage: wire.StageHanded})
		first.kill()
		ended()
		check("bob died with it", wire.RecipientReceipt{Stage: wire.StageHanded, Reason: "offline"})

		second := start(t, m, bobs, endpoint.Options{}, func(d *endpoint.Delivery) { _ = d.Confirm(ctx) })
		time.Sleep(3 * wire.RedeliveryWait(1))
		soon()
		check("bob handled it", wire.RecipientReceipt{Stage: wire.StageHandled})
		second.kill()
		ended()
		check("bob handled it and died", wire.RecipientReceipt{Stage: wire.StageHandled})

		third := start(t, m, bobs, endpoint.Options{}, nil)
		if _, err := third.Direct(ctx, ada.Principal(), endpoint.Text("about something else")); err != nil {
			t.Fatal(err)
		}
		answer, err := third.Direct(ctx, ada.Principal(), endpoint.Draft{Parts: []wire.Part{wire.Text("hi")}, ReplyTo: sent.ID})
		if err != nil {
			t.Fatal(err)
		}
		check("bob answered", wire.RecipientReceipt{Stage: wire.StageAnswered, Answer: answer.ID})
		third.kill()
		if _, err := m.Node().Authority().Revoke(ctx, m.Space(), bob); err != nil {
			t.Fatal(err)
		}
		got := wantFate(t, "bob was revoked", byID, wire.RecipientReceipt{Principal: bob.String(), Stage: wire.StageAnswered, Answer: answer.ID}, both[:1], eve)
		if got.Sequence != sent.Sequence || got.Kind != "direct" || got.To != bob.String() || got.Sender != ada.Principal().String() || got.Size == 0 || got.StoredMS == 0 {
			t.Errorf("receipt = %+v, want sender, addressee, place, time and size", got)
		}
	})
}

// A name that is given out anew inherits neither the messages nor the receipts of who had it before.
func TestReceiptAcrossLives(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bobs := agent(t, m, "bob", "worker")
		ada, firstBob := asker(t, m, agent(t, m, "ada", "")), asker(t, m, bobs)
		ctx, bob := t.Context(), bobs.Identity().Principal
		soon()
		in, err := ada.Direct(ctx, bob, endpoint.Text("for the first bob"))
		out, err2 := firstBob.Direct(ctx, ada.Principal(), endpoint.Text("of the first bob"))
		job, err3 := firstBob.Ask(ctx, "reviewer", endpoint.Text("a job of the first bob"))
		if err = errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		if _, err := ada.Direct(ctx, bob, endpoint.Draft{Parts: []wire.Part{wire.Text("done")}, ReplyTo: job.ID}); err != nil {
			t.Fatal(err)
		}
		done, err := m.Node().Authority().Revoke(ctx, m.Space(), bob)
		if err != nil || done.Waiting != 2 {
			t.Fatalf("revoke = %+v, %v, want two messages that waited", done, err)
		}
		req := wire.ReceiptRequest{ID: in.ID}
		wantFate(t, "bob is revoked", req, wire.RecipientReceipt{
			Principal: bob.String(), Stage: wire.StageGone, Reason: "what became of it is no longer known: the name was revoked",
		}, []*endpoint.Endpoint{ada}, nil)
		soon()
		secondBob := asker(t, m, issue(t, m, "bob", auth.Request{Renew: false, Subscribe: []string{">"}, Publish: []string{">"}}))
		wantFate(t, "another bob", req, wire.RecipientReceipt{
			Principal: bob.String(), Stage: wire.StageGone, Reason: "what became of it is no longer known: the name was granted anew",
		}, []*endpoint.Endpoint{ada}, secondBob)
		for _, id := range []string{out.ID, job.ID} {
			if r, err := secondBob.Receipt(ctx, wire.ReceiptRequest{ID: id}); !errors.Is(err, wire.ErrNotFound) {
				t.Errorf("receipt of %s for the second bob = %+v, %v, want not-found", id, r, err)
			}
		}
	})
}

// What was handled before its recipient was revoked is said to be neither waiting nor handled: the broker has forgotten.
func TestReceiptOfWhatWasHandledBeforeARevocation(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bobs := agent(t, m, "bob", "")
		ada := asker(t, m, agent(t, m, "ada", ""))
		ctx, bob := t.Context(), bobs.Identity().Principal
		start(t, m, bobs, endpoint.Options{}, func(d *endpoint.Delivery) { _ = d.Confirm(ctx) })
		sent, err := ada.Direct(ctx, bob, endpoint.Text("hello"))
		if err != nil {
			t.Fatal(err)
		}
		soon()
		req, viewers := wire.ReceiptRequest{ID: sent.ID}, []*endpoint.Endpoint{ada}
		wantFate(t, "handled", req, wire.RecipientReceipt{Principal: bob.String(), Stage: wire.StageHandled}, viewers, nil)
		done, err := m.Node().Authority().Revoke(ctx, m.Space(), bob)
		if err != nil || done.Waiting != 0 {
			t.Fatalf("revoke = %+v, %v, want nothing that waited", done, err)
		}
		forgotten := func(how string) {
			t.Helper()
			wantFate(t, how, req, wire.RecipientReceipt{
				Principal: bob.String(), Stage: wire.StageGone, Reason: "what became of it is no longer known: the name was " + how,
			}, viewers, nil)
		}
		forgotten("revoked")
		soon()
		issue(t, m, "bob", auth.Request{Subscribe: []string{">"}, Publish: []string{">"}})
		forgotten("granted anew")
	})
}

func TestReceiptOfRoleWork(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		ada, eve := asker(t, m, agent(t, m, "ada", "")), asker(t, m, agent(t, m, "eve", "other"))
		ctx := t.Context()
		soon()
		sent, err := ada.Ask(ctx, "reviewer", endpoint.Text("review this"))
		if err != nil {
			t.Fatal(err)
		}
		byID := wire.ReceiptRequest{ID: sent.ID}
		byPlace := wire.ReceiptRequest{ID: sent.ID, Kind: "role", Sequence: sent.Sequence}
		sender := []*endpoint.Endpoint{ada}
		wantFate(t, "no holder", byID, wire.RecipientReceipt{Role: "reviewer", Stage: wire.StageStored, Reason: "nobody holds the role"}, sender, eve)

		bobs := agent(t, m, "bob", "reviewer")
		both := append(sender, asker(t, m, bobs))
		wantFate(t, "a holder that is away", byPlace, wire.RecipientReceipt{Role: "reviewer", Stage: wire.StageStored, Reason: "offline"}, both, nil)
		var take atomic.Bool
		work := func(d *endpoint.Delivery) {
			if take.Load() {
				_ = d.Confirm(ctx)
			}
		}
		bob := start(t, m, bobs, endpoint.Options{}, nil)
		if err := bob.HandleRole(ctx, work); err != nil {
			t.Fatal(err)
		}
		soon()
		wantFate(t, "handed over", byID, wire.RecipientReceipt{Role: "reviewer", Stage: wire.StageHanded}, both, eve)
		bob.kill()
		ended()
		wantFate(t, "the holder died", byID, wire.RecipientReceipt{Role: "reviewer", Stage: wire.StageHanded, Reason: "offline"}, both, eve)

		take.Store(true)
		bob = start(t, m, bobs, endpoint.Options{}, nil)
		if err := bob.HandleRole(ctx, work); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * wire.RedeliveryWait(1))
		soon()
		// Handled, it left the queue. That is all anybody knows, and what a stranger with the numbers is told as well.
		for _, e := range []*endpoint.Endpoint{ada, bob.Endpoint, eve} {
			if r, err := e.Receipt(ctx, byPlace); err != nil || r.Stage != wire.StageGone || r.Sender != "" {
				t.Errorf("receipt of a finished job for %s = %+v, %v, want gone", e.Principal(), r, err)
			}
			_, err := e.Receipt(ctx, byID)
			if !errors.Is(err, wire.ErrNotFound) || !strings.Contains(err.Error(), "a finished job leaves the queue") {
				t.Errorf("receipt of a finished job by its id alone for %s: %v, want not-found that says why", e.Principal(), err)
			}
		}
		if r, err := eve.Receipt(ctx, wire.ReceiptRequest{ID: sent.ID, Kind: "role", Sequence: sent.Sequence + 1000}); err != nil || r.Stage != wire.StageGone {
			t.Errorf("receipt of a job that the queue never had = %+v, %v, want gone as any", r, err)
		}

		answer, err := bob.Direct(ctx, ada.Principal(), endpoint.Draft{Parts: []wire.Part{wire.Text("looks good")}, ReplyTo: sent.ID})
		if err != nil {
			t.Fatal(err)
		}
		byID.Role, byPlace.Role = "reviewer", "reviewer"
		for _, req := range []wire.ReceiptRequest{byID, byPlace} {
			r, err := ada.Receipt(ctx, req)
			if err != nil || r.Stage != wire.StageAnswered || len(r.Recipients) != 1 || r.Recipients[0].Answer != answer.ID || r.Recipients[0].Principal != "local.bob" {
				t.Errorf("receipt of an answered job %+v = %+v, %v, want answered by bob", req, r, err)
			}
		}
		byPlace.Role = "other"
		if r, err := ada.Receipt(ctx, byPlace); err != nil || r.Stage != wire.StageGone {
			t.Errorf("receipt of a job answered by a holder of another role = %+v, %v, want gone", r, err)
		}
		if _, err := eve.Receipt(ctx, byID); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("receipt of an answered job for a stranger: %v, want not-found", err)
		}
	})
}

// An answer counts from who was given the role, whoever else writes one.
func TestAnswersToRoleWork(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	ada, bob, eve := m.Endpoint(t, "ada", nil), m.Endpoint(t, "bob", &cotaltest.Peer{Role: "reviewer"}), m.Endpoint(t, "eve", nil)
	ctx := ctxFor(t)
	sent, err := ada.Ask(ctx, "reviewer", endpoint.Text("review this"))
	if err != nil {
		t.Fatal(err)
	}
	reply := endpoint.Draft{Parts: []wire.Part{wire.Text("done")}, ReplyTo: sent.ID}
	if _, err := eve.Direct(ctx, ada.Principal(), reply); err != nil {
		t.Fatal(err)
	}
	req := wire.ReceiptRequest{ID: sent.ID}
	wantFate(t, "a stranger answers", req, wire.RecipientReceipt{Role: "reviewer", Stage: wire.StageStored}, []*endpoint.Endpoint{ada}, eve)
	answer, err := bob.Direct(ctx, ada.Principal(), reply)
	if err != nil {
		t.Fatal(err)
	}
	wantFate(t, "a holder answers", req, wire.RecipientReceipt{
		Principal: "local.bob", Role: "reviewer", Stage: wire.StageAnswered, Answer: answer.ID,
	}, []*endpoint.Endpoint{ada}, eve)
	// The answer went to the sender alone.
	wantFate(t, "a holder asks", req, wire.RecipientReceipt{Role: "reviewer", Stage: wire.StageStored}, []*endpoint.Endpoint{bob}, nil)
}

// A message that its recipient refuses for good is dead, which its sender is told at once and hears again when it asks.
func TestReceiptOfADeadLetter(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		told := make(chan endpoint.EventUndelivered, 16)
		listen := func(e endpoint.Event) {
			if u, ok := e.(endpoint.EventUndelivered); ok {
				told <- u
			}
		}
		ada := m.Endpoint(t, "ada", &cotaltest.Peer{Options: endpoint.Options{OnEvent: listen}})
		eve := asker(t, m, agent(t, m, "eve", ""))
		boss := asker(t, m, issue(t, m, "boss", auth.Request{Profile: trust.Operator, Subscribe: []string{">"}, Publish: []string{">"}}))
		ctx := t.Context()
		bobs := agent(t, m, "bob", "reviewer")
		bob := start(t, m, bobs, endpoint.Options{}, func(d *endpoint.Delivery) {
			if d.Message.Text() == "poison" {
				_ = d.Term(ctx, "I cannot read this")
				return
			}
			_ = d.Confirm(ctx)
		})
		if err := bob.HandleRole(ctx, func(d *endpoint.Delivery) { _ = d.Nak(ctx, time.Second) }); err != nil {
			t.Fatal(err)
		}
		soon()
		good, err := ada.Direct(ctx, bob.Principal(), endpoint.Text("fine"))
		poison, err2 := ada.Direct(ctx, bob.Principal(), endpoint.Text("poison"))
		job, err3 := ada.Ask(ctx, "reviewer", endpoint.Text("nobody can do this"))
		if err = errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		soon()
		both := []*endpoint.Endpoint{ada, bob.Endpoint}
		wantFate(t, "the message before", wire.ReceiptRequest{ID: good.ID}, wire.RecipientReceipt{Principal: "local.bob", Stage: wire.StageHandled}, both, eve)
		dead := wire.RecipientReceipt{Principal: "local.bob", Stage: wire.StageDead, Reason: "I cannot read this", Attempts: 1}
		wantFate(t, "refused", wire.ReceiptRequest{ID: poison.ID}, dead, both, eve)
		if u := <-told; u.ID != poison.ID || u.Sequence != poison.Sequence || u.Kind != "direct" || u.Recipient != dead {
			t.Errorf("notice = %+v, want that of the refused message", u)
		}

		time.Sleep(5 * time.Minute) // the holder gives it back again and again
		soon()
		parked := wire.RecipientReceipt{
			Role: "reviewer", Stage: wire.StageDead, Reason: fmt.Sprintf("not handled after %d deliveries", wire.MaxDeliveries), Attempts: wire.MaxDeliveries,
		}
		wantFate(t, "parked", wire.ReceiptRequest{ID: job.ID}, parked, both, eve)
		if u := <-told; u.ID != job.ID || u.Kind != "role" || u.Recipient != parked {
			t.Errorf("notice = %+v, want that of the parked job", u)
		}
		for _, id := range []string{poison.ID, job.ID} {
			if r, err := boss.Trace(ctx, wire.TraceRequest{ID: id}); err != nil || r.Stage != wire.StageDead {
				t.Errorf("trace of %s = %+v, %v, want dead", id, r, err)
			}
		}
		if _, err := eve.Trace(ctx, wire.TraceRequest{ID: job.ID}); !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("trace by an agent: %v, want permission-denied", err)
		}
		if len(told) != 0 {
			t.Errorf("more notices: %+v", <-told)
		}
	})
}

// What breaks the contract is dropped by its recipient, and whoever wrote it is told nothing.
func TestNoNoticeOfWhatBreaksTheContract(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		told := make(chan endpoint.Event, 16)
		listen := func(e endpoint.Event) {
			if _, ok := e.(endpoint.EventUndelivered); ok {
				told <- e
			}
		}
		adas := agent(t, m, "ada", "")
		ada := m.Connect(t, adas, &cotaltest.Peer{Options: endpoint.Options{OnEvent: listen}})
		bob := start(t, m, agent(t, m, "bob", ""), endpoint.Options{}, func(*endpoint.Delivery) {})
		nc, err := m.Node().Dial(t.Context(), adas)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		subject, err := wire.DirectSubject(m.Space(), bob.Principal(), ada.Principal())
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range []string{"{", `{"id":"x"}`} {
			if err := nc.Publish(subject, []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		soon()
		if len(told) != 0 {
			t.Errorf("notice of what breaks the contract: %+v", <-told)
		}
	})
}
