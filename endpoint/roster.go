package endpoint

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// Roster is who takes part in the space, as last known.
type Roster struct {
	// Entries are sorted by principal.
	Entries []wire.RosterEntry
	// StaleSince is when the view was last fresh; zero while it is. Nobody is called offline by a stale view.
	StaleSince time.Time
}

// RosterUpdate is one change of a followed roster.
type RosterUpdate struct {
	// Snapshot says that Entries is the whole roster and replaces what was told before.
	Snapshot bool
	// Entries are the new states of those that changed.
	Entries []wire.RosterEntry
	// Removed are those that are no longer listed.
	Removed []string
	// StaleSince is as in Roster.
	StaleSince time.Time
}

const (
	// rosterBacklog is how many roster events wait for a slow handler; when more come, the roster is read anew.
	rosterBacklog = 512
	// maxRosterEvent bounds one event: a presence record and what delivery adds.
	maxRosterEvent = wire.MaxPresence + 8<<10
	rosterRetryMin = 250 * time.Millisecond
	rosterRetryMax = 10 * time.Second
	// rosterRestarts is how often reading begins anew because another instance answered.
	rosterRestarts = 5
)

// errPlaceLost means that the feed can no longer be followed from where it was; the roster must be read anew.
var errPlaceLost = errors.New("lost the place in the roster feed")

// position is a place in the feed of one instance of the delivery service.
type position struct {
	instance, epoch string
	sequence        uint64
}

// Roster asks who takes part. Errors are those of Call.
func (e *Endpoint) Roster(ctx context.Context) (Roster, error) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	r, _, err := e.readRoster(ctx)
	return r, err
}

// readRoster reads all pages and returns the position of the first.
func (e *Endpoint) readRoster(ctx context.Context) (Roster, position, error) {
	var r Roster
	var at position
	restarts := 0
	for after := ""; ; {
		var page wire.RosterReply
		if err := e.delivery(ctx, wire.CommandRoster, wire.RosterRequest{After: after}, &page); err != nil {
			return Roster{}, position{}, err
		}
		if after == "" {
			r, at = Roster{}, position{page.Instance, page.Epoch, page.Sequence}
		} else if page.Instance != at.instance || page.Epoch != at.epoch {
			// Another instance answered, whose pages do not continue the first one's.
			if restarts++; restarts > rosterRestarts {
				return Roster{}, position{}, wire.Errorf(wire.CodeUnavailable, "read roster: another instance of delivery answered before the last page, %d times", restarts)
			}
			after = ""
			continue
		}
		r.Entries = append(r.Entries, page.Entries...)
		if page.StaleSince > 0 {
			r.StaleSince = time.UnixMilli(page.StaleSince)
		}
		if page.Next == "" || page.Next <= after {
			return r, at, nil
		}
		after = page.Next
	}
}

