package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/wire"
)

// Keeper owns the agents of one space on one host. It lives as long as its process; credentials and connections come and go below
// it, see [Service]. Make one with [NewKeeper]; it runs once. All methods are safe for concurrent use.
type Keeper struct {
	space    wire.Space
	opts     Options
	instance string
	log      *slog.Logger
	ready    chan struct{} // the agents of before are known
	stopped  chan struct{} // closed when Run takes no more work
	work     chan func(context.Context)
	starts   chan struct{} // a place for each start under way
	asks     chan struct{} // and for each question to the authority
	relay    *relay.Relay
	counts   counters
	ender    SeatsEnder // nil when the seats are none
	project  string     // that the host named; empty when the folder of the process stands for one

	// spawnMu guards places, and is taken before mu.
	spawnMu sync.Mutex
	places  map[string]place // of what is being started, by label

	saving sync.Mutex // of the file of peers; taken before mu

	// mu guards what follows. It is taken before that of an agent.
	mu       sync.Mutex
	agents   map[wire.UID]*agent
	names    map[wire.Principal]*agent // who holds a name, until it is retired
	reserved map[wire.Principal]bool   // names that a spawn is about to take
	requests map[requestKey]*spawning
	faces    []*face // newest last
	newFace  chan struct{}
	peers    map[string]wire.ManagerPeer
	seen     map[wire.Principal]wire.RosterEntry
	stale    bool // what is seen may be old
	standing standing
	unread   map[wire.UID]bool // whose folders could not be read: their processes may run
	drains   int               // how often agents were to be taken no more: a spawn from before is refused
	held     time.Time         // until when none are taken
}

// requestKey is what makes two spawns the same.
type requestKey struct{ asked, id string }

// face is a service over the keeper, as the keeper sees it.
type face struct {
	// ask calls a command of the authority.
	ask func(ctx context.Context, command string, args, out any) error
	// tell is told what changed, and must not wait.
	tell func(wire.AgentStatus)
}

// counters is Stats while it changes.
type counters struct{ spawned, started, ended, lost, restarted, retired, adopted, swept atomic.Int64 }

// Stats counts what a keeper has and did since it began.
type Stats struct {
	Agents    map[string]int `json:"agents"` // by state
	Spawned   int64          `json:"spawned"`
	Started   int64          `json:"started"` // processes
	Ended     int64          `json:"ended"`   // processes, asked for or not
	Lost      int64          `json:"lost"`    // among them those that nobody saw end
	Restarted int64          `json:"restarted"`
	Retired   int64          `json:"retired"`
	Adopted   int64          `json:"adopted"` // processes found running
	Swept     int64          `json:"swept"`   // processes that lost seats had left
	Starting  int            `json:"starting"`
}

// NewKeeper reads who it is and makes the folder of its state. The agents are looked at when it runs.
//
// Errors: bad-request for options that cannot be; failed-precondition for a folder that cannot be used.
func NewKeeper(space wire.Space, opts *Options) (*Keeper, error) {
	o, err := opts.withDefaults()
	if err == nil {
		err = space.Validate()
	}
	if err == nil && !filepath.IsAbs(o.Dir) {
		err = wire.Errorf(wire.CodeBadRequest, "options: Dir %q is not absolute", o.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make keeper: %w", err)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "make keeper: create %q: %v", o.Dir, fserr.Cause(err))
	}
	instance, err := ownInstance(o.Dir)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "make keeper: %v", err)
	}
	ender, _ := o.Seats.(SeatsEnder)
	return &Keeper{
		space: space, ender: ender, opts: o, project: opts.Project, instance: instance, log: o.Logger.With(logkey.Space, string(space)),
		ready: make(chan struct{}), stopped: make(chan struct{}), work: make(chan func(context.Context)),
		starts: make(chan struct{}, o.MaxStarts), asks: make(chan struct{}, maxAsks),
		relay:  relay.New(nil, space, instance, &relay.Options{Logger: o.Logger}),
		agents: map[wire.UID]*agent{}, unread: map[wire.UID]bool{}, names: map[wire.Principal]*agent{}, reserved: map[wire.Principal]bool{},
		places: map[string]place{}, requests: map[requestKey]*spawning{}, newFace: make(chan struct{}),
		peers: map[string]wire.ManagerPeer{}, seen: map[wire.Principal]wire.RosterEntry{}, stale: true,
	}, nil
}

// Instance is the name under which the agents of this keeper are reached. It is the same after a restart.
func (k *Keeper) Instance() string { return k.instance }

// Ready is closed once the agents of before are known: adopted, or on their way to be started again.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Run keeps the agents until ctx ends, and returns nil when all that it started has stopped. The agents go on: the next keeper of the
// folder adopts them.
//
// Errors: failed-precondition when another process keeps the folder, or it cannot be read.
func (k *Keeper) Run(ctx context.Context) error {
	unlock, err := lockDir(k.opts.Dir)
	if err != nil {
		return fmt.Errorf("run keeper: %w", err)
	}
	defer unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(k.stopped)
	k.loadPeers()
	known, err := k.load()
	if err != nil {
		return fmt.Errorf("run keeper: %w", err)
	}
	for _, a := range known {
		wg.Go(func() { a.run(ctx) })
	}
	wg.Go(func() { k.housekeep(ctx) })
	wg.Go(func() { k.follow(ctx) })
	wg.Go(func() { _ = k.relay.Run(ctx) }) // returns nil
	close(k.ready)
	k.log.InfoContext(ctx, "keeper runs", logkey.Instance, k.instance, logkey.Count, len(known))
	for {
		select {
		case f := <-k.work:
			wg.Go(func() { f(ctx) })
		case <-ctx.Done():
			return nil
		}
	}
}

