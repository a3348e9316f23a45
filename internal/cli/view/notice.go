package view

import (
	"fmt"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// Notice is what following commands print beside messages with --json: what happened to the stream of them.
type Notice struct {
	command.V
	Event string `json:"event"`
	Text  string `json:"text"`
	// Of a loss and of what was caught up with: where, how many (of a loss at most, with AtMost), and of a loss in which
	// sequences of the channel stream, and why. What is not known is left out.
	Channel string `json:"channel,omitempty"`
	Count   uint64 `json:"count,omitempty"`
	AtMost  bool   `json:"atMost,omitempty"`
	From    uint64 `json:"from,omitempty"`
	To      uint64 `json:"to,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// NoticeOf is what --json prints of an event that has a name.
func NoticeOf(ev endpoint.Event) Notice {
	n := Notice{V: command.V1, Event: EventName(ev), Text: EventText(ev)}
	switch ev := ev.(type) {
	case endpoint.EventCaughtUp:
		n.Channel, n.Count = ev.Pattern, uint64(max(0, ev.Count))
	case endpoint.EventLoss:
		n.Channel, n.Count, n.AtMost, n.From, n.To, n.Reason = ev.Channel, ev.Count, ev.AtMost, ev.From, ev.To, ev.Reason
		if n.Channel == "" {
			n.Channel = ev.Pattern
		}
	}
	return n
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
	switch ev := ev.(type) {
	case endpoint.EventCaughtUp:
		return caughtUp(ev)
	case endpoint.EventLoss:
		return loss(ev)
	}
	return ev.String()
}

func caughtUp(ev endpoint.EventCaughtUp) string {
	what := Plural(uint64(ev.Count), "mention")
	if ev.Pattern != "" {
		what = Plural(uint64(ev.Count), "message") + " of " + Channel(ev.Pattern)
	}
	if ev.Count == 1 {
		return what + " was missed and is shown"
	}
	return what + " were missed and are shown"
}

// loss says what was removed unread. Where the count is not known it may be that nothing was.
func loss(ev endpoint.EventLoss) string {
	noun, where := "message", ""
	if ev.Pattern == "" {
		noun = "mention"
	}
	switch {
	case ev.Channel != "":
		where = " of " + Channel(ev.Channel)
	case ev.Pattern != "":
		where = " of " + Channel(ev.Pattern)
	}
	how := "cleared"
	if ev.Reason != wire.LossCleared {
		how = "removed for age or room"
	}
	switch {
	case ev.Count == 0 && ev.To == 0:
		return noun + "s" + where + " may have been " + how + " before you read them"
	case ev.Count == 0:
		return fmt.Sprintf("%ss%s between sequence %d and %d may have been %s before you read them", noun, where, ev.From, ev.To, how)
	case ev.Count == 1 && ev.AtMost:
		return "one " + noun + where + " may have been " + how + " before you read it"
	case ev.Count == 1:
		return Plural(ev.Count, noun) + where + " was " + how + " before you read it"
	case ev.AtMost:
		return "up to " + Plural(ev.Count, noun) + where + " were " + how + " before you read them"
	}
	return Plural(ev.Count, noun) + where + " were " + how + " before you read them"
}
