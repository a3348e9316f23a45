package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// Drain takes no agents for a while and starts none again that has ended, so that all can be ended: what was not accepted before is
// refused, also where it is under way. It returns the agents that have not ended; until the hold is over no others come. A hold of 0 takes agents again.
//
// Errors: bad-request for a hold that cannot be; deadline-exceeded when ctx ends before it is known what has ended.
func (k *Keeper) Drain(ctx context.Context, by Caller, req wire.DrainRequest) (wire.AgentsReply, error) {
	if req.Hold < 0 || req.Hold > wire.MaxHold {
		return wire.AgentsReply{}, wire.Errorf(wire.CodeBadRequest, "drain: a hold of %d ms, at most %d", req.Hold, int64(wire.MaxHold))
	}
	k.hold(time.Duration(req.Hold) * time.Millisecond)
	for _, a := range k.where(func(r *record) bool {
		return r.State.over() && (r.State.Grant == GrantHeld || r.State.Grant == GrantSuspended)
	}) {
		a.awaitRead(ctx, a.send(Event{Kind: EventNudge})) // behind a restart that was accepted
	}
	if ctx.Err() != nil {
		return wire.AgentsReply{}, wire.Errorf(wire.CodeDeadlineExceeded, "drain: no agents are taken, and it is not known yet which have ended")
	}
	return k.Agents(by, wire.AgentsRequest{}), nil
}

// hold takes no agents for d from now, and refuses those under way; 0 takes them again.
func (k *Keeper) hold(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held = time.Now().Add(d); d > 0 {
		k.drains++
	}
}

// takes is nil when agents are taken that were asked for when the keeper had been drained so many times. The caller holds k.mu. Doing
// says what it is for.
func (k *Keeper) takes(doing string, drains int) error {
	left := time.Until(k.held)
	if left <= 0 && drains == k.drains {
		return nil
	}
	e := wire.Errorf(wire.CodeUnavailable, "%s: all agents are being ended, the mesh may be about to stop; this supervisor takes agents again in %v", doing,
		max(left, time.Second).Round(time.Second))
	e.Outcome = wire.OutcomeNotExecuted
	return e
}

// startAgain tells an agent to begin anew, unless no agents are taken.
func (k *Keeper) startAgain(a *agent, principal string) (read <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.takes(fmt.Sprintf("restart agent %q", principal), k.drains); err != nil {
		return nil, err
	}
	return a.send(Event{Kind: EventRestart}), nil
}
