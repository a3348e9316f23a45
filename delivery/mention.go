package delivery

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// tickInterval is how often the position is written, and whether anything was missed looked at.
	tickInterval = time.Second
	// anchorInterval is how often the end of the stream is asked for without a reason: the last message before a silence
	// leaves no gap behind when its copy is lost.
	anchorInterval = 30 * time.Second
	// settleTime is how long the end of the stream may take to show in a read: a replica may answer that lags.
	settleTime  = 5 * time.Second
	settlePause = 100 * time.Millisecond
	// liveMessages and liveBytes bound the copies that wait in the client to be looked at; beyond them some are dropped,
	// and read.
	liveMessages = 1 << 16
	liveBytes    = 32 << 20
	// storeTimeout bounds writing the pointers of one chunk.
	storeTimeout = 5 * time.Second
	// lagLimit is how long a mention may wait before health tells.
	lagLimit = 5 * time.Second
)

// mentionsKey is in every message that mentions somebody. Whoever writes the name of the field with escapes mentions
// nobody.
var mentionsKey = []byte(`"mentions"`)

// mentions stores a pointer for each peer that a channel message mentions. It looks at the live copies, and reads what
// it did not hear. Each instance serves all: what two store at once the broker keeps once, and a position that one
// recorded the others skip to.
type mentions struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	space    wire.Space
	log      *slog.Logger
	stream   string // of channel messages
	filter   string // of them all
	live     string // how the subject of each live copy begins
	progress *space.Progress
	members  *space.Members
	names    directory
	classes  func() *classes // of one chunk

	sub  *nats.Subscription
	wake chan struct{}

	// Of the goroutine of run alone.
	done       uint64 // every mention up to it was served
	quota      quota
	began      begun
	loaded     bool // done is from the record
	saved, rev uint64
	savedAt    time.Time
	anchoredAt time.Time
	reconnects uint64
	lost       int

	mu      sync.Mutex // guards those below
	heard   window
	trouble time.Time // since when nothing gets on; zero when it does
	goal    uint64    // up to where what was not heard is to be read, 0 for nothing, and
	goalAt  time.Time // since when that is known
}

func newMentions(d *Service) *mentions {
	js, err := jetstream.New(d.nc, jetstream.WithPublishAsyncTimeout(storeTimeout))
	if err != nil {
		panic("delivery: New: " + err.Error())
	}
	m := &mentions{
		nc: d.nc, js: js, space: d.space, log: d.log, stream: wire.ChatStream(d.space), filter: wire.StreamSubjects(d.space, wire.KindChannel),
		live: d.space.Prefix() + ".live.", progress: space.NewProgress(d.js, d.space), members: space.NewMembers(d.js, d.space), names: d.grantees,
		classes: func() *classes { return &classes{d: d} }, wake: make(chan struct{}, 1), began: newBegun(),
	}
	if d.open {
		m.names = rosterNames{d.feed}
	}
	return m
}

// start listens. What is missed until run gets to it is read.
func (m *mentions) start(ctx context.Context) error {
	live, err := wire.LiveFilter(m.space, ">")
	if err != nil {
		return err
	}
	if m.sub, err = m.nc.Subscribe(live, m.hear); err == nil {
		err = m.sub.SetPendingLimits(liveMessages, liveBytes)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, beatTimeout)
		defer cancel()
		err = m.nc.FlushWithContext(ctx)
	}
	if err != nil {
		m.stop()
		return wire.Errorf(wire.CodeUnavailable, "follow channel messages: %w", err)
	}
	if err := m.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), live) {
		m.stop()
		return wire.Errorf(wire.CodePermissionDenied, "follow channel messages: the credential lacks the subscription %q", live)
	}
	return nil
}

// stop ends listening.
func (m *mentions) stop() {
	if m.sub != nil {
		_ = m.sub.Unsubscribe() // fails only when the connection is gone
	}
}

