package mcpserver

import (
	"fmt"
	"sync"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// News is what happens to an endpoint outside of calls and the agent should know: a message of its that is dead, messages that were
// lost before it read them, a membership that ended. The zero value is empty. It keeps the newest 32 until a tool has
// told them: as many of the newest as fit 1000 characters, and the number of the others.
type News struct {
	mu     sync.Mutex // guards the fields below
	lines  []string
	missed int
}

const maxNews = 32

// Tell takes what the endpoint tells; use it as, or call it from, Options.OnEvent of the endpoint.
func (n *News) Tell(e endpoint.Event) {
	switch e.(type) {
	case endpoint.EventUndelivered, endpoint.EventLoss, endpoint.EventGap, endpoint.EventMembershipEnded, endpoint.EventGaveUp,
		endpoint.EventDenied, endpoint.EventRefused, endpoint.EventQueueLost:
		n.add(happened(e))
	}
}

// happened is an event in a line of ours. What a peer chose of it is between quotes.
func happened(e endpoint.Event) string {
	reason, head := "", ""
	switch e := e.(type) {
	case endpoint.EventUndelivered:
		to := e.Recipient.Principal
		if e.Recipient.Role != "" {
			to = "role " + e.Recipient.Role
		}
		head, reason = fmt.Sprintf("%s message %s was not delivered to %s", said(e.Kind, maxName), label(e.ID), claim(to, wire.MaxName)), e.Recipient.Reason
	case endpoint.EventGaveUp:
		head, reason = fmt.Sprintf("%s message %s from %s was given up", e.Kind, label(e.ID), e.Sender), e.Reason
	default:
		return oneLine(e.String())
	}
	if reason != "" {
		head += ": " + said(reason, maxLine/2)
	}
	return head
}

func (n *News) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.lines) > 0 && n.lines[len(n.lines)-1] == line {
		return
	}
	if n.lines = append(n.lines, line); len(n.lines) > maxNews {
		n.lines = n.lines[1:]
		n.missed++
	}
}

// take returns the news and forgets them.
func (n *News) take() (lines []string, missed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines, missed = n.lines, n.missed
	n.lines, n.missed = nil, 0
	return lines, missed
}

// maxLine bounds a line about something, in characters.
const maxLine = 400

// oneLine makes text that may hold a peer's words fit for one line of ours.
func oneLine(s string) string { return claim(s, maxLine) }
