package exchange

import (
	"container/list"
	"sync"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// span is how long an event counts, in ticks of a second. An event counts until its tick has wholly passed, so that no 60
// seconds hold more than the limit.
const span = 60

// window counts what happened in the last span.
type window struct {
	slots [span + 1]uint16
	sum   int
	now   int64
}

func (w *window) advance(tick int64) {
	for steps := min(tick-w.now, int64(len(w.slots))); steps > 0; steps-- {
		i := (tick - steps + 1) % int64(len(w.slots))
		w.sum -= int(w.slots[i])
		w.slots[i] = 0
	}
	w.now = max(w.now, tick)
}

func (w *window) add(tick int64) {
	w.advance(tick)
	w.slots[w.now%int64(len(w.slots))]++
	w.sum++
}

// take counts one event, or returns how many seconds to wait and counts nothing.
func (w *window) take(tick int64, limit int) (wait int) {
	if wait = w.wait(tick, limit); wait == 0 {
		w.add(tick)
	}
	return wait
}

// wait returns in how many seconds there is room below the limit again, 0 for at once.
func (w *window) wait(tick int64, limit int) int {
	w.advance(tick)
	left := w.sum
	for age := span; age >= 0 && left >= limit; age-- {
		left -= int(w.slots[(w.now-int64(age)+2*int64(len(w.slots)))%int64(len(w.slots))])
		if left < limit {
			return span + 1 - age
		}
	}
	return 0
}

// table keeps one window per key, of a bounded number of keys. A key with something to count is never dropped for another,
// so nobody gets rid of a history by coming from elsewhere: who finds no room shares one window with the others.
type table struct {
	limit, room int
	keys        map[string]*list.Element
	order       *list.List // of *counted, the one that was added to longest ago in front
	rest        window
}

type counted struct {
	key string
	window
}

func newTable(limit, room int) *table {
	return &table{limit: limit, room: room, keys: map[string]*list.Element{}, order: list.New()}
}

// wait returns in how many seconds a key has room below the limit, and makes nothing.
func (t *table) wait(key string, tick int64) int {
	switch e := t.keys[key]; {
	case e != nil:
		return e.Value.(*counted).wait(tick, t.limit)
	case t.full(tick):
		return t.rest.wait(tick, t.limit)
	}
	return 0
}

func (t *table) add(key string, tick int64) {
	e := t.keys[key]
	switch {
	case e != nil:
		t.order.MoveToBack(e)
	case t.full(tick):
		t.rest.add(tick)
		return
	default:
		if len(t.keys) >= t.room {
			delete(t.keys, t.order.Remove(t.order.Front()).(*counted).key)
		}
		e = t.order.PushBack(&counted{key: key})
		t.keys[key] = e
	}
	e.Value.(*counted).add(tick)
}

// full reports whether no key can be taken in: the one that was added to longest ago still counts, so all do.
func (t *table) full(tick int64) bool {
	if len(t.keys) < t.room {
		return false
	}
	oldest := t.order.Front().Value.(*counted)
	oldest.advance(tick)
	return oldest.sum > 0
}

// take counts one event of a key, or returns how many seconds to wait and counts nothing.
func (t *table) take(key string, tick int64) (wait int) {
	if wait = t.wait(key, tick); wait == 0 {
		t.add(key, tick)
	}
	return wait
}

// limiter holds every allowance of a server.
type limiter struct {
	start time.Time

	mu             sync.Mutex // guards the rest
	owners, actors *table
	refusals       map[Face]*table
	reads          map[Face]*table
	capabilities   window
	warnings       window
	badCaps        int
}

// maxWarnings bounds how often a minute says in the log that something cannot be asked.
const maxWarnings = 10

func newLimiter(l Limits) *limiter {
	return &limiter{
		start:  time.Now(),
		owners: newTable(l.PerOwner, l.Principals), actors: newTable(l.PerActor, l.Principals),
		refusals: map[Face]*table{Loopback: newTable(l.Refusals, l.Peers), Public: newTable(l.Refusals, l.Peers)},
		reads:    map[Face]*table{Loopback: newTable(l.Reads, l.Peers), Public: newTable(l.Reads, l.Peers)},
		badCaps:  l.BadCapabilities,
	}
}

// tick is by the monotonic clock: setting the clock of the machine gives nobody a new allowance.
func (l *limiter) tick() int64 { return int64(time.Since(l.start) / time.Second) }

func (l *limiter) refuse(f Face, peer string) (wait int) { return l.takeOf(l.refusals[f], peer) }

func (l *limiter) read(f Face, peer string) (wait int) { return l.takeOf(l.reads[f], peer) }

func (l *limiter) takeOf(t *table, key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.take(key, l.tick())
}

func (l *limiter) badCapability() (wait int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.capabilities.take(l.tick(), l.badCaps)
}

// loud reports whether the log may be told once more that something cannot be asked.
func (l *limiter) loud() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.warnings.take(l.tick(), maxWarnings) == 0
}

// owner looks whether an owner may have one more bearer, and counts nothing.
func (l *limiter) owner(owner string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.owners.wait(owner, l.tick()); wait > 0 {
		return tooMany("owner", l.owners.limit, wait)
	}
	return nil
}

// room says which limit is in the way of one more bearer of a principal, and counts nothing.
func (l *limiter) room(kind Kind, p wire.Principal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full(kind, p, l.tick())
}

// account is where an owner's bearers are counted. Those of agents have one of their own: agents that ask too often do not keep their
// person out.
func account(kind Kind, owner string) string {
	if kind == KindAgent {
		return "agents of " + owner
	}
	return owner
}

// full is room for who holds mu.
func (l *limiter) full(kind Kind, p wire.Principal, tick int64) error {
	if wait := l.owners.wait(account(kind, p.Owner), tick); wait > 0 {
		return tooMany("owner", l.owners.limit, wait)
	}
	if wait := l.actors.wait(p.String(), tick); wait > 0 {
		return tooMany("actor", l.actors.limit, wait)
	}
	return nil
}

// bearer counts one bearer of a principal, or says which limit is in the way and counts nothing.
func (l *limiter) bearer(kind Kind, p wire.Principal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	tick := l.tick()
	if err := l.full(kind, p, tick); err != nil {
		return err
	}
	l.owners.add(account(kind, p.Owner), tick)
	l.actors.add(p.String(), tick)
	return nil
}
