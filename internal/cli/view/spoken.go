package view

import (
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/target"
)

// Spoken is what happened in the words of a session: what it means for the person, not what the program saw. While delivery
// does not answer, what is posted is held back for some seconds, so that it can still be shown in order.
func Spoken(ev endpoint.Event) string {
	switch ev := ev.(type) {
	case endpoint.EventDisconnected:
		return "the mesh is gone; reconnecting"
	case endpoint.EventConnected:
		return "the mesh is there"
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
