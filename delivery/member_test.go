package delivery_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// member is a participant of a durable space with its caller.
type member struct {
	*control.Caller
	m    *mesh
	life wire.Lifecycle
}

// durableMesh is a mesh with delivery, whose channels are durable unless said otherwise.
func durableMesh(t testing.TB) *mesh {
	t.Helper()
	m := newMesh(t)
	m.class(t, wire.DefaultsKey, wire.ClassDurable)
	m.serve(t, nil)
	return m
}

func (m *mesh) participant(t testing.TB, actor string, read ...string) *member {
	t.Helper()
	l := lifecycle(actor)
	m.grant(t, l, read...)
	return &member{m.caller(t, l), m, l}
}

func (u *member) join(t testing.TB, pattern string) wire.JoinReply {
	t.Helper()
	return ask[wire.JoinReply](t, u.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: pattern})
}

func (u *member) pull(t testing.TB, in wire.PullRequest) wire.PullReply {
	t.Helper()
	return ask[wire.PullReply](t, u.Caller, wire.CommandPull, in)
}

func (u *member) ack(t testing.TB, pattern string, generation, floor uint64, handled ...wire.SequenceRange) wire.AckReply {
	t.Helper()
	return ask[wire.AckReply](t, u.Caller, wire.CommandAck, wire.AckRequest{Pattern: pattern, Generation: generation, Floor: floor, Handled: handled})
}

func (u *member) leave(t testing.TB, in wire.LeaveRequest) wire.LeaveReply {
	t.Helper()
	return ask[wire.LeaveReply](t, u.Caller, wire.CommandLeave, in)
}

// refused fails the test unless the error is of a kind.
func refused(t testing.TB, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s = %v, want %s", what, err, wire.CodeOf(kind))
	}
}

// burst posts n messages on a channel and returns the sequence of the last one.
func (m *mesh) burst(t testing.TB, channel string, n, size int) uint64 {
	t.Helper()
	from := wire.Principal{Owner: wire.LocalOwner, Actor: "poster"}
	text := make([]byte, size)
	for i := range text {
		text[i] = 'x'
	}
	subject, err := wire.ChannelSubject(lab, from, channel)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := m.js.PublishAsync(subject, encode(t, message(from, channel, fmt.Sprintf("%d %s", i, text))), jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-m.js.PublishAsyncComplete():
	case <-ctxFor(t).Done():
		t.Fatal("messages were not stored in time")
	}
	return m.last(t)
}

func (m *mesh) last(t testing.TB) uint64 {
	t.Helper()
	state, err := space.State(ctxFor(t), m.js, wire.ChatStream(lab))
	if err != nil {
		t.Fatal(err)
	}
	return state.LastSeq
}

func poster() wire.Principal { return wire.Principal{Owner: wire.LocalOwner, Actor: "poster"} }

func TestJoinAgainReturnsTheOpenMembership(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	m.post(t, poster(), "general", "before")
	first := ada.join(t, "general")
	if !first.Durable || first.Resumed || first.Generation == 0 || first.Joined != 1 || first.Frontier != 1 || first.Class != "durable" {
		t.Errorf("first join = %+v", first)
	}
	m.post(t, poster(), "general", "after")
	again := ada.join(t, "general")
	if !again.Durable || !again.Resumed || again.Generation != first.Generation || again.Joined != 1 || again.Frontier != 2 {
		t.Errorf("second join = %+v, want the first, resumed", again)
	}
	ada.ack(t, "general", first.Generation, 1, wire.SequenceRange{From: 2, To: 2})
	if again = ada.join(t, "general"); again.Floor != 2 {
		t.Errorf("join after handling = %+v, want floor 2", again)
	}
}

func TestConcurrentJoinsOpenOneInterval(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	for round := range 5 {
		pattern := fmt.Sprintf("c%d", round)
		replies := make([]wire.JoinReply, 6)
		var wg sync.WaitGroup
		for i := range replies {
			wg.Go(func() {
				m.post(t, poster(), pattern, "meanwhile")
				var err error
				if replies[i], err = try[wire.JoinReply](t, ada.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: pattern}); err != nil {
					t.Errorf("join = %v", err)
				}
			})
		}
		wg.Wait()
		made := 0
		for _, r := range replies {
			if !r.Resumed {
				made++
			}
			if r.Generation != replies[0].Generation || r.Joined != replies[0].Joined {
				t.Errorf("joins differ: %+v and %+v", r, replies[0])
			}
		}
		if made != 1 {
			t.Errorf("%d joins made the membership, want 1", made)
		}
		got, _, err := space.NewMembers(m.js, lab).Get(ctxFor(t), ada.life, pattern)
		if err != nil || len(got.Spans) != 1 {
			t.Errorf("record = %+v, %v, want one interval", got, err)
		}
	}
}

