package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// seatTimeout bounds the start of one seat. A loaded machine takes its time.
const seatTimeout = time.Minute

// start makes one run: its credential, its files, its seat. What it waits for, it says; it gives up only on what trying again does
// not change, or when the agent is no longer wanted. It goes on when ctx has ended until the seat answers or is known to be none, so
// that nothing half-made is left for the next keeper.
func (a *agent) start(ctx context.Context, run int) {
	for try := 0; ; try++ {
		err := a.startOnce(ctx, run)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil: // the next keeper goes on
			return
		case !a.wanted(run):
			a.send(Event{Kind: EventNotStarted, Run: run, Reason: err.Error()})
			return
		case !again(err):
			a.k.log.WarnContext(ctx, "agent not started", logkey.UID, string(a.uid), logkey.Error, err)
			a.send(Event{Kind: EventNotStarted, Run: run, Reason: err.Error(), Final: final(err)})
			return
		}
		a.send(Event{Kind: EventTrouble, Run: run, Reason: err.Error()})
		a.pause(ctx, backoff(try), run)
	}
}

// pause waits, but no longer than the run is wanted.
func (a *agent) pause(ctx context.Context, d time.Duration, run int) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		rec, changed := a.watchChange()
		if rec.State.Runs != run || rec.State.Goal != GoalRun {
			return
		}
		select {
		case <-t.C:
			return
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// place waits for one among those that start. It reports false when ctx ended, or the run is not wanted any more.
func (a *agent) place(ctx context.Context, run int) bool {
	for {
		rec, changed := a.watchChange()
		if rec.State.Runs != run || rec.State.Goal != GoalRun {
			return false
		}
		select {
		case a.k.starts <- struct{}{}:
			return true
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// final reports that no later start will do better.
func final(err error) bool {
	switch wire.CodeOf(err) {
	case wire.CodeInternal, wire.CodeFailedPrecondition:
		return false
	}
	return true
}

func (a *agent) wanted(run int) bool {
	s := a.snapshot().State
	return s.Runs == run && s.Goal == GoalRun
}

func (a *agent) startOnce(ctx context.Context, run int) error {
	if !a.place(ctx, run) {
		return wire.Errorf(wire.CodeCancelled, "it is no longer wanted")
	}
	defer func() { <-a.k.starts }()
	// What is not on disk might be started twice by the next keeper. No policy counts this: it says nothing about the agent.
	if err := a.keep(); err != nil {
		return err
	}
	m, err := a.material(ctx)
	if err != nil {
		return err
	}
	if err := a.install(m); err != nil {
		return err
	}
	spec, err := a.prepare(ctx, run, m)
	if err != nil {
		return err
	}
	dir := seatDir(a.dir, run)
	a.clean(run)
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), seatTimeout)
	defer cancel()
	held, err := a.k.opts.Seats.Start(whole, dir, spec)
	if err == nil && a.take(ctx, held, run) {
		return nil
	}
	if err == nil {
		closeSeat(held, false)
		err = wire.Errorf(wire.CodeFailedPrecondition, "the seat did not say what runs in it")
	}
	return a.resolve(ctx, run, err)
}

// resolve finds out what became of a start that failed: a seat that answers after all is taken; else whatever is left of it is ended.
// Until one of the two is certain it goes on, wanted or not, and says so: nobody may think that nothing runs.
func (a *agent) resolve(ctx context.Context, run int, why error) error {
	dir := seatDir(a.dir, run)
	for try := 0; ; try++ {
		n, err := a.k.opts.Seats.Sweep(context.WithoutCancel(ctx), dir, DefaultGrace)
		a.k.counts.swept.Add(int64(n))
		if err == nil {
			err = os.RemoveAll(dir) // a seat that is still on its way finds nothing to do
		}
		if err == nil {
			break
		}
		if held, oerr := a.k.opts.Seats.Open(ctx, dir); oerr == nil {
			if a.take(ctx, held, run) {
				return nil
			}
			closeSeat(held, false)
		}
		a.send(Event{Kind: EventTrouble, Run: run, Reason: "uncertain: its seat did not start (" + why.Error() + "), and what is left of it is not known to have ended: " + err.Error()})
		a.endUnheard(ctx, run)
		if pause.For(ctx, backoff(try)) != nil {
			return ctx.Err()
		}
	}
	code := wire.CodeOf(why)
	if !final(why) || again(why) {
		code = wire.CodeFailedPrecondition
	}
	return wire.Errorf(code, "start seat: %v", why)
}

// clean removes what runs before the last one left.
func (a *agent) clean(run int) {
	old, _ := filepath.Glob(filepath.Join(a.dir, seatPrefix+"*")) // the pattern is right
	for _, dir := range old {
		if dir != seatDir(a.dir, run) && dir != seatDir(a.dir, run-1) {
			_ = os.RemoveAll(dir) // what stays goes with the agent
		}
	}
}

// prepare asks the connector how the host is started, and writes the launch file and what the host needs.
func (a *agent) prepare(ctx context.Context, run int, m *material) (SeatSpec, error) {
	rec := a.snapshot()
	if err := a.k.seatable(); err != nil { // somebody may put it back
		return SeatSpec{}, wire.Errorf(wire.CodeUnavailable, "%v", err)
	}
	l, err := a.k.prepare(ctx, a.dir, &rec.Plan)
	if err != nil {
		return SeatSpec{}, err
	}
	host := filepath.Join(a.dir, hostDir)
	if err := os.MkdirAll(host, 0o700); err != nil {
		return SeatSpec{}, wire.Errorf(wire.CodeUnavailable, "create folder of host: %v", fserr.Cause(err))
	}
	if err := connector.Write(host, l.Files); err != nil {
		return SeatSpec{}, err
	}
	file := a.launchFile(&rec, run, m, l.Wakes)
	if file.HostSocket, err = seat.ShortSocket(filepath.Join(a.dir, socketFile)); err != nil {
		return SeatSpec{}, err
	}
	if err := a.writeLaunch(file); err != nil {
		return SeatSpec{}, err
	}
	id := wire.NewUID()
	if err := a.update(func(r *record) { r.Seat = id }); err != nil {
		return SeatSpec{}, err
	}
	o := &a.k.opts
	pass := append(append([]string(nil), o.PassEnv...), l.PassEnv...)
	return SeatSpec{
		ID: id, Space: a.k.space, Principal: rec.Principal, Argv: l.Argv, Dir: rec.Plan.Cwd, Cols: rec.Plan.Cols, Rows: rec.Plan.Rows,
		Grace: DefaultGrace,
		Env: reaching(environment(o.Environ, pass, rec.Plan.Env, l.Env, map[string]string{launch.Env: filepath.Join(a.dir, launchFile)}),
			o.Program),
	}, nil
}

// launchFile is what the agent is told, but for where the broker is.
func (a *agent) launchFile(rec *record, run int, m *material, wakes bool) launch.File {
	p := &rec.Plan
	f := launch.File{
		Space: a.k.space, Principal: rec.Principal, UID: rec.UID, Name: p.Name, Role: p.Role, Connector: p.Connector, Model: p.Uses,
		Persona: p.Persona, PersonaText: p.PersonaText, Manager: a.k.instance, Dir: a.dir, Seat: seatDir(a.dir, run),
		Subscribe: p.Subscribe, Capabilities: p.Capabilities, Prompt: p.Prompt, Wakes: wakes,
	}
	if m.cred.Exchange {
		who := rec.principal()
		f.Exchange = &launch.Exchange{Owner: who.Owner, Actor: who.Actor, Secret: m.proof.token()}
		return f
	}
	f.Creds = filepath.Join(a.dir, credsFile)
	return f
}

// seatable is nil when seats can be started.
//
// Errors: failed-precondition.
func (k *Keeper) seatable() error {
	if c, ok := k.opts.Seats.(SeatsChecker); ok {
		return c.Check()
	}
	return nil
}

// roomFor is what a start may write, in bytes: the record, the credential, what the host and the seat need.
const roomFor = 256 << 10

// startable looks whether the agent can be started, before one that runs is ended for that. It changes nothing.
//
// Errors: those of the connector, such as not-found for its program; failed-precondition when no seat can be started, the folder that it
// works in is gone, or its own cannot be written.
func (a *agent) startable(ctx context.Context, p *plan) error {
	if err := a.k.seatable(); err != nil {
		return err
	}
	if _, err := a.k.prepare(ctx, a.dir, p); err != nil {
		return err
	}
	if info, err := os.Stat(p.Cwd); err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "work in %q: %v", p.Cwd, fserr.Cause(err))
	} else if !info.IsDir() {
		return wire.Errorf(wire.CodeFailedPrecondition, "work in %q: it is no folder any more", p.Cwd)
	}
	room := filepath.Join(a.dir, roomFile)
	err := atomicfile.Write(room, make([]byte, roomFor), 0o600)
	if err == nil {
		if err = os.Remove(room); errors.Is(err, fs.ErrNotExist) { // another request looks at the same time
			err = nil
		}
	}
	if err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "write into %q, %d KiB: %v", a.dir, roomFor>>10, fserr.Cause(err))
	}
	return nil
}

// prepare asks the connector of a plan how the host is started. Dir is the folder of the agent. It makes nothing.
func (k *Keeper) prepare(ctx context.Context, dir string, p *plan) (connector.Launch, error) {
	c, err := connector.Find(k.opts.Connectors, p.Connector)
	if err != nil {
		return connector.Launch{}, err
	}
	l, err := c.Prepare(ctx, connector.Request{
		Dir: filepath.Join(dir, hostDir), Program: k.opts.Program, LaunchFile: filepath.Join(dir, launchFile),
		Name: p.Name, Role: p.Role, Model: p.Model, Variant: p.Variant, Prompt: p.Prompt, PersonaText: p.PersonaText, Cwd: p.Cwd,
		Command: p.Command, Getenv: func(name string) string { return lookup(k.opts.Environ, name) },
	})
	if err != nil {
		return connector.Launch{}, err
	}
	if len(l.Argv) == 0 || !filepath.IsAbs(l.Argv[0]) {
		return connector.Launch{}, wire.Errorf(wire.CodeInternal, "connector %q returned no program", p.Connector)
	}
	return l, nil
}
