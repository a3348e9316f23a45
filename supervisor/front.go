package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// attach makes a face the one that the keeper speaks through, until detach, which tells whether another one is left.
func (k *Keeper) attach(f *face) (detach func() (left int)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faces = append(k.faces, f)
	close(k.newFace)
	k.newFace = make(chan struct{})
	return func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.faces = slices.DeleteFunc(slices.Clone(k.faces), func(o *face) bool { return o == f })
		return len(k.faces)
	}
}

// face returns the newest face, nil for none, and what is closed when another comes.
func (k *Keeper) face() (*face, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.faces) == 0 {
		return nil, k.newFace
	}
	return k.faces[len(k.faces)-1], k.newFace
}

// askTimeout bounds a question to the authority.
const askTimeout = 20 * time.Second

// ask calls a command of the authority, over whatever connection there is. Without one it waits for one.
//
// Errors: unavailable when there was none in time; those of the authority.
func (k *Keeper) ask(ctx context.Context, command string, args, out any) error {
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for {
		f, another := k.face()
		if f != nil {
			return k.askOne(ctx, f, command, args, out)
		}
		select {
		case <-another:
		case <-limited.Done():
			return wire.Errorf(wire.CodeUnavailable, "ask the authority %q: there is no connection to the space", command)
		}
	}
}

// maxAsks bounds the questions to the authority at a time, so that many agents that end at once do not crowd it.
const maxAsks = 24

func (k *Keeper) askOne(ctx context.Context, f *face, command string, args, out any) error {
	select {
	case k.asks <- struct{}{}:
		defer func() { <-k.asks }()
	case <-ctx.Done():
		return wire.Errorf(wire.CodeUnavailable, "ask the authority %q: it is busy with other questions of this supervisor", command)
	}
	return f.ask(ctx, command, args, out)
}

// publish tells the newest face what an agent is now.
func (k *Keeper) publish(a *agent) {
	if f, _ := k.face(); f != nil {
		f.tell(k.status(a, true))
	}
}

// standing is what the authority said stands, a moment ago.
type standing struct {
	at     time.Time
	grants []wire.ManagedGrant
}

// standingGrants returns the managed grants of the space, at most as old as age. The list must not be changed.
func (k *Keeper) standingGrants(ctx context.Context, age time.Duration) ([]wire.ManagedGrant, error) {
	k.mu.Lock()
	have := k.standing
	k.mu.Unlock()
	if !have.at.IsZero() && time.Since(have.at) < age {
		return have.grants, nil
	}
	at := time.Now()
	var all []wire.ManagedGrant
	for after := ""; ; {
		var page wire.AgentGrantsReply
		if err := k.ask(ctx, wire.CommandAgentGrants, wire.AgentGrantsRequest{After: after}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Agents...)
		if !page.More || len(page.Agents) == 0 {
			break
		}
		after = page.Agents[len(page.Agents)-1].Principal
	}
	k.mu.Lock()
	if at.After(k.standing.at) {
		k.standing = standing{at, all}
	}
	k.mu.Unlock()
	return all, nil
}

// freshEnough is how old a list of grants may be that decides about a moment.
const freshEnough = time.Second

// live counts the agents here that were started under a life, by it or by those that it started, and have not ended.
func (k *Keeper) live(u wire.UID) int {
	return len(k.where(func(r *record) bool { return r.below(u) && !r.State.over() }))
}

// heldElsewhere counts the agents of other supervisors that were started under a life and hold rights of it.
func (k *Keeper) heldElsewhere(ctx context.Context, u wire.UID) (int, error) {
	if len(k.otherPeers()) == 0 {
		return 0, nil // their keepers are no more, or will find them retired with it
	}
	grants, err := k.standingGrants(ctx, freshEnough)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, g := range grants {
		if g.ParentUID == u && k.find(g.UID) == nil {
			n++
		}
	}
	return n, nil
}

// parentEnded ends the agents that were to end with a life. One that has ended by itself is not started again.
func (k *Keeper) parentEnded(u wire.UID) {
	for _, a := range k.where(func(r *record) bool { return r.ParentUID == u && r.WithParent && r.State.Goal != GoalEnd }) {
		a.send(Event{Kind: EventStop, Reason: "it was to end with the one that started it"})
	}
}

// lingerTimes is how many times as many agents as may run may linger, of one parent and in all.
const lingerTimes = 4

// lingers is told when an agent begins to linger. A parent that waits to be retired may wait for nothing else; and of too many that
// linger, those that ended first are retired.
func (k *Keeper) lingers(a *agent) {
	if parent := k.find(a.parent); parent != nil {
		parent.send(Event{Kind: EventNudge})
	}
	if a.parent != "" {
		k.thin(lingerTimes*k.opts.MaxChildren, func(r *record) bool { return r.ParentUID == a.parent })
	}
	k.thin(lingerTimes*k.opts.MaxAgents, func(*record) bool { return true })
}

