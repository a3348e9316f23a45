package space_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// noteTerminated writes what the broker notes when the reader of a queue refuses a sequence.
func noteTerminated(t testing.TB, js jetstream.JetStream, stream, queue string, sequence uint64) uint64 {
	t.Helper()
	subject := strings.Replace(wire.DeadFilter(stream, queue), "*", "MSG_TERMINATED", 1)
	body := fmt.Sprintf(`{"stream":%q,"consumer":%q,"stream_seq":%d,"deliveries":1,"reason":"no"}`, stream, queue, sequence)
	return must(js.Publish(t.Context(), subject, []byte(body)))(t).Sequence
}

// A notice counts when its queue was handed the message: not for what went to somebody else, to an earlier life, or was not
// given out yet. Of a life that ended the queue is gone, and what was stored after the notice cannot be meant.
func TestOnlyWhatAQueueWasHandedIsDead(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	dm, queue := wire.DirectStream(lab), wire.DirectDurable(ada)
	earlier := send(t, js, "earlier", &ada, "")
	if err := space.EnsureDurables(ctx, js, lab, ada, "reviewer"); err != nil {
		t.Fatal(err)
	}
	foreign := send(t, js, "foreign", &bob, "")
	mine := send(t, js, "mine", &ada, "")
	must(must(js.Consumer(ctx, dm, queue))(t).Next())(t)
	waits := send(t, js, "waits", &ada, "")
	job := send(t, js, "job", nil, "vault")
	must(must(js.Consumer(ctx, wire.RoleStream(lab), wire.RoleDurable("reviewer")))(t).Fetch(1, jetstream.FetchMaxWait(10*time.Millisecond)))(t)
	want := func(what, stream, queue string, sequence uint64, dead bool) {
		t.Helper()
		id := noteTerminated(t, js, stream, queue, sequence)
		letters, _, err := space.DeadLetters(ctx, js, lab, id-1, 0)
		if err != nil || (len(letters) == 1) != dead {
			t.Errorf("%s: dead letters = %+v, %v, want %v", what, letters, err, dead)
		}
		found, err := space.FindDead(ctx, js, lab, stream, queue, sequence)
		if err != nil || (found != nil) != dead {
			t.Errorf("%s: FindDead = %+v, %v, want %v", what, found, err, dead)
		}
		if _, err := space.GetDeadLetter(ctx, js, lab, id); (err == nil) != dead {
			t.Errorf("%s: GetDeadLetter = %v, want %v", what, err, dead)
		}
	}
	want("of another", dm, queue, foreign, false)
	want("of an earlier life", dm, queue, earlier, false)
	want("not given out", dm, queue, waits, false)
	want("beyond the end", dm, queue, 4711, false)
	want("of another role", wire.RoleStream(lab), wire.RoleDurable("reviewer"), job, false)
	want("handed over", dm, queue, mine, true)

	if err := space.RemoveDurables(ctx, js, lab, ada); err != nil {
		t.Fatal(err)
	}
	next := waits + 1
	want("of a life that ended, of another", dm, queue, foreign, false)
	want("of a life that ended, never stored", dm, queue, next, false)
	if got := send(t, js, "late", &ada, ""); got != next {
		t.Fatalf("stored as %d, want %d", got, next)
	}
	letters, _, err := space.DeadLetters(ctx, js, lab, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range letters {
		if d.Sequence == next || d.Sequence == foreign {
			t.Errorf("a life that ended declares %+v dead", d)
		}
	}
	want("of a life that ended", dm, queue, mine, true)
}

// Whoever sends much to the same address does not multiply what it takes to finish a requeue.
func TestRequeueFindsItsCopyByTheBatch(t *testing.T) {
	deadSpace(t, func(t *testing.T, js jetstream.JetStream, ada wire.Lifecycle) {
		ctx := t.Context()
		letters, _, err := space.DeadLetters(ctx, js, lab, 0, 1)
		if err != nil || len(letters) != 1 {
			t.Fatalf("dead letters = %+v, %v", letters, err)
		}
		const marked, stored, removed = 1, 2, 3
		subject := must(wire.DirectSubject(lab, ada.Principal, boss))(t)
		flood := func() {
			for range 2000 {
				if err := js.Conn().Publish(subject, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		flood()
		interrupt(t, js, letters[0], stored, marked, stored, removed)
		copied := must(space.State(ctx, js, wire.DirectStream(lab)))(t).LastSeq
		flood()
		must(js.Publish(ctx, subject, []byte("last")))(t)
		before := js.Conn().Stats().OutMsgs
		sequence, err := space.Requeue(ctx, js, lab, letters[0].ID)
		if err != nil || sequence != copied {
			t.Errorf("Requeue = %d, %v, want the copy %d", sequence, err, copied)
		}
		if asked := js.Conn().Stats().OutMsgs - before; asked > 20 {
			t.Errorf("%d requests, want at most 20", asked)
		}
	})
}
