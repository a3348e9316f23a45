package endpoint

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	// refusedPause is how long a request that was denied is not made again, unless the connection is new.
	refusedPause = 10 * time.Minute
	// maxLosses bounds the losses that are remembered as told.
	maxLosses = 256
)

// round reads what was missed.
func (m *Membership) round(ctx context.Context) error {
	m.begin()
	mark := m.newest()
	if err := m.retries(ctx); err != nil {
		return err
	}
	if err := m.enrolled(ctx); err != nil {
		return err
	}
	if err := m.replayFirst(ctx); err != nil {
		return err
	}
	switch {
	case m.recordless():
	case m.complete && m.left.Load() == 0:
		mark = m.before
	default:
		if err := m.mend(ctx); err != nil {
			return err
		}
		if err := m.pull(ctx, wire.PullRequest{Pattern: m.sub.pattern}, pulling{m.hold, m.give, m.taken, false}); err != nil {
			return err
		}
		if err := m.replay(ctx, math.MaxUint64); err != nil {
			return err
		}
	}
	m.complete = false
	if m.finished {
		_ = m.report(ctx) // what it could not say is shown again
		m.expire(nil)
		return nil
	}
	m.recovered()
	m.resume(mark)
	return nil
}

// enrolled joins at delivery, if that is not done, or may have changed with the connection.
func (m *Membership) enrolled(ctx context.Context) error {
	m.state.Lock()
	needed := !m.known || m.stale
	live := !m.reply.Durable
	m.state.Unlock()
	if !needed && !live {
		return nil
	}
	if err := m.enlist(ctx); needed {
		return err
	}
	return nil // a live one is as it was
}

// enlist joins at delivery and takes over the position that is recorded there.
func (m *Membership) enlist(ctx context.Context) error {
	m.before = m.newest()
	var r wire.JoinReply
	if err := m.call(ctx, wire.CommandJoin, wire.JoinRequest{Pattern: m.sub.pattern}, &r); err != nil {
		return err
	}
	m.state.Lock()
	first := !m.known
	m.state.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	anew := r.Frontier < m.pos.through // the stream was
	if anew {
		m.pos, m.reported, m.floor, m.retry = progress{}, 0, 0, nil
	}
	if first || anew {
		m.start = r.Frontier
	}
	m.planReplay(r)
	if r.Durable {
		m.pos.reach(r.Floor)
		for _, h := range r.Handled {
			m.pos.add(h.From, h.To)
		}
		m.version++
		if floor, handled := m.pos.report(); floor > r.Floor || !slices.Equal(handled, r.Handled) {
			m.handledLocked() // there is what delivery does not know
		} else {
			m.reported = m.version
		}
		m.complete = !r.Resumed && r.Floor >= r.Joined // nothing of an earlier interval waits
		m.floor = r.Floor
	}
	m.state.Lock()
	defer m.state.Unlock()
	m.reply, m.known, m.stale = r, true, false
	return nil
}

// hold holds back what arrives live: a page is there, and comes first.
func (m *Membership) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.behind.Store(true)
}

// give shows a message of a page.
func (m *Membership) give(ctx context.Context, p *wire.PulledMessage) error {
	if left := m.left.Load(); left > 0 && p.Sequence > left {
		return nil // of who joined again elsewhere
	}
	if err := m.room(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	known := m.pos.has(p.Sequence)
	m.mu.Unlock()
	if known {
		return nil
	}
	if m.replaysBefore(p.Sequence) {
		if err := m.replay(ctx, p.Sequence-1); err != nil {
			return err
		}
		return errStale // the page may be, by now
	}
	d, err := m.pulled(p)
	if err != nil {
		m.account(&Delivery{at: p.Sequence})
		return nil
	}
	return m.showNew(ctx, d, p.Sender)
}

// showNew shows a message of what is stored, until it is handled or given up, unless the sender's message was shown.
func (m *Membership) showNew(ctx context.Context, d *Delivery, sender string) error {
	for !m.showOnce(ctx, d, sender) {
		if err := m.retries(ctx); err != nil {
			return err
		}
	}
	return m.retries(ctx)
}

// showOnce is false when another message is to be shown again first: one that came live while this one was asked for, and
// whose handler panicked. It may be this one.
func (m *Membership) showOnce(ctx context.Context, d *Delivery, sender string) bool {
	m.sub.run.Lock()
	defer m.sub.run.Unlock()
	m.mu.Lock()
	waits := m.retry != nil
	m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case waits:
		return false
	case !m.sub.fresh(d, sender):
		m.given(d.Sender, d.Channel, d.at)
		m.account(d)
	default:
		m.given(d.Sender, d.Channel, d.at)
		m.count++
		m.once(d)
	}
	return true
}

