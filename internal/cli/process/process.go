// Package process names a process so that it cannot be mistaken for another one that later got the same number,
// and ends it only under that name.
//
// Start with [Self] in the process that is to be found again, store the [Identity], and hand it to [Running],
// [Identity.Stop], [Identity.Kill] or [Wait] later. It promises that a signal is never sent to a process whose
// start time differs from the recorded one. On systems where the start time cannot be read it refuses with
// errors.ErrUnsupported. [Detach] prepares a child that outlives the terminal; the child
// calls [Orphan]. All functions are safe for
// concurrent use.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrGone says that no process has the identity any more.
var ErrGone = errors.New("process is gone")

// pollEvery is how often Wait looks. The wait ends with the process, so the figure only bounds the delay.
const pollEvery = 20 * time.Millisecond

// Identity names one process of one boot of one machine. The zero value names none.
type Identity struct {
	PID int `json:"pid"`
	// Start is the operating system's own record of when the process began. It is compared, never read.
	Start string `json:"start"`
}

// Self identifies the calling process.
func Self() (Identity, error) {
	return Of(os.Getpid())
}

// Of identifies the process that has the number now. It returns ErrGone when there is none.
func Of(pid int) (Identity, error) {
	if pid <= 0 {
		return Identity{}, ErrGone
	}
	start, err := startTime(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: start}, nil
}

// Running reports whether the very process runs. It returns false without an error when it is gone or its number
// belongs to another process now.
func Running(id Identity) (bool, error) {
	now, err := Of(id.PID)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up process %d: %w", id.PID, err)
	}
	return now == id, nil
}

// Stop asks the process to end. It returns ErrGone when the process is no longer the recorded one; then nothing
// was signalled.
func (id Identity) Stop() error { return id.signal(stopSignal) }

// Kill ends the process without asking. It returns ErrGone as Stop does.
func (id Identity) Kill() error { return id.signal(os.Kill) }

func (id Identity) signal(sig os.Signal) error {
	if id.PID <= 0 || id.Start == "" {
		return ErrGone
	}
	// The handle is taken before the check: where handles are stable (Linux, Windows) the signal then reaches
	// the process that was checked or nobody.
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return ErrGone
	}
	defer func() { _ = p.Release() }()
	ok, err := Running(id)
	if err != nil {
		return err
	}
	if !ok {
		return ErrGone
	}
	if err := p.Signal(sig); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return ErrGone
		}
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	return nil
}

// Wait returns nil once the process is gone, or the error of ctx.
func Wait(ctx context.Context, id Identity) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ok, err := Running(id)
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
