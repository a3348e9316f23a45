package view

import (
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
)

// Notice is what following commands print beside messages with --json: what happened to the stream of them.
type Notice struct {
	command.V
	Event string `json:"event"`
	Text  string `json:"text"`
}

// EventName is the word under which an event is shown, or "" for those that are for the log only.
func EventName(ev endpoint.Event) string {
	switch ev := ev.(type) {
	case endpoint.EventGap:
		return "gap"
	case endpoint.EventOverflow:
		return "overflow"
	case endpoint.EventDisconnected:
		return "disconnected"
	case endpoint.EventConnected:
		return "connected"
	case endpoint.EventRefused:
		return "refused"
	case endpoint.EventDenied:
		return "denied"
	case endpoint.EventQueueLost:
		return "queue-lost"
	case endpoint.EventRenewalFailed:
		return "renewal-failed"
	case endpoint.EventBackstop:
		return "backstop"
	case endpoint.EventCaughtUp:
		if ev.Count == 0 {
			return "" // nothing was missed
		}
		return "caught-up"
	case endpoint.EventLoss:
		return "loss"
	case endpoint.EventMembershipEnded:
		return "membership-ended"
	case endpoint.EventUndelivered:
		return "undelivered"
	case endpoint.EventGaveUp:
		return "gave-up"
	case endpoint.EventQueueFull:
		return "queue-full"
	}
	return ""
}

// EventText is what happened, for a person.
func EventText(ev endpoint.Event) string {
	c, ok := ev.(endpoint.EventCaughtUp)
	if !ok || c.Pattern == "" {
		return ev.String()
	}
	verb := " was missed and is shown"
	if c.Count != 1 {
		verb = " were missed and are shown"
	}
	return Plural(uint64(c.Count), "message") + " of " + Channel(c.Pattern) + verb
}
