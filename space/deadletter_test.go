package space_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

var boss = wire.Principal{Owner: wire.LocalOwner, Actor: "boss"}

// message is an encoded message from boss to one of the two.
func message(t testing.TB, id string, to *wire.Lifecycle, role string) []byte {
	t.Helper()
	m := wire.Message{
		ID: id, TS: 1, Space: lab, From: wire.EndpointRef{ID: boss.String(), Name: "boss"}, ToService: role,
		Parts: []wire.Part{{Kind: wire.PartText, Text: "do " + id}},
	}
	if to != nil {
		m.To = to.Principal.String()
	}
	return must(m.AppendJSON(nil))(t)
}

// send stores a message with a header of its own and returns its sequence.
func send(t testing.TB, js jetstream.JetStream, id string, to *wire.Lifecycle, role string) uint64 {
	t.Helper()
	var subject string
	if to != nil {
		subject = must(wire.DirectSubject(lab, to.Principal, boss))(t)
	} else {
		subject = must(wire.RoleSubject(lab, role, boss))(t)
	}
	msg := nats.NewMsg(subject)
	msg.Data = message(t, id, to, role)
	msg.Header.Set("X-Own", "kept")
	return must(js.PublishMsg(t.Context(), msg, jetstream.WithMsgID(id)))(t).Sequence
}

// exhaust refuses the next message of a queue until the broker gives it up. It is for a bubble or a queue without waits
// between negative answers.
func exhaust(t testing.TB, js jetstream.JetStream, stream, queue string) {
	t.Helper()
	c := must(js.Consumer(t.Context(), stream, queue))(t)
	for range wire.MaxDeliveries {
		m := must(c.Next(jetstream.FetchMaxWait(10 * time.Second)))(t)
		if err := m.Nak(); err != nil {
			t.Fatal(err)
		}
	}
	// The broker finds out when it looks for the next message to hand over.
	if m, err := c.Next(jetstream.FetchMaxWait(time.Second)); err == nil {
		t.Fatalf("handed over once more: %q", m.Data())
	}
}

// terminate refuses the next message of a queue for good, in a bubble, and returns when the broker has noted that.
func terminate(t testing.TB, js jetstream.JetStream, stream, queue, reason string) {
	t.Helper()
	m := must(must(js.Consumer(t.Context(), stream, queue))(t).Next(jetstream.FetchMaxWait(10 * time.Second)))(t)
	if err := m.TermWithReason(reason); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// deadSpace is a bubble with a space in which ada has one direct message that was never handled and one that she
// refused, and reviewers have a job that was never done.
func deadSpace(t *testing.T, fn func(t *testing.T, js jetstream.JetStream, ada wire.Lifecycle)) {
	inBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ada := lifecycle("ada")
		if err := space.EnsureDurables(t.Context(), js, lab, ada, "reviewer"); err != nil {
			t.Fatal(err)
		}
		send(t, js, "m1", &ada, "")
		exhaust(t, js, wire.DirectStream(lab), wire.DirectDurable(ada))
		send(t, js, "m2", &ada, "")
		terminate(t, js, wire.DirectStream(lab), wire.DirectDurable(ada), `not "for" me`)
		send(t, js, "j1", nil, "reviewer")
		exhaust(t, js, wire.RoleStream(lab), wire.RoleDurable("reviewer"))
		synctest.Wait()
		fn(t, js, ada)
	})
}

