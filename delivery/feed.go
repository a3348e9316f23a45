package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// beatInterval is how often the view is proved: the broker answered, so what it had sent before has arrived.
	beatInterval = 500 * time.Millisecond
	// aliveInterval is how often the feed says that it lives; two of them fit a liveness window.
	aliveInterval = wire.LivenessWindow / 2
	// beatTimeout bounds one proof.
	beatTimeout = 2 * time.Second
	// catchUpTimeout bounds how long a snapshot waits for a proof that is under way.
	catchUpTimeout = time.Second
	// backlog is how many heartbeats may wait; when more do, the bucket is read instead.
	backlog = 1 << 15
)

// feed follows presence and publishes what changed.
type feed struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	broker   Connections // nil: only heartbeats tell
	space    wire.Space
	log      *slog.Logger
	instance string
	epoch    string
	filter   string
	subject  string // of events
	heard    chan *nats.Msg
	sub      *nats.Subscription
	catchUps chan chan struct{}
	woken    chan struct{} // a connection began or ended
	listed   chan listing  // at most one is under way
	looks    sync.WaitGroup

	// Of the goroutine of run alone.
	reconnects uint64
	lost       int
	refused    int       // principals beyond the bound, as last logged
	viewSince  time.Time // silence counts from here at the earliest

	mu         sync.Mutex // guards those below
	roster     *roster
	departures *departures
	proof      time.Time // the view was complete then
}

func newFeed(nc *nats.Conn, js jetstream.JetStream, broker Connections, s wire.Space, serve *control.Service, log *slog.Logger) *feed {
	f := &feed{
		nc: nc, js: js, broker: broker, space: s, log: log, heard: make(chan *nats.Msg, backlog), catchUps: make(chan chan struct{}),
		woken: make(chan struct{}, 1), listed: make(chan listing, 1), roster: newRoster(), departures: newDepartures(),
	}
	f.instance, f.epoch = serve.Instance()
	var err, err2 error
	f.filter, err = wire.PresenceFilter(s)
	f.subject, err2 = wire.EventSubject{Space: s, Endpoint: wire.DeliveryEndpoint, Instance: f.instance, Epoch: f.epoch, Topic: wire.TopicRoster}.Subject()
	if err = errors.Join(err, err2); err != nil {
		panic("delivery: New: " + err.Error())
	}
	return f
}

// start subscribes and then reads the bucket, so that nothing falls between.
func (f *feed) start(ctx context.Context) error {
	var err error
	if f.sub, err = f.nc.ChanSubscribe(f.filter, f.heard); err != nil {
		return wire.Errorf(wire.CodeUnavailable, "follow presence: %w", err)
	}
	if err = f.begin(ctx); err != nil {
		_ = f.sub.Unsubscribe()
	}
	return err
}

func (f *feed) begin(ctx context.Context) error {
	asked := time.Now()
	if err := f.ping(ctx); err != nil {
		return wire.Errorf(wire.CodeUnavailable, "follow presence: %w", err)
	}
	if err := f.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), f.filter) {
		return wire.Errorf(wire.CodePermissionDenied, "follow presence: the credential lacks the subscription %q", f.filter)
	}
	stored, err := f.read(ctx)
	if err != nil {
		return fmt.Errorf("read presence: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, s := range stored {
		f.roster.stored(p, s.rec, s.at)
	}
	f.roster.settle(asked)
	f.proof, f.viewSince, f.reconnects = asked, asked, f.nc.Stats().Reconnects
	return nil
}

