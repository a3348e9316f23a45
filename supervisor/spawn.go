package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// Caller is who asks something of a keeper, as the broker vouches for it.
type Caller struct {
	// Life is who asks.
	Life wire.Lifecycle
	// Mode is how far it reaches: none and self reach what was started under it and itself, owner all of its owner, any everything.
	Mode wire.Mode
	// Owner is whom a spawn with mode any is for; empty for the local owner.
	Owner string
}

// spawning is one spawn, under way or done.
type spawning struct {
	digest string
	drains int // of the keeper when it began
	done   chan struct{}
	agent  *agent // set before done is closed, nil when it failed with err
	err    error
}

// madeBefore is a spawn of an earlier keeper.
func madeBefore(a *agent) *spawning {
	s := &spawning{digest: a.rec.Digest, done: make(chan struct{}), agent: a}
	close(s.done)
	return s
}

// spawnTimeout bounds what a spawn does before the agent is accepted. It goes on when its caller has given up, who may then ask with
// the same request id.
const spawnTimeout = 2 * time.Minute

// Spawn accepts an agent: it has a name, a life and a grant then, and is being started. The same request id of the same caller again is
// answered with what the first one made, also after a restart of the keeper.
//
// Errors: bad-request; not-found for the persona, the connector or its program; already-exists for an explicit name that is in use;
// conflict for a request id that was used for something else; resource-exhausted over a ceiling, with "used" and "allowed";
// permission-denied, of the authority; failed-precondition when no seat can be started; unavailable when nobody could be asked or no agents
// are taken, see [Keeper.Drain], with nothing made; deadline-exceeded with outcome
// unknown when ctx ends first.
func (k *Keeper) Spawn(ctx context.Context, by Caller, req wire.SpawnRequest) (wire.SpawnReply, error) {
	if err := checkSpawn(req); err != nil {
		return wire.SpawnReply{}, err
	}
	select {
	case <-k.ready:
	case <-ctx.Done():
		return wire.SpawnReply{}, wire.Errorf(wire.CodeUnavailable, "spawn: the supervisor is still looking at the agents of before")
	}
	s, mine, err := k.spawning(by, req)
	if err != nil {
		return wire.SpawnReply{}, err
	}
	if mine && !k.begin(func(run context.Context) { k.spawn(run, by, req, s) }) {
		k.finish(by, req, s, nil, wire.Errorf(wire.CodeUnavailable, "spawn: the supervisor stops"))
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		e := wire.Errorf(wire.CodeDeadlineExceeded, "spawn: not accepted yet; ask again with the same request id %q", req.RequestID)
		e.Details = map[string]any{"requestId": req.RequestID}
		return wire.SpawnReply{}, e
	}
	if s.err != nil {
		return wire.SpawnReply{}, s.err
	}
	return wire.SpawnReply{Agent: k.status(s.agent, true), Renamed: s.agent.snapshot().Renamed, Repeated: !mine}, nil
}

// spawning returns the spawn of a request, and whether the caller has to carry it out.
func (k *Keeper) spawning(by Caller, req wire.SpawnRequest) (s *spawning, mine bool, err error) {
	data, err := json.Marshal(req)
	if err != nil {
		return nil, false, wire.Errorf(wire.CodeBadRequest, "spawn: %v", err)
	}
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	key := requestKey{by.Life.String(), req.RequestID}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s = k.requests[key]; s != nil {
		if s.digest != digest {
			return nil, false, wire.Errorf(wire.CodeConflict, "spawn: request id %q was used for another agent", req.RequestID)
		}
		return s, false, nil
	}
	if err := k.takes("spawn", k.drains); err != nil {
		return nil, false, err
	}
	s = &spawning{digest: digest, drains: k.drains, done: make(chan struct{})}
	k.requests[key] = s
	return s, true, nil
}

// finish ends a spawn. A refused one is forgotten, so that the same request may be tried again.
func (k *Keeper) finish(by Caller, req wire.SpawnRequest, s *spawning, a *agent, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.agent, s.err = a, err
	if err != nil {
		delete(k.requests, requestKey{by.Life.String(), req.RequestID})
	}
	close(s.done)
}