func TestDeadLettersAreListed(t *testing.T) {
	deadSpace(t, func(t *testing.T, js jetstream.JetStream, ada wire.Lifecycle) {
		ctx := t.Context()
		all, next, err := space.DeadLetters(ctx, js, lab, 0, 0)
		if err != nil || next != 0 || len(all) != 3 {
			t.Fatalf("DeadLetters = %+v, next %d, %v; want 3 and no more", all, next, err)
		}
		var got []string
		for _, d := range all {
			got = append(got, fmt.Sprintf("%s %s %s from %s, %s %d deliveries %d %v %s", d.Kind, d.MessageID, d.Recipient, d.Sender, d.Stream, d.Sequence, d.Deliveries, d.Terminated, d.Reason))
			if d.Gone || d.Size == 0 || d.Message != nil || d.At.IsZero() || d.StoredAt.IsZero() || d.UID != d.Lifecycle.UID {
				t.Errorf("dead letter %+v: want size, times, and no body", d)
			}
		}
		want := []string{
			"direct m1 local.ada from local.boss, DM_lab 1 deliveries 20 false not handled after 20 deliveries", `direct m2 local.ada from local.boss, DM_lab 2 deliveries 1 true not "for" me`,
			"role j1 reviewer from local.boss, TASK_lab 1 deliveries 20 false not handled after 20 deliveries",
		}
		if !slices.Equal(got, want) {
			t.Errorf("dead letters\n%q, want\n%q", got, want)
		}
		var ids []uint64
		for after := uint64(0); ; {
			page, next, err := space.DeadLetters(ctx, js, lab, after, 1)
			if err != nil || len(page) != 1 {
				t.Fatalf("page after %d = %+v, %v", after, page, err)
			}
			ids = append(ids, page[0].ID)
			if after = next; next == 0 {
				break
			}
		}
		if want := []uint64{all[0].ID, all[1].ID, all[2].ID}; !slices.Equal(ids, want) {
			t.Errorf("one by one: %v, want %v", ids, want)
		}
		if _, _, err := space.DeadLetters(ctx, js, lab, 0, space.MaxDeadPage+1); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("a page too large = %v, want bad-request", err)
		}
		d, err := space.GetDeadLetter(ctx, js, lab, all[0].ID)
		if err != nil || string(d.Message) != string(message(t, "m1", &ada, "")) {
			t.Errorf("GetDeadLetter = %+v, %v; want the body as sent", d, err)
		}
		if _, err := space.GetDeadLetter(ctx, js, lab, 4711); !errors.Is(err, wire.ErrNotFound) || err.Error() != `no dead letter 4711 in space "lab"` {
			t.Errorf("GetDeadLetter of none = %v, want not-found", err)
		}
		for _, d := range all {
			if found, err := space.FindDead(ctx, js, lab, d.Stream, d.Consumer, d.Sequence); err != nil || found == nil || found.ID != d.ID {
				t.Errorf("FindDead(%s, %d) = %+v, %v, want %d", d.Consumer, d.Sequence, found, err, d.ID)
			}
		}
		if found, err := space.FindDead(ctx, js, lab, wire.DirectStream(lab), wire.DirectDurable(ada), 3); err != nil || found != nil {
			t.Errorf("FindDead of a message that is none = %+v, %v", found, err)
		}
	})
}

