package supervisor

import (
	"time"

	"github.com/cotal-go/cotal/wire"
)

// status is an agent as the wire says it.
func (k *Keeper) status(a *agent, lines bool) wire.AgentStatus {
	rec := a.snapshot()
	s := &rec.State
	out := wire.AgentStatus{
		Principal: rec.Principal, UID: rec.UID, Name: rec.Plan.Name, Persona: rec.Plan.Persona, Connector: rec.Plan.Connector,
		Model: rec.Plan.Uses, Role: rec.Plan.Role, Cwd: rec.Plan.Cwd, Instance: k.instance, Host: k.opts.Host, Parent: rec.Parent,
		ParentUID: rec.ParentUID, Deploy: rec.Plan.Deploy, RequestID: rec.RequestID, State: s.Phase, Since: millis(s.Since),
		Reason: reason(s), Wakes: rec.Plan.Wakes, Attaches: s.Process == wire.ProcessRunning,
		Process: wire.AgentProcess{
			State: s.Process, PID: s.PID, Started: millis(s.Started), Ended: millis(s.Ended), Code: max(0, s.Ending.Code),
			Signal: s.Ending.Signal, Restarts: s.Restarts,
		},
		Mesh: k.mesh(&rec),
	}
	if s.Phase == "" {
		out.State, out.Process.State = wire.AgentStarting, wire.ProcessNone
	}
	if s.Process == wire.ProcessExited {
		out.Process.Left = rec.Left
	}
	if s.Phase == wire.AgentBackoff {
		out.Process.Next = millis(s.Due)
	}
	if lines && (s.Process != wire.ProcessRunning || s.Phase == wire.AgentStopping) {
		out.Process.LastLines = rec.LastLines
	}
	return out
}

func reason(s *State) string {
	switch {
	case s.Trouble == "":
		return s.Reason
	case s.Reason == "":
		return s.Trouble
	}
	return s.Reason + "; " + s.Trouble
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// mesh is what the roster says of an agent's present life.
func (k *Keeper) mesh(rec *record) wire.AgentMesh {
	k.mu.Lock()
	e, ok := k.seen[rec.principal()]
	stale := k.stale
	k.mu.Unlock()
	switch {
	case stale:
		return wire.AgentMesh{Status: wire.StatusUnknown}
	case !ok || e.Presence.LifecycleUID != rec.UID:
		return wire.AgentMesh{Status: wire.StatusOffline}
	case e.Presence.Status == wire.StatusOffline:
		return wire.AgentMesh{Status: wire.StatusOffline, Gone: e.Gone, Since: e.Presence.TS}
	}
	m := wire.AgentMesh{Status: e.Presence.Status, Activity: e.Presence.Activity, Since: e.Presence.TS}
	if c := e.Presence.Condition; c != nil {
		m.Condition = c.Code
	}
	return m
}

// rosterIs takes the whole roster.
func (k *Keeper) rosterIs(entries []wire.RosterEntry, stale bool) {
	k.mu.Lock()
	clear(k.seen)
	for _, e := range entries {
		k.notice(e)
	}
	k.stale = stale
	k.mu.Unlock()
	k.lookAgain(time.Now())
}

// rosterHas takes one change of it.
func (k *Keeper) rosterHas(e wire.RosterEntry) {
	k.mu.Lock()
	a := k.notice(e)
	k.mu.Unlock()
	if a != nil {
		k.judge(a, time.Now())
		k.publish(a)
	}
}

// notice keeps an entry that is of an agent here, and returns that agent. One that has given its name back, nil then, is seen to go as
// well: delivery tells of that later than the authority. The lock is held.
func (k *Keeper) notice(e wire.RosterEntry) *agent {
	p, err := wire.ParsePrincipal(e.Principal)
	if err != nil {
		return nil
	}
	a := k.names[p]
	if _, known := k.seen[p]; a != nil || known {
		k.seen[p] = e
	}
	return a
}

// rosterLost takes the removal of a principal.
func (k *Keeper) rosterLost(principal string) {
	p, err := wire.ParsePrincipal(principal)
	if err != nil {
		return
	}
	k.mu.Lock()
	delete(k.seen, p)
	k.mu.Unlock()
}

// rosterStale says whether what is seen may be old.
func (k *Keeper) rosterStale(stale bool) {
	k.mu.Lock()
	k.stale = stale
	k.mu.Unlock()
}

// lookAgain judges all agents that start.
func (k *Keeper) lookAgain(now time.Time) {
	for _, a := range k.where(func(r *record) bool { return r.State.Phase == wire.AgentStarting }) {
		k.judge(a, now)
	}
}

// certain is after how long a record of a run before cannot be there any more, so that whoever is seen is the one of now.
const certain = wire.LivenessWindow + 4*time.Second

// judge tells an agent that starts when it is seen in the space: what is seen must be of its life, and of this run of it. A record
// that is later than the start shows that; so does one that is there when that of the run before would have lapsed.
func (k *Keeper) judge(a *agent, now time.Time) {
	rec := a.snapshot()
	if rec.State.Phase != wire.AgentStarting {
		return
	}
	k.mu.Lock()
	e, ok := k.seen[rec.principal()]
	stale := k.stale
	k.mu.Unlock()
	if !ok || stale || e.Presence.LifecycleUID != rec.UID || e.Presence.Status == wire.StatusOffline {
		return
	}
	if e.Presence.TS >= rec.State.Since.UnixMilli() || now.Sub(rec.State.Since) > certain {
		a.send(Event{Kind: EventSeen, Run: rec.State.Runs})
	}
}