// spawn carries a spawn out, and then is the goroutine of the agent.
func (k *Keeper) spawn(run context.Context, by Caller, req wire.SpawnRequest, s *spawning) {
	ctx, cancel := context.WithTimeout(run, spawnTimeout)
	a, err := k.make(ctx, by, req, s)
	cancel()
	if err != nil && run.Err() != nil {
		err = wire.Errorf(wire.CodeUnavailable, "spawn: the supervisor stops")
	}
	k.finish(by, req, s, a, err)
	if err != nil {
		k.log.InfoContext(run, "spawn refused", logkey.Principal, by.Life.Principal.String(), logkey.RequestID, req.RequestID, logkey.Error, err)
		return
	}
	k.counts.spawned.Add(1)
	k.log.InfoContext(run, "agent accepted", logkey.Principal, a.life().Principal.String(), logkey.UID, string(a.uid), logkey.RequestID, req.RequestID)
	a.run(run)
}

// make takes everything that a spawn needs, in the order in which it is undone most easily: nothing is granted before the host is
// known to take what it is asked, and nothing is started before the grant is on disk.
func (k *Keeper) make(ctx context.Context, by Caller, req wire.SpawnRequest, s *spawning) (*agent, error) {
	p, fixed, mode, err := k.plan(req)
	if err != nil {
		return nil, err
	}
	if err := k.seatable(); err != nil {
		return nil, err
	}
	l, err := k.prepare(ctx, filepath.Join(k.opts.Dir, string(wire.NewUID())), p)
	if err != nil {
		return nil, err
	}
	p.Uses, p.Wakes = l.Model, l.Wakes
	line, err := k.lineage(ctx, by, req.WithParent)
	if err != nil {
		return nil, err
	}
	rec := &record{
		V: recordVersion, Label: k.label(), Asked: by.Life.String(), RequestID: req.RequestID, Digest: s.digest,
		Parent: line.parent, ParentUID: line.uid, Lineage: line.lives, Depth: line.depth, WithParent: req.WithParent,
		Plan: *p, Created: time.Now().UTC(),
		Rules: Rules{Policy: DefaultPolicy(mode), Joins: l.Joins, Linger: k.opts.Linger},
		State: State{Goal: GoalRun, Process: wire.ProcessNone, Grant: GrantHeld},
	}
	release, err := k.reserve(rec, "spawn")
	if err != nil {
		return nil, err
	}
	defer release()
	m, err := k.grant(ctx, by, rec, fixed, line.owner)
	if err != nil {
		return nil, err
	}
	defer k.unname(wire.Principal{Owner: line.owner, Actor: rec.Plan.Name})
	return k.enter(ctx, rec, m, s.drains)
}

// enter makes a granted agent one of the keeper's: from here on it is on disk.
func (k *Keeper) enter(ctx context.Context, rec *record, m *material, drains int) (*agent, error) {
	rec.UID, rec.Principal = m.cred.UID, m.cred.Principal
	dir := filepath.Join(k.opts.Dir, string(rec.UID))
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = saveRecord(dir, rec)
	}
	if err != nil {
		err = wire.Errorf(wire.CodeUnavailable, "spawn: keep the agent in %q: %v", dir, fserr.Cause(err))
	} else {
		a := newAgent(k, dir, rec)
		a.fresh = m
		if err = k.admit(a, drains); err == nil {
			return a, nil
		}
	}
	_ = os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	undone := k.ask(ctx, wire.CommandAgentRetire, wire.AgentRequest{Principal: rec.Principal, UID: rec.UID}, nil)
	if undone != nil { // sweepGrants finds it
		k.log.Warn("grant of a spawn that failed is not retired yet", logkey.Principal, rec.Principal, logkey.Error, undone)
	}
	return nil, err
}

// admit makes an agent known, unless the one that starts it, or all, were made to end meanwhile: who ended those has not seen this one.
func (k *Keeper) admit(a *agent, drains int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.takes("spawn", drains); err != nil {
		return err
	}
	if parent := k.agents[a.parent]; parent != nil {
		if err := mayStart(parent.snapshot()); err != nil {
			return err
		}
	}
	k.agents[a.uid] = a
	k.names[a.rec.principal()] = a
	return nil
}

// mayStart refuses agents of one that has ended or is made to end.
func mayStart(parent record) error {
	if !ended(parent.State) {
		return nil
	}
	e := wire.Errorf(wire.CodeFailedPrecondition, "spawn: %q has ended or is ending", parent.Principal)
	e.Outcome = wire.OutcomeNotExecuted
	return e
}

