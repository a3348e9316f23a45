package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Caller is who asks; *endpoint.Endpoint is one.
type Caller interface {
	// Call asks one instance.
	Call(ctx context.Context, t control.Target, args, out any) error
	// Scatter asks all instances.
	Scatter(ctx context.Context, t control.Target, args any, window time.Duration, expect int) ([]control.Answer, error)
	// Identity is as whom.
	Identity() trust.Identity
}

// plain is a caller whose errors speak of supervisors, not of commands and instances: those are the wire's words. What a supervisor
// said comes as it said it, and code, outcome and details are as they were.
type plain struct{ Caller }

func (p plain) Call(ctx context.Context, t control.Target, args, out any) error {
	return inWords(p.Caller.Call(ctx, t, args, out), t.Instance)
}

func (p plain) Scatter(ctx context.Context, t control.Target, args any, window time.Duration, expect int) ([]control.Answer, error) {
	answers, err := p.Caller.Scatter(ctx, t, args, window, expect)
	return answers, inWords(err, "")
}

func inWords(err error, instance string) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return err
	}
	if e.Details[control.DetailEndpoint] != wire.ManagerEndpoint {
		return e
	}
	said := *e
	ms, _ := e.Details[control.DetailWaited].(int64)
	within := waited(time.Duration(ms) * time.Millisecond)
	switch {
	case e.Code == wire.CodeUnavailable && instance == "":
		said.Message = "no supervisor runs in the space; nothing was done"
	case e.Code == wire.CodeUnavailable:
		said.Message = fmt.Sprintf("supervisor %q does not run", instance)
	case e.Code == wire.CodeDeadlineExceeded && instance == "":
		said.Message = "no supervisor answers" + within
	case e.Code == wire.CodeDeadlineExceeded:
		said.Message = fmt.Sprintf("supervisor %q does not answer%s", instance, within)
	}
	return &said
}

func waited(d time.Duration) string {
	return fmt.Sprintf(" (waited %v)", d.Round(100*time.Millisecond))
}
