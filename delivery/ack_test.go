package delivery_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func TestAckIsRefused(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	m.burst(t, "general", 10, 10)
	many := make([]wire.SequenceRange, wire.MaxHandledRanges+1)
	for i := range many {
		many[i] = wire.SequenceRange{From: uint64(2*i + 1), To: uint64(2*i + 1)}
	}
	for name, c := range map[string]struct {
		in   wire.AckRequest
		want error
	}{
		"not a member":           {wire.AckRequest{Pattern: "other", Generation: gen}, wire.ErrNotFound},
		"another generation":     {wire.AckRequest{Pattern: "general", Generation: gen + 1}, wire.ErrConflict},
		"no generation":          {wire.AckRequest{Pattern: "general"}, wire.ErrConflict},
		"floor beyond the end":   {wire.AckRequest{Pattern: "general", Generation: gen, Floor: 11}, wire.ErrPrecondition},
		"range beyond the end":   {wire.AckRequest{Pattern: "general", Generation: gen, Handled: ranges(9, 11)}, wire.ErrPrecondition},
		"range out of order":     {wire.AckRequest{Pattern: "general", Generation: gen, Handled: ranges(6, 7, 2, 3)}, wire.ErrBadRequest},
		"ranges that overlap":    {wire.AckRequest{Pattern: "general", Generation: gen, Handled: ranges(2, 5, 5, 6)}, wire.ErrBadRequest},
		"range at the floor":     {wire.AckRequest{Pattern: "general", Generation: gen, Floor: 4, Handled: ranges(4, 6)}, wire.ErrBadRequest},
		"range that is reversed": {wire.AckRequest{Pattern: "general", Generation: gen, Handled: ranges(6, 5)}, wire.ErrBadRequest},
		"too many ranges":        {wire.AckRequest{Pattern: "general", Generation: gen, Handled: many}, wire.ErrBadRequest},
		"nothing":                {wire.AckRequest{}, wire.ErrBadRequest},
		"both":                   {wire.AckRequest{Pattern: "general", Mentions: true}, wire.ErrBadRequest},
	} {
		_, err := try[wire.AckReply](t, ada.Caller, wire.CommandAck, c.in)
		refused(t, name, err, c.want)
	}
	if c, rev, err := space.NewCursors(m.js, lab).Get(ctxFor(t), ada.life, "general"); err != nil || !c.Equal(space.Cursor{}) {
		t.Errorf("position after refusals = %+v, %d, %v, want the beginning", c, rev, err)
	}
}

func TestPositionsOnlyMoveForward(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	m.burst(t, "general", 3, 10)
	gen := ada.join(t, "general").Generation
	m.burst(t, "general", 17, 10)
	for _, step := range []struct {
		floor   uint64
		handled []wire.SequenceRange
		want    uint64
	}{
		{0, nil, 3}, {5, ranges(8, 9), 5}, {2, nil, 5}, {7, nil, 9}, {9, ranges(12, 13, 15, 15), 9}, {9, ranges(10, 11), 13}, {1, ranges(14, 14), 15},
	} {
		if r := ada.ack(t, "general", gen, step.floor, step.handled...); r.Floor != step.want || r.Ended {
			t.Errorf("ack %d %v = %+v, want floor %d", step.floor, step.handled, r, step.want)
		}
	}
}

func TestConcurrentAcksAreAllCounted(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	const each, workers = 6, 5
	m.burst(t, "general", 2*each*workers, 10)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				seq := uint64(2 * (i*workers + w + 1))
				if _, err := try[wire.AckReply](t, ada.Caller, wire.CommandAck, wire.AckRequest{
					Pattern: "general", Generation: gen, Handled: ranges(seq, seq),
				}); err != nil {
					t.Errorf("ack of %d = %v", seq, err)
				}
			}
		})
	}
	wg.Wait()
	got, _, _ := ada.pullAll(t, wire.PullRequest{Pattern: "general"})
	for i, seq := range sequences(got) {
		if seq != uint64(2*i+1) {
			t.Fatalf("got %v, want the odd ones", sequences(got))
		}
	}
	if len(got) != each*workers {
		t.Errorf("%d messages are left, want %d", len(got), each*workers)
	}
}

func TestLastAckAndANewJoinDoNotLoseTheNewInterval(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	for range 15 {
		gen := ada.join(t, "general").Generation
		seq := m.post(t, poster(), "general", "x")
		ada.leave(t, wire.LeaveRequest{Pattern: "general"})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := try[wire.AckReply](t, ada.Caller, wire.CommandAck, wire.AckRequest{Pattern: "general", Generation: gen, Floor: seq})
			if err != nil && !errors.Is(err, wire.ErrConflict) { // its interval was dropped by the join
				t.Errorf("ack = %v", err)
			}
		})
		var joined wire.JoinReply
		wg.Go(func() {
			joined, _ = try[wire.JoinReply](t, ada.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: "general"})
		})
		wg.Wait()
		next := m.post(t, poster(), "general", "y")
		got, page, _ := ada.pullAll(t, wire.PullRequest{Pattern: "general"})
		if page.Generation != joined.Generation || len(got) != 1 || got[0].Sequence != next {
			t.Fatalf("after joining %+v: got %v of generation %d, want %d", joined, sequences(got), page.Generation, next)
		}
		ada.leave(t, wire.LeaveRequest{Pattern: "general", Discard: true})
	}
}

// story is a membership by the book: what was posted, in which intervals, and what was handled.
type story struct {
	t       *testing.T // of the helpers
	m       *mesh
	u       *member
	prefix  string
	joined  bool
	exists  bool
	gen     uint64
	member  map[uint64]bool // sequences inside an interval
	handled map[uint64]bool
	posts   []uint64 // of the pattern
	last    uint64   // of the stream
}