func TestJoinNeedsAReadListThatCoversThePattern(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", "team.*", "general", "log.>")
	for _, pattern := range []string{"team.a", "team.*", "general", "log.>", "log.a.b"} {
		ada.join(t, pattern)
	}
	for _, pattern := range []string{"team.>", "*", ">", "secret", "log"} {
		_, err := try[wire.JoinReply](t, ada.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: pattern})
		refused(t, "join "+pattern, err, wire.ErrPermissionDenied)
		e, _ := errors.AsType[*wire.Error](err)
		for _, key := range []string{"subject", "principal", "missing", "ask"} {
			if e == nil || e.Details[key] == nil {
				t.Errorf("join %q: refusal lacks %q: %v", pattern, key, e)
			}
		}
	}
	_, err := try[wire.JoinReply](t, ada.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: "a..b"})
	refused(t, "join of no pattern", err, wire.ErrBadRequest)
}

func TestJoinOfALiveChannelWritesNothing(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	m.class(t, "chatter", wire.ClassLive)
	m.post(t, poster(), "chatter", "x")
	if r := ada.join(t, "chatter"); r.Durable || r.Class != "live" || r.Generation != 0 || r.Joined != 1 || r.Frontier != 1 {
		t.Errorf("join of a live channel = %+v", r)
	}
	_, err := try[wire.PullReply](t, ada.Caller, wire.CommandPull, wire.PullRequest{Pattern: "chatter"})
	refused(t, "pull of it", err, wire.ErrNotFound)
}

func TestPatternIsDurableWhenAnyChannelOfItMayBe(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	m.class(t, wire.DefaultsKey, wire.ClassLive)
	m.class(t, "team.kept", wire.ClassDurable)
	for pattern, want := range map[string]bool{"team.*": true, "team.>": true, ">": true, "other.*": false, "team.kept": true, "team.x": false} {
		if r := ada.join(t, pattern); r.Durable != want || (r.Class == "durable") != want {
			t.Errorf("join %q = %+v, want durable %t", pattern, r, want)
		}
	}
}

func TestOneLifeHasABoundedNumberOfMemberships(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	members := space.NewMembers(m.js, lab)
	for i := range wire.MaxMemberships {
		one := space.Membership{Lifecycle: ada.life, Pattern: fmt.Sprintf("c%d", i)}.Joined(0)
		if _, err := members.Put(ctxFor(t), one, 0); err != nil {
			t.Fatal(err)
		}
	}
	_, err := try[wire.JoinReply](t, ada.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: "more"})
	exhausted(t, "one more", err, wire.MaxMemberships, "leave one first")
	ada.join(t, "c0")
	ada.leave(t, wire.LeaveRequest{Pattern: "c0", Discard: true})
	ada.join(t, "more")
}

func TestIntervalsOfOneMembershipAreBounded(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	var gen uint64
	for range space.MaxSpans {
		gen = ada.join(t, "general").Generation
		m.post(t, poster(), "general", "x")
		ada.leave(t, wire.LeaveRequest{Pattern: "general"})
	}
	_, err := try[wire.JoinReply](t, ada.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: "general"})
	exhausted(t, "one more", err, space.MaxSpans, "handle it, or leave and discard it")
	ada.ack(t, "general", gen, 10)
	ada.join(t, "general")
	if got, _, err := space.NewMembers(m.js, lab).Get(ctxFor(t), ada.life, "general"); err != nil || len(got.Spans) != space.MaxSpans-10+1 {
		t.Errorf("after handling ten: %d intervals, %v", len(got.Spans), err)
	}
}

func TestLeaveEndsTheIntervalAndGivesOutWhatIsInside(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	for i := range 3 {
		m.post(t, poster(), "general", fmt.Sprint(i))
	}
	if r := ada.leave(t, wire.LeaveRequest{Pattern: "general", Generation: gen}); r.Left != 3 {
		t.Errorf("left at %d, want 3", r.Left)
	}
	m.post(t, poster(), "general", "too late")
	_, err := try[wire.LeaveReply](t, ada.Caller, wire.CommandLeave, wire.LeaveRequest{Pattern: "general"})
	refused(t, "leave again", err, wire.ErrNotFound)

	page := ada.pull(t, wire.PullRequest{Pattern: "general", Limit: 2})
	if len(page.Messages) != 2 || page.Ended || page.Next != 2 || page.Through != 2 {
		t.Errorf("first page = %+v", page)
	}
	page = ada.pull(t, wire.PullRequest{Pattern: "general", After: page.Next})
	if len(page.Messages) != 1 || !page.Ended || page.Next != 0 || page.Through < 3 {
		t.Errorf("last page = %+v", page)
	}
	if r := ada.ack(t, "general", gen, 2); r.Ended || r.Floor != 2 {
		t.Errorf("ack of a part = %+v", r)
	}
	if r := ada.ack(t, "general", gen, 2, wire.SequenceRange{From: 3, To: 3}); !r.Ended {
		t.Errorf("ack of all = %+v, want ended", r)
	}
	_, err = try[wire.PullReply](t, ada.Caller, wire.CommandPull, wire.PullRequest{Pattern: "general"})
	refused(t, "pull after the end", err, wire.ErrNotFound)
	for _, bucket := range []string{wire.MembersBucket(lab), wire.CursorsBucket(lab)} {
		state, err := space.State(ctxFor(t), m.js, space.BucketStream(bucket))
		if err != nil {
			t.Fatal(err)
		}
		if bucket == wire.MembersBucket(lab) && state.Msgs != 0 {
			t.Errorf("bucket %q holds %d records, want none", bucket, state.Msgs)
		}
	}
	if _, rev, err := space.NewCursors(m.js, lab).Get(ctxFor(t), ada.life, "general"); err != nil || rev != 0 {
		t.Errorf("position after the end has revision %d, %v, want none", rev, err)
	}
}