// taken notes what a page says beside its messages, which were shown.
func (m *Membership) taken(after uint64, r *wire.PullReply) {
	through, left := r.Through, m.left.Load()
	if left > 0 {
		through = min(through, left)
	}
	m.finished = m.finished || r.Ended || left > 0 && through == left
	if r.Through < after && !r.Ended {
		m.forgetRecord() // the stream was made anew
		m.wantMore()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pos.reach(through)
	for _, l := range r.Losses {
		if l.Channel == "" { // told as a loss, whoever's it was
			m.start = max(m.start, l.To)
		}
	}
	m.skippedLocked(len(r.Losses) > 0)
}

// trouble is told that a round failed.
func (m *Membership) trouble(err error) time.Duration {
	now, denied := time.Now(), isDenied(err)
	over, _ := m.outage.over(now)
	over = over || denied
	m.state.Lock()
	m.err = err
	known := m.known
	tell := over && !m.ahead
	m.told, m.ahead = m.told || tell, m.ahead || tell
	m.state.Unlock()
	if known && isEnd(err) {
		m.expire(err)
		return 0
	}
	if tell {
		m.e.events.emit(EventBackstop{Pattern: m.sub.pattern, Ahead: true, Err: err})
	}
	if over {
		m.drift()
	}
	if denied {
		return refusedPause
	}
	return m.outage.pause(now)
}

// begun is told that the first answer to a join did not come.
func (m *Membership) begun(err error) time.Duration {
	m.failed()
	if !isDenied(err) {
		m.state.Lock()
		m.told = true
		m.state.Unlock()
		m.e.events.emit(EventBackstop{Pattern: m.sub.pattern, Err: err})
	}
	return m.trouble(err)
}

// recovered notes that the backstop works.
func (m *Membership) recovered() {
	m.state.Lock()
	tell := m.told
	m.told, m.ahead, m.err = false, false, nil
	m.state.Unlock()
	if tell {
		m.e.events.emit(EventBackstop{Pattern: m.sub.pattern, Established: true})
	}
}

// isDenied reports whether asking again helps nobody.
func isDenied(err error) bool {
	code := wire.CodeOf(err)
	return code == wire.CodePermissionDenied || code == wire.CodeUnimplemented
}

// isEnd reports whether an answer about a membership means that there is none any more.
func isEnd(err error) bool {
	return errors.Is(err, wire.ErrNotFound) || errors.Is(err, wire.ErrPermissionDenied) || errors.Is(err, wire.ErrConflict)
}

// expire ends a membership that others ended. Err is nil when it was left.
func (m *Membership) expire(err error) {
	m.state.Lock()
	was := m.gone
	m.gone, m.err = true, err
	m.state.Unlock()
	m.mu.Lock()
	over := m.over
	m.mu.Unlock()
	if was || over {
		return
	}
	m.quit()
	m.e.events.emit(EventMembershipEnded{Pattern: m.sub.pattern, Err: err})
}

// request is the report of a position.
func (m *Membership) request(floor uint64, handled []wire.SequenceRange) (wire.AckRequest, bool) {
	m.state.Lock()
	defer m.state.Unlock()
	return wire.AckRequest{Pattern: m.sub.pattern, Generation: m.reply.Generation, Floor: floor, Handled: handled},
		m.known && m.reply.Durable && !m.gone
}

// refused is told what became of a report.
func (m *Membership) refused(err error) {
	switch {
	case err == nil, isEnd(err):
		m.expire(err)
	case errors.Is(err, wire.ErrPrecondition): // beyond the end of a stream that was made anew
		m.forgetRecord()
		m.fall()
	}
}
