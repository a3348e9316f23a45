package delivery_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// exhausted fails the test unless err gives the figures and says what to do.
func exhausted(t testing.TB, what string, err error, allowed int, remedy string) {
	t.Helper()
	refused(t, what, err, wire.ErrExhausted)
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || fmt.Sprint(e.Details["allowed"]) != fmt.Sprint(allowed) || e.Details["used"] == nil || !strings.Contains(e.Message, remedy) {
		t.Errorf("%s: %v with %+v, want at most %d and %q", what, err, e, allowed, remedy)
	}
}

// A hostile agent joins as many and as long patterns as it may, all at once, and joins and leaves in turn: it takes its share of
// the store and no more, and others join.
func TestOneLifeCannotFillTheStoreOfMemberships(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	eve, bob := m.participant(t, "eve", ">"), m.participant(t, "bob", ">")
	pattern := func(i int) string { return strings.Repeat("x", wire.MaxChannel-5) + fmt.Sprintf(".%04d", i) }
	var wg sync.WaitGroup
	var joined atomic.Int32
	for worker := range 8 {
		wg.Go(func() {
			for i := range 16 {
				_, err := try[wire.JoinReply](t, eve.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: pattern(worker*16 + i)})
				if err != nil {
					exhausted(t, "join of a long pattern", err, wire.MaxMembershipBytes, "leave one first")
					return
				}
				joined.Add(1)
			}
		})
	}
	wg.Wait()
	stored := func() int {
		st, err := space.State(ctxFor(t), m.js, space.BucketStream(wire.MembersBucket(lab)))
		if err != nil {
			t.Fatal(err)
		}
		return int(st.Bytes)
	}
	if n, size := joined.Load(), stored(); n < 40 || size > wire.MaxMembershipBytes {
		t.Errorf("%d joins took %d bytes, want at most %d", n, size, wire.MaxMembershipBytes)
	}
	var err error
	for i := 0; err == nil; i++ {
		_, err = try[wire.JoinReply](t, eve.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: fmt.Sprintf("c%d", i)})
	}
	exhausted(t, "join of a short pattern", err, wire.MaxMembershipBytes, "leave one first")
	for i := 0; err != nil && i < 30; i++ { // what waits does not give it more
		m.post(t, poster(), "c0", "x")
		eve.leave(t, wire.LeaveRequest{Pattern: "c0"})
		if _, err = try[wire.JoinReply](t, eve.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: "c0"}); err != nil {
			exhausted(t, "join again", err, wire.MaxMembershipBytes, "handle or discard")
			break
		}
		err = wire.ErrExhausted
	}
	if size := stored(); size > wire.MaxMembershipBytes {
		t.Errorf("joining and leaving in turn took %d bytes, want at most %d", size, wire.MaxMembershipBytes)
	}
	eve.leave(t, wire.LeaveRequest{Pattern: "c0", Discard: true})
	eve.join(t, "c0")
	bob.join(t, "general")
}

func TestAFullStoreOfMembershipsStopsOnlyNewOnes(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada, bob := m.participant(t, "ada", ">"), m.participant(t, "bob", ">")
	ada.join(t, "general")
	gen := ada.join(t, "team").Generation
	stream, err := m.js.Stream(ctxFor(t), space.BucketStream(wire.MembersBucket(lab)))
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	c.MaxBytes = int64(stream.CachedInfo().State.Bytes)
	if _, err := m.js.UpdateStream(ctxFor(t), c); err != nil {
		t.Fatal(err)
	}
	m.post(t, poster(), "general", "x")
	seq := m.post(t, poster(), "team", "x")
	_, err = try[wire.JoinReply](t, bob.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: "general"})
	refused(t, "a new membership", err, wire.ErrExhausted)
	if r := ada.leave(t, wire.LeaveRequest{Pattern: "general"}); r.Left != 2 {
		t.Errorf("left at %d, want 2", r.Left)
	}
	if page := ada.pull(t, wire.PullRequest{Pattern: "general"}); len(page.Messages) != 1 {
		t.Errorf("what waits after the leave = %+v, want one message", page)
	}
	_, err = try[wire.JoinReply](t, ada.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: "general"})
	refused(t, "one interval more", err, wire.ErrExhausted)
	ada.leave(t, wire.LeaveRequest{Pattern: "team"})
	ada.ack(t, "team", gen, 1)
	if r := ada.ack(t, "team", gen, seq); !r.Ended {
		t.Errorf("ack of all = %+v, want ended", r)
	}
}
