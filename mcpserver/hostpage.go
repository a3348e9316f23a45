package mcpserver

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
)

// A hook that has written a page to its host has not shown it to a model yet: hosts drop a turn with what it began with when it is
// cancelled before the model says something, when the model's provider refuses it, or when another hook does. Such a page is only noted
// as shown. It is acknowledged when the host is known to keep it, and else its messages are given again.

// written is told that the host's conversation has a page.
func (s *Server) written(ctx context.Context, id string) {
	s.acknowledgeHook(ctx, id)
	if s.host.took(id, nil, time.Now()) {
		signal(s.presence)
	}
}

// shown is told that the host was given a page.
func (s *Server) shown(id string) {
	p, ok := s.pages.look(id)
	if !ok {
		return
	}
	if s.host.took(id, p.entries, time.Now()) {
		s.inbox.showed(p.entries)
		signal(s.presence)
	}
}

// took notes that the page that was offered last has begun a turn; with entries it is not known yet to be kept.
func (h *host) took(id string, entries []entry, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.offered != id || id == "" {
		return false
	}
	h.offered = ""
	h.beginsLocked("")
	if len(entries) == 0 {
		return true
	}
	h.shown = id
	fresh := false
	for _, e := range entries {
		fresh = fresh || !h.woken[e.it]
		h.woken[e.it] = true
	}
	if fresh { // a turn that is cancelled does not begin anew at once
		h.lastWake, h.again = now, 0
	}
	return true
}

// forgo gives up what is not known to be kept: its messages are given again.
func (h *host) forgo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown = ""
}

// lives is told that something came of the turn, acknowledges what the turn began with if the host keeps that, and reports whether nothing
// of it is left.
func (s *Server) lives(ctx context.Context, d Detail) bool {
	h := s.host
	h.mu.Lock()
	id := h.shown
	kept := id == "" || d.Lives && (d.Page == "" || d.Page == id)
	if kept {
		h.shown = ""
	}
	h.mu.Unlock()
	if id == "" || !kept {
		return kept
	}
	p, _ := s.pages.look(id)
	s.acknowledgeHook(ctx, id)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range p.entries {
		delete(h.woken, e.it)
	}
	return true
}

func (s *Server) acknowledgeHook(ctx context.Context, id string) {
	if _, err := s.acknowledge(ctx, id); err != nil {
		s.log.WarnContext(ctx, "page of a hook not acknowledged", logkey.Error, err)
	}
}
