package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Client asks the supervisors of a space.
type Client struct {
	caller Caller
	self   wire.Lifecycle
	mode   wire.Mode
}

// New returns a client that reaches as far as the credential of the caller says.
func New(c Caller) *Client {
	id := c.Identity()
	return &Client{caller: plain{c}, self: id.Lifecycle, mode: ModeOf(id.Profile)}
}

// ModeOf is how a holder of a profile addresses agents: any for operators, owner for who deploys, none for everybody else.
func ModeOf(p trust.Profile) wire.Mode {
	switch p {
	case trust.Operator:
		return wire.ModeAny
	case trust.Deployer:
		return wire.ModeOwner
	}
	return wire.ModeNone
}

// target addresses a command at an instance, or at any when that is empty. Of is what it acts on; the zero value for nothing.
func (c *Client) target(command, instance string, of wire.Lifecycle) control.Target {
	t := control.Target{Endpoint: wire.ManagerEndpoint, Command: command, Instance: instance, Mode: c.mode}
	if c.mode != wire.ModeNone {
		if t.Of = of; of.Owner == "" {
			t.Of = wire.Lifecycle{Principal: c.self.Principal}
		}
	}
	return t
}

// on runs a command about one agent at the supervisor that keeps it.
func (c *Client) on(ctx context.Context, a wire.AgentStatus, command string, args, out any) error {
	of, err := wire.ParsePrincipal(a.Principal)
	if err != nil {
		return err
	}
	return c.caller.Call(ctx, c.target(command, a.Instance, wire.Lifecycle{Principal: of, UID: a.UID}), args, out)
}

const (
	// stopStep is how long one question for an end waits before it is asked again: a supervisor that ends meanwhile does not answer, and
	// the next one goes on with what is under way.
	stopStep = 5 * time.Second
	// stopAway is for how long nobody may be there to be asked again.
	stopAway = 5 * time.Second
	// stopGrace is a supervisor's grace when it is told none, stopRoom what it may take besides.
	stopGrace, stopRoom = 10 * time.Second, 20 * time.Second
)

// Stop ends an agent and retires its grant. An agent that is the caller itself needs no right to: it is asked for as such. Grace is
// how long the agent has after TERM; 0 is the supervisor's 10 s. The call waits for the end, so ctx wants room for the grace; without a
// deadline it takes at most the grace and 20 s.
//
// Errors are those of the supervisor: not-found when the agent is not the caller's to know of, failed-precondition before its minimum
// lifetime unless req.Force. With outcome unknown the supervisor went away after it was asked, or ctx ended first.
func (c *Client) Stop(ctx context.Context, a wire.AgentStatus, req wire.StopRequest) (wire.StopReply, error) {
	var out wire.StopReply
	req.UID = a.UID
	if a.UID == c.self.UID && a.Principal == c.self.Principal.String() && !req.Children && c.mode == wire.ModeNone {
		return out, c.StopSelf(ctx, a.Instance, req, &out)
	}
	if _, ok := ctx.Deadline(); !ok {
		grace := cmp.Or(time.Duration(req.Grace)*time.Millisecond, stopGrace)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, grace+stopRoom)
		defer cancel()
	}
	begun := time.Now()
	var asked time.Time // when the supervisor may have heard it last
	for {
		step, cancel := context.WithTimeout(ctx, stopStep)
		err := c.on(step, a, wire.CommandStop, req, &out)
		cancel()
		e, ok := errors.AsType[*wire.Error](err)
		if !ok || e.Code != wire.CodeUnavailable && e.Code != wire.CodeDeadlineExceeded {
			return out, err
		}
		if e.Outcome != wire.OutcomeNotExecuted {
			asked = time.Now()
		}
		switch {
		case asked.IsZero():
			return out, err
		case ctx.Err() != nil:
			return out, unended(e, "supervisor %q did not say within %v that agent %q has ended", a.Instance, time.Since(begun).Round(time.Second), a.Principal)
		case time.Since(asked) > stopAway:
			return out, unended(e, "supervisor %q went away before agent %q was known to have ended", a.Instance, a.Principal)
		case e.Code == wire.CodeUnavailable:
			_ = pause.For(ctx, spawnPause)
		}
	}
}

// unended is why the end of an agent that may have been asked for is not known: in these words where the supervisor said nothing.
func unended(e *wire.Error, format string, args ...any) error {
	said := *e
	if said.Outcome = wire.OutcomeUnknown; e.Details[control.DetailEndpoint] != nil {
		said.Message = fmt.Sprintf(format, args...)
	}
	return &said
}

// StopSelf ends the caller, which its supervisor started; instance is that. The answer may not come: it is about who waits for it.
func (c *Client) StopSelf(ctx context.Context, instance string, req wire.StopRequest, out *wire.StopReply) error {
	req.UID = ""
	t := control.Target{Endpoint: wire.ManagerEndpoint, Command: wire.CommandStop, Instance: instance, Mode: wire.ModeSelf}
	return c.caller.Call(ctx, t, req, out)
}

// Restart ends an agent, if it runs, and starts it again under the same name and life.
//
// Errors are those of the supervisor.
func (c *Client) Restart(ctx context.Context, a wire.AgentStatus) (wire.AgentStatus, error) {
	var out wire.AgentStatus
	err := c.on(ctx, a, wire.CommandRestart, wire.RestartRequest{UID: a.UID}, &out)
	return out, err
}

// Input types a line into the terminal of an agent; operators alone may.
//
// Errors are those of the supervisor: failed-precondition for an agent without a terminal or that has ended.
func (c *Client) Input(ctx context.Context, a wire.AgentStatus, text string, enter bool) (int, error) {
	var out wire.InputReply
	err := c.on(ctx, a, wire.CommandInput, wire.InputRequest{UID: a.UID, Text: text, NoEnter: !enter}, &out)
	return out.Bytes, err
}

// Attach asks for a session at the terminal of an agent. The UID of req is filled in.
//
// Errors are those of the supervisor.
func (c *Client) Attach(ctx context.Context, a wire.AgentStatus, req wire.AttachRequest) (wire.AttachReply, error) {
	var out wire.AttachReply
	req.UID = a.UID
	err := c.on(ctx, a, wire.CommandAttach, req, &out)
	return out, err
}

// Await returns an agent as it is once it has left the states, or when the supervisor's patience for one question ends, which is
// shortly before the deadline of ctx.
//
// Errors are those of the supervisor.
func (c *Client) Await(ctx context.Context, a wire.AgentStatus, from ...string) (wire.AgentStatus, error) {
	var out wire.AgentStatus
	err := c.on(ctx, a, wire.CommandAwait, wire.AwaitRequest{UID: a.UID, From: from}, &out)
	return out, err
}

// DefinePersona defines an agent file on the host of one supervisor; empty takes any.
//
// Errors are those of the supervisor.
func (c *Client) DefinePersona(ctx context.Context, instance string, req wire.PersonaRequest) (wire.Persona, error) {
	var out wire.PersonaReply
	err := c.caller.Call(ctx, c.target(wire.CommandPersona, instance, wire.Lifecycle{}), req, &out)
	return out.Persona, err
}