func TestLeaveWithDiscardForgetsWhatWasNotHandled(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	ada.join(t, "general")
	m.post(t, poster(), "general", "x")
	ada.leave(t, wire.LeaveRequest{Pattern: "general", Discard: true})
	_, err := try[wire.PullReply](t, ada.Caller, wire.CommandPull, wire.PullRequest{Pattern: "general"})
	refused(t, "pull", err, wire.ErrNotFound)

	ada.join(t, "general")
	m.post(t, poster(), "general", "y")
	ada.leave(t, wire.LeaveRequest{Pattern: "general"})
	ada.leave(t, wire.LeaveRequest{Pattern: "general", Discard: true}) // what was left is discarded later
	_, err = try[wire.PullReply](t, ada.Caller, wire.CommandPull, wire.PullRequest{Pattern: "general"})
	refused(t, "pull", err, wire.ErrNotFound)
}

func TestLeaveBeforeAnyMessageLeavesNothing(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	ada.join(t, "general")
	if r := ada.leave(t, wire.LeaveRequest{Pattern: "general"}); r.Left != 0 {
		t.Errorf("left at %d, want 0", r.Left)
	}
	m.post(t, poster(), "general", "x")
	_, err := try[wire.PullReply](t, ada.Caller, wire.CommandPull, wire.PullRequest{Pattern: "general"})
	refused(t, "pull", err, wire.ErrNotFound)
}

func TestLateLeaveAndAckOfAnEarlierProcessChangeNothing(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	old := ada.join(t, "general").Generation
	ada.leave(t, wire.LeaveRequest{Pattern: "general", Discard: true})
	now := ada.join(t, "general").Generation
	seq := m.post(t, poster(), "general", "x")
	_, err := try[wire.LeaveReply](t, ada.Caller, wire.CommandLeave, wire.LeaveRequest{Pattern: "general", Generation: old})
	refused(t, "late leave", err, wire.ErrConflict)
	_, err = try[wire.AckReply](t, ada.Caller, wire.CommandAck, wire.AckRequest{Pattern: "general", Generation: old, Floor: seq})
	refused(t, "late ack", err, wire.ErrConflict)
	if page := ada.pull(t, wire.PullRequest{Pattern: "general"}); page.Generation != now || len(page.Messages) != 1 {
		t.Errorf("pull = %+v, want the message, of generation %d", page, now)
	}
}

func TestMessagesBetweenTwoIntervalsAreNotGiven(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	first := ada.join(t, "general")
	in1 := m.post(t, poster(), "general", "in")
	ada.leave(t, wire.LeaveRequest{Pattern: "general"})
	m.post(t, poster(), "general", "out")
	second := ada.join(t, "general")
	if second.Resumed || second.Generation <= first.Generation || second.Joined != 2 || !cmp.Equal(second.Earlier, ranges(in1, in1)) {
		t.Errorf("second join = %+v", second)
	}
	in2 := m.post(t, poster(), "general", "in again")
	for limit := range 3 {
		var got []uint64
		for after := uint64(0); ; {
			page := ada.pull(t, wire.PullRequest{Pattern: "general", After: after, Limit: limit})
			for _, msg := range page.Messages {
				got = append(got, msg.Sequence)
			}
			if after = page.Next; after == 0 {
				equal(t, "through", page.Through, in2)
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint([]uint64{in1, in2}) {
			t.Errorf("limit %d: got %v, want %d and %d", limit, got, in1, in2)
		}
	}
	// The earlier generation still counts while its interval is there.
	ada.ack(t, "general", first.Generation, in1)
	if r := ada.join(t, "general"); r.Floor != in1 || r.Joined != 2 || r.Earlier != nil {
		t.Errorf("join = %+v", r)
	}
}
