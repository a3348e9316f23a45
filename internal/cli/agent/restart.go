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
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

const restartLong = `
Starts agents that have ended or, after they were asked to end and had 10 s to do so, that run. Each keeps its name, its rights and the
direct messages that wait for it. One that was stopped holds none of these any more: cotal spawn begins it anew.

The command then waits until the agent is ready, as cotal spawn does, before it goes on with the next. One that fails does not keep it
from that.
`

const restartExample = `
  cotal restart reviewer
  cotal restart reviewer scribe --wait 5m
`

// restart starts agents again.
type restart struct {
	names []string
	wait  time.Duration
}

// NewRestart adds `cotal restart`.
func NewRestart(t *command.Tree) *cobra.Command {
	r := &restart{wait: time.Minute}
	c := t.Add(command.Spec{
		Use: "restart <agent>… [flags]", Short: "Start agents again", Long: restartLong, Example: restartExample,
		Args: named(&r.names), Target: command.TargetPerson, Changes: true, Complete: complete(0),
	}, r)
	c.Flags().Var(command.DurationFlag(&r.wait), "wait", "how long to wait until each is ready; 0s does not wait")
	return c
}

// RestartResult is what `cotal restart --json` prints for each agent: it as it was when the wait ended.
type RestartResult struct {
	command.V
	Agent wire.AgentStatus `json:"agent"`
}

// Run starts one after the other.
func (r *restart) Run(ctx context.Context, e *command.Env) error {
	if r.wait < 0 {
		return command.Usagef("--wait %s: must not be negative", r.wait)
	}
	t, m, leave, err := target.EnterManager(ctx, e)
	if err != nil {
		return err
	}
	defer leave()
	return each(ctx, e, r.names, func(name string) error { return r.one(ctx, e, t, m, name) })
}

func (r *restart) one(ctx context.Context, e *command.Env, t *target.Target, m *manager.Client, name string) error {
	a, err := find(ctx, t, m, name)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, 2*slack)
	defer cancel()
	found := a
	if a, err = m.Restart(within, found); err != nil {
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Details[supervisor.DetailOver] != nil {
			return command.Hint(err, target.Anew(ctx, m, found))
		}
		return t.Explain(err)
	}
	if r.wait > 0 {
		if a, err = t.Settle(ctx, m, a, r.wait); err != nil {
			return err
		}
	}
	verdict := target.Verdict(a)
	res := RestartResult{V: command.V1, Agent: a}
	if err := e.Each(res, func(p *command.Printer) { view.Agent(p, target.AgentName(a), a, verdict != nil) }); err != nil {
		return err
	}
	return verdict
}
