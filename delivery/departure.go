package delivery

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// Timing of departures. A killed process is told gone after the first two and a listing: well within a second.
const (
	// settle is how long after the last end of a connection the connections are listed. A client that lost its
	// connection makes the next one within that, and many that end together are looked at together.
	settle = 150 * time.Millisecond
	// settleMost bounds that when connections go on ending.
	settleMost = 450 * time.Millisecond
	// lookAgain is the pause after a listing that failed.
	lookAgain = 500 * time.Millisecond
	// inFlight is how long a heartbeat may be under way. One that comes sooner after the end of its sender's last connection may
	// be from before, and revives nobody until a new connection is told.
	inFlight = time.Second
)

// departures is whose connections ended and who of them is to be looked at. It does no input or output and reads no
// clock.
type departures struct {
	waiting     map[wire.Lifecycle]*departure
	first, last time.Time // end of a connection of those that wait
	asked       map[wire.Lifecycle]*departure
	listing     bool // connections are being listed, to judge those asked about
}

// departure is the end of connections of one life.
type departure struct {
	at    time.Time       // the last of them was told
	ended map[string]bool // their ids
	back  bool            // a connection began after the listing was asked for
}

func newDepartures() *departures { return &departures{waiting: map[wire.Lifecycle]*departure{}} }

// ended takes that a connection ended.
func (d *departures) ended(l wire.Lifecycle, id string, at time.Time) {
	if len(d.waiting) >= maxMembers {
		return // heartbeats tell
	}
	if len(d.waiting) == 0 {
		d.first = at
	}
	d.last = at
	w := d.waiting[l]
	if w == nil {
		w = &departure{ended: map[string]bool{}}
		d.waiting[l] = w
	}
	w.at, w.ended[id] = at, true
}

// came takes that a connection began.
func (d *departures) came(l wire.Lifecycle) {
	if a := d.asked[l]; a != nil {
		a.back = true
	}
}

// missed takes that notices may be missing: nobody is judged by what was told before.
func (d *departures) missed() {
	clear(d.waiting)
	d.asked = nil
}

// due says when to begin a listing; zero when there is nothing to look at, or while one is under way.
func (d *departures) due() time.Time {
	if d.listing || len(d.waiting) == 0 {
		return time.Time{}
	}
	at, most := d.last.Add(settle), d.first.Add(settleMost)
	if most.Before(at) {
		return most
	}
	return at
}

// begin asks about those who wait and are present, and reports whether there are any.
func (d *departures) begin(present func(wire.Lifecycle) bool) bool {
	asked := d.waiting
	d.waiting = map[wire.Lifecycle]*departure{}
	for l := range asked {
		if !present(l) {
			delete(asked, l)
		}
	}
	if d.listing = len(asked) > 0; d.listing {
		d.asked = asked
	}
	return d.listing
}

// judge takes a listing that was made after begin and returns who has no connection in it. One that the listing still
// has although its end was told does not count. Who came meanwhile may be missing in it and is looked at again.
func (d *departures) judge(all []Connection, now time.Time) map[wire.Lifecycle]time.Time {
	asked := d.asked
	d.asked, d.listing = nil, false
	there := map[wire.Lifecycle]bool{}
	for _, c := range all {
		if a := asked[c.Lifecycle]; a != nil && !a.ended[c.ID] {
			there[c.Lifecycle] = true
		}
	}
	gone := map[wire.Lifecycle]time.Time{}
	for l, a := range asked {
		switch {
		case there[l]:
		case a.back:
			a.back = false
			d.again(l, a, now)
		default:
			gone[l] = a.at
		}
	}
	return gone
}

// failed takes that there is no listing. Those asked about are looked at again until silence tells.
func (d *departures) failed(now time.Time) {
	asked := d.asked
	d.asked, d.listing = nil, false
	for l, a := range asked {
		if now.Sub(a.at) < wire.LivenessWindow {
			d.again(l, a, now.Add(lookAgain-settle))
		}
	}
}

// again lets one wait as if its connection had ended at a time, with what is known of it.
func (d *departures) again(l wire.Lifecycle, a *departure, as time.Time) {
	if w := d.waiting[l]; w != nil {
		for id := range a.ended {
			w.ended[id] = true
		}
		return
	}
	if len(d.waiting) == 0 {
		d.first = as
	}
	if as.After(d.last) {
		d.last = as
	}
	d.waiting[l] = a
}

// noticed takes a notice of the broker. It is called from the goroutine that follows connections.
func (f *feed) noticed(c ConnectionChange) {
	l := c.Connection.Lifecycle
	f.mu.Lock()
	switch {
	case c.Missed:
		f.departures.missed()
	case c.Connected:
		f.departures.came(l)
		f.roster.came(l, time.Now())
	case !c.Moving:
		f.departures.ended(l, c.Connection.ID, time.Now())
	}
	f.mu.Unlock()
	select {
	case f.woken <- struct{}{}:
	default:
	}
}

// listing is the answer to a look at the connections.
type listing struct {
	all []Connection
	err error
}

// look begins a listing when it is due, and says when the next one is. Its answer comes on f.listed.
func (f *feed) look(ctx context.Context, now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	due := f.departures.due()
	if due.IsZero() || due.After(now) {
		return due
	}
	if f.departures.begin(f.roster.present) {
		f.looks.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, beatTimeout)
			defer cancel()
			var l listing
			if l.all, l.err = f.broker.List(ctx, false); l.err == nil {
				l.err = f.ping(ctx) // what the broker had for us before has arrived
			}
			f.listed <- l
		})
	}
	return time.Time{}
}

// judgeGone tells who has no connection left.
func (f *feed) judgeGone(l listing) {
	f.takeAll()
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.err != nil {
		f.log.Debug("connections cannot be listed; nobody is called offline", logkey.Error, l.err)
		f.departures.failed(now)
		return
	}
	for life, at := range f.departures.judge(l.all, now) {
		f.roster.disconnected(life, at)
	}
}

// earlier is the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