// begin runs f under Run, and reports whether it does.
func (k *Keeper) begin(f func(context.Context)) bool {
	select {
	case k.work <- f:
		return true
	case <-k.stopped:
		return false
	}
}

// load reads what the keeper before has left.
func (k *Keeper) load() ([]*agent, error) {
	entries, err := os.ReadDir(k.opts.Dir)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read %q: %v", k.opts.Dir, fserr.Cause(err))
	}
	var all []*agent
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range entries {
		if !e.IsDir() || wire.UID(e.Name()).Validate() != nil {
			continue
		}
		dir := filepath.Join(k.opts.Dir, e.Name())
		rec, err := readRecord(dir)
		switch {
		case errors.Is(err, wire.ErrNotFound) && !hasSeats(dir): // it was made and not used: the grant, if there is one, is retired as nobody's
			_ = os.RemoveAll(dir)
			continue
		case err != nil:
			k.unread[wire.UID(e.Name())] = true
			k.log.Error("agent not read; its folder is left as it is", logkey.UID, e.Name(), logkey.Error, err)
			continue
		}
		k.relocate(&rec.Plan)
		a := newAgent(k, dir, rec)
		k.agents[rec.UID] = a
		key := requestKey{rec.Asked, rec.RequestID}
		if s := k.requests[key]; s == nil || s.agent.rec.Created.Before(rec.Created) {
			k.requests[key] = madeBefore(a)
		}
		if !rec.settled() {
			k.names[rec.principal()] = a
			all = append(all, a)
		}
	}
	return all, nil
}

// find returns the agent of a life.
func (k *Keeper) find(u wire.UID) *agent {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.agents[u]
}

// all returns the agents, oldest first.
func (k *Keeper) all() []*agent {
	out := k.where(func(*record) bool { return true })
	slices.SortFunc(out, func(a, b *agent) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(string(a.uid), string(b.uid))
	})
	return out
}

// where returns the agents for which ok says so, in no order. Ok must not keep the record, nor ask the keeper.
func (k *Keeper) where(ok func(*record) bool) []*agent {
	var out []*agent
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.agents {
		a.mu.Lock()
		if ok(&a.rec) {
			out = append(out, a)
		}
		a.mu.Unlock()
	}
	return out
}

// Stats returns the counters.
func (k *Keeper) Stats() Stats {
	c := &k.counts
	s := Stats{
		Agents: map[string]int{}, Spawned: c.spawned.Load(), Started: c.started.Load(), Ended: c.ended.Load(), Lost: c.lost.Load(),
		Restarted: c.restarted.Load(), Retired: c.retired.Load(), Adopted: c.adopted.Load(), Swept: c.swept.Load(), Starting: len(k.starts),
	}
	for _, a := range k.all() {
		s.Agents[a.snapshot().State.Phase]++
	}
	return s
}

// housekeep forgets what is long over and looks for what was left undone.
func (k *Keeper) housekeep(ctx context.Context) {
	look := time.NewTicker(10 * time.Second)
	defer look.Stop()
	sweep := time.NewTimer(0) // the first as soon as there is somebody to ask
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			k.forget(time.Now())
			k.lookAgain(time.Now())
			if k.cutOff(time.Now()) {
				sweep.Reset(0)
			}
		case <-sweep.C:
			if err := k.sweepGrants(ctx); err != nil && ctx.Err() == nil {
				k.log.WarnContext(ctx, "grants of before not looked at", logkey.Error, err)
			}
			k.releasePeers(ctx)
			k.keepPeers()
			sweep.Reset(sweepEvery)
		}
	}
}

// sweepEvery is how often the standing grants are compared with the agents; sooner when one that was in the space has gone.
const sweepEvery = time.Minute

// forget removes the records of agents that are long gone, and those that are too many.
func (k *Keeper) forget(now time.Time) {
	gone := slices.DeleteFunc(k.all(), func(a *agent) bool { r := a.snapshot(); return !r.settled() })
	for i, a := range gone {
		rec := a.snapshot()
		if len(gone)-i <= k.opts.MaxEnded && now.Sub(rec.State.Since) < k.opts.KeepEnded {
			continue
		}
		if err := os.RemoveAll(a.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			k.log.Warn("folder of agent not removed", logkey.UID, string(a.uid), logkey.Error, fserr.Cause(err))
			continue
		}
		k.mu.Lock()
		delete(k.agents, a.uid)
		key := requestKey{rec.Asked, rec.RequestID}
		if s := k.requests[key]; s != nil && s.agent == a {
			delete(k.requests, key)
		}
		k.mu.Unlock()
	}
}