// WatchRoster tells fn the whole roster and then every change of it, from the calling goroutine, until ctx ends; then
// it returns nil. While delivery does not answer it tells once that the view is stale and keeps trying.
//
// Errors: permission-denied when the credential has no right to the roster; unimplemented; [ErrClosed]. It panics on a nil
// handler.
func (e *Endpoint) WatchRoster(ctx context.Context, fn func(RosterUpdate)) error {
	if fn == nil {
		panic("endpoint: WatchRoster needs a handler")
	}
	filter, err := wire.EventFilter(e.identity.Space, wire.DeliveryEndpoint, wire.TopicRoster)
	if err != nil {
		return err
	}
	w := &watch{e: e, filter: filter, fn: fn}
	for pause := rosterRetryMin; ; {
		began := w.snapshots
		err := w.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case e.closing.Load():
			return ErrClosed
		case errors.Is(err, wire.ErrPermissionDenied), errors.Is(err, wire.ErrUnimplemented), errors.Is(err, wire.ErrBadRequest):
			return err
		case !errors.Is(err, errPlaceLost):
			w.stale()
		}
		if w.snapshots > began {
			pause = rosterRetryMin
		} else {
			pause = min(2*pause, rosterRetryMax)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-e.quit:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// watch is one call of WatchRoster. It is used by one goroutine.
type watch struct {
	e         *Endpoint
	filter    string
	fn        func(RosterUpdate)
	snapshots int
	at        position
	entries   map[string]uint64 // sequence of the last change told, by principal
	fresh     time.Time         // when the view was last known to be true
	told      time.Time         // the StaleSince told last
}

// follow subscribes, reads the roster, and applies events until something is wrong.
func (w *watch) follow(ctx context.Context) error {
	e := w.e
	l := e.link.Load()
	events := make(chan *nats.Msg, rosterBacklog)
	sub, err := l.nc.ChanSubscribe(w.filter, events)
	if err != nil {
		return e.failure(w.act(), err, false)
	}
	defer func() { _ = sub.Unsubscribe() }() // a closed connection has ended it already
	if err := w.snapshot(ctx, l); err != nil {
		return err
	}
	silence := time.NewTimer(wire.LivenessWindow)
	defer silence.Stop()
	for {
		select {
		case m := <-events:
			heard, err := w.event(m)
			if err != nil {
				return err
			}
			if heard {
				silence.Reset(wire.LivenessWindow)
			}
		case <-silence.C:
			w.stale()
			return errPlaceLost
		case <-l.replaced:
			return errPlaceLost
		case <-e.quit:
			return ErrClosed
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *watch) act() act { return act{"watch", "roster", w.filter, "roster events"} }

func (w *watch) snapshot(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, w.e.opts.RequestTimeout)
	defer cancel()
	denied, err := l.confirm(ctx, w.filter)
	if err != nil {
		return w.e.failure(w.act(), err, false)
	}
	if len(denied) > 0 {
		return w.e.denied(w.act())
	}
	r, at, err := w.e.readRoster(ctx)
	if err != nil {
		return err
	}
	w.at, w.entries = at, make(map[string]uint64, len(r.Entries))
	for _, entry := range r.Entries {
		w.entries[entry.Principal] = entry.Sequence
	}
	w.snapshots++
	w.fresh, w.told = time.Now(), r.StaleSince
	w.fn(RosterUpdate{Snapshot: true, Entries: r.Entries, StaleSince: r.StaleSince})
	return nil
}

// stale tells, once, since when the view may be wrong.
func (w *watch) stale() {
	if w.fresh.IsZero() || !w.told.IsZero() {
		return
	}
	w.told = w.fresh
	w.fn(RosterUpdate{StaleSince: w.fresh})
}

// event applies one event and reports whether it was one of the feed that is followed.
func (w *watch) event(m *nats.Msg) (heard bool, err error) {
	from, err := wire.ParseEventSubject(m.Subject)
	if err != nil || from.Space != w.e.identity.Space || from.Endpoint != wire.DeliveryEndpoint || from.Topic != wire.TopicRoster {
		w.e.foreign(m, "the roster feed")
		return false, nil
	}
	if from.Instance != w.at.instance {
		return false, nil // a replica, with a sequence of its own
	}
	if from.Epoch != w.at.epoch {
		return true, errPlaceLost
	}
	var ev wire.RosterEvent
	if err := wire.Decode(m.Data, &ev, maxRosterEvent); err != nil {
		w.e.drop(m, err)
		return true, errPlaceLost
	}
	w.fresh = time.Now()
	if ev.Kind == wire.RosterAlive {
		if ev.Sequence != w.at.sequence {
			return true, errPlaceLost
		}
		w.alive(ev.StaleSince)
		return true, nil
	}
	return true, w.change(&ev)
}

func (w *watch) alive(staleMS int64) {
	var since time.Time
	if staleMS > 0 {
		since = time.UnixMilli(staleMS)
	}
	if since.Equal(w.told) {
		return
	}
	w.told = since
	w.fn(RosterUpdate{StaleSince: since})
}

func (w *watch) change(ev *wire.RosterEvent) error {
	switch {
	case ev.Sequence <= w.at.sequence:
		return nil // in the snapshot already
	case ev.Sequence != w.at.sequence+1:
		return errPlaceLost
	}
	w.at.sequence = ev.Sequence
	switch {
	case ev.Kind == wire.RosterChange && ev.Entry != nil:
		if who := ev.Entry.Principal; ev.Sequence > w.entries[who] {
			w.entries[who] = ev.Sequence
			w.fn(RosterUpdate{Entries: []wire.RosterEntry{*ev.Entry}, StaleSince: w.told})
		}
	case ev.Kind == wire.RosterRemove && ev.Principal != "":
		if ev.Sequence > w.entries[ev.Principal] {
			delete(w.entries, ev.Principal)
			w.fn(RosterUpdate{Removed: []string{ev.Principal}, StaleSince: w.told})
		}
	}
	return nil
}
