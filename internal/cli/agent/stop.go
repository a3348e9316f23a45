package agent

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/wire"
)

const stopLong = `
Ends agents: each is asked to end, has --grace to do so, and is then killed with everything that it started and did not leave to
live on by itself. Its grant ends with it, so its name is free again. The command returns when nothing of it is left. A second stop
with less grace shortens the first; with --grace 0 it is killed at once.

An agent may stop itself and what it started; operators stop every agent, people those of their own. What was started to end with an
agent ends with it; with --children everything that it started does. An agent that began a moment ago is stopped by another agent only
with --force.

A supervisor that ends meanwhile is asked again once it is back. Exit code 4 means that there is no such agent; 7 that nobody knows,
since a supervisor is silent or went away; 8 that no answer came in time.
`

const stopExample = `
  cotal stop reviewer
  cotal stop lead --children --grace 1m
`

// stop ends agents.
type stop struct {
	names    []string
	children bool
	force    bool
	grace    time.Duration
}

// slack is for what a supervisor does besides waiting for an agent's end.
const slack = 20 * time.Second

// NewStop adds `cotal stop`.
func NewStop(t *command.Tree) *cobra.Command {
	s := &stop{grace: 10 * time.Second}
	c := t.Add(command.Spec{
		Use: "stop <agent>… [flags]", Short: "End agents", Long: stopLong, Example: stopExample, Target: command.TargetPerson, Changes: true, Complete: complete(0),
		Args: named(&s.names),
	}, s)
	f := c.Flags()
	f.BoolVar(&s.children, "children", false, "also everything that they started")
	f.BoolVar(&s.force, "force", false, "also one that began a moment ago, where an agent asks")
	f.Var(command.DurationFlag(&s.grace), "grace", "how long an agent has to end before it is killed")
	return c
}

// StopResult is what `cotal stop --json` prints for each agent.
type StopResult struct {
	command.V
	Agent    wire.AgentStatus   `json:"agent"`
	Children []wire.AgentStatus `json:"children,omitempty"`
}

func (r StopResult) human(p *command.Printer) {
	line := func(a wire.AgentStatus, why string) {
		p.Line("%s  stopped%s; its process %s", p.Bold(command.Safe(target.AgentName(a))), why, view.Process(a.Process))
	}
	line(r.Agent, "")
	for _, a := range r.Children {
		line(a, " with "+command.Safe(target.AgentName(r.Agent)))
	}
}

// Run stops one after the other. A failure does not keep it from the next.
func (s *stop) Run(ctx context.Context, e *command.Env) error {
	if s.grace < 0 {
		return command.Usagef("--grace %s: must not be negative", s.grace)
	}
	t, m, leave, err := target.EnterManager(ctx, e)
	if err != nil {
		return err
	}
	defer leave()
	return each(ctx, e, s.names, func(name string) error { return s.one(ctx, e, t, m, name) })
}

func (s *stop) one(ctx context.Context, e *command.Env, t *target.Target, m *manager.Client, name string) error {
	grace := max(s.grace.Milliseconds(), 1) // no grace in a request stands for the default
	req := wire.StopRequest{Grace: grace, Force: s.force, Children: s.children}
	ctx, cancel := context.WithTimeout(ctx, s.grace+slack)
	defer cancel()
	if f := t.Launch(); f != nil && !s.children && (name == f.Principal || name == target.AgentName(wire.AgentStatus{Principal: f.Principal})) {
		var out wire.StopReply // itself, which needs no right to look for agents
		if err := m.StopSelf(ctx, f.Manager, req, &out); err != nil {
			return t.Explain(err)
		}
		return s.print(e, out)
	}
	a, err := find(ctx, t, m, name)
	if err != nil {
		return err
	}
	out, err := m.Stop(ctx, a, req)
	if err != nil {
		return command.Hint(t.Explain(err), s.hints(err, a)...)
	}
	return s.print(e, out)
}

func (s *stop) hints(err error, a wire.AgentStatus) []string {
	e, ok := errors.AsType[*wire.Error](err)
	switch code := wire.CodeOf(err); {
	case ok && e.Outcome == wire.OutcomeUnknown && (code == wire.CodeDeadlineExceeded || code == wire.CodeUnavailable):
		return []string{"it is asked to end and may still do so: cotal ps"}
	case code == wire.CodeFailedPrecondition:
		if !s.force && !a.Ended() {
			return []string{"if it is to end all the same: cotal stop " + target.AgentName(a) + " --force"}
		}
	}
	return nil
}

func (s *stop) print(e *command.Env, out wire.StopReply) error {
	res := StopResult{V: command.V1, Agent: out.Agent, Children: out.Children}
	return e.Each(res, res.human)
}