// waiting is what is inside and not handled.
func (s *story) waiting() []uint64 {
	var out []uint64
	for _, seq := range s.posts {
		if s.member[seq] && !s.handled[seq] {
			out = append(out, seq)
		}
	}
	return out
}

// settle forgets the membership when it was left and every sequence in it is handled.
func (s *story) settle() {
	if s.joined {
		return
	}
	for seq := range s.member {
		if !s.handled[seq] {
			return
		}
	}
	s.exists, s.member, s.handled = false, map[uint64]bool{}, map[uint64]bool{}
}

func (s *story) post(t *rapid.T) {
	channel := s.prefix + rapid.SampledFrom([]string{".a", ".b", ".a.deep"}).Draw(t, "channel")
	seq := s.m.post(s.t, poster(), channel, "x")
	for n := s.last + 1; n <= seq; n++ {
		if s.joined {
			s.member[n] = true
		}
	}
	s.last = seq
	if channel != s.prefix+".a.deep" {
		s.posts = append(s.posts, seq)
	}
}

func (s *story) call(t *rapid.T, command string, args, out any) error {
	ctx := ctxFor(s.t)
	err := s.u.Call(ctx, control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, args, out)
	if (err != nil) == s.exists && command != wire.CommandJoin && !errors.Is(err, wire.ErrNotFound) {
		t.Fatalf("%s %+v = %v, membership exists: %t", command, args, err, s.exists)
	}
	return err
}

func (s *story) join(t *rapid.T) {
	var r wire.JoinReply
	if err := s.call(t, wire.CommandJoin, wire.JoinRequest{Pattern: s.prefix + ".*"}, &r); err != nil || r.Resumed != s.joined {
		t.Fatalf("join = %+v, %v, member already: %t", r, err, s.joined)
	}
	s.joined, s.exists, s.gen = true, true, r.Generation
}

func (s *story) leave(t *rapid.T) {
	var r wire.LeaveReply
	err := s.call(t, wire.CommandLeave, wire.LeaveRequest{Pattern: s.prefix + ".*"}, &r)
	if (err == nil) != s.joined || err == nil && r.Left != s.last {
		t.Fatalf("leave = %+v, %v, member: %t, end %d", r, err, s.joined, s.last)
	}
	if s.joined {
		s.joined = false
		s.settle()
	}
}

func (s *story) ack(t *rapid.T) {
	in := wire.AckRequest{Pattern: s.prefix + ".*", Generation: s.gen, Floor: rapid.Uint64Range(0, s.last).Draw(t, "floor")}
	for at := in.Floor + 1; at <= s.last && len(in.Handled) < 4; {
		from := rapid.Uint64Range(at, s.last).Draw(t, "from")
		to := rapid.Uint64Range(from, min(s.last, from+3)).Draw(t, "to")
		in.Handled = append(in.Handled, wire.SequenceRange{From: from, To: to})
		at = to + 1
	}
	if rapid.Bool().Draw(t, "little") {
		in.Floor = 0
	}
	var r wire.AckReply
	err := s.call(t, wire.CommandAck, in, &r)
	if !s.exists {
		return
	}
	if err != nil {
		t.Fatalf("ack %+v = %v", in, err)
	}
	for seq := uint64(1); seq <= s.last; seq++ {
		s.handled[seq] = s.handled[seq] || seq <= in.Floor || inRanges(in.Handled, seq)
	}
	s.settle()
	if r.Ended == s.exists {
		t.Fatalf("ack %+v = %+v, want ended %t", in, r, !s.exists)
	}
}

func (s *story) pull(t *rapid.T) {
	in := wire.PullRequest{Pattern: s.prefix + ".*", Limit: rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(t, "limit")}
	var got []uint64
	for {
		var page wire.PullReply
		if s.call(t, wire.CommandPull, in, &page) != nil {
			if s.exists {
				t.Fatal("pull found nothing")
			}
			return
		}
		if page.Losses != nil || page.Withheld+page.Skipped != 0 {
			t.Fatalf("pull = %+v", page)
		}
		got = append(got, sequences(page.Messages)...)
		if page.Next == 0 {
			if page.Ended == s.joined || s.joined && page.Through < s.last {
				t.Fatalf("last page = %+v, member: %t, end %d", page, s.joined, s.last)
			}
			break
		}
		in.After = page.Next
	}
	if want := s.waiting(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("pulled %v, want %v", got, want)
	}
}

func TestMembershipAgreesWithAStoryOfIt(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		s := &story{t: t, m: m, prefix: fmt.Sprintf("s%d", n), member: map[uint64]bool{}, handled: map[uint64]bool{}, last: m.last(t)}
		s.u = m.participant(t, fmt.Sprintf("ada%d", n), s.prefix+".>")
		rt.Repeat(map[string]func(*rapid.T){
			"post": s.post, "post_again": s.post, "join": s.join, "leave": s.leave, "ack": s.ack, "pull": s.pull,
		})
	})
}

// TestCrowdOfAcks: a report that others were always faster than may be made again; a conflict would end the membership.
func TestCrowdOfAcks(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	const each, workers = 6, 64
	m.burst(t, "general", 2*each*workers, 10)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				at := uint64(2 * (w*each + i + 1))
				_, err := try[wire.AckReply](t, ada.Caller, wire.CommandAck, wire.AckRequest{Pattern: "general", Generation: gen, Handled: ranges(at, at)})
				if err != nil && !errors.Is(err, wire.ErrUnavailable) {
					t.Errorf("ack %d: %v", at, err)
				}
			}
		})
	}
	wg.Wait()
}
