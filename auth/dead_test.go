package auth_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// as connects with a credential and returns the JetStream of the connection.
func as(t *testing.T, m *cotaltest.Mesh, creds *trust.Credentials) jetstream.JetStream {
	t.Helper()
	nc, err := dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// issued returns the credential of a fresh agent and its connection.
func issued(t *testing.T, m *cotaltest.Mesh, actor, role string) (*trust.Credentials, jetstream.JetStream) {
	t.Helper()
	creds, err := m.Node().Authority().Issue(t.Context(), auth.Request{
		Space: m.Space(), Actor: actor, Role: role, Subscribe: []string{"general"}, Publish: []string{"general"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return creds, as(t, m, creds)
}

// publish stores an encoded message as its sender.
func publish(t *testing.T, js jetstream.JetStream, subject string, msg wire.Message) {
	t.Helper()
	body, err := msg.AppendJSON(nil)
	if err == nil {
		_, err = js.Publish(t.Context(), subject, body)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDeadLettersAreLookedAfter(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a, s := m.Node().Authority(), m.Space()
	ada, adaJS := issued(t, m, "ada", "")
	bob, bobJS := issued(t, m, "bob", "")
	to, from := ada.Identity().Lifecycle, bob.Identity().Principal
	subject, err := wire.DirectSubject(s, to.Principal, from)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := adaJS.Consumer(t.Context(), wire.DirectStream(s), wire.DirectDurable(to))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"m1", "m2"} {
		publish(t, bobJS, subject, wire.Message{
			ID: id, TS: 1, Space: s, From: wire.EndpointRef{ID: from.String(), Name: "bob"}, To: to.Principal.String(),
			Parts: []wire.Part{{Kind: wire.PartText, Text: "hello"}},
		})
		msg, err := queue.Next(jetstream.FetchMaxWait(time.Minute))
		if err == nil {
			err = msg.TermWithReason("not for me")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	letters := waitForDead(t, a, s, 2)
	if d := letters[0]; d.MessageID != "m1" || d.Sender != "local.bob" || d.Recipient != "local.ada" || d.Reason != "not for me" || d.UID != to.UID {
		t.Errorf("dead letter = %+v", d)
	}
	if d, err := a.DeadLetter(t.Context(), s, letters[0].ID); err != nil || !strings.Contains(string(d.Message), "hello") {
		t.Errorf("DeadLetter = %+v, %v, want the body", d, err)
	}
	if seq, err := a.Requeue(t.Context(), s, letters[0].ID); err != nil || seq != 3 {
		t.Errorf("Requeue = %d, %v, want 3", seq, err)
	}
	if msg, err := queue.Next(jetstream.FetchMaxWait(time.Minute)); err != nil || msg.Headers().Get(wire.HeaderRequeued) != "1" || msg.Subject() != subject {
		t.Errorf("put back = %v, %v", msg, err)
	}
	if err := a.DropDead(t.Context(), s, letters[1].ID); err != nil {
		t.Errorf("DropDead = %v", err)
	}
	if left, _, err := a.DeadLetters(t.Context(), s, 0, 0); err != nil || len(left) != 0 {
		t.Errorf("left = %+v, %v, want none", left, err)
	}
	for _, err := range []error{a.DropDead(t.Context(), s, 1), second(a.Requeue(t.Context(), s, 1)), second(a.DeadLetter(t.Context(), s, 1))} {
		if !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("what is dead no more = %v, want not-found", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// waitForDead asks until the broker has noted n dead letters: it does so after it answered.
func waitForDead(t *testing.T, a *auth.Authority, s wire.Space, n int) []space.DeadLetter {
	t.Helper()
	for t.Context().Err() == nil {
		letters, next, err := a.DeadLetters(t.Context(), s, 0, 0)
		if err != nil || next != 0 {
			t.Fatalf("DeadLetters = next %d, %v", next, err)
		}
		if len(letters) == n {
			return letters
		}
	}
	t.Fatal("the dead letters never came")
	return nil
}

func TestClearHistory(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a, s := m.Node().Authority(), m.Space()
	ada, js := issued(t, m, "ada", "")
	subject, err := wire.ChannelSubject(s, ada.Identity().Principal, "general")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.Publish(t.Context(), subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint64{3, 0} {
		if n, err := a.ClearHistory(t.Context(), s, "general"); err != nil || n != want {
			t.Errorf("ClearHistory = %d, %v, want %d", n, err, want)
		}
	}
	service, err := a.ServiceCredential(t.Context(), s, trust.Delivery, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	losses, err := space.Cleared(t.Context(), as(t, m, service), s, "general", 0)
	if err != nil || len(losses) != 1 || losses[0].Count != 3 || losses[0].Reason != wire.LossCleared {
		t.Errorf("Cleared = %+v, %v, want one loss of 3", losses, err)
	}
}

// TestRevokeTakesMembershipsAlong: what is kept for a life ends with it, and what is kept for another one stays.
func TestRevokeTakesMembershipsAlong(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a, s, ctx := m.Node().Authority(), m.Space(), t.Context()
	ada, _ := issued(t, m, "ada", "")
	bob, _ := issued(t, m, "bob", "")
	service, err := a.ServiceCredential(ctx, s, trust.Delivery, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	js := as(t, m, service)
	members, cursors := space.NewMembers(js, s), space.NewCursors(js, s)
	lives := []wire.Lifecycle{ada.Identity().Lifecycle, bob.Identity().Lifecycle}
	for _, l := range lives {
		for _, pattern := range []string{"general", "team.>"} {
			_, err := members.Put(ctx, space.Membership{Lifecycle: l, Pattern: pattern, Spans: []space.Span{{Join: 1}}}, 0)
			if err == nil {
				_, err = cursors.Put(ctx, l, pattern, space.Cursor{Floor: 1}, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := cursors.PutMentions(ctx, l, space.Cursor{Floor: 1}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Revoke(ctx, s, lives[0].Principal); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 2} {
		left, err := members.Of(ctx, lives[i])
		if err != nil || len(left) != want {
			t.Errorf("memberships of %s = %v, %v, want %d", lives[i].Principal, left, err, want)
		}
		kept := 0
		err = cursors.Of(ctx, lives[i], func(space.CursorKey, space.Cursor) error { kept++; return nil })
		if err != nil || kept != want {
			t.Errorf("positions of %s = %d, %v, want %d", lives[i].Principal, kept, err, want)
		}
		if c, _, err := cursors.Mentions(ctx, lives[i]); err != nil || (c.Floor == 0) != (want == 0) {
			t.Errorf("position in the mentions of %s = %+v, %v", lives[i].Principal, c, err)
		}
	}
}
