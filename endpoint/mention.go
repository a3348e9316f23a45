package endpoint

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/wire"
)

// mentions shows the messages that mention this endpoint. What delivery keeps are pointers; their live copies only say
// that there is something to read.
type mentions struct {
	*backlog
	deaf  bool        // no live copies come
	woken atomic.Bool // by a live copy, so that what is read is new

	fresh bool // what this round reads; used by the goroutine that catches up
	told  bool // that it cannot read; used by it too
}

// HandleMentions receives the channel messages that mention this endpoint's name and that it may read, whether it has
// joined their channels or not: those that no handler of this endpoint has shown, from the oldest that was not handled.
// Delivery.Mentioned is set. A message was handled when its handler has returned; one that panics is given it again as in
// [Endpoint.Join]. It may be called once.
//
// It needs nobody to be there: while delivery does not answer, the endpoint keeps trying, see [EventQueueLost]. Without the
// right to hear of mentions at once they are looked for every minute.
//
// Errors: already-exists when the mentions are handled already; unavailable or deadline-exceeded when the broker did not
// answer; [ErrClosed]. It panics on a nil handler.
func (e *Endpoint) HandleMentions(ctx context.Context, fn func(*Delivery)) error {
	return e.handleMentions(ctx, fn, false)
}

// HandleMentionsManual is [Endpoint.HandleMentions] of a program that says when a mention is handled, with [Delivery.Ack] and
// its like, as JoinOptions.Manual lets it for a membership: what was shown and is not settled comes again in the next process.
// At most 254 may be unsettled; then no more are shown until one is. Either of the two may be called, once.
func (e *Endpoint) HandleMentionsManual(ctx context.Context, fn func(*Delivery)) error {
	return e.handleMentions(ctx, fn, true)
}

func (e *Endpoint) handleMentions(ctx context.Context, fn func(*Delivery), manual bool) error {
	if fn == nil {
		panic("endpoint: HandleMentions needs a handler")
	}
	subject, err := wire.MentionSubject(e.identity.Space, e.identity.Lifecycle)
	if err != nil {
		return err
	}
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	e.topo.Lock()
	defer e.topo.Unlock()
	e.crowd.Lock()
	taken := e.mentions != nil
	e.crowd.Unlock()
	if taken {
		return wire.Errorf(wire.CodeAlreadyExists, "handle mentions: they are handled already")
	}
	m := &mentions{}
	sub := e.subscription("", subject, nil)
	sub.verb = "hear of mentions"
	m.backlog = newBacklog(e, m, sub, fn, manual)
	sub.take, sub.again = m.hear, m.moved
	err = e.admit(ctx, sub)
	if errors.Is(err, wire.ErrPermissionDenied) {
		e.events.emit(EventDenied{Subject: subject, Err: e.failure(sub.act(), err, false)})
		m.deaf, err = true, nil
	}
	if err != nil {
		m.cancel()
		return err
	}
	e.crowd.Lock()
	e.mentions = m
	e.crowd.Unlock()
	m.moved(sub.cur)
	return nil
}

// hear takes the live copy of a pointer.
func (m *mentions) hear(_ *feed, msg *nats.Msg) {
	_, err := wire.DecodeMentionPointer(msg.Data)
	switch _, _, _, ok := livePosition(msg.Header); {
	case msg.Subject != m.sub.filter:
		m.e.foreign(msg, "the subscription to mentions")
	case !header.Whole(msg):
		m.e.drop(msg, errHeader())
	case err != nil:
		m.e.drop(msg, err)
	case !ok:
		m.e.drop(msg, wire.Errorf(wire.CodeBadRequest, "live pointer without the broker's position"))
	default:
		m.woken.Store(true)
		m.nudge()
	}
}

func (m *mentions) round(ctx context.Context) error {
	m.begin()
	m.fresh = m.woken.Swap(false)
	if err := m.retries(ctx); err != nil {
		return err
	}
	if err := m.pull(ctx, wire.PullRequest{Mentions: true}, pulling{func() {}, m.give, m.taken, true}); err != nil {
		return err
	}
	m.told = false
	m.sub.run.Lock()
	defer m.sub.run.Unlock()
	m.tellCaughtUp()
	m.lively = m.lively || m.deaf // nothing else tells of them
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchLocked()
	return nil
}

func (m *mentions) give(ctx context.Context, p *wire.PulledMessage) error {
	d, err := m.pulled(p)
	if err != nil {
		m.account(&Delivery{at: p.Sequence})
		return nil
	}
	d.Sequence, d.Mentioned, d.Replayed = p.Stored, true, !m.fresh
	if err := m.room(ctx); err != nil {
		return err
	}
	if m.showOnce(ctx, d) {
		return ctx.Err()
	}
	return m.retries(ctx)
}

func (m *mentions) showOnce(ctx context.Context, d *Delivery) bool {
	m.sub.run.Lock()
	defer m.sub.run.Unlock()
	m.mu.Lock()
	known := m.pos.has(d.at)
	m.mu.Unlock()
	switch {
	case known, ctx.Err() != nil:
		return true
	case !m.e.shown.claim(d, true):
		m.account(d)
		return true
	}
	m.count++
	return m.once(d)
}

func (m *mentions) taken(_ uint64, r *wire.PullReply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pos.reach(r.Through)
	m.skippedLocked(len(r.Losses) > 0)
}

func (m *mentions) trouble(err error) time.Duration {
	now, denied := time.Now(), isDenied(err)
	if over, _ := m.outage.over(now); !m.told && (over || denied) {
		m.told = true
		m.e.events.emit(EventQueueLost{Kind: wire.KindMention, Err: m.e.failure(act{verb: "read", operand: "mentions"}, err, false)})
	}
	if denied {
		return deniedPause
	}
	return m.outage.pause(now)
}

func (m *mentions) request(floor uint64, handled []wire.SequenceRange) (wire.AckRequest, bool) {
	return wire.AckRequest{Mentions: true, Floor: floor, Handled: handled}, true
}

func (m *mentions) refused(error) {} // the report is made again
