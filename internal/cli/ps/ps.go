// Package ps is `cotal ps`: which agents there are, and two facts about each, its process and what the space says of it.
package ps

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/wire"
)

const psLong = `
Lists the agents that supervisors keep, with two facts about each that are never mixed: what its process does, as its supervisor sees
it, and what the space says of it, which is what others see. An agent can run and be offline, or be listed as idle a moment after its
process ended. One that runs and takes no part in the space, such as a plain shell, has "none" there; with --json that is offline without
a time. Times are milliseconds since 1970 there.

Shown are the agents that you may know of: all to an operator, their own to people, to an agent itself and what it started. With
several supervisors the agents are listed for each; one that does not answer is named, with when it was last heard, and one that refuses,
with what it says. The exit code is then 7: what is listed is not all.
`

const psExample = `
  cotal ps
  cotal ps reviewer --wide
  cotal ps --all --json
`

// ps lists agents.
type ps struct {
	name string
	on   string
	all  bool
	wide bool
}

// New adds `cotal ps`.
func New(t *command.Tree) *cobra.Command {
	r := &ps{}
	c := t.Add(command.Spec{
		Use: "ps [agent] [flags]", Short: "List agents, their processes and their presence", Long: psLong, Example: psExample,
		Args: command.Maybe("agent", &r.name), Target: command.TargetPerson,
		Complete: command.First(target.CompleteAgents),
	}, r)
	f := c.Flags()
	f.BoolVar(&r.all, "all", false, "also those that have ended")
	f.BoolVarP(&r.wide, "wide", "w", false, "also model, role, folder, restarts and how their output ended")
	f.StringVar(&r.on, "on", "", "those of one supervisor alone, by its instance or host")
	return c
}

// Line is one line of `cotal ps --json`: an agent, or a supervisor that refused or did not answer. One of them is set.
type Line struct {
	command.V
	Agent   *wire.AgentStatus `json:"agent,omitempty"`
	Refused *manager.Refusal  `json:"refused,omitempty"`
	Silent  *wire.ManagerPeer `json:"silent,omitempty"`
}

// Run asks and lists.
func (r *ps) Run(ctx context.Context, e *command.Env) error {
	t, m, leave, err := target.EnterManager(ctx, e)
	if err != nil {
		return err
	}
	defer leave()
	// One that is named is shown however it is.
	req := wire.AgentsRequest{Name: strings.TrimPrefix(r.name, "@"), Ended: r.all || r.name != "", Lines: r.wide}
	census, err := m.Census(ctx, req)
	if err != nil {
		return t.Explain(err)
	}
	if err := r.narrow(&census); err != nil {
		return t.Explain(err)
	}
	switch {
	case e.JSON:
		err = r.lines(e, census)
	case r.name == "" || len(census.Agents()) > 0 || census.Complete("") != nil: // one that is not there is told below
		err = e.Print(nil, func(p *command.Printer) { r.human(p, census) })
	}
	if err != nil {
		return err
	}
	if err := census.Complete("agents"); err != nil {
		return t.Explain(err)
	}
	switch none := len(census.Agents()) == 0; {
	case none && r.name != "":
		return target.UnknownAgent(ctx, m, req.Name, wire.Errorf(wire.CodeNotFound, "no agent %q that you may know of", r.name))
	case none && !r.all && !e.JSON:
		e.Note("those that have ended: cotal ps --all; to start one: cotal spawn <persona>")
	}
	return nil
}

// narrow leaves what is of one supervisor.
func (r *ps) narrow(c *manager.Census) error {
	if r.on == "" {
		return nil
	}
	var out manager.Census
	for _, a := range c.Replies {
		if a.Instance == r.on || a.Host == r.on {
			out.Replies = append(out.Replies, a)
		}
	}
	for _, p := range c.Refused {
		if p.Instance == r.on || p.Host == r.on {
			out.Refused = append(out.Refused, p)
		}
	}
	for _, p := range c.Silent {
		if p.Instance == r.on || p.Host == r.on {
			out.Silent = append(out.Silent, p)
		}
	}
	if len(out.Replies)+len(out.Refused)+len(out.Silent) == 0 {
		return target.NoSupervisor(c.Missing(r.on), r.on)
	}
	*c = out
	return nil
}

func (r *ps) lines(e *command.Env, c manager.Census) error {
	for _, a := range c.Agents() {
		if err := e.Each(Line{V: command.V1, Agent: &a}, nil); err != nil {
			return err
		}
	}
	for _, p := range c.Refused {
		if err := e.Each(Line{V: command.V1, Refused: &p}, nil); err != nil {
			return err
		}
	}
	for _, p := range c.Silent {
		if err := e.Each(Line{V: command.V1, Silent: &p}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (r *ps) human(p *command.Printer, c manager.Census) {
	several := len(c.Replies)+len(c.Refused)+len(c.Silent) > 1
	now := time.Now()
	for i, s := range c.Replies {
		if several {
			if i > 0 {
				p.Line("")
			}
			p.Line("supervisor %s on %s", p.Bold(command.Safe(s.Instance)), command.Safe(s.Host))
		}
		one := manager.Census{Replies: c.Replies[i : i+1]}
		r.table(p, one.Agents(), now)
	}
	for _, s := range c.Refused {
		p.Line("")
		where := ""
		if s.Host != "" {
			where = " on " + s.Host
		}
		p.Line("supervisor %s%s refuses to tell: %s", p.Bold(command.Safe(s.Instance)), command.Safe(where), command.Safe(s.Err.Error()))
	}
	for _, s := range c.Silent {
		p.Line("")
		p.Line("supervisor %s on %s %s", p.Bold(command.Safe(s.Instance)), command.Safe(s.Host), view.Silent(s, now))
	}
}

func (r *ps) table(p *command.Printer, agents []wire.AgentStatus, now time.Time) {
	if len(agents) == 0 {
		p.Line("no agents")
		return
	}
	header := []string{"name", "agent", "state", "process", "mesh", "age", "parent"}
	if r.wide {
		header = append(header, "model", "role", "uid", "folder")
	}
	rows := make([][]string, len(agents))
	for i, a := range agents {
		state := a.State
		if a.Reason != "" {
			state += " (" + a.Reason + ")"
		}
		rows[i] = []string{target.AgentName(a), a.Connector, state, view.Process(a.Process), view.Mesh(a), view.Age(begun(a), now), dash(parent(a))}
		if r.wide {
			rows[i] = append(rows[i], dash(a.Model), dash(a.Role), string(a.UID), dash(a.Cwd))
		}
	}
	p.Table(header, rows)
	if !r.wide {
		return
	}
	for _, a := range agents {
		if len(a.Process.LastLines) > 0 {
			p.Line("%s", p.Bold(command.Safe(target.AgentName(a))))
			view.LastLines(p, a.Process.LastLines)
		}
	}
}

// begun is when the process began or, without one, the state.
func begun(a wire.AgentStatus) time.Time {
	switch {
	case a.Process.State == wire.ProcessRunning && a.Process.Started > 0:
		return time.UnixMilli(a.Process.Started)
	case a.Since > 0:
		return time.UnixMilli(a.Since)
	}
	return time.Time{}
}

func parent(a wire.AgentStatus) string {
	if a.Parent == "" {
		return ""
	}
	return target.AgentName(wire.AgentStatus{Principal: a.Parent})
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
