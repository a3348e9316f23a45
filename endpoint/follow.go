package endpoint

import (
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// mode is what a live message means to a membership.
type mode int

const (
	modeLive   mode = iota // there is no record: it is received as by Listen
	modeFollow             // everything before it was shown
	modeDrift              // something before it may be missing, and cannot be read at the moment
)

const (
	// maxHoles bounds the gaps that are filled one by one.
	maxHoles = 64
)

// continuity is what a feed had lost at a moment: while it stays the same, nothing was.
type continuity struct {
	f          *feed
	reconnects uint64
	dropped    int
}

// since returns the continuity of a feed, whose subscription is sub.
func (s *Subscription) since(f *feed, sub *nats.Subscription) continuity {
	dropped, err := sub.Dropped()
	if err != nil {
		dropped = -1 // it has ended
	}
	return continuity{f, f.l.nc.Stats().Reconnects, dropped}
}

// lapse finds where in a feed something may be missing. Its counters tell at once of what was lost, while messages that came
// before it wait to be received still: until those were, it is not known between which of them the loss is. The feed's
// goroutine uses it.
type lapse struct {
	begun      bool
	reconnects uint64
	dropped    int
	unsure     int // messages before each of which something may be missing
}

// torn is called for each message in turn, and reports whether something between it and the one before may be missing.
func (f *feed) torn(sub *nats.Subscription) bool {
	reconnects := f.l.nc.Stats().Reconnects
	dropped, err := sub.Dropped()
	waiting, _, _ := sub.Pending() // asked for last, so that all that came before a loss is counted
	l := &f.lapse
	if !l.begun || l.reconnects != reconnects || l.dropped != dropped || err != nil {
		l.begun, l.reconnects, l.dropped = true, reconnects, dropped
		l.unsure = max(l.unsure, max(waiting, 0)+1)
	}
	if l.unsure == 0 {
		return false
	}
	l.unsure--
	return true
}

// newest returns the continuity of the newest feed.
func (m *Membership) newest() continuity {
	m.mu.Lock()
	f := m.feed
	m.mu.Unlock()
	return m.sub.since(f, f.sub)
}

// receive takes a live message.
func (m *Membership) receive(f *feed, msg *nats.Msg) {
	h := heldMsg{f, msg, f.torn(msg.Sub)}
	if m.behind.Load() && m.keep(h) {
		return
	}
	m.sub.run.Lock()
	defer m.sub.run.Unlock()
	if m.sub.left.Load() || m.behind.Load() && m.keep(h) {
		return
	}
	if !m.stream(h) {
		m.fall()
		m.keep(h)
	}
}

// stream shows a live message, or is false when something is to be read first. sub.run is held.
func (m *Membership) stream(h heldMsg) bool {
	a, ok := m.sub.inspect(h.m)
	if !ok {
		return true
	}
	if left := m.left.Load(); left > 0 && a.seq > left || a.seq <= m.skip {
		return true
	}
	switch place, verdict := m.judge(h, a); verdict {
	case verdictKnown:
		return true
	case verdictRefused:
		return false
	default:
		m.surface(a, place, h.m)
		return true
	}
}

// surface shows a live message that is new.
func (m *Membership) surface(a arrival, place placement, msg *nats.Msg) {
	a.p.last, a.p.at = a.seq, a.at
	d := m.sub.read(a, msg)
	if d == nil {
		m.account(&Delivery{at: a.seq, place: place})
		return
	}
	d.at, d.place, d.Attempt = a.seq, place, 1
	if !m.sub.fresh(d, a.p.sender) {
		m.account(d)
		return
	}
	m.once(d)
}

// judge decides about a live message: it is shown, known, or refused until something was read.
func (m *Membership) judge(h heldMsg, a arrival) (placement, verdict) {
	f := h.f
	now := m.sub.since(f, h.m.Sub)
	before := max(a.p.last, m.sub.base)
	switch m.mode {
	case modeLive:
		if !m.sub.advance(f, a) {
			return 0, verdictKnown
		}
		if m.recordless() {
			return apart, verdictShow
		}
	case modeDrift:
		if a.seq <= before {
			return 0, verdictKnown
		}
	default:
		if now != m.mark {
			if f.n < m.mark.f.n {
				return 0, verdictKnown // the newer feed brings it too, or it was read
			}
			return 0, verdictRefused
		}
		return m.judgeFollowing(a, before)
	}
	place := drifting
	if h.torn || now != m.mark || a.last > before {
		place = detached
	}
	m.mark, m.drifted = now, true
	return place, verdictShow
}

func (m *Membership) judgeFollowing(a arrival, before uint64) (placement, verdict) {
	if a.seq <= before {
		if a.p.last > 0 && a.at.After(a.p.at) && a.seq < a.p.last {
			m.forgetRecord() // newer by time, older by number: the stream was made anew
			clear(m.sub.peers)
			m.sub.bytes, m.sub.base, m.sub.forgotten = 0, 0, 0
			return 0, verdictRefused
		}
		if !m.leftOut(a) {
			return 0, verdictKnown
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.tellMissedLocked(a)
		return apart, verdictShow
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.last > before {
		m.noteHoleLocked(a, before)
		return 0, verdictRefused
	}
	if m.manual && m.pos.full() {
		return 0, verdictRefused
	}
	m.tellMissedLocked(a)
	return following, verdictShow
}

// leftOut reports whether what was read passed a message that is the membership's and that nobody handled: one of a channel
// of the class live, which is not kept for members.
func (m *Membership) leftOut(a arrival) bool {
	m.state.Lock()
	defer m.state.Unlock()
	r := &m.reply
	return a.seq > max(a.p.last, a.p.given, r.Joined, r.Floor) &&
		!slices.ContainsFunc(r.Handled, func(h wire.SequenceRange) bool { return h.From <= a.seq && a.seq <= h.To })
}

// tellMissedLocked reports what was stored before a message on its subject, and neither came live nor was read.
func (m *Membership) tellMissedLocked(a arrival) {
	if known := max(a.p.last, a.p.given, m.start); a.last > known {
		m.e.events.emit(EventGap{Sender: a.p.sub.Sender, Channel: a.p.sub.Channel, From: known + 1, To: a.last})
	}
}

// given notes that what is stored of a sender on a channel was read up to a sequence. sub.run is held.
func (m *Membership) given(sender wire.Principal, channel string, seq uint64) {
	subject, err := wire.LiveSubject(m.e.identity.Space, sender, channel)
	if err != nil {
		return // nothing comes live there
	}
	p := m.sub.peers[subject]
	if p == nil {
		if p, err = m.sub.learn(subject); err != nil {
			return
		}
	}
	p.given = max(p.given, seq)
}

// hole is a part of one sender's messages on one channel that was passed over.
type hole struct {
	sender   wire.Principal
	channel  string
	from, to uint64
}

// noteHoleLocked notes a gap of which the position has passed a part already: what is after the position is pulled.
func (m *Membership) noteHoleLocked(a arrival, before uint64) {
	h := hole{a.p.sub.Sender, a.p.sub.Channel, before + 1, min(a.last, m.pos.through)}
	switch {
	case h.from > h.to || slices.Contains(m.holes, h):
	case len(m.holes) >= maxHoles:
		m.e.events.emit(EventGap{Sender: h.sender, Channel: h.channel, From: h.from, To: h.to})
		a.p.given = max(a.p.given, h.to)
	default:
		m.holes = append(m.holes, h)
	}
}

// recordless reports whether positions mean nothing.
func (m *Membership) recordless() bool {
	m.state.Lock()
	defer m.state.Unlock()
	return m.known && !m.reply.Durable
}

// forgetRecord makes the next round join again: the record may be of another stream.
func (m *Membership) forgetRecord() {
	m.state.Lock()
	defer m.state.Unlock()
	m.stale = true
}

// resume lets live messages flow again, after those that were held back.
func (m *Membership) resume(mark continuity) {
	m.sub.run.Lock()
	defer m.sub.run.Unlock()
	live, intact := m.recordless(), m.newest() == mark
	m.mu.Lock()
	if !live && m.drifted && intact {
		m.pos.join() // all that came live since before the pull was shown
	}
	through := m.pos.through
	m.mu.Unlock()
	m.mark, m.drifted = mark, false
	if m.mode = modeLive; !live {
		m.mode, m.sub.base, m.sub.hazy = modeFollow, through, false
	}
	if !m.releaseHeld(live, m.stream) {
		m.wantMore()
		return
	}
	m.tellCaughtUp()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchLocked() // of a live channel too: it may become durable
}

// wantMore asks for another round.
func (m *Membership) wantMore() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.again = true
}

// drift lets live messages flow although something before them is missing.
func (m *Membership) drift() {
	m.sub.run.Lock()
	defer m.sub.run.Unlock()
	m.state.Lock()
	recorded := m.known && m.reply.Durable
	m.state.Unlock()
	if m.mode = modeLive; recorded {
		m.mode = modeDrift
		m.mu.Lock()
		m.sub.base = max(m.sub.base, m.pos.through)
		m.mu.Unlock()
	}
	m.mark = continuity{} // the first one is detached
	m.releaseHeld(true, m.stream)
}