// lineage is whom an agent is started under.
type lineage struct {
	owner, parent string
	uid           wire.UID
	lives         []wire.UID
	depth         int // how many of them are agents
}

// lineage says whom an agent is started under: nobody when an operator starts it, else the caller and those above it.
func (k *Keeper) lineage(ctx context.Context, by Caller, with bool) (lineage, error) {
	if by.Mode == wire.ModeAny {
		if with {
			return lineage{}, wire.Errorf(wire.CodeBadRequest, "spawn: an operator starts it under nobody, so it cannot end with its parent")
		}
		owner := by.Owner
		setDefault(&owner, wire.LocalOwner)
		return lineage{owner: owner}, nil
	}
	out := lineage{owner: by.Life.Owner, parent: by.Life.Principal.String(), uid: by.Life.UID, lives: []wire.UID{by.Life.UID}}
	if a := k.find(by.Life.UID); a != nil {
		rec := a.snapshot()
		if err := mayStart(rec); err != nil {
			return lineage{}, err
		}
		out.lives, out.depth = append(out.lives, rec.Lineage...), rec.Depth+1
		return out, nil
	}
	grants, err := k.standingGrants(ctx, freshEnough)
	if err != nil {
		return lineage{}, err
	}
	byUID := make(map[wire.UID]*wire.ManagedGrant, len(grants))
	for i := range grants {
		byUID[grants[i].UID] = &grants[i]
	}
	for g := byUID[out.uid]; g != nil && out.depth <= len(grants); g = byUID[g.ParentUID] {
		out.depth++
		if g.ParentUID != "" {
			out.lives = append(out.lives, g.ParentUID)
		}
	}
	if with && out.depth == 0 {
		return lineage{}, wire.Errorf(wire.CodeFailedPrecondition, "spawn: %q is no agent of a supervisor, so nothing tells when it ends", out.parent)
	}
	return out, nil
}

// reserve holds a place below the ceilings until release, by when the agent runs itself. One that has not ended has its place already,
// and only keeps it. Doing says what it is for.
//
// Errors: resource-exhausted.
func (k *Keeper) reserve(rec *record, doing string) (release func(), err error) {
	if rec.Depth > k.opts.MaxDepth {
		return nil, exhausted(doing, rec.Depth, k.opts.MaxDepth, "agents started by agents, one below the other")
	}
	k.spawnMu.Lock()
	defer k.spawnMu.Unlock()
	used := map[string]wire.UID{} // parents by label, in which an agent that holds a place and runs counts once
	for label, p := range k.places {
		used[label] = p.parent
	}
	k.where(func(r *record) bool {
		if !r.State.over() {
			used[r.Label] = r.ParentUID
		}
		return false
	})
	if _, has := used[rec.Label]; !has {
		if n := len(used); n >= k.opts.MaxAgents {
			return nil, exhausted(doing, n, k.opts.MaxAgents, "agents of this supervisor")
		}
		n := 0
		for _, parent := range used {
			if parent == rec.ParentUID {
				n++
			}
		}
		if rec.ParentUID != "" && n >= k.opts.MaxChildren {
			return nil, exhausted(doing, n, k.opts.MaxChildren, fmt.Sprintf("agents of %q", rec.Parent))
		}
	}
	p := k.places[rec.Label]
	k.places[rec.Label] = place{rec.ParentUID, p.holders + 1}
	return func() { k.release(rec.Label) }, nil
}

// place is one below the ceilings that is held for an agent.
type place struct {
	parent  wire.UID
	holders int // requests that hold it
}

func (k *Keeper) release(label string) {
	k.spawnMu.Lock()
	defer k.spawnMu.Unlock()
	p := k.places[label]
	if p.holders--; p.holders > 0 {
		k.places[label] = p
		return
	}
	delete(k.places, label)
}

func exhausted(doing string, used, allowed int, what string) error {
	e := wire.Errorf(wire.CodeResourceExhausted, "%s: %d %s, at most %d; stop one first", doing, used, what, allowed)
	e.Outcome = wire.OutcomeNotExecuted
	e.Details = map[string]any{"used": used, "allowed": allowed}
	return e
}

// taken is the error of a name that is in use.
func taken(p wire.Principal, why string) error {
	e := wire.Errorf(wire.CodeAlreadyExists, "spawn: the name %q is in use: %s", p.Actor, why)
	e.Outcome = wire.OutcomeNotExecuted
	e.Details = map[string]any{"principal": p.String()}
	return e
}
