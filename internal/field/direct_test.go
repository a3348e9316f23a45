package field_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// C3: an agent with room for ten messages and a reader that is idle is sent eleven. It refuses the eleventh for want of
// room, but not for ever: the message is parked with the reason, its sender is told, and an operator can put it back.
func TestC3AFullInboxParksTheMessage(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		var told journal[endpoint.Event]
		ada := m.Endpoint(t, "ada", &cotaltest.Peer{Options: endpoint.Options{OnEvent: told.add}})
		bob := m.Endpoint(t, "bob", nil)
		const room = 10
		inbox := make(chan string, room)
		refusals := 0
		ok(t, "handle", bob.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			select {
			case inbox <- d.Message.ID:
				ok(t, "ack", d.Ack(t.Context()))
			default:
				refusals++
				ok(t, "nak", d.NakReason(t.Context(), time.Minute, "inbox is full"))
			}
		}))
		var last endpoint.Receipt
		for i := range room + 1 {
			last = must(ada.Direct(t.Context(), bob.Principal(), text(fmt.Sprintf("m%02d", i), "hello")))(t)
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if refusals != endpoint.DefaultMaxAttempts || len(inbox) != room {
			t.Errorf("%d refusals, %d in the inbox; want %d and %d", refusals, len(inbox), endpoint.DefaultMaxAttempts, room)
		}
		const why = "gave up after 10 attempts: inbox is full"
		var undelivered []endpoint.EventUndelivered
		for _, ev := range told.take() {
			if u, is := ev.(endpoint.EventUndelivered); is {
				undelivered = append(undelivered, u)
			}
		}
		want := wire.ReceiptEvent{ID: last.ID, Kind: "direct", Sequence: last.Sequence, Recipient: wire.RecipientReceipt{
			Principal: "local.bob", Stage: wire.StageDead, Reason: why, Attempts: 10,
		}}
		if len(undelivered) != 1 || undelivered[0].ReceiptEvent != want {
			t.Errorf("sender was told %+v, want %+v", undelivered, want)
		}
		if r, err := ada.Receipt(t.Context(), wire.ReceiptRequest{ID: last.ID}); err != nil || r.Stage != wire.StageDead || len(r.Recipients) != 1 || r.Recipients[0].Reason != why {
			t.Errorf("receipt %+v, %v", r, err)
		}

		operator := m.Node().Authority()
		letters, _, err := operator.DeadLetters(t.Context(), m.Space(), 0, 0)
		if err != nil || len(letters) != 1 || letters[0].MessageID != last.ID || letters[0].Reason != why {
			t.Fatalf("dead letters %+v, %v", letters, err)
		}
		<-inbox // somebody reads at last
		must(operator.Requeue(t.Context(), m.Space(), letters[0].ID))(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		close(inbox)
		id := ""
		for id = range inbox { // to the last one
		}
		if id != last.ID || refusals != endpoint.DefaultMaxAttempts {
			t.Errorf("put back: the last in the inbox is %q after %d refusals, want %q", id, refusals, last.ID)
		}
	})
}

// C7: a program sends one message and ends. The answer waits for who it was, not for the connection that it had, whether
// the answer goes to the sender of the message or to the name it is known by.
func TestC7AnswersWaitForAOneShotSender(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		agent := m.Endpoint(t, "agent", nil)
		ok(t, "handle", agent.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			reply := endpoint.Text("by id")
			reply.ReplyTo = d.Message.ID
			must(agent.Direct(t.Context(), d.Sender, reply))(t)
			must(agent.Direct(t.Context(), must(wire.ParsePrincipal("local.script"))(t), endpoint.Text("by name")))(t)
			ok(t, "ack", d.Ack(t.Context()))
		}))
		creds := m.Credentials(t, "script", nil)
		oneShot := func(do func(ep *endpoint.Endpoint)) {
			ep := m.Connect(t, creds, &cotaltest.Peer{Options: endpoint.Options{Quiet: true}})
			do(ep)
			ok(t, "close", ep.Close())
			synctest.Wait()
		}
		var question endpoint.Receipt
		oneShot(func(ep *endpoint.Endpoint) {
			question = must(ep.Direct(t.Context(), agent.Principal(), endpoint.Text("anybody there?")))(t)
		})
		time.Sleep(time.Hour)
		read := func(settle bool) (got []string) {
			oneShot(func(ep *endpoint.Endpoint) {
				all, _, err := ep.ReadDirect(t.Context(), 0)
				ok(t, "read", err)
				for _, d := range all {
					got = append(got, fmt.Sprintf("%s %q", d.Message.Text(), d.Message.ReplyTo))
					if settle {
						ok(t, "confirm", d.Confirm(t.Context()))
					}
				}
			})
			return got
		}
		want := fmt.Sprintf("[by id %q by name %q]", question.ID, "")
		if got := fmt.Sprint(read(false)); got != want { // and it crashes before it says that it has them
			t.Errorf("first read %s, want %s", got, want)
		}
		time.Sleep(2 * time.Minute)
		if got := fmt.Sprint(read(true)); got != want {
			t.Errorf("second read %s, want %s", got, want)
		}
		time.Sleep(time.Hour)
		if got := read(true); len(got) != 0 {
			t.Errorf("third read %s, want nothing", got)
		}
	})
}

// N40: what the broker remembers of ids does not outlive it and does not know who a sender was before; what a receiver
// shows goes by sender and id.
func TestN40OneIDShowsOnceAcrossARestart(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		sender, receiver := m.Credentials(t, "ada", nil), m.Credentials(t, "bob", nil)
		first, bob := m.Connect(t, sender, nil), m.Connect(t, receiver, nil)
		var direct, channel journal[uint64]
		ok(t, "handle", bob.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			direct.add(d.Sequence)
			ok(t, "ack", d.Ack(t.Context()))
		}))
		must(bob.Listen(t.Context(), "team", func(d *endpoint.Delivery) { channel.add(d.Sequence) }))(t)
		draft := text("X", "hello")
		send := func(ep *endpoint.Endpoint) (stored uint64) {
			stored = must(ep.Direct(t.Context(), bob.Principal(), draft))(t).Sequence
			must(ep.Post(t.Context(), "team", draft))(t)
			synctest.Wait()
			return stored
		}
		send(first)
		m.Restart(t)
		time.Sleep(10 * time.Second) // everybody is back
		send(first)
		second := m.Connect(t, sender, nil) // the same program, started anew
		copied := send(second)
		time.Sleep(10 * time.Minute) // beyond the broker's window
		send(first)
		time.Sleep(time.Hour)
		synctest.Wait()
		if copied == 1 {
			t.Error("the broker knew the id of a program that was started anew, so that nothing was tried")
		}
		if d, c := fmt.Sprint(direct.take()), fmt.Sprint(channel.take()); d != "[1]" || c != "[1]" {
			t.Errorf("shown direct %s, in the channel %s; want the first of each", d, c)
		}
	})
}