func TestRequeuedMessagesAreHandedOverAgain(t *testing.T) {
	deadSpace(t, func(t *testing.T, js jetstream.JetStream, ada wire.Lifecycle) {
		ctx := t.Context()
		all, _, err := space.DeadLetters(ctx, js, lab, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			seq, err := space.Requeue(ctx, js, lab, d.ID)
			if err != nil || seq == 0 {
				t.Fatalf("Requeue(%d) = %d, %v", d.ID, seq, err)
			}
			m := must(must(js.Consumer(ctx, d.Stream, d.Consumer))(t).Next())(t)
			meta := must(m.Metadata())(t)
			body := message(t, d.MessageID, nil, "reviewer")
			if d.Kind == "direct" {
				body = message(t, d.MessageID, &ada, "")
			}
			if meta.Sequence.Stream != seq || meta.NumDelivered != 1 || string(m.Data()) != string(body) {
				t.Errorf("handed over %d, attempt %d, %q; want %d, 1, %q", meta.Sequence.Stream, meta.NumDelivered, m.Data(), seq, body)
			}
			if h := m.Headers(); h.Get(wire.HeaderRequeued) != strconv.FormatUint(d.Sequence, 10) || h.Get("X-Own") != "kept" {
				t.Errorf("headers %v, want the old sequence and the sender's own", h)
			}
			if err := m.DoubleAck(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := space.Requeue(ctx, js, lab, d.ID); !errors.Is(err, wire.ErrNotFound) {
				t.Errorf("a second Requeue(%d) = %v, want not-found", d.ID, err)
			}
			if _, err := must(js.Stream(ctx, d.Stream))(t).GetMsg(ctx, d.Sequence); !errors.Is(err, jetstream.ErrMsgNotFound) {
				t.Errorf("the dead message %d of %s is still stored: %v", d.Sequence, d.Stream, err)
			}
		}
		wantNothingDead(t, js)
	})
}

func wantNothingDead(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if st := must(space.State(t.Context(), js, wire.DeadStream(lab)))(t); st.Msgs != 0 {
		t.Errorf("%d records of dead letters are left", st.Msgs)
	}
}

func TestDroppedDeadLettersAreGone(t *testing.T) {
	deadSpace(t, func(t *testing.T, js jetstream.JetStream, _ wire.Lifecycle) {
		ctx := t.Context()
		all, _, err := space.DeadLetters(ctx, js, lab, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		// A call that was interrupted between the two removals.
		if err := must(js.Stream(ctx, all[0].Stream))(t).DeleteMsg(ctx, all[0].Sequence); err != nil {
			t.Fatal(err)
		}
		if d, err := space.GetDeadLetter(ctx, js, lab, all[0].ID); err != nil || !d.Gone || d.Message != nil {
			t.Errorf("a dead letter without its message = %+v, %v, want Gone", d, err)
		}
		if _, err := space.Requeue(ctx, js, lab, all[0].ID); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("Requeue of what is stored no more = %v, want failed-precondition", err)
		}
		for _, d := range all {
			if err := space.DropDeadLetter(ctx, js, lab, d.ID); err != nil {
				t.Errorf("DropDeadLetter(%d) = %v", d.ID, err)
			}
			if err := space.DropDeadLetter(ctx, js, lab, d.ID); !errors.Is(err, wire.ErrNotFound) {
				t.Errorf("a second DropDeadLetter(%d) = %v, want not-found", d.ID, err)
			}
		}
		wantNothingDead(t, js)
		for _, stream := range []string{wire.DirectStream(lab), wire.RoleStream(lab)} {
			if st := must(space.State(ctx, js, stream))(t); st.Msgs != 0 {
				t.Errorf("%d messages left in %s", st.Msgs, stream)
			}
		}
	})
}

// Each stage is what a call leaves behind that ends at that point; the next call must finish it.
func TestRequeueIsFinishedByTheNextCall(t *testing.T) {
	const marked, stored, removed = 1, 2, 3
	for _, tc := range []struct {
		name    string
		letter  int // of deadSpace: 0 is direct, 2 is role work
		stage   int
		handled bool // what was put back was handled before the next call
		later   time.Duration
		err     error
		offered int // how many copies are in the queue afterwards
	}{
		{name: "direct_marked", letter: 0, stage: marked, offered: 1},
		{name: "direct_marked_long_ago", letter: 0, stage: marked, later: time.Hour, offered: 1},
		{name: "direct_stored", letter: 0, stage: stored, offered: 1},
		{name: "direct_stored_long_ago", letter: 0, stage: stored, later: time.Hour, offered: 1},
		{name: "direct_handled", letter: 0, stage: stored, handled: true},
		{name: "direct_handled_long_ago", letter: 0, stage: stored, handled: true, later: time.Hour},
		{name: "direct_removed", letter: 0, stage: removed, offered: 1},
		{name: "role_marked", letter: 2, stage: marked, err: wire.ErrConflict},
		{name: "role_marked_long_ago", letter: 2, stage: marked, later: time.Hour, err: wire.ErrPrecondition},
		{name: "role_stored", letter: 2, stage: stored, offered: 1},
		{name: "role_stored_long_ago", letter: 2, stage: stored, later: time.Hour, offered: 1},
		{name: "role_handled", letter: 2, stage: stored, handled: true, err: wire.ErrConflict},
		{name: "role_handled_long_ago", letter: 2, stage: stored, handled: true, later: time.Hour, err: wire.ErrPrecondition},
		{name: "role_removed", letter: 2, stage: removed, offered: 1},
		{name: "role_removed_and_handled", letter: 2, stage: removed, handled: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			deadSpace(t, func(t *testing.T, js jetstream.JetStream, ada wire.Lifecycle) {
				ctx := t.Context()
				all, _, err := space.DeadLetters(ctx, js, lab, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				d := all[tc.letter]
				interrupt(t, js, d, tc.stage, marked, stored, removed)
				queue := must(js.Consumer(ctx, d.Stream, d.Consumer))(t)
				if tc.handled {
					if err := must(queue.Next())(t).DoubleAck(ctx); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(tc.later)
				if _, err = space.Requeue(ctx, js, lab, d.ID); !errors.Is(err, tc.err) {
					t.Fatalf("Requeue = %v, want %v", err, tc.err)
				}
				if errors.Is(tc.err, wire.ErrPrecondition) {
					if e, _ := errors.AsType[*wire.Error](err); e.Outcome != wire.OutcomeUnknown {
						t.Errorf("outcome %q, want unknown", e.Outcome)
					}
				}
				if left, err := space.GetDeadLetter(ctx, js, lab, d.ID); tc.err == nil && !errors.Is(err, wire.ErrNotFound) || tc.err != nil && (err != nil || left.Gone) {
					t.Errorf("the dead letter afterwards = %+v, %v", left, err)
				}
				synctest.Wait() // the queue is told of what was stored
				if info := must(queue.Info(ctx))(t); int(info.NumPending) != tc.offered {
					t.Errorf("the queue offers %d, want %d", info.NumPending, tc.offered)
				}
				if tc.err == nil {
					return
				}
				// Who looked and asks once more gets it.
				time.Sleep(time.Hour)
				if errors.Is(tc.err, wire.ErrConflict) {
					if _, err := space.Requeue(ctx, js, lab, d.ID); !errors.Is(err, wire.ErrPrecondition) {
						t.Errorf("after a while: Requeue = %v, want failed-precondition", err)
					}
				}
				if seq, err := space.Requeue(ctx, js, lab, d.ID); err != nil || seq == 0 {
					t.Errorf("once more: Requeue = %d, %v", seq, err)
				}
				synctest.Wait()
				if info := must(queue.Info(ctx))(t); info.NumPending != 1 {
					t.Errorf("the queue offers %d, want 1", info.NumPending)
				}
			})
		})
	}
}

// interrupt leaves what a Requeue of d leaves that ends at the given stage.
func interrupt(t *testing.T, js jetstream.JetStream, d space.DeadLetter, stage, marked, stored, removed int) {
	t.Helper()
	ctx := t.Context()
	const id = "requeue-zzzzzzzzzzzzzzzzzzzzzzzzzz"
	body := must(json.Marshal(map[string]any{"v": 1, "msgId": id, "stream": d.Stream, "sequence": d.Sequence}))(t)
	must(js.Publish(ctx, wire.DeadMarks(lab)+strconv.FormatUint(d.ID, 10), body))(t)
	st := must(js.Stream(ctx, d.Stream))(t)
	if stage >= stored {
		old := must(st.GetMsg(ctx, d.Sequence))(t)
		m := nats.NewMsg(old.Subject)
		m.Data = old.Data
		m.Header.Set(wire.HeaderRequeued, strconv.FormatUint(d.Sequence, 10))
		must(js.PublishMsg(ctx, m, jetstream.WithMsgID(id)))(t)
	}
	if stage >= removed {
		if err := st.DeleteMsg(ctx, d.Sequence); err != nil {
			t.Fatal(err)
		}
	}
}

// What is in the stream of dead letters and cannot be read stops nothing, and can be dropped.
func TestMalformedNoticesAreLeftOut(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	ada := lifecycle("ada")
	at := func(stream, queue string) string {
		return strings.Replace(wire.DeadFilter(stream, queue), "*", "MAX_DELIVERIES", 1)
	}
	dm, queue := wire.DirectStream(lab), wire.DirectDurable(ada)
	for _, bad := range [][2]string{
		{at(dm, queue), "no JSON"}, {at(dm, queue), `{}`}, {at(dm, queue), `{"stream":"DM_lab","consumer":"other","stream_seq":1}`},
		{at(dm, queue), `{"stream":"TASK_lab","consumer":"` + queue + `","stream_seq":1}`}, {at(dm, "other"), `{"stream":"DM_lab","consumer":"other","stream_seq":1}`},
		{at(wire.RoleStream(lab), "other"), `{"stream":"TASK_lab","consumer":"other","stream_seq":1}`},
	} {
		must(js.Publish(ctx, bad[0], []byte(bad[1])))(t)
	}
	if err := space.EnsureDurables(ctx, js, lab, ada, ""); err != nil {
		t.Fatal(err)
	}
	gone := send(t, js, "gone", &ada, "")
	if err := must(must(js.Consumer(ctx, dm, queue))(t).Next())(t).DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	if err := must(js.Stream(ctx, dm))(t).DeleteMsg(ctx, gone); err != nil {
		t.Fatal(err)
	}
	good := must(js.Publish(ctx, at(dm, queue), []byte(`{"stream":"DM_lab","consumer":"`+queue+`","stream_seq":1,"deliveries":20,"more":[1]}`)))(t)
	all, next, err := space.DeadLetters(ctx, js, lab, 0, 0)
	if err != nil || next != 0 || len(all) != 1 || all[0].ID != good.Sequence || !all[0].Gone {
		t.Errorf("DeadLetters = %+v, %d, %v; want the readable one, gone", all, next, err)
	}
	for id := uint64(1); id < good.Sequence; id++ {
		if d, err := space.GetDeadLetter(ctx, js, lab, id); err == nil {
			t.Errorf("GetDeadLetter(%d) = %+v, want an error", id, d)
		}
		if _, err := space.Requeue(ctx, js, lab, id); err == nil {
			t.Errorf("Requeue(%d) went through", id)
		}
		if err := space.DropDeadLetter(ctx, js, lab, id); err != nil {
			t.Errorf("DropDeadLetter(%d) = %v", id, err)
		}
	}
	if st := must(space.State(ctx, js, wire.DeadStream(lab)))(t); st.Msgs != 1 {
		t.Errorf("%d notices left, want 1", st.Msgs)
	}
}
