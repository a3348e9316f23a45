//go:build linux || darwin

package seat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

const (
	// startTimeout bounds Start when ctx does not.
	startTimeout = 15 * time.Second
	// startPoll is how often Start looks whether the seat answers.
	startPoll = 2 * time.Millisecond
	// collectFor is how long a seat whose connection ended may take to end.
	collectFor = 2 * time.Second
	// collectLate is for how long one that takes longer is still collected, beside.
	collectLate = time.Minute
)

// Start makes the folder, writes the spec into it, starts the seat process detached from this one and returns when the agent runs and
// the seat answers. The seat gets nothing of this process: no descriptors, a session of its own, seat.log for its log, and only PATH,
// HOME, LANG and TMPDIR of its environment. A folder whose seat is gone is used again; what it kept is removed.
//
// Codes: already-exists when a seat runs in the folder, failed-precondition when processes of an earlier one may be left there (see
// Sweep) and in a process that was itself started as a seat, bad-request and not-found when the agent cannot be started as the spec says, deadline-exceeded when the seat did not answer
// in 15 s or the time ctx gives; then the seat was ended again.
func Start(ctx context.Context, o StartOptions) (*Client, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
		defer cancel()
	}
	o.Spec = o.Spec.withDefaults()
	if err := o.Spec.check(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(o.Dir) || !filepath.IsAbs(o.Program) {
		return nil, wire.Errorf(wire.CodeBadRequest, "start seat: folder %q and program %q must be absolute", o.Dir, o.Program)
	}
	env, err := seatEnv()
	if err != nil {
		return nil, err
	}
	if err := prepareDir(o.Dir, o.Spec); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(o.Dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "start seat %q: %v", o.Dir, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(o.Program, append(o.Args[:len(o.Args):len(o.Args)], o.Dir)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = o.Dir, env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, wire.Errorf(startCode(err), "start seat %q: %v", o.Dir, err)
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release() // the seat may outlive this process; collect reaps it if it does not
	c, err := awaitSeat(ctx, o.Dir, pid)
	if err != nil {
		return nil, err
	}
	if o.Logger != nil {
		o.Logger.Debug("seat answers", logkey.UID, o.Spec.ID, logkey.PID, pid)
	}
	return c, nil
}

// body marks the environment of a seat process. An agent does not get it.
const body = "COTAL_SEAT_PROCESS=1"

// seatEnv is what a seat process needs of this one's environment. It refuses in a process that was itself started as a seat: a program
// that does not call Main when it is run as one would otherwise start another of itself, and that one another, without end.
func seatEnv() ([]string, error) {
	env := []string{body}
	for _, e := range os.Environ() {
		if e == body {
			return nil, wire.Errorf(wire.CodeFailedPrecondition, "start seat: this process was started as a seat and does not run seat.Main")
		}
		switch name, _, _ := strings.Cut(e, "="); name {
		case "PATH", "HOME", "LANG", "TMPDIR":
			env = append(env, e)
		}
	}
	return env, nil
}

// prepareDir makes the folder ready for a new seat.
func prepareDir(dir string, spec Spec) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return wire.Errorf(wire.CodeInternal, "make folder of seat %q: %v", dir, err)
	}
	if err := privateDir(dir); err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	// The lock is given back before the seat starts, which then takes it. Of two that start in one folder, one seat gets it.
	defer unlockDir(lock)
	if r, err := Read(dir); err == nil && r.V != 0 && r.Exit == nil {
		if b, err := boot(); err == nil && b == r.Boot {
			if p, ok := lookup(r.Agent.PID); ok && p.is(r.Agent) {
				return wire.Errorf(wire.CodeFailedPrecondition, "start seat %q: agent %d of an earlier seat runs", dir, r.Agent.PID)
			}
		}
	}
	for _, name := range []string{recordFile, exitFile, errorFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return wire.Errorf(wire.CodeInternal, "clear folder of seat %q: %v", dir, err)
		}
	}
	return writeJSON(dir, specFile, spec)
}

// awaitSeat waits until the seat that was just started answers, or has ended with a reason.
func awaitSeat(ctx context.Context, dir string, pid int) (*Client, error) {
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	for {
		if r, err := Read(dir); err == nil && r.V != 0 && r.Seat.PID == pid {
			c, err := Open(ctx, dir)
			if err == nil || !errors.Is(err, wire.ErrUnavailable) {
				return c, err
			}
		}
		var st syscall.WaitStatus
		if got, _ := syscall.Wait4(pid, &st, syscall.WNOHANG, nil); got == pid {
			var reason wire.Error
			if readJSON(dir, errorFile, &reason) == nil && reason.Code != "" {
				return nil, &reason
			}
			return nil, wire.Errorf(wire.CodeInternal, "start seat %q: it ended with status %d; see %s there", dir, st.ExitStatus(), logFile)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			// It is our child and was not reaped, so the number is its own.
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, &st, 0, nil)
			_, _ = Sweep(context.WithoutCancel(ctx), dir, 0)
			return nil, wire.Errorf(wire.CodeDeadlineExceeded, "start seat %q: no answer: %w", dir, ctx.Err())
		}
	}
}

// collect waits until a seat that is ending has ended, for a moment, and reaps it if it is a child of this process. It reports whether
// the process is gone.
func collect(p Process) bool { return collectWithin(p, collectFor) }

// collectLast is collect for a seat that nobody looks at any more: one that takes longer is collected beside, so that it leaves no zombie.
func collectLast(p Process) {
	if !collect(p) {
		go collectWithin(p, collectLate)
	}
}