// run follows until ctx ends.
func (f *feed) run(ctx context.Context) {
	beat, alive := time.NewTicker(beatInterval), time.NewTicker(aliveInterval)
	defer beat.Stop()
	defer alive.Stop()
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	defer f.looks.Wait()
	for {
		select {
		case <-ctx.Done():
			f.end()
			return
		case <-f.woken:
		case l := <-f.listed:
			f.judgeGone(l)
		case msg := <-f.heard:
			f.take(msg)
		case done := <-f.catchUps:
			f.takeAll()
			close(done)
		case <-beat.C:
			f.beat(ctx)
		case <-alive.C:
			f.publish(wire.RosterEvent{Kind: wire.RosterAlive, Sequence: f.sequence(), StaleSince: f.staleSince(time.Now())})
		case <-wake.C:
		}
		now := time.Now()
		if again := earlier(f.tell(now), f.look(ctx, now)); !again.IsZero() {
			wake.Reset(time.Until(again))
		}
	}
}

// end tells the watchers and stops listening.
func (f *feed) end() {
	_ = f.sub.Unsubscribe() // fails only when the connection is gone
	f.publish(wire.RosterEvent{Kind: wire.RosterEnd, Sequence: f.sequence()})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = f.nc.FlushWithContext(ctx) // best effort: without it the watchers notice the silence
}

// takeAll handles the presence messages that have arrived.
func (f *feed) takeAll() {
	for range len(f.heard) {
		f.take(<-f.heard)
	}
}

// catchUp waits until what arrived before now is in the roster. A request comes over the same connection as presence
// does, behind what its caller published before it asked, so that a caller finds its own record in the answer.
func (f *feed) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	done := make(chan struct{})
	select {
	case f.catchUps <- done:
		<-done
	case <-ctx.Done(): // the broker is slow: an answer from before is better than none
	}
}

// take handles one presence message. The broker can be made to deliver others here; their subject tells.
func (f *feed) take(msg *nats.Msg) {
	s, p, err := wire.ParsePresenceSubject(msg.Subject)
	if err != nil || s != f.space {
		f.drop(msg.Subject, err)
		return
	}
	if !header.Whole(msg) {
		f.drop(msg.Subject, errHeader)
		return
	}
	now := time.Now()
	if msg.Header.Get("KV-Operation") != "" {
		f.mu.Lock()
		f.roster.left(p, now)
		f.mu.Unlock()
		return
	}
	rec, err := wire.DecodePresence(p.String(), msg.Data)
	if err != nil {
		f.drop(msg.Subject, err)
		return
	}
	f.mu.Lock()
	f.roster.heard(p, rec, now)
	f.mu.Unlock()
}

// errHeader is of a record that the bucket's readers leave out too.
var errHeader = wire.Errorf(wire.CodeBadRequest, "header block that ends before its length")

func (f *feed) drop(subject string, err error) {
	f.log.Debug("presence record dropped", logkey.Subject, subject, logkey.Reason, string(wire.ReasonOf(err)), logkey.Error, err)
}

// beat proves the view and calls offline who is silent in it. It does nothing while the broker does not answer.
func (f *feed) beat(ctx context.Context) {
	asked := time.Now()
	if !f.nc.IsConnected() || f.ping(ctx) != nil {
		return
	}
	f.takeAll() // the answer came behind all that the broker sent before it
	lost, _ := f.sub.Dropped()
	reconnects := f.nc.Stats().Reconnects
	gap, suspects := f.judge(asked, lost != f.lost || reconnects != f.reconnects)
	if gap || len(suspects) > 0 {
		if err := f.compare(ctx, suspects); err != nil {
			if ctx.Err() == nil {
				f.log.Warn("presence cannot be read; nobody is called offline", logkey.Error, err)
			}
			return
		}
	}
	f.lost, f.reconnects = lost, reconnects
	f.proved(asked)
}

// judge says whether the view has a gap, and who is silent in it. After a gap heartbeats were missed, or could not be
// sent: everybody gets a whole window from now.
func (f *feed) judge(asked time.Time, missed bool) (gap bool, suspects []wire.Principal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if gap = missed || asked.Sub(f.proof) > aliveInterval; gap {
		f.viewSince = asked
	}
	if deadline := asked.Add(-wire.LivenessWindow); f.viewSince.Before(deadline) {
		suspects = f.roster.suspects(deadline)
	}
	return gap, suspects
}

