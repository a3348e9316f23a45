package supervisor

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// stopHold is for how long no agents are taken once all are to end.
const stopHold = 30 * time.Second

// StopAll ends every agent and retires its grant, and returns when that is proved of all of them, or ctx ends. What is asked for meanwhile, or
// within 30 s from its beginning, is refused, also a spawn that was under way. The keeper runs meanwhile, and so does a service over it,
// without which no grant can be retired.
//
// Errors: one that names each agent which is not known to have ended, or whose grant is not retired yet; what is left undone goes on
// with the keeper, or with the next one.
func (k *Keeper) StopAll(ctx context.Context) ([]wire.AgentStatus, error) {
	select {
	case <-k.ready:
	case <-ctx.Done():
		return nil, wire.Errorf(wire.CodeUnavailable, "stop agents: the supervisor is still looking at the agents of before")
	}
	k.hold(stopHold)
	all := k.where(func(r *record) bool { return !r.settled() })
	for _, a := range all {
		a.send(Event{Kind: EventStop, Reason: "all agents are stopped"})
	}
	var ended []wire.AgentStatus
	var errs []error
	for _, a := range all {
		err := a.awaitEnd(ctx)
		if err == nil {
			ended = append(ended, k.status(a, false))
			err = a.awaitRetired(ctx)
		}
		errs = append(errs, err)
	}
	return ended, errors.Join(errs...)
}

func (a *agent) awaitRetired(ctx context.Context) error {
	for {
		rec, changed := a.watchChange()
		if rec.settled() {
			return nil
		}
		select {
		case <-changed:
		case <-a.k.stopped:
			return wire.Errorf(wire.CodeUnavailable, "retire agent %q: the supervisor stops; the next one goes on with it", rec.Principal)
		case <-ctx.Done():
			return wire.Errorf(wire.CodeDeadlineExceeded, "retire agent %q: it has ended, its grant is not retired yet (%s)", rec.Principal, reason(&rec.State))
		}
	}
}

// checkAgents says when agents cannot be looked after as they should.
func (k *Keeper) checkAgents(context.Context) error {
	if lost := len(k.Unreadable()); lost > 0 {
		return wire.Errorf(wire.CodeFailedPrecondition, "%d folders of agents cannot be read; see the log", lost)
	}
	stuck := k.where(func(r *record) bool { return r.State.Phase == wire.AgentStopping && r.State.Tries > 2 })
	if len(stuck) > 0 {
		return wire.Errorf(wire.CodeUnavailable, "%d agents are not known to have ended", len(stuck))
	}
	return nil
}

// checkState writes where the agents are kept.
func (k *Keeper) checkState(context.Context) error {
	if err := atomicfile.Write(filepath.Join(k.opts.Dir, ".health"), []byte("ok\n"), 0o600); err != nil {
		return wire.Errorf(wire.CodeUnavailable, "the folder of the agents cannot be written: %v", fserr.Cause(err))
	}
	return nil
}

func (k *Keeper) checkRoster(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stale {
		return wire.Errorf(wire.CodeUnavailable, "who is in the space is not known at the moment")
	}
	return nil
}

// checkAuthority asks the authority, unless it has just been asked.
func (k *Keeper) checkAuthority(ctx context.Context) error {
	_, err := k.standingGrants(ctx, peerEvery)
	return err
}
