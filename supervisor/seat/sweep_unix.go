//go:build linux || darwin

package seat

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// dying is how long a seat that was killed may take to let go of its folder.
const dying = 200 * time.Millisecond

// Sweep ends what is left of an agent whose seat is gone, TERM, grace, KILL, and returns what it ended. It knows an agent's
// processes by the record, by descent from them, by the agent's session, and by the marker that the seat put into their environment;
// a process that carries no mark of this very life is a stranger and is left alone, whatever its name. So is what the record
// names as a daemon, and what has a session of its own and no file but the null device.
//
// Codes: not-found for a folder without a spec, failed-precondition while its seat runs, internal when something could not be ended.
func Sweep(ctx context.Context, dir string, grace time.Duration) ([]Process, error) {
	r, err := Read(dir)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if errors.Is(err, wire.ErrExists) && r.V != 0 && collectWithin(r.Seat, dying) {
		lock, err = lockDir(dir)
	}
	if errors.Is(err, wire.ErrExists) {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "sweep seat %q: it runs", dir)
	}
	if err != nil {
		return nil, err
	}
	defer unlockDir(lock)
	b, err := boot()
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "sweep seat %q: name this boot: %v", dir, err)
	}
	if r.V != 0 && b != r.Boot {
		return nil, nil // nothing outlives the boot
	}
	collect(r.Seat)
	w := sweeper{record: r, marker: Marker + "=" + string(r.Spec.ID), told: map[identity]bool{}}
	e := ending{begun: time.Now()}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := w.left()
		if err != nil {
			return w.ended, err
		}
		if len(left) == 0 {
			return w.ended, nil
		}
		kill, vain := e.step(time.Since(e.begun), grace)
		if vain {
			return w.ended, wire.Errorf(wire.CodeInternal, "sweep seat %q: %d processes do not end, such as %d (%s)", dir, len(left), left[0].PID, left[0].Name)
		}
		for _, p := range left {
			w.tell(p.Process, kill)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w.ended, wire.Errorf(wire.CodeDeadlineExceeded, "sweep seat %q: %w", dir, ctx.Err())
		}
	}
}

type sweeper struct {
	record Record
	marker string
	told   map[identity]bool
	ended  []Process
}

// left are the agent's processes that still run.
func (w *sweeper) left() ([]proc, error) {
	f, err := processes()
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "look at processes: %v", err)
	}
	agent := w.record.Agent
	spared, ours := map[int]bool{os.Getpid(): true}, map[int]bool{}
	for pid := range f.roots(w.record.Daemons) {
		spared[pid] = true
		f.below(pid, nil, spared)
	}
	lives := len(f.roots([]Process{agent})) > 0
	for pid, p := range f.byPID {
		known := p.is(agent) || w.told[p.identity()] || p.carries(w.marker)
		if !known || p.zombie || spared[pid] {
			continue
		}
		if own := p.sid != agent.PID && p.sid == pid; own && !lives && !w.told[p.identity()] && p.detached() {
			spared[pid] = true
			f.below(pid, nil, spared)
			continue
		}
		ours[pid] = true
	}
	for pid := range ours {
		f.below(pid, spared, ours)
	}
	var out []proc
	for pid := range ours {
		if p := f.byPID[pid]; !spared[pid] && !p.zombie {
			out = append(out, p)
		}
	}
	return out, nil
}

func (w *sweeper) tell(p Process, kill bool) {
	if !w.told[p.identity()] {
		w.told[p.identity()] = true
		w.ended = append(w.ended, p)
		_ = errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGHUP), p.signal(syscall.SIGCONT))
	}
	if kill {
		_ = p.signal(syscall.SIGKILL)
	}
}