// proved records that the view was complete at a time, and forgets who has been gone for long.
func (f *feed) proved(at time.Time) {
	f.mu.Lock()
	f.proof = at
	events := f.roster.forget(at)
	refused := f.roster.refused
	f.mu.Unlock()
	if refused != f.refused {
		f.refused = refused
		f.log.Warn("presence of principals beyond the bound is left out", logkey.Count, refused, logkey.Limit, maxMembers)
	}
	f.publish(events...)
}

// compare reads the bucket, where a record lives one liveness window: a suspect without one is offline.
func (f *feed) compare(ctx context.Context, suspects []wire.Principal) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	stored, err := f.read(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, s := range stored {
		f.roster.stored(p, s.rec, s.at)
	}
	for _, p := range suspects {
		if _, ok := stored[p]; !ok {
			f.roster.silent(p, now)
		}
	}
	return nil
}

// storedPresence is a record of the bucket; at is never later than now, whatever the broker's clock says.
type storedPresence struct {
	rec *wire.Presence
	at  time.Time
}

func (f *feed) read(ctx context.Context) (map[wire.Principal]storedPresence, error) {
	out := map[wire.Principal]storedPresence{}
	now := time.Now()
	err := space.Scan(ctx, f.js, space.BucketStream(wire.PresenceBucket(f.space)), f.filter, func(m *space.Stored) error {
		s, p, err := wire.ParsePresenceSubject(m.Subject)
		if err != nil || s != f.space || m.Header.Get("KV-Operation") != "" {
			return nil
		}
		rec, err := wire.DecodePresence(p.String(), m.Data)
		if err != nil {
			f.drop(m.Subject, err)
			return nil
		}
		at := m.Time
		if at.After(now) {
			at = now
		}
		out[p] = storedPresence{rec, at}
		return nil
	})
	return out, err
}

func (f *feed) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	return f.nc.FlushWithContext(ctx)
}

// tell publishes what may be told now and says when to come again.
func (f *feed) tell(now time.Time) time.Time {
	f.mu.Lock()
	events, again := f.roster.due(now)
	f.mu.Unlock()
	f.publish(events...)
	return again
}

// publish sends events in the order of their numbers: only the goroutine of run does. What cannot be sent leaves a
// hole in the numbers, and its watchers ask again.
func (f *feed) publish(events ...wire.RosterEvent) {
	for _, e := range events {
		if err := f.nc.Publish(f.subject, encode(e)); err != nil {
			f.log.Debug("roster event not sent", logkey.Sequence, e.Sequence, logkey.Error, err)
		}
	}
}

func (f *feed) sequence() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.roster.sequence
}

// page answers the roster command.
func (f *feed) page(ctx context.Context, in wire.RosterRequest) (*wire.RosterReply, error) {
	if in.Limit < 0 || in.Limit > wire.MaxRosterPage {
		return nil, wire.Errorf(wire.CodeBadRequest, "list roster: limit %d outside 0 to %d", in.Limit, wire.MaxRosterPage)
	}
	limit := in.Limit
	if limit == 0 {
		limit = wire.MaxRosterPage
	}
	f.catchUp(ctx)
	stale := f.staleSince(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	reply := f.roster.page(in.After, limit)
	reply.Instance, reply.Epoch, reply.StaleSince = f.instance, f.epoch, stale
	return reply, nil
}

// staleSince is the time of the last proof when it is older than the liveness window, else 0.
func (f *feed) staleSince(now time.Time) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.proof) <= wire.LivenessWindow {
		return 0
	}
	return f.proof.UnixMilli()
}

// fresh is the health check of the view.
func (f *feed) fresh() error {
	if since := f.staleSince(time.Now()); since != 0 {
		return wire.Errorf(wire.CodeUnavailable, "the roster is stale since %s", time.UnixMilli(since).UTC().Format(time.RFC3339))
	}
	return nil
}
