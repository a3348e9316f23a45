package delivery_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// Whoever reports while it leaves leaves no position behind that nobody counts.
func TestAcksThatRaceALeaveLeaveNothing(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	m.burst(t, "general", 4, 10)
	ada := m.participant(t, "ada", ">")
	cursors := space.NewCursors(m.js, lab)
	for i := range 60 {
		p := fmt.Sprintf("p.c%d", i)
		gen := ada.join(t, p).Generation
		if i%2 == 0 { // as when the instance that made the membership ended right after
			_, rev, err := cursors.Get(ctxFor(t), ada.life, p)
			if err := errors.Join(err, cursors.Remove(ctxFor(t), ada.life, p, rev)); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := try[wire.AckReply](t, ada.Caller, wire.CommandAck, wire.AckRequest{Pattern: p, Generation: gen, Handled: ranges(2, 2)})
				if err != nil && !errors.Is(err, wire.ErrNotFound) {
					t.Errorf("ack = %v", err)
				}
			})
		}
		wg.Go(func() { ada.leave(t, wire.LeaveRequest{Pattern: p, Discard: true}) })
		wg.Wait()
	}
	if n, err := cursors.Total(ctxFor(t)); err != nil || n != 0 {
		t.Errorf("%d positions are left, %v, want none", n, err)
	}
}

// A member whose position finds no room is told when it joins, and is none; whoever is a member already goes on.
func TestJoiningNeedsRoomForThePosition(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	if err := m.js.DeleteStream(ctxFor(t), space.BucketStream(wire.CursorsBucket(lab))); err != nil {
		t.Fatal(err)
	}
	if err := space.Ensure(ctxFor(t), m.js, lab, &space.Options{Sizes: space.Sizes{Cursors: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	m.class(t, wire.DefaultsKey, wire.ClassDurable)
	m.serve(t, nil)
	ada, eve := m.participant(t, "ada", ">"), m.participant(t, "eve", ">")
	gen := ada.join(t, "general").Generation
	m.burst(t, "general", 10, 10)
	for size := 32 << 10; size > 0; { // filled by others, to the last byte
		subject := wire.RecordPrefix(wire.CursorsBucket(lab)) + "x." + string(wire.NewUID())
		if _, err := m.js.Publish(ctxFor(t), subject, make([]byte, size)); err != nil {
			size /= 2
		}
	}
	_, err := try[wire.JoinReply](t, eve.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: "general"})
	refused(t, "join", err, wire.ErrExhausted)
	if n, err := space.NewMembers(m.js, lab).Count(ctxFor(t), eve.life); err != nil || n != 0 {
		t.Errorf("eve has %d memberships, %v, want none", n, err)
	}
	if r := ada.ack(t, "general", gen, 7, ranges(9, 9)...); r.Floor != 7 {
		t.Errorf("ack = %+v", r)
	}
	if page := ada.pull(t, wire.PullRequest{Pattern: "general"}); len(page.Messages) == 0 || page.Messages[0].Sequence != 8 {
		t.Errorf("page = %+v, want it to begin with 8", page)
	}
}

// A stream that was made anew is not as far as it was.
func TestPositionsInAStreamMadeAnew(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		stop := m.serve(t, nil)
		ada := m.participant(t, "ada", ">")
		m.point(t, ada.life, "general", m.post(t, poster(), "general", "x"), poster())
		last := m.point(t, ada.life, "general", m.post(t, poster(), "general", "x"), poster())
		in := wire.AckRequest{Mentions: true, Floor: last}
		ask[wire.AckReply](t, ada.Caller, wire.CommandAck, in)
		if err := m.js.DeleteStream(ctxFor(t), wire.MentionStream(lab)); err != nil {
			t.Fatal(err)
		}
		if err := space.Ensure(ctxFor(t), m.js, lab, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		_, err := try[wire.AckReply](t, ada.Caller, wire.CommandAck, in)
		refused(t, "ack of what is not there any more", err, wire.ErrPrecondition)
		stop()
	})
}

// Ranges may touch each other and the floor: together they are one.
func TestRangesThatTouchAreOne(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	m.burst(t, "general", 10, 10)
	if r := ada.ack(t, "general", gen, 2, ranges(3, 4, 5, 6)...); r.Floor != 6 {
		t.Errorf("ack = %+v, want floor 6", r)
	}
}
