package person

import (
	"context"
	"math"
	"slices"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

// settle shows a message of a membership; shown, it is handled. What the person said in this session is on the screen already;
// what it said elsewhere is not.
func (s *session) settle(ctx context.Context, d *endpoint.Delivery, pattern string) {
	if d.Kind == wire.KindChannel && d.Sender == s.ep.Principal() && s.posted(d.Message.ID) || s.show(d, pattern) {
		_ = d.Ack(context.WithoutCancel(ctx))
		return
	}
	_ = d.Nak(context.WithoutCancel(ctx), 0)
}

// show prints a message and reports whether it could.
func (s *session) show(d *endpoint.Delivery, pattern string) bool {
	en := view.EntryOf(d)
	en.Missed = d.Replayed
	if !s.print(en, en.Text) {
		return false
	}
	if en.Missed {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.missed[pattern]++
	}
	return true
}

func (s *session) posted(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.said.ids, id)
}

// recent are the last ids, few enough to be looked through.
type recent struct {
	ids  []string
	next int
}

// maxRecent is how many: what is posted comes back at once, or when delivery does.
const maxRecent = 512

func (r *recent) add(id string) {
	if len(r.ids) < maxRecent {
		r.ids = append(r.ids, id)
		return
	}
	r.ids[r.next] = id
	r.next = (r.next + 1) % maxRecent
}

// release shows what waited to be shown before a message of a membership.
func (s *session) release(pattern string, before uint64) {
	for {
		s.mu.Lock()
		late := s.late[pattern]
		if len(late) == 0 || late[0].Sequence >= before {
			s.mu.Unlock()
			return
		}
		s.late[pattern] = late[1:]
		s.mu.Unlock()
		s.print(late[0], late[0].Text)
	}
}

// counted makes the count of what was caught up with that of what was shown: what one said in this very session is not, and a
// mention that came at once was not missed.
func (s *session) counted(ev endpoint.EventCaughtUp) endpoint.EventCaughtUp {
	s.release(ev.Pattern, math.MaxUint64)
	s.mu.Lock()
	defer s.mu.Unlock()
	ev.Count = s.missed[ev.Pattern]
	delete(s.missed, ev.Pattern)
	return ev
}
