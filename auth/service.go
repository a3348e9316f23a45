package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// ServiceOptions adjusts a [Service]. The zero value works.
type ServiceOptions struct {
	// Instance names this body among several. Default: a fresh random one.
	Instance string
	// Version of the software, for health.
	Version string
	// Logger may be nil.
	Logger *slog.Logger
}

// serviceConcurrency bounds the requests that are served at a time. Each may wait until a broker cannot admit a connection any more.
const serviceConcurrency = 32

// Service serves the endpoint auth of one space: by it the supervisors of the space ask for the grants of their agents. Make one with
// [NewService]; it runs once. Any number may serve one space.
type Service struct {
	a     *Authority
	nc    *nats.Conn
	space wire.Space
	log   *slog.Logger
	serve *control.Service
}

// NewService returns the endpoint auth of s over nc, which the caller owns and whose credential has the authority profile. It panics
// when a or nc is nil or s cannot be.
func NewService(a *Authority, nc *nats.Conn, s wire.Space, opts *ServiceOptions) *Service {
	if a == nil || nc == nil {
		panic("auth: NewService needs an authority and a connection")
	}
	if err := s.Validate(); err != nil {
		panic("auth: NewService: " + err.Error())
	}
	var o ServiceOptions
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	log := o.Logger.With(logkey.Component, "auth", logkey.Space, string(s))
	v := &Service{
		a: a, nc: nc, space: s, log: log,
		serve: control.New(wire.AuthorityEndpoint, &control.Options{Instance: o.Instance, Version: o.Version, Concurrency: serviceConcurrency, Logger: log}),
	}
	v.register()
	return v
}

// Ready is closed once requests are served.
func (v *Service) Ready() <-chan struct{} { return v.serve.Ready() }

// Instance is the name under which this body answers among several.
func (v *Service) Instance() string {
	name, _ := v.serve.Instance()
	return name
}

// Run serves until ctx ends; then it finishes what it accepted and returns nil.
//
// Errors: permission-denied when the credential lacks a subscription; unavailable when the broker does not answer at
// the start, or when later the connection closes for good.
func (v *Service) Run(ctx context.Context) error {
	if err := v.serve.Run(ctx, v.nc, v.space); err != nil {
		return fmt.Errorf("serve authority of space %q: %w", v.space, err)
	}
	return nil
}

func (v *Service) register() {
	handle(v, control.Command{
		Name: wire.CommandAgentGrant, Effect: control.Write, Description: "Grants a managed agent and answers what it starts with.",
	}, space.ActionGrant, func(ctx context.Context, by string, in wire.AgentGrantRequest) (wire.AgentCredential, error) {
		return v.a.GrantAgent(ctx, v.space, by, in)
	})
	handle(v, control.Command{
		Name: wire.CommandAgentStart, Effect: control.Write, Description: "Gives a managed agent another proof and refuses the one before.",
	}, space.ActionStart, func(ctx context.Context, by string, in wire.AgentStartRequest) (wire.AgentCredential, error) {
		return v.a.StartAgent(ctx, v.space, by, in)
	})
	handle(v, control.Command{
		Name: wire.CommandAgentRenew, Effect: control.Write, Description: "Answers a later credential of a managed agent that was started.",
	}, space.ActionRenew, func(ctx context.Context, _ string, in wire.AgentStartRequest) (wire.AgentCredential, error) {
		return v.a.agentRenew(ctx, v.space, in)
	})
	handle(v, control.Command{
		Name: wire.CommandAgentStop, Effect: control.Write, Description: "Takes the proof of a managed agent away and ends its connections.",
	}, space.ActionStop, func(ctx context.Context, by string, in wire.AgentStopRequest) (control.None, error) {
		return control.None{}, v.a.StopAgent(ctx, v.space, by, in)
	})
	handle(v, control.Command{
		Name: wire.CommandAgentRetire, Effect: control.Write, Description: "Ends the life of a managed agent and of everything held under it, and frees its name.",
	}, space.ActionRevoke, func(ctx context.Context, _ string, in wire.AgentRequest) (control.None, error) {
		return control.None{}, v.a.agentRetire(ctx, v.space, in)
	})
	handle(v, control.Command{
		Name: wire.CommandAgentGrants, Effect: control.Read, Description: "A page of the managed grants that stand.",
	}, "", func(ctx context.Context, _ string, in *wire.AgentGrantsRequest) (wire.AgentGrantsReply, error) {
		after := ""
		if in != nil {
			after = in.After
		}
		return v.a.agentGrants(ctx, v.space, after)
	})
	v.serve.Check("records", v.checkRecords)
}

// handle registers a command of supervisors. Whoever else the broker lets through is refused, and refusals are noted.
func handle[In, Out any](v *Service, c control.Command, action string, fn func(ctx context.Context, by string, in In) (Out, error)) {
	control.Handle(v.serve, c, func(ctx context.Context, req *control.Request, in In) (Out, error) {
		var none Out
		by := req.Caller.Principal
		if by != trust.Supervisor.Principal() { // see grantable
			err := wire.Errorf(wire.CodePermissionDenied, "%s: %q is no supervisor", c.Name, by)
			v.note(action, req.Caller, err)
			return none, err
		}
		out, err := fn(ctx, by.String(), in)
		if err != nil {
			v.note(action, req.Caller, err)
			return none, err
		}
		return out, nil
	})
}

// note puts a refusal into the audit stream. Those that come in numbers are folded. A failure that says nothing of rights is told to the
// caller and not noted.
func (v *Service) note(action string, caller wire.Lifecycle, err error) {
	denied := trust.ReasonOf(err) != "" || errors.Is(err, wire.ErrPermissionDenied)
	if action == "" || !denied {
		return
	}
	v.a.denials(v.space).Note(v.a.event(change{action: action, by: caller.Principal.String(), err: err}))
	v.log.Warn("supervisor refused", logkey.Action, action, logkey.Principal, caller.Principal.String(), logkey.Error, err)
}

// checkRecords looks whether the grants can be read.
func (v *Service) checkRecords(ctx context.Context) error {
	ses, err := v.a.session(ctx, v.space)
	if err != nil {
		return err
	}
	_, _, err = ses.grants.Get(ctx, trust.Supervisor.Principal())
	if errors.Is(err, wire.ErrNotFound) {
		return nil
	}
	return err
}
