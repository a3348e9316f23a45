package target

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

// lookEvery is how often a wait for a start looks how far that is.
const lookEvery = 50 * time.Millisecond

// Runs reports whether the process of a recorded run is there, which it is believed to be where processes cannot be told apart.
func Runs(run *config.Run) bool {
	if run == nil {
		return false
	}
	alive, err := process.Running(process.Identity{PID: run.PID, Start: run.Start})
	return alive || err != nil
}

// StartHere is what a person does about a mesh whose project was moved.
const StartHere = "cotal down, then cotal up --detach"

// Moved is the folder in which the mesh of a project was started that runs and whose folder was moved since, "" else. What it writes anew goes there.
func Moved(c *config.Config) string {
	if c.Project == nil || c.Server.Explicit() || !Runs(c.Run) {
		return ""
	}
	return c.Project.Moved()
}

// gone reports whether the run that the record of a project is of has ended: its process is not there, and does not hold the lock either, as
// one would that another container of the machine runs.
func gone(p *config.Project, run *config.Run) bool { return !Runs(run) && !p.Held(*run) }

// Starting reports whether somebody is at work on a start of the project's mesh: it holds the lock, or is a process in the background
// that is about to take it. So does a mesh that runs.
func Starting(p *config.Project) bool {
	release, err := p.Lock()
	if err == nil && release == nil {
		return true
	}
	if err == nil {
		release()
	}
	_, begun := Starter(p)
	return begun
}

// Starter is the process in the background that starts the mesh of the project, and whether it runs.
func Starter(p *config.Project) (process.Identity, bool) { return recorded(p.Starting()) }

// Keeper is the process that starts the detached mesh of the project again when it ends unasked, and whether it runs.
func Keeper(p *config.Project) (process.Identity, bool) { return recorded(p.Keeper()) }

// recorded is the process that a record names, and whether it runs.
func recorded(r *config.Process, err error) (process.Identity, bool) {
	if err != nil || r == nil {
		return process.Identity{}, false
	}
	id := process.Identity{PID: r.PID, Start: r.Start}
	alive, err := process.Running(id)
	return id, alive && err == nil
}

// AwaitStart waits until the mesh of the project runs, or nobody starts it any more.
//
// Errors: unavailable when ctx ends before that; nothing was done.
func AwaitStart(ctx context.Context, p *config.Project) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		run, err := p.Run()
		if err != nil {
			return err
		}
		if Runs(run) || !Starting(p) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			e := wire.Errorf(wire.CodeUnavailable, "the mesh of %q is starting and still not ready; nothing was done", p.Root)
			e.Outcome = wire.OutcomeNotExecuted
			return command.Hint(e, "look again in a moment: cotal status; its log: "+p.LogFile())
		}
	}
}
