package cotal

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// proveWindow is how long instances have to answer: longer than a check of theirs may hang, since what an instance answers then is wanted.
const proveWindow = 4 * time.Second

// prover asks the instances of an endpoint of a space how they are, over the broker, as anybody would. What an instance thinks
// of itself proves nothing about the credential that it answers with.
type prover struct {
	space    wire.Space
	endpoint string
	log      *slog.Logger
	// creds mints a credential of the probe profile.
	creds func(ctx context.Context) (*trust.Credentials, error)
	dial  func(ctx context.Context, creds *trust.Credentials, refused func()) (*nats.Conn, error)
}

// prove returns nil when the instance next answers and is well, or answers and is no worse than old: what is wrong with
// the broker is wrong with both.
func (p *prover) prove(ctx context.Context, next, old string) error {
	creds, err := p.creds(ctx)
	if err != nil {
		return err
	}
	nc, err := p.dial(ctx, creds, func() {})
	if err != nil {
		return err
	}
	defer nc.Close()
	caller, err := control.NewCaller(nc, p.space, creds.Identity().Lifecycle, wire.EndpointRef{Name: string(trust.Probe)}, &control.CallerOptions{Logger: p.log})
	if err != nil {
		return err
	}
	defer func() { _ = caller.Close() }()
	all, err := caller.Health(ctx, p.endpoint, proveWindow, 0)
	var fresh, before *control.Health
	for i := range all {
		switch h := &all[i]; {
		case h.Instance == next, nameOf(h.Instance, h.Epoch) == next:
			fresh = h
		case h.Instance == old, nameOf(h.Instance, h.Epoch) == old:
			before = h
		}
	}
	switch {
	case fresh == nil && err != nil:
		return fmt.Errorf("instance %q does not answer: %w", next, err)
	case fresh == nil:
		return wire.Errorf(wire.CodeUnavailable, "instance %q does not answer; %d others do", next, len(all))
	case !fresh.Ready && before != nil && before.Ready:
		return wire.Errorf(wire.CodeUnavailable, "instance %q is %s: %s", next, fresh.State, failing(fresh.Checks))
	}
	return nil
}

// nameOf tells instances apart that answer under one name, as those do that serve for one keeper of agents.
func nameOf(instance, epoch string) string { return instance + "/" + epoch }

// failing names the first check that fails.
func failing(checks []control.Check) string {
	for _, c := range checks {
		if !c.OK {
			return c.Name + ": " + c.Reason
		}
	}
	return "no check fails"
}