// hear takes one live copy. Anything may arrive here: what does not carry the broker's position is no copy. Nor is what an
// agent has the broker deliver here from its own queue: it comes under the subject that it was stored under, with headers of
// the agent's choice.
func (m *mentions) hear(msg *nats.Msg) {
	if !strings.HasPrefix(msg.Subject, m.live) || !header.Whole(msg) {
		return // its place shows as a gap, and nobody else can read it either
	}
	seq, err := strconv.ParseUint(wire.BrokerHeader(msg.Header["Nats-Sequence"]), 10, 64)
	if err != nil || seq == 0 {
		return
	}
	c := candidate{seq: seq}
	if bytes.Contains(msg.Data, mentionsKey) {
		c.subject, c.data, c.heard = msg.Subject, msg.Data, time.Now()
		c.at, _ = time.Parse(time.RFC3339Nano, wire.BrokerHeader(msg.Header["Nats-Time-Stamp"]))
	}
	m.mu.Lock()
	work := m.heard.hear(c)
	m.mu.Unlock()
	if work {
		m.rouse()
	}
}

func (m *mentions) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run serves until ctx ends, and records how far it came.
func (m *mentions) run(ctx context.Context) {
	tick := time.NewTicker(tickInterval)
	defer tick.Stop()
	defer m.end()
	for attempt := 0; ctx.Err() == nil; {
		err := m.work(ctx)
		m.note(ctx, err)
		if err != nil {
			attempt++
			_ = dial.Wait(ctx, attempt-1) // ends early with ctx
			continue
		}
		attempt = 0
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-tick.C:
		}
	}
}

// end records the position, as far as the broker takes it.
func (m *mentions) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := m.save(ctx); err != nil {
		m.log.Debug("position of mentions not recorded; some will be looked at again", logkey.Error, err)
	}
}

// note keeps, and tells once, that nothing gets on.
func (m *mentions) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	since := m.trouble
	switch {
	case err == nil:
		m.trouble = time.Time{}
	case since.IsZero():
		m.trouble = time.Now()
	}
	m.mu.Unlock()
	switch {
	case err != nil && since.IsZero():
		m.log.Warn("mentions wait", logkey.Sequence, m.done+1, logkey.Error, err)
	case err == nil && !since.IsZero():
		m.log.Info("mentions go on", logkey.Duration, time.Since(since))
	}
}

// fresh is the health check.
func (m *mentions) fresh() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.trouble.IsZero() {
		return wire.Errorf(wire.CodeUnavailable, "mentions wait since %s", m.trouble.UTC().Format(time.RFC3339))
	}
	since := time.Now()
	if m.goal > 0 {
		since = m.goalAt
	}
	if len(m.heard.waiting) > 0 {
		since = earlier(since, m.heard.waiting[0].heard)
	}
	if lag := time.Since(since); lag > lagLimit {
		return wire.Errorf(wire.CodeUnavailable, "mentions lag by %s", lag.Round(time.Second))
	}
	return nil
}

// work does what there is to do.
func (m *mentions) work(ctx context.Context) error {
	if !m.loaded {
		var err error
		if m.done, m.rev, err = m.progress.Get(ctx); err != nil {
			return err
		}
		m.saved, m.loaded = m.done, true
	}
	if err := m.anchor(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		m.mu.Lock()
		next := m.heard.next(m.done)
		switch {
		case next.readTo == 0:
			m.goal = 0
		case m.goal == 0 || m.goal <= m.done:
			m.goal, m.goalAt = next.readTo, time.Now()
		}
		m.mu.Unlock()
		var err error
		switch {
		case next.readTo > 0:
			err = m.catchUp(ctx, next.readTo)
		case len(next.waiting) > 0:
			_, err = m.serve(ctx, next.waiting)
		default:
			m.done = next.served
			return m.saveNow(ctx)
		}
		if err != nil {
			return err
		}
		if err := m.saveNow(ctx); err != nil {
			return err
		}
	}
	return nil
}

