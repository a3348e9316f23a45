package view

import (
	"errors"
	"strings"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Spoken is what happened in the words of a session: what it means for the person, not what the program saw. While delivery
// does not answer, what is posted is held back for some seconds, so that it can still be shown in order.
func Spoken(ev endpoint.Event) string {
	switch ev := ev.(type) {
	case endpoint.EventDisconnected:
		return "the mesh is gone; reconnecting"
	case endpoint.EventConnected:
		return "the mesh is there"
	case endpoint.EventRefused:
		return "the mesh no longer takes what you came in with; asking for what is granted now"
	case endpoint.EventRenewalFailed:
		if trust.ReasonOf(ev.Err) != "" { // the exchange says why, and what would help
			return "not let in: " + said(ev.Err) + "; trying again, with growing pauses"
		}
	case endpoint.EventBackstop:
		switch {
		case ev.Established:
			return "what you miss of " + Channel(ev.Pattern) + " is kept for you"
		case target.Silent(ev.Err) && ev.Ahead:
			return "delivery does not answer: what is posted to " + Channel(ev.Pattern) + " is shown from now on, before what you missed; trying again"
		case target.Silent(ev.Err):
			return "delivery does not answer: you see what is posted to " + Channel(ev.Pattern) + " some seconds late, and what you miss will not wait for you; trying again"
		}
	}
	return EventText(ev)
}

// said is the sentence of a refusal without the steps that led to it.
func said(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[*wire.Error](err); ok {
		text = e.Message
	}
	if _, rest, ok := strings.Cut(text, "exchange token for "); ok {
		if _, sentence, ok := strings.Cut(rest, ": "); ok {
			return sentence
		}
	}
	return text
}

// Calm speaks like Spoken, and says of a refusal that repeats itself only the first time, until the mesh is there again.
type Calm struct{ told map[string]bool }

// Spoken returns what to say of an event, or nothing.
func (c *Calm) Spoken(ev endpoint.Event) string {
	text := Spoken(ev)
	switch ev.(type) {
	case endpoint.EventConnected:
		c.told = nil
	case endpoint.EventRefused, endpoint.EventRenewalFailed:
		if c.told[text] {
			return ""
		}
		if c.told == nil {
			c.told = map[string]bool{}
		}
		c.told[text] = true
	}
	return text
}