func collectWithin(p Process, patience time.Duration) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		now, looked := readStat(p.PID)
		if errors.Is(looked, os.ErrProcessDone) || looked == nil && !now.is(p) {
			return true // gone, or the number is another's
		}
		if got, err := syscall.Wait4(p.PID, nil, syscall.WNOHANG, nil); got == p.PID || looked == nil && now.zombie && err != nil {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Open adopts the seat of a folder: the process that the record names must run, with the start time of the record, in this boot, as
// this user, and be the one that listens at the socket, for the life that the spec names. An error that wraps ErrGone says that
// the process is no more; not-found that the folder has no seat; unavailable that the process runs and does not answer.
func Open(ctx context.Context, dir string) (*Client, error) {
	r, err := Read(dir)
	if err != nil {
		return nil, err
	}
	if r.V == 0 {
		return nil, wire.Errorf(wire.CodeNotFound, "open seat %q: none was started there", dir)
	}
	c, err := dial(ctx, dir, r, false)
	if err != nil {
		return nil, err
	}
	return newClient(dir, r, c), nil
}

// dial connects to the seat of the record and makes sure that it is the one.
func dial(ctx context.Context, dir string, r Record, view bool) (net.Conn, error) {
	gone := func(why string) error {
		collect(r.Seat)
		return wire.Errorf(wire.CodeFailedPrecondition, "open seat %q: %s: %w", dir, why, ErrGone)
	}
	b, err := boot()
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "open seat %q: name the boot: %v", dir, err)
	}
	if b != r.Boot {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "open seat %q: the machine was started again: %w", dir, ErrGone)
	}
	if p, ok := lookup(r.Seat.PID); !ok || !p.is(r.Seat) {
		return nil, gone("its process has ended")
	}
	c, err := reach(ctx, dir, r)
	if err != nil {
		if collect(r.Seat) {
			return nil, gone("its process has ended")
		}
		return nil, wire.Errorf(wire.CodeUnavailable, "open seat %q: %v", dir, err)
	}
	pid, uid, err := peer(c)
	if err != nil || uid != os.Getuid() || pid != r.Seat.PID {
		_ = c.Close()
		return nil, wire.Errorf(wire.CodePermissionDenied, "open seat %q: process %d of user %d listens there, not the seat", dir, pid, uid)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(callTimeout)
	}
	_ = c.SetDeadline(deadline)
	var h hello
	err = writeJSONFrame(c, frameHello, hello{V: Version, View: view})
	if err == nil {
		err = readJSONFrame(c, frameHello, &h)
	}
	switch {
	case err != nil:
		_ = c.Close()
		if collect(r.Seat) {
			return nil, gone("its process has ended")
		}
		return nil, wire.Errorf(wire.CodeUnavailable, "open seat %q: %v", dir, err)
	case h.Error != nil:
		err = h.Error
	case h.ID != r.Spec.ID:
		err = wire.Errorf(wire.CodeConflict, "open seat %q: it holds %q, not %q", dir, h.ID, r.Spec.ID)
	default:
		_ = c.SetDeadline(time.Time{})
		return c, nil
	}
	_ = c.Close()
	return nil, err
}

// reach connects to whoever listens at the socket in the folder, or, when nobody does, at the one that the record names: seats of
// earlier builds have theirs elsewhere when the path of the folder is long.
func reach(ctx context.Context, dir string, r Record) (*net.UnixConn, error) {
	var d net.Dialer
	var c net.Conn
	err := shortly(dir, func(short string) (err error) {
		c, err = d.DialContext(ctx, "unix", filepath.Join(short, socketFile))
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		if other, oerr := d.DialContext(ctx, "unix", r.Socket); oerr == nil {
			c, err = other, nil
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = fmt.Errorf("%s: %w", socketFile, op.Err) // its address is a short one, and tells nobody anything
	}
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// End asks the seat of a folder, one that runs and cannot be reached, to end its agent with the grace of the spec and then itself. It is
// asked by a signal, which goes to the recorded process alone: its number, start time, boot and user must be those, and the folder
// must be held by a seat. That it has ended is for Open to find.
//
// Codes: not-found for a folder without a seat; failed-precondition, which wraps ErrGone when the process is no more, when the folder is not held;
// permission-denied when the process is another user's; internal when it cannot be signalled.
func End(dir string) error {
	r, err := Read(dir)
	if err != nil {
		return err
	}
	if r.V == 0 {
		return wire.Errorf(wire.CodeNotFound, "end seat %q: none was started there", dir)
	}
	b, err := boot()
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "end seat %q: name the boot: %v", dir, err)
	}
	if p, ok := lookup(r.Seat.PID); b != r.Boot || !ok || !p.is(r.Seat) {
		return wire.Errorf(wire.CodeFailedPrecondition, "end seat %q: its process has ended: %w", dir, ErrGone)
	}
	if uid, err := r.Seat.owner(); err != nil || uid != os.Getuid() {
		return wire.Errorf(wire.CodePermissionDenied, "end seat %q: process %d is not of this user", dir, r.Seat.PID)
	}
	switch lock, err := lockDir(dir); {
	case err == nil: // such as that of a copy of the folder
		unlockDir(lock)
		return wire.Errorf(wire.CodeFailedPrecondition, "end seat %q: process %d does not hold this folder", dir, r.Seat.PID)
	case !errors.Is(err, wire.ErrExists):
		return err
	}
	if err := errors.Join(r.Seat.signal(syscall.SIGTERM), r.Seat.signal(syscall.SIGCONT)); err != nil {
		return wire.Errorf(wire.CodeInternal, "end seat %q: signal process %d: %v", dir, r.Seat.PID, err)
	}
	return nil
}
