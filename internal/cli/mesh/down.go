package mesh

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/team"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

const downLong = `
Asks the mesh of this project to stop and waits until it is gone. What was acknowledged stays stored; the next
"cotal up" continues with it. When it does not run there is nothing to do, and that is no error; one that is starting is waited for
and then stopped.

Outside a project nothing is stopped unless --server or --space names the mesh.

With --file nothing is stopped but what was made of that team file, by the ledger of it: its agents end, and the settings of its channels
go unless somebody changed them since. Messages stay. --dry-run only shows what that would be.

A mesh that does not answer is sent a signal, but only after its process was found to be the recorded one: number
and start time must both match. A process that is somebody else's is never signalled.

Agents go on without the mesh, and are told; the next start takes them up again. With --with-agents every agent of every space is ended
first, with all that it started, and the mesh stops once each supervisor says that none is left. When that cannot be known, because
a supervisor does not answer or the mesh does not run, nothing is stopped and the command fails.
`

const downExample = `
  cotal down
  cotal down --with-agents --wait 1m
  cotal down -f cotal.yaml --dry-run
`

// down stops a mesh, or takes down what was made of a team file.
type down struct {
	wait       time.Duration
	withAgents bool
	team       team.Options
}

// NewDown adds `cotal down`.
func NewDown(t *command.Tree) *cobra.Command {
	d := &down{}
	c := t.Add(command.Spec{Use: "down [flags]", Short: "Stop the mesh of this project", Long: downLong, Example: downExample}, d)
	c.Flags().DurationVar(&d.wait, "wait", 30*time.Second, "how long to wait until it is gone")
	c.Flags().BoolVar(&d.withAgents, "with-agents", false, "end all agents first, and stop nothing unless that is proved")
	d.team.AddFlags(c, "take down what was made of this team file, and leave the mesh up")
	return c
}

// DownResult is what `cotal down --json` prints.
type DownResult struct {
	command.V
	Root string `json:"root"`
	URL  string `json:"url"`
	PID  int    `json:"pid"`
	How  string `json:"how"` // asked, signalled, gone, kept, not-running
	// Left are the agents that go on, Ended those that were ended with --with-agents. AgentsUnknown says why Left is not known.
	Left          []wire.AgentStatus `json:"left,omitempty"`
	Ended         []wire.AgentStatus `json:"ended,omitempty"`
	AgentsUnknown string             `json:"agentsUnknown,omitempty"`
}

// Ways in which a mesh ended.
const (
	howAsked     = "asked"
	howSignalled = "signalled"
	howGone      = "gone"
	howKept      = "kept" // it was down, and its keeper would have started it again
	howIdle      = "not-running"
)

func (r DownResult) human(p *command.Printer) {
	switch r.How {
	case howIdle:
		p.Line("the mesh of %s is not running; nothing to stop", r.Root)
	case howKept:
		p.Line("the mesh of %s was down; it is not started again", r.Root)
	case howGone:
		p.Line("the mesh of %s had ended already (pid %d); its record is removed", r.Root, r.PID)
	case howSignalled:
		p.Line("stopped the mesh of %s (pid %d) by a signal", r.Root, r.PID)
	default:
		p.Line("stopped the mesh of %s (pid %d)", r.Root, r.PID)
	}
	if len(r.Ended) > 0 {
		p.Line("  ended: %s", agentNames(r.Ended))
	}
	if len(r.Left) > 0 {
		p.Line("  agents go on: %s", agentNames(r.Left))
		p.Line("  cotal up takes them up again; cotal down --with-agents ends them, while the mesh runs")
	}
	if r.AgentsUnknown != "" {
		p.Line("  agents may go on: %s", command.Safe(r.AgentsUnknown))
	}
}

