package person

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

// member is a membership of the session.
type member struct {
	pattern string
	*endpoint.Membership
}

// memberships are the patterns that the person is a member of already. When nobody can say, none is known.
func (s *session) memberships(ctx context.Context) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, target.AnswerWithin)
	defer cancel()
	all, _, err := target.Memberships(ctx, s.ep, wire.MembershipsRequest{Principal: s.ep.Principal().String()})
	if err != nil {
		return nil
	}
	open := map[string]bool{}
	for _, m := range all {
		for _, d := range m.Durable {
			open[d.Pattern] = open[d.Pattern] || m.UID == s.ep.Lifecycle().UID && d.Left == 0
		}
	}
	return open
}

// join makes the person a member of the channels of a pattern. What was missed since the last time is shown first. Who was
// no member yet is shown the last stored messages before that, up to the place where the membership begins.
func (s *session) join(ctx context.Context, pattern string, history int, again bool) error {
	if slices.ContainsFunc(s.members, func(have member) bool { return wire.PatternCovers(have.pattern, pattern) }) {
		return nil
	}
	begun := make(chan struct{})
	defer close(begun)
	m, err := s.ep.Join(ctx, pattern, func(d *endpoint.Delivery) {
		<-begun // what is older is shown first
		s.release(pattern, d.Sequence)
		s.settle(ctx, d, pattern)
	}, &endpoint.JoinOptions{Manual: true})
	if errors.Is(err, wire.ErrPermissionDenied) && s.posts(pattern) {
		s.say("what others say in %s is not shown: your credential may post there and not read", view.Channel(pattern))
		return nil
	}
	if err != nil {
		return err
	}
	s.members = append(s.members, member{pattern, m})
	st := m.Status()
	if history > 0 && !again && st.Established {
		if err := s.backlog(ctx, pattern, history, st); err != nil && ctx.Err() == nil {
			s.say("no history of %s: %s", view.Channel(pattern), command.Safe(err.Error()))
		}
	}
	if st.Established && !again && !s.screen.env.JSON {
		s.wg.Go(func() { s.hint(ctx, pattern) })
	}
	switch {
	case !st.Established: // said as it happens
	case !st.Durable:
		s.tell("live", view.Channel(pattern)+" is delivered live: what is posted while you are away is in its history only")
	case !again:
		s.tell("member", "you are a member of "+view.Channel(pattern)+" now")
	}
	return nil
}

// hint tells after a while which channel may have been meant by one that is not there yet.
func (s *session) hint(ctx context.Context, channel string) {
	select {
	case <-time.After(target.Quiet):
		if meant := target.Mistyped(ctx, s.ep, channel); meant != "" {
			s.say("%s", command.Safe(meant))
		}
	case <-ctx.Done():
	}
}

// backlog shows the last stored messages up to the place where a membership began, as far as the channel's settings show them
// to those who join. What earlier memberships of the channel hold still comes by itself: it is left out here, and what is later
// waits for it.
func (s *session) backlog(ctx context.Context, channel string, n int, st endpoint.MembershipStatus) error {
	page, err := s.ep.History(ctx, wire.HistoryRequest{Channel: channel, Last: n, Until: st.Joined, Replay: true})
	if err != nil {
		return err
	}
	for _, d := range page.Messages {
		within := func(r wire.SequenceRange) bool { return r.From <= d.Sequence && d.Sequence <= r.To }
		switch en := view.EntryOf(d); {
		case slices.ContainsFunc(st.Earlier, within):
		case len(st.Earlier) > 0 && st.Earlier[0].To < d.Sequence:
			s.mu.Lock()
			s.late[channel] = append(s.late[channel], en)
			s.mu.Unlock()
		default:
			s.print(en, en.Text)
		}
	}
	return nil
}

// tell says what happened, to a program as a line of its own.
func (s *session) tell(event, text string) {
	if s.screen.env.JSON {
		s.print(view.Notice{V: command.V1, Event: event, Text: text}, nil)
		return
	}
	s.say("%s", text)
}

// part ends a membership.
func (s *session) part(ctx context.Context, pattern string) error {
	i := slices.IndexFunc(s.members, func(m member) bool { return m.pattern == pattern })
	if i < 0 {
		return command.Hint(wire.Errorf(wire.CodeNotFound, "you did not join %q", pattern), "you joined: "+s.joined())
	}
	if err := s.members[i].Leave(ctx); err != nil {
		return err
	}
	s.members = slices.Delete(s.members, i, i+1)
	s.tell("left", "left "+view.Channel(pattern))
	if s.current == "" || slices.ContainsFunc(s.members, func(m member) bool { return wire.PatternCovers(m.pattern, s.current) }) {
		return nil
	}
	s.current = ""
	for _, m := range s.members {
		if wire.ValidateChannel(m.pattern) == nil {
			s.current = m.pattern
			s.say("plain text is posted to %s now", view.Channel(s.current))
			return nil
		}
	}
	s.say("plain text goes nowhere now; choose a channel with /channel <name>")
	return nil
}

// joined lists what the session has joined.
func (s *session) joined() string {
	if len(s.members) == 0 {
		return "nothing"
	}
	names := make([]string, len(s.members))
	for i, m := range s.members {
		names[i] = view.Channel(m.pattern)
	}
	return strings.Join(names, ", ")
}

// Bounds of waiting for what was missed.
const (
	lookEvery   = 20 * time.Millisecond
	catchUpTime = 30 * time.Second
)

// catchUp waits until everything that was missed has been shown: a script that has no more to say has not read yet. It
// gives up when delivery does not answer.
func (s *session) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for s.behind(ctx) {
		select {
		case <-tick.C:
		case <-s.broken:
			return
		case <-ctx.Done():
			return
		}
	}
	for _, m := range s.members {
		s.release(m.pattern, math.MaxUint64)
	}
}

// behind reports whether something is known to wait for the person that was not shown.
func (s *session) behind(ctx context.Context) bool {
	for _, m := range s.members {
		if st := m.Status(); st.Established && st.Durable && st.Behind {
			return true
		}
	}
	waiting, _, err := s.ep.Waiting(ctx)
	return err == nil && waiting > 0
}

// farewell says what stays when the session ends.
func (s *session) farewell() {
	var kept []string
	for _, m := range s.members {
		if m.Status().Durable {
			kept = append(kept, m.pattern)
		}
	}
	if len(kept) == 0 {
		return
	}
	names := make([]string, len(kept))
	for i, p := range kept {
		names[i] = view.Channel(p)
	}
	how := "<channel>"
	if len(kept) == 1 {
		how = command.Quote(kept[0])
	}
	s.say("you stay a member of %s: what is posted meanwhile waits for you; cotal leave %s ends that", strings.Join(names, ", "), how)
}
