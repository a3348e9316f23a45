package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// joinedPatterns are the patterns of the memberships, sorted.
func (s *Server) joinedPatterns() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, len(s.joined))
	for p := range s.joined {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func (s *Server) membership(pattern string) *endpoint.Membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined[pattern]
}

// begin waits until no membership begins or ends, and keeps it so until done is called.
func (s *Server) begin(ctx context.Context) (done func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, undone(wire.CodeCancelled, "change memberships: another change takes too long")
	}
}

// join becomes a member, and is false when the agent is one already.
func (s *Server) join(ctx context.Context, pattern string) (bool, error) {
	done, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	return s.joinNow(ctx, pattern)
}

// joinNow is join for whoever has the turn.
func (s *Server) joinNow(ctx context.Context, pattern string) (bool, error) {
	if s.membership(pattern) != nil {
		return false, nil
	}
	m, err := s.ep.Join(ctx, pattern, s.inbox.fromChannel(pattern), &endpoint.JoinOptions{Manual: true})
	if wire.CodeOf(err) == wire.CodeAlreadyExists { // it was left and is not read to its end
		return false, undone(wire.CodeFailedPrecondition, "join channel %q: you left it and have not read all of it; acknowledge that first", pattern)
	}
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined[pattern] = m
	delete(s.left, pattern)
	return true, nil
}

// leave ends a membership, of this process or an earlier one of the same life, and reports whether this process received it. With
// discard nothing of it is shown any more.
//
// Errors: those of Endpoint.LeaveChannel; not-found when there is no membership.
func (s *Server) leave(ctx context.Context, pattern string, discard bool) (here bool, err error) {
	done, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	s.mu.Lock()
	m, here := s.joined[pattern]
	if !here {
		m = s.left[pattern] // which may not be read to its end
	}
	s.mu.Unlock()
	_, err = s.ep.LeaveChannel(ctx, pattern, discard)
	live := here && wire.CodeOf(err) == wire.CodeNotFound // of which there is no record
	switch {
	case err == nil, live:
	case wire.CodeOf(err) == wire.CodeNotFound:
		return false, undone(wire.CodeNotFound, "leave channel %q: you are no member of it", pattern)
	default:
		return here, err
	}
	s.mu.Lock()
	delete(s.joined, pattern)
	s.left[pattern] = m
	s.mu.Unlock()
	if discard {
		defer s.inbox.refuse(pattern)()
	}
	if m == nil || !discard && !live {
		return here, nil // what is not read comes still, and then it ends by itself
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endpoint.DefaultTimeout)
	defer cancel()
	_ = m.Leave(ctx) // it is left already; a handler that waits for room ends it later
	return here, nil
}

// joinAtStart joins a channel that nobody has just asked for, and tells when that fails.
func (s *Server) joinAtStart(ctx context.Context, pattern string) {
	if _, err := s.join(ctx, pattern); err != nil {
		s.notJoined(ctx, pattern, err)
	}
}

func (s *Server) notJoined(ctx context.Context, pattern string, err error) {
	s.log.WarnContext(ctx, "channel not joined", logkey.Channel, pattern, logkey.Error, err)
	s.opts.News.add("#" + claim(pattern, maxName) + " was not joined: " + oneLine(err.Error()))
}

// rejoin goes on with the memberships that earlier processes of this life have, and reports whether that needs no further try.
func (s *Server) rejoin(ctx context.Context) bool {
	patterns, err := s.durable(ctx)
	switch {
	case err == nil:
	case wire.CodeOf(err) == wire.CodePermissionDenied:
		s.log.WarnContext(ctx, "memberships not listed", logkey.Error, err)
		return true
	default:
		s.log.DebugContext(ctx, "memberships not listed", logkey.Error, err)
		return false
	}
	for _, p := range patterns {
		if err := s.rejoinOne(ctx, p); err != nil {
			s.notJoined(ctx, p, err)
		}
	}
	return true
}

// rejoinOne goes on with a membership unless it was left here since the list was made.
func (s *Server) rejoinOne(ctx context.Context, pattern string) error {
	done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	s.mu.Lock()
	_, left := s.left[pattern]
	s.mu.Unlock()
	if left {
		return nil
	}
	_, err = s.joinNow(ctx, pattern)
	return err
}

// durable are the patterns of the open memberships of this life, in one call's time.
func (s *Server) durable(ctx context.Context) (patterns []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	own := s.ep.Identity().Lifecycle
	req := wire.MembershipsRequest{Principal: own.Principal.String()}
	for {
		r, err := s.ep.Memberships(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("list memberships: %w", err)
		}
		for _, info := range r.Members {
			if info.UID != own.UID {
				continue
			}
			for _, m := range info.Durable {
				if m.Left == 0 {
					patterns = append(patterns, m.Pattern)
				}
			}
		}
		if r.Next == "" {
			return patterns, nil
		}
		req.After = r.Next
	}
}

const (
	rejoinPause    = time.Second
	maxRejoinPause = 30 * time.Second
)

// rejoinLater tries to rejoin, ever more rarely, until it could or ctx ends.
func (s *Server) rejoinLater(ctx context.Context) {
	s.opts.News.add("which channels you are a member of is not known yet; what they have for you comes later")
	for pause := rejoinPause; ; pause = min(2*pause, maxRejoinPause) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if s.rejoin(ctx) {
			return
		}
	}
}
