package mesh

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

const (
	// keepFirst is the pause before a mesh that ended is started again, keepMost what the pauses grow to while starts fail,
	// keepReady what they grow to after one that was ready.
	keepFirst = 200 * time.Millisecond
	keepMost  = 30 * time.Second
	keepReady = 2 * time.Second
	// keepLong is how long a mesh has to run for the pauses to begin anew.
	keepLong = time.Minute
)

// runKeeping is the process between the person's command and the mesh: it runs the mesh as a child, passes its answer on, and starts it
// again when it is killed or fails. It ends with a mesh that was asked to stop, that never got ready, or that another process runs or keeps
// by then. With adopt it first waits for the end of a mesh that runs already and has no keeper. Asked to stop itself, it starts nothing any more: a mesh that serves goes on without it, one that is starting is stopped.
func (u *up) runKeeping(ctx context.Context, e *command.Env) error {
	process.Orphan()
	self, err := process.Self()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("identify this process: %w", err)
	}
	k := &keeping{
		project: config.NewProject(e.Dir), args: u.args(e), out: e.Stdout, log: e.Stderr,
		keeper: config.Process{PID: self.PID, Start: self.Start}, adopt: u.adopt,
	}
	if k.program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return k.run(ctx)
}

// keeping runs a mesh.
type keeping struct {
	project *config.Project
	program string
	args    []string
	keeper  config.Process
	adopt   bool      // the mesh runs already, and its keeper is gone
	out     io.Writer // takes the first answer
	log     io.Writer
	served  bool // a child was ready
	ready   bool // the last one was
	blind   bool // nobody finds this process
}

func (k *keeping) run(ctx context.Context) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval, pauses.Multiplier = keepFirst, keepMost, 2
	once := k.once
	if k.adopt {
		once = k.watch
	}
	for ; ; once = k.once {
		began := time.Now()
		err := once(ctx)
		if !k.served || k.blind || err == nil || asked(err) || ctx.Err() != nil {
			return k.forget(err)
		}
		if _, serr := os.Stat(k.project.Dir); errors.Is(serr, fs.ErrNotExist) {
			return wire.Errorf(wire.CodeFailedPrecondition, "start the mesh again: the folder %q is gone", k.project.Dir)
		}
		if time.Since(began) > keepLong {
			pauses.Reset()
		}
		pause := pauses.NextBackOff()
		if k.ready {
			pause = min(pause, keepReady)
		}
		k.say("the mesh ended (%v); it is started again in %v", err, pause.Round(time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return k.forget(nil)
		}
		if !k.named(ctx) {
			k.say("this process is not on record as the keeper of the mesh any more, and starts nothing")
			return nil
		}
	}
}

// named reports whether the project still has this process on record as its keeper. Nobody finds it otherwise, and it must start nothing that
// was ended behind its back.
func (k *keeping) named(ctx context.Context) bool {
	release, err := lockSoon(ctx, k.project)
	if err != nil {
		k.say("%v", err)
	}
	if release != nil { // who has it instead runs the mesh, or is about to: what is started waits for that
		defer release()
	}
	r, err := k.project.Keeper()
	return err == nil && r != nil && r.PID == k.keeper.PID && r.Start == k.keeper.Start
}

// once runs the mesh until it ends, and returns how: nil, or an *exec.ExitError.
func (k *keeping) once(ctx context.Context) error {
	k.ready = false
	cmd := exec.Command(k.program, k.args...)
	cmd.Args[0] = "cotal"
	cmd.Stderr = os.Stderr
	process.Detach(cmd) // a signal to the group of the keeper is not one to the mesh
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the mesh: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the mesh: %w", err)
	}
	id, _ := process.Of(cmd.Process.Pid) // our own child, which is not waited for yet: the number is its
	serves := context.AfterFunc(ctx, func() {
		_ = id.Stop() // it may have ended
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	serves() // before anybody is told: asked to end from here on, this process leaves it
	k.answer(line, err, cmd.Process.Pid)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the mesh, or with this process
	if k.ready {
		select {
		case err = <-ended:
			return err
		case <-ctx.Done(): // the mesh goes on without a keeper
			return nil
		}
	}
	return <-ended
}

// watchEvery is how often a keeper looks whether the mesh runs that is not its child.
const watchEvery = 500 * time.Millisecond

// watch keeps the mesh that runs, until it ends. How it ended nobody tells but the record of its run, which a good end takes away.
func (k *keeping) watch(ctx context.Context) error {
	run, err := k.project.Run()
	if err == nil && !target.Runs(run) {
		err = wire.Errorf(wire.CodeUnavailable, "keep the mesh of %q: it does not run any more", k.project.Root)
	}
	if err == nil {
		err = k.project.SaveKeeper(k.keeper)
	}
	if err != nil {
		f := command.FailureOf(err).Error
		k.tell(answer{Failure: &f})
		return err
	}
	k.served, k.ready = true, true
	k.say("keeps the mesh (pid %d), which had no keeper any more", run.PID)
	k.tell(answer{Result: &UpResult{PID: run.PID}})
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for target.Runs(run) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	left, err := k.project.Run()
	if err == nil && (left == nil || left.PID != run.PID || left.Start != run.Start) {
		return nil
	}
	return fmt.Errorf("process %d is gone", run.PID)
}

// answer takes the one line of a child, and passes the first one on. The mesh that it tells of may be that of another process.
func (k *keeping) answer(line []byte, err error, child int) {
	var a answer
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	k.ready = err == nil && a.Result != nil && a.Result.PID == child
	switch {
	case k.ready && !k.served:
		k.served = true
		if err := k.project.SaveKeeper(k.keeper); err != nil {
			k.say("%v; so cotal down would not find this process, and the mesh is not started again when it ends", err)
			k.blind = true
		}
		if err := k.project.ForgetStarting(k.keeper); err != nil {
			k.say("%v", err)
		}
	case k.ready:
		k.say("the mesh is up again (pid %d)", a.Result.PID)
	case a.Failure != nil && k.served:
		k.say("the mesh does not start: %s", a.Failure.Message)
	}
	k.pass(line)
}

// pass gives the first answer to whoever waits for it.
func (k *keeping) pass(line []byte) {
	if k.out == nil {
		return
	}
	_, _ = k.out.Write(line) // the reader may be gone
	if c, ok := k.out.(io.Closer); ok {
		_ = c.Close()
	}
	k.out = nil
}

func (k *keeping) tell(a answer) {
	line, err := json.Marshal(a)
	if err != nil {
		k.say("encode answer: %v", err)
	}
	k.pass(append(line, '\n'))
}

// asked reports whether a process ended because somebody wanted it to.
func asked(err error) bool {
	e, ok := errors.AsType[*exec.ExitError](err)
	return ok && process.Asked(e.ProcessState)
}

// forget takes the record away and passes the end of the first child on as that of this process.
func (k *keeping) forget(err error) error {
	if ferr := k.project.ForgetKeeper(k.keeper); ferr != nil {
		k.say("%v", ferr)
	}
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return wire.Errorf(wire.CodeInternal, "the mesh ended: %v", e)
	}
	return err
}

func (k *keeping) say(format string, args ...any) {
	_, _ = fmt.Fprintf(k.log, "%s keeper: %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
}
