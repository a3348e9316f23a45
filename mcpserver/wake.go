package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
)

// wakeUp types a line at the agent's prompt when there is work and the host is idle, until ctx ends.
func (s *Server) wakeUp(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-s.wake:
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if s.opts.Wake == nil {
			continue
		}
		if next := s.tryWake(ctx); next > 0 {
			t.Reset(next)
		}
	}
}

// tryWake wakes the agent if it is time to, and returns when to look again; 0: when something happens.
func (s *Server) tryWake(ctx context.Context) time.Duration {
	now := time.Now()
	line, fresh, items := s.work()
	if len(items) == 0 {
		return 0
	}
	h := s.host
	h.mu.Lock()
	ok, next := h.wakeableLocked(now)
	if ok && !fresh {
		ok, next = h.rewakeLocked(now)
	}
	if ok {
		ok, next = h.takeTokenLocked(now)
	}
	h.mu.Unlock()
	if !ok {
		return next
	}
	typed, err := s.opts.Wake(ctx, line)
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "agent not woken", logkey.Error, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || !typed {
		h.tokens++ // it began no turn
		return busyPause
	}
	if h.lastWake = now; fresh {
		h.again = 0
	} else {
		h.again++
	}
	clear(h.woken)
	for _, it := range items {
		h.woken[it] = true
	}
	return rewakeFirst << h.again
}

// rewakeLocked reports whether what woke the agent before, and is not read, wakes it again.
func (h *host) rewakeLocked(now time.Time) (bool, time.Duration) {
	if h.again >= rewakes {
		return false, 0
	}
	if wait := rewakeFirst<<h.again - now.Sub(h.lastWake); wait > 0 {
		return false, wait
	}
	return true, 0
}

// work is the line that says what wakes, whether something of it has not woken yet, and the messages.
func (s *Server) work() (line string, fresh bool, items []*item) {
	mode := s.host.mode()
	var n [classes]uint64
	from := ""
	s.inbox.each(func(it *item) bool {
		if !wakes(it, mode) {
			return true
		}
		items = append(items, it)
		n[it.class]++
		if from == "" {
			from = it.d.Sender.String()
		}
		return true
	})
	s.host.mu.Lock()
	for _, it := range items {
		fresh = fresh || !s.host.woken[it]
	}
	s.host.mu.Unlock()
	return notice(n, from), fresh, items
}

// notice is one line about what waits. Nothing in it is of a peer's choosing but a principal.
func notice(n [classes]uint64, from string) string {
	total := n[classDirect] + n[classMention] + n[classAmbient]
	what := ""
	for c, noun := range [classes]string{"direct message", "mention", "channel message"} {
		if n[c] > 0 {
			if what != "" {
				what += ", "
			}
			what += plural(n[c], noun)
		}
	}
	wait := "waits"
	if total != 1 {
		wait = "wait"
	}
	return fmt.Sprintf("[cotal] %s %s, the first from %s: call cotal_inbox", what, wait, from)
}

// unread counts what waits here and what stays with the broker.
type unread struct {
	here  [classes]int
	queue uint64   // direct messages that the broker has
	stuck []string // channels of which more is with the broker
	named bool     // mentions, too
}

func (s *Server) unread(ctx context.Context) unread {
	u := unread{here: s.inbox.counts()}
	u.stuck, u.named = s.inbox.stuck()
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if waiting, _, err := s.ep.Waiting(ctx); err == nil {
		u.queue = waiting
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, m := range s.joined {
		if st := m.Status(); st.Behind && u.here[classAmbient]+u.here[classMention] > 0 && !slices.Contains(u.stuck, p) {
			u.stuck = append(u.stuck, p)
		}
	}
	return u
}