// Run asks, then signals, then waits.
func (d *down) Run(ctx context.Context, e *command.Env) error {
	if d.wait <= 0 {
		return command.Usagef("--wait %s: want more than 0s", d.wait)
	}
	if err := d.team.Check(); err != nil {
		return err
	}
	if d.team.File != "" {
		if d.withAgents {
			return command.Usagef("--file and --with-agents exclude each other: a team file's own agents end with it")
		}
		e.Records, e.Changes = false, true // what it made is asked of the mesh
		return team.Remove(ctx, e, d.team.File, d.team.DryRun)
	}
	ctx, cancel := context.WithTimeout(ctx, d.wait)
	defer cancel()
	t, kept, err := d.open(ctx, e)
	if err != nil {
		return err
	}
	defer t.Close()
	if t.Config.Run == nil {
		return d.unrecorded(ctx, e, t, kept)
	}
	run, project := *t.Config.Run, t.Config.Project
	res := DownResult{V: command.V1, Root: project.Root, URL: run.URL, PID: run.PID}
	if !run.Open {
		if err := d.agents(ctx, e, t, &res); err != nil {
			return err
		}
	}
	how, err := d.end(ctx, e, t, run)
	if err != nil {
		return err
	}
	if err := d.gone(ctx, t, run, how); err != nil {
		return err
	}
	res.How = how
	return e.Print(res, res.human)
}

// open finds the mesh that is meant, waits for it while it is starting, and tells whether it was down and kept: then its keeper has ended
// before its record is read, so that it does not come back behind that. With agents to end, nothing is ended before it is known that none goes on.
func (d *down) open(ctx context.Context, e *command.Env) (t *target.Target, kept bool, err error) {
	for {
		if t, err = target.Open(e); err != nil {
			return nil, false, err
		}
		if err = t.Own("down"); err == nil {
			switch {
			case !d.withAgents && t.Kept():
				kept, err = letGo(ctx, t.Config.Project)
			case begins(t.Config):
				e.Progress("the mesh of %s is starting; it is stopped once it is up", t.Config.Project.Root)
				err = target.AwaitStart(ctx, t.Config.Project)
			default:
				return t, kept, nil
			}
		}
		t.Close()
		if err != nil {
			return nil, false, err
		}
	}
}

// begins reports whether the mesh of the project is starting and has left no record of its run yet.
func begins(c *config.Config) bool {
	return c.Project != nil && !c.Server.Explicit() && !target.Runs(c.Run) && target.Starting(c.Project)
}

// unrecorded handles a target that no run of this machine stands behind: a node that answers at an address that was
// named is asked, anything else is refused.
// Kept says that its keeper was just ended.
func (d *down) unrecorded(ctx context.Context, e *command.Env, t *target.Target, kept bool) error {
	c := t.Config
	if err := t.Running(); err != nil {
		if !d.idle(c) {
			return err
		}
		if d.withAgents {
			if err := noneKept(c.Project); err != nil {
				return err
			}
			if kept, err = letGo(ctx, c.Project); err != nil {
				return err
			}
		}
		res := DownResult{V: command.V1, Root: c.Project.Root, How: howIdle}
		if kept {
			res.How = howKept
		}
		return e.Print(res, res.human)
	}
	node, err := t.Node(ctx)
	if err != nil {
		return err
	}
	st, err := node.Status(ctx)
	if err != nil {
		return t.Explain(err)
	}
	res := DownResult{V: command.V1, Root: c.Project.Root, URL: c.Server.Value, PID: st.PID, How: howAsked}
	if err := d.agents(ctx, e, t, &res); err != nil {
		return err
	}
	if err := node.Stop(ctx); err != nil {
		return t.Explain(err)
	}
	t.Close()
	if err := target.AwaitSilence(ctx, c.Server.Value); err != nil {
		return wire.Errorf(wire.CodeDeadlineExceeded, "the mesh at %s agreed to stop and still listens", c.Server.Value)
	}
	return e.Print(res, res.human)
}

// idle reports whether nobody runs the mesh of the project, nor is about to.
func (d *down) idle(c *config.Config) bool {
	if c.Project == nil {
		return false
	}
	release, err := c.Project.Lock()
	if err != nil || release == nil {
		return false
	}
	release()
	return true
}

