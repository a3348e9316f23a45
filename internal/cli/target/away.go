package target

import (
	"errors"
	"strconv"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// away says in a person's words that delivery did not get a question or did not answer it; nil when err is about something
// else.
func (t *Target) away(err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Details[control.DetailEndpoint] != wire.DeliveryEndpoint {
		return nil
	}
	var out *wire.Error
	switch e.Code {
	case wire.CodeUnavailable:
		out = wire.Errorf(e.Code, "delivery of space %q does not run; nothing was done", t.Space())
	case wire.CodeDeadlineExceeded:
		ms, _ := e.Details[control.DetailWaited].(int64)
		out = wire.Errorf(e.Code, "delivery of space %q does not answer (waited %s)", t.Space(), seconds(time.Duration(ms)*time.Millisecond))
	default:
		return nil
	}
	out.Outcome, out.Details = e.Outcome, e.Details
	return command.Hint(out, t.StartDelivery(e.Code == wire.CodeDeadlineExceeded))
}

// seconds writes a waiting time for a person.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}

// StartDelivery is the hint of a delivery that is away: how to start it or, when one is there that hangs, another one.
func (t *Target) StartDelivery(hangs bool) string {
	line := "cotal serve delivery"
	if c := t.Config; c.Space.Flagged() {
		line += " --space " + c.Space.Value
	}
	switch {
	case t.Foreign() || t.link != nil || !t.trusted():
		return "who runs the mesh can start it: " + line + " (messages are stored meanwhile)"
	case hangs:
		return "its process hangs or is stopped; start another one: " + line + " (messages are stored meanwhile)"
	}
	return "start it: " + line + " (messages are stored meanwhile)"
}
