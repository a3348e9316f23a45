package mcpserver

import (
	"slices"

	"github.com/cotal-go/cotal/wire"
)

// maxSessions bounds the sessions that are remembered, of each kind.
const maxSessions = 64

// sessions tell the agent's host from another process of the same program that has the same hooks: one that the agent starts in its shell
// inherits what hosts take from their environment. They are guarded by host.mu.
type sessions struct {
	own    []string // of the agent's host, the present one last
	others []string
	moved  bool // the present one has ended, and the host goes on with another
}

// hears reports whether an event is of the agent's host. A host that says nothing of its session is.
func (h *host) hears(r hookRequest) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Session != "" && !h.ownsLocked(r) {
		return false
	}
	h.spoke = true
	switch {
	case r.Event == EventEnd:
		h.moved = r.Detail.moves()
	case r.Event == EventSessionStart:
		h.moved = false
	}
	return true
}

// moves reports whether the host goes on after the end of a session.
func (d Detail) moves() bool { return d.Reason == "clear" || d.Reason == "resume" }

func (h *host) ownsLocked(r hookRequest) bool {
	id := r.Session
	begins := r.Event == EventSessionStart || r.Event == EventPrompt
	switch {
	case len(h.own) > 0 && h.own[len(h.own)-1] == id:
		return true
	case slices.Contains(h.others, id):
		return false
	case len(h.own) == 0, begins && (slices.Contains(h.own, id) || h.followsLocked(r)):
		h.own = remember(slices.DeleteFunc(h.own, func(o string) bool { return o == id }), id)
		return true
	}
	if begins && !slices.Contains(h.own, id) {
		h.others = remember(h.others, id)
	}
	return false
}

// followsLocked reports whether a session can be the next one of the agent's host. Another process begins with startup, and while the
// agent works: the agent has started it.
func (h *host) followsLocked(r hookRequest) bool {
	if r.Event == EventSessionStart && (r.Detail.Source == "" || r.Detail.Source == "startup") {
		return false
	}
	return h.moved || h.status == wire.StatusIdle
}

func remember(list []string, id string) []string {
	list = append(list, id)
	return list[max(0, len(list)-maxSessions):]
}