// thin lets no more than most of those linger.
func (k *Keeper) thin(most int, among func(*record) bool) {
	since := map[wire.UID]time.Time{}
	all := k.where(func(r *record) bool {
		ok := r.State.lingers() && among(r)
		if ok {
			since[r.UID] = r.State.Since
		}
		return ok
	})
	if len(all) <= most {
		return
	}
	slices.SortFunc(all, func(a, b *agent) int { return since[a.uid].Compare(since[b.uid]) })
	for _, a := range all[:len(all)-most] {
		a.endLinger()
	}
}

// settled lets go of the name of an agent that is retired, and of who waited for that.
func (k *Keeper) settled(a *agent) {
	rec := a.snapshot()
	k.mu.Lock()
	if k.names[rec.principal()] == a {
		delete(k.names, rec.principal())
	}
	k.mu.Unlock()
	if parent := k.find(rec.ParentUID); parent != nil {
		parent.send(Event{Kind: EventNudge})
	}
}

// label marks the grants of one spawn.
func (k *Keeper) label() string { return k.instance + ":" + wire.NewID() }

// sweepGrants retires the grants that were made for this keeper and that no agent has: the answer was lost with the keeper before.
// Those whose folders could not be read keep theirs: they may run. It also ends agents whose grants stand no more, since they or somebody
// above them were revoked, and those that were to end with a parent whose life is over elsewhere.
func (k *Keeper) sweepGrants(ctx context.Context) error {
	grants, err := k.standingGrants(ctx, 0)
	if err != nil {
		return err
	}
	stand := map[wire.UID]bool{}
	var left []wire.ManagedGrant
	k.spawnMu.Lock()
	for _, g := range grants {
		stand[g.UID] = true
		_, under := k.places[g.Label]
		if strings.HasPrefix(g.Label, k.instance+":") && !under && k.find(g.UID) == nil && !k.unreadable(g.UID) {
			left = append(left, g)
		}
	}
	k.spawnMu.Unlock()
	var all []error
	for _, g := range left {
		k.log.WarnContext(ctx, "grant that nobody holds is retired", logkey.Principal, g.Principal, logkey.UID, string(g.UID))
		all = append(all, k.ask(ctx, wire.CommandAgentRetire, wire.AgentRequest{Principal: g.Principal, UID: g.UID}, nil))
	}
	asked := time.Now()
	for _, a := range k.where(func(r *record) bool {
		return r.WithParent && !ended(r.State) && !stand[r.ParentUID] && asked.Sub(r.Created) > sweepEvery
	}) {
		if k.find(a.parent) == nil {
			a.send(Event{Kind: EventStop, Reason: "it was to end with the one that started it"})
		}
	}
	return errors.Join(append(all, k.endRevoked(ctx, stand))...)
}

// endRevoked ends the agents whose grants do not stand, which two lists must say.
func (k *Keeper) endRevoked(ctx context.Context, stand map[wire.UID]bool) error {
	revoked := func() []*agent {
		return k.where(func(r *record) bool {
			return (r.State.Grant == GrantHeld || r.State.Grant == GrantSuspended) && r.State.Goal != GoalEnd && !stand[r.UID]
		})
	}
	first := revoked() // one that was granted after the list was made is in the next
	if len(first) == 0 {
		return nil
	}
	grants, err := k.standingGrants(ctx, 0)
	if err != nil {
		return err
	}
	clear(stand)
	for _, g := range grants {
		stand[g.UID] = true
	}
	for _, a := range revoked() {
		if slices.Contains(first, a) {
			k.log.InfoContext(ctx, "agent whose grant was revoked is ended", logkey.UID, string(a.uid))
			a.send(Event{Kind: EventStop, Reason: "its grant was revoked"})
		}
	}
	return nil
}

// cutOff reports whether an agent has gone from the space within the last moments though its process runs, as after a revocation.
func (k *Keeper) cutOff(now time.Time) bool {
	return len(k.where(func(r *record) bool { // k.mu is held
		e, ok := k.seen[r.principal()]
		return ok && !k.stale && e.Presence.LifecycleUID == r.UID && e.Presence.Status == wire.StatusOffline &&
			r.State.Process == wire.ProcessRunning && now.Sub(time.UnixMilli(e.GoneMS)) < cutOffFor
	})) > 0
}

// cutOffFor is for how long an agent that has gone is worth another look at the grants.
const cutOffFor = 30 * time.Second

// Unreadable are the lives whose folders are there and could not be read when the keeper began, in order. Their processes may run. A
// folder that somebody takes away is none any more; one that is mended is read by the next keeper.
func (k *Keeper) Unreadable() []wire.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	for u := range k.unread {
		if _, err := os.Lstat(filepath.Join(k.opts.Dir, string(u))); errors.Is(err, fs.ErrNotExist) {
			delete(k.unread, u)
		}
	}
	return slices.Sorted(maps.Keys(k.unread))
}

// unreadable reports whether the folder of a life is there and could not be read.
func (k *Keeper) unreadable(uid wire.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unread[uid]
}
