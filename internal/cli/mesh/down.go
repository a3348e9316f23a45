package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

const downLong = `
Asks the mesh of this project to stop and waits until it is gone. What was acknowledged stays stored; the next
"cotal up" continues with it. When it does not run there is nothing to do, and that is no error.

Outside a project nothing is stopped unless --server or --space names the mesh.

A mesh that does not answer is sent a signal, but only after its process was found to be the recorded one: number
and start time must both match. A process that is somebody else's is never signalled.
`

const downExample = `
  cotal down
  cotal down --wait 1m --json
`

// down stops a mesh.
type down struct {
	wait time.Duration
}

// NewDown adds `cotal down`.
func NewDown(t *command.Tree) *cobra.Command {
	d := &down{}
	c := t.Add(command.Spec{Use: "down [flags]", Short: "Stop the mesh of this project", Long: downLong, Example: downExample}, d)
	c.Flags().DurationVar(&d.wait, "wait", 30*time.Second, "how long to wait until it is gone")
	return c
}

// DownResult is what `cotal down --json` prints.
type DownResult struct {
	command.V
	Root string `json:"root"`
	URL  string `json:"url"`
	PID  int    `json:"pid"`
	How  string `json:"how"` // asked, signalled, gone, not-running
}

// Ways in which a mesh ended.
const (
	howAsked     = "asked"
	howSignalled = "signalled"
	howGone      = "gone"
	howIdle      = "not-running"
)

func (r DownResult) human(p *command.Printer) {
	switch r.How {
	case howIdle:
		p.Line("the mesh of %s is not running; nothing to stop", r.Root)
	case howGone:
		p.Line("the mesh of %s had ended already (pid %d); its record is removed", r.Root, r.PID)
	case howSignalled:
		p.Line("stopped the mesh of %s (pid %d) by a signal", r.Root, r.PID)
	default:
		p.Line("stopped the mesh of %s (pid %d)", r.Root, r.PID)
	}
}

// Run asks, then signals, then waits.
func (d *down) Run(ctx context.Context, e *command.Env) error {
	if d.wait <= 0 {
		return command.Usagef("--wait %s: want more than 0s", d.wait)
	}
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Own("down"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.wait)
	defer cancel()
	if t.Config.Run == nil {
		return d.unrecorded(ctx, e, t)
	}
	run, project := *t.Config.Run, t.Config.Project
	how, err := d.end(ctx, e, t, run)
	if err != nil {
		return err
	}
	if err := d.gone(ctx, t, run, how); err != nil {
		return err
	}
	res := DownResult{V: command.V1, Root: project.Root, URL: run.URL, PID: run.PID, How: how}
	return e.Print(res, res.human)
}

// unrecorded handles a target that no run of this machine stands behind: a node that answers at an address that was
// named is asked, anything else is refused.
func (d *down) unrecorded(ctx context.Context, e *command.Env, t *target.Target) error {
	c := t.Config
	if err := t.Running(); err != nil {
		if !d.idle(c) {
			return err
		}
		res := DownResult{V: command.V1, Root: c.Project.Root, How: howIdle}
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
	if err := node.Stop(ctx); err != nil {
		return t.Explain(err)
	}
	t.Close()
	if err := target.AwaitSilence(ctx, c.Server.Value); err != nil {
		return wire.Errorf(wire.CodeDeadlineExceeded, "the mesh at %s agreed to stop and still listens", c.Server.Value)
	}
	res := DownResult{V: command.V1, Root: c.Project.Root, URL: c.Server.Value, PID: st.PID, How: howAsked}
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
	err := id.Stop()
	switch {
	case errors.Is(err, process.ErrGone):
		return howGone, nil
	case err != nil:
		return "", wire.Errorf(wire.CodeUnavailable, "stop the mesh of %q: process %d gives no answer and cannot be signalled: %v", t.Config.Project.Root, run.PID, err)
	}
	return howSignalled, nil
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
		return command.Hint(wire.Errorf(wire.CodeDeadlineExceeded, "process %d was %s to stop and still runs", run.PID, how), "its log: "+orNone(run.Log), "wait longer: cotal down --wait 2m")
	}
	p := t.Config.Project
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
