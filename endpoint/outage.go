package endpoint

import "time"

// patience is how long delivery may not answer, while the broker does, before what arrives live is shown though something
// before it is missing.
const patience = 15 * time.Second

// outage is how long delivery has not answered. It is a plain value. Whatever shows that delivery may be there begins it
// anew: an answer, and a new connection, since delivery may take a moment longer to come back than this endpoint.
type outage struct {
	since    time.Time
	failures int // since then
	seen     contact
}

// contact is what a failure is compared with: while it stays the same, there was neither an answer nor a new connection.
type contact struct {
	l          *link
	reconnects uint64
	answers    uint64 // of delivery
}

// fail counts a failure. Without a connection no time passes: nothing arrives live either.
func (o *outage) fail(now time.Time, seen contact, connected bool) {
	if o.failures == 0 || seen != o.seen {
		*o = outage{since: now, seen: seen}
	}
	if !connected {
		o.since = now
	}
	o.failures++
}

// over reports whether patience has ended, and how long it lasts else.
func (o *outage) over(now time.Time) (bool, time.Duration) {
	left := patience - now.Sub(o.since)
	return left <= 0, left
}

// failed counts a failure in a row.
func (b *backlog) failed() {
	l := b.e.link.Load()
	b.mu.Lock()
	seen := contact{l, l.nc.Stats().Reconnects, b.answers}
	b.mu.Unlock()
	b.outage.fail(time.Now(), seen, l.nc.IsConnected())
}

// pause is how long to wait after the last failure; not longer than patience lasts.
func (o *outage) pause(now time.Time) time.Duration {
	d := troublePause(o.failures)
	if over, left := o.over(now); !over {
		d = min(d, left)
	}
	return d
}