// anchor asks for the end of the stream, at the start, now and then, and when copies were missed: all up to it that was
// not heard is read.
func (m *mentions) anchor(ctx context.Context) error {
	lost, _ := m.sub.Dropped()
	reconnects := m.nc.Stats().Reconnects
	missed := lost != m.lost || reconnects != m.reconnects
	if !m.anchoredAt.IsZero() && !missed && time.Since(m.anchoredAt) < anchorInterval {
		return nil
	}
	m.mu.Lock()
	heard := m.heard.to
	m.mu.Unlock()
	state, err := space.State(ctx, m.js, m.stream)
	if err != nil {
		return err
	}
	if err := m.names.sync(ctx); err != nil { // so that the first mention after a silence does not wait for it
		return err
	}
	if state.LastSeq < m.done {
		m.log.Warn("the channel stream was made anew; its mentions are looked at from the start", logkey.Sequence, m.done)
		m.done = 0
	}
	m.done = max(m.done+1, state.FirstSeq) - 1 // nothing is left below the first
	m.mu.Lock()
	m.heard.anchor(state.LastSeq, state.LastSeq < heard)
	m.mu.Unlock()
	m.lost, m.reconnects, m.anchoredAt = lost, reconnects, time.Now()
	return nil
}

// catchUp reads what was not heard, a batch at least, up to a sequence that the stream is known to have reached.
func (m *mentions) catchUp(ctx context.Context, upTo uint64) error {
	var deadline time.Time
	for {
		var found []candidate
		q := space.Query{Filter: m.filter, From: m.done + 1}
		rest, err := space.Read(ctx, m.js, m.stream, q, func(s *space.Stored) error {
			if bytes.Contains(s.Data, mentionsKey) {
				found = append(found, candidate{seq: s.Sequence, subject: s.Subject, data: s.Data, at: s.Time})
			}
			return nil
		})
		if err != nil {
			return err
		}
		for len(found) > 0 {
			n, err := m.serve(ctx, found)
			if err != nil {
				return err
			}
			found = found[n:]
		}
		m.done = max(m.done, rest.Next-1)
		switch {
		case m.done >= upTo, rest.Pending > 0:
			return nil
		case deadline.IsZero():
			deadline = time.Now().Add(settleTime)
		case time.Now().After(deadline):
			return m.removed(ctx, upTo)
		}
		if pause.For(ctx, settlePause) != nil {
			return nil
		}
	}
}

// removed goes on to a sequence up to which nothing was found, since the messages were removed, but never beyond what the
// stream itself says that it has reached: what is heard may be wrong.
func (m *mentions) removed(ctx context.Context, upTo uint64) error {
	m.mu.Lock()
	heard := m.heard.to
	m.mu.Unlock()
	state, err := space.State(ctx, m.js, m.stream)
	if err != nil {
		return err
	}
	m.done = max(m.done, min(upTo, state.LastSeq))
	if state.LastSeq < upTo {
		m.mu.Lock()
		m.heard.anchor(state.LastSeq, state.LastSeq < heard)
		m.mu.Unlock()
	}
	return nil
}

// saveNow records the position when it is time to.
func (m *mentions) saveNow(ctx context.Context) error {
	if time.Since(m.savedAt) < tickInterval {
		return nil
	}
	return m.save(ctx)
}

// save records the position. When another instance came further, this one goes on from there.
func (m *mentions) save(ctx context.Context) error {
	if !m.loaded || m.done == m.saved {
		return nil
	}
	rev, err := m.progress.Put(ctx, m.done, m.rev)
	if errors.Is(err, wire.ErrConflict) {
		var other uint64
		if other, m.rev, err = m.progress.Get(ctx); err != nil {
			return err
		}
		m.saved = other
		if m.done = max(m.done, other); m.done == other {
			m.savedAt = time.Now()
			return nil
		}
		rev, err = m.progress.Put(ctx, m.done, m.rev)
		if errors.Is(err, wire.ErrConflict) {
			return nil // it goes on: the next time is soon enough
		}
	}
	if err != nil {
		return err
	}
	m.saved, m.rev, m.savedAt = m.done, rev, time.Now()
	return nil
}