// end asks the node; without an answer it signals the recorded process.
func (d *down) end(ctx context.Context, e *command.Env, t *target.Target, run config.Run) (string, error) {
	id := process.Identity{PID: run.PID, Start: run.Start}
	if alive, err := process.Running(id); err == nil && !alive {
		return howGone, nil
	}
	if !run.Open {
		e.Progress("asking the mesh at %s to stop", run.URL)
		err := d.ask(ctx, t)
		if err == nil {
			return howAsked, nil
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return "", command.Cancelledf("cancelled; the mesh of %q was perhaps asked to stop", t.Config.Project.Root)
		}
		e.Progress("no answer: %v", err)
	}
	if keeper, kept := target.Keeper(t.Config.Project); kept {
		if err := keeper.Stop(); err != nil && !errors.Is(err, process.ErrGone) {
			return "", wire.Errorf(wire.CodeUnavailable, "stop the mesh of %q: its keeper, process %d, cannot be signalled: %v", t.Config.Project.Root, keeper.PID, err)
		}
	}
	err := id.Stop()
	switch {
	case errors.Is(err, process.ErrGone):
		return howGone, nil
	case err != nil:
		return "", wire.Errorf(wire.CodeUnavailable, "stop the mesh of %q: process %d gives no answer and cannot be signalled: %v", t.Config.Project.Root, run.PID, err)
	}
	return howSignalled, nil
}

// letGo ends the keeper of a mesh that is down, so that nothing starts it again, and reports whether there was one.
func letGo(ctx context.Context, p *config.Project) (bool, error) {
	if p == nil {
		return false, nil
	}
	id, kept := target.Keeper(p)
	if !kept {
		return false, nil
	}
	if err := id.Stop(); err != nil && !errors.Is(err, process.ErrGone) {
		return false, wire.Errorf(wire.CodeUnavailable, "process %d starts the mesh of %q again and cannot be signalled: %v", id.PID, p.Root, err)
	}
	if err := process.Wait(ctx, id); err != nil {
		return false, wire.Errorf(wire.CodeDeadlineExceeded, "process %d starts the mesh of %q again, was asked to end and still runs: %v", id.PID, p.Root, err)
	}
	return true, nil
}

// askTimeout bounds the wait for an answer, so that a hung node leaves time for the signal.
const askTimeout = 5 * time.Second

func (d *down) ask(ctx context.Context, t *target.Target) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := t.Node(ctx)
	if err != nil {
		return err
	}
	return node.Stop(ctx)
}

// gone waits until the process has ended, then removes what a run that was cut short could not.
func (d *down) gone(ctx context.Context, t *target.Target, run config.Run, how string) error {
	id := process.Identity{PID: run.PID, Start: run.Start}
	err := process.Wait(ctx, id)
	if errors.Is(err, errors.ErrUnsupported) {
		err = target.AwaitSilence(ctx, run.URL)
	}
	if errors.Is(err, context.Canceled) {
		return command.Hint(command.Cancelledf("cancelled; process %d was %s to stop and still runs", run.PID, how), "its log: "+orNone(run.Log))
	}
	if err != nil {
		return command.Hint(wire.Errorf(wire.CodeDeadlineExceeded, "process %d was %s to stop and still runs", run.PID, how), "its log: "+orNone(run.Log), "wait longer: cotal down --wait 2m",
			"if it hangs, end it by force, which loses nothing that was acknowledged: kill -9 "+strconv.Itoa(run.PID))
	}
	p := t.Config.Project
	if _, err := letGo(ctx, p); err != nil { // it ends with a mesh that ends well; this one may not have
		return err
	}
	release, err := lockSoon(ctx, p)
	if err != nil {
		return err
	}
	if release == nil {
		return nil // started again meanwhile: the records are the new run's
	}
	defer release()
	if err := p.ForgetRun(); err != nil {
		return err
	}
	return t.Config.Machine.Forget(p.Root)
}

// lockSoon takes the project's lock, waiting for up to 2 s: the last threads of a process that was killed may hold it for a
// moment after the process counts as ended. It returns nil when somebody else has it.
func lockSoon(ctx context.Context, p *config.Project) (func(), error) {
	limit := time.After(2 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		release, err := p.Lock()
		if err != nil || release != nil {
			return release, err
		}
		select {
		case <-tick.C:
		case <-limit:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}
