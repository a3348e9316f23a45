package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/wire"
)

// rosterFeed follows who is in the space, for the agents of a keeper, as wire.RosterReply says.
type rosterFeed struct {
	nc     *nats.Conn
	caller *control.Caller
	space  wire.Space
	k      *Keeper
	log    *slog.Logger

	instance, epoch string
	sequence        uint64
	first           uint64            // of the first page
	entries         map[string]uint64 // sequence of each entry of the pages
}

const (
	rosterBacklog = 1024
	maxRosterText = wire.MaxPresence + 8<<10
	rosterPages   = 5 // times that reading begins anew because another instance answered
)

// errPlaceLost says that the roster has to be read again.
var errPlaceLost = errors.New("the place in the roster feed is lost")

func (r *rosterFeed) run(ctx context.Context) {
	for try := 0; ; try++ {
		began := time.Now()
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errPlaceLost) {
			r.k.rosterStale(true)
			r.log.WarnContext(ctx, "roster not followed", logkey.Attempt, try+1, logkey.Error, err)
		}
		if time.Since(began) > wire.LivenessWindow {
			try = 0
		}
		if pause.For(ctx, backoff(min(try, 4))) != nil {
			return
		}
	}
}

func (r *rosterFeed) follow(ctx context.Context) error {
	filter, err := wire.EventFilter(r.space, wire.DeliveryEndpoint, wire.TopicRoster)
	if err != nil {
		return err
	}
	events := make(chan *nats.Msg, rosterBacklog)
	sub, err := r.nc.ChanSubscribe(filter, events)
	if err != nil {
		return wire.Errorf(wire.CodeUnavailable, "follow roster: %v", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // a closed connection has ended it
	back := r.nc.StatusChanged(nats.CONNECTED)
	defer r.nc.RemoveStatusListener(back)
	if err := r.read(ctx); err != nil {
		return err
	}
	silence := time.NewTimer(wire.LivenessWindow)
	defer silence.Stop()
	for {
		select {
		case m := <-events:
			heard, err := r.event(m)
			if err != nil {
				return err
			}
			if heard {
				silence.Reset(wire.LivenessWindow)
			}
		case <-silence.C:
			r.k.rosterStale(true)
			return errPlaceLost
		case _, ok := <-back: // the instance that was followed may be gone with the broker, and another one tells now
			if ok {
				return errPlaceLost
			}
			back = nil // the connection is closed, which ends ctx
		case <-ctx.Done():
			return nil
		}
	}
}

// read reads all pages.
func (r *rosterFeed) read(ctx context.Context) error {
	var all []wire.RosterEntry
	restarts, stale := 0, false
	for after := ""; ; {
		var page wire.RosterReply
		t := control.Target{Endpoint: wire.DeliveryEndpoint, Command: wire.CommandRoster}
		if err := r.caller.Call(ctx, t, wire.RosterRequest{After: after}, &page); err != nil {
			return err
		}
		if after == "" {
			all, stale = nil, false
			r.instance, r.epoch, r.sequence, r.first = page.Instance, page.Epoch, page.Sequence, page.Sequence
		} else if page.Instance != r.instance || page.Epoch != r.epoch {
			if restarts++; restarts > rosterPages {
				return wire.Errorf(wire.CodeUnavailable, "read roster: another instance of delivery answered before the last page, %d times", restarts)
			}
			after = ""
			continue
		}
		all = append(all, page.Entries...)
		stale = stale || page.StaleSince > 0
		if page.Next == "" || page.Next <= after {
			break
		}
		after = page.Next
	}
	r.entries = make(map[string]uint64, len(all))
	for _, e := range all {
		r.entries[e.Principal] = e.Sequence
	}
	r.k.rosterIs(all, stale)
	return nil
}

// event applies one event and reports whether it was of the feed that is followed.
func (r *rosterFeed) event(m *nats.Msg) (heard bool, err error) {
	from, err := wire.ParseEventSubject(m.Subject)
	if err != nil || from.Space != r.space || from.Endpoint != wire.DeliveryEndpoint || from.Instance != r.instance {
		return false, nil
	}
	var ev wire.RosterEvent
	if from.Epoch != r.epoch || wire.Decode(m.Data, &ev, maxRosterText) != nil {
		return true, errPlaceLost
	}
	switch {
	case ev.Kind == wire.RosterAlive && ev.Sequence != r.sequence:
		return true, errPlaceLost
	case ev.Kind == wire.RosterAlive:
		r.k.rosterStale(ev.StaleSince > 0)
		return true, nil
	case ev.Kind == wire.RosterEnd:
		return true, errPlaceLost
	case ev.Sequence <= r.sequence:
		return true, nil // in the pages already
	case ev.Sequence != r.sequence+1:
		return true, errPlaceLost
	}
	r.sequence = ev.Sequence
	switch {
	case ev.Kind == wire.RosterChange && ev.Entry != nil && ev.Sequence > r.known(ev.Entry.Principal):
		r.k.rosterHas(*ev.Entry)
	case ev.Kind == wire.RosterRemove && ev.Sequence > r.known(ev.Principal):
		r.k.rosterLost(ev.Principal)
	}
	return true, nil
}

// known is the sequence that the pages had of a principal.
func (r *rosterFeed) known(principal string) uint64 {
	if s, ok := r.entries[principal]; ok {
		return s
	}
	return r.first
}
