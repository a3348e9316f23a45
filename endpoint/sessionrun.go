package endpoint

import (
	"io"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

const (
	// A viewer says at least this often that it is there, and gives up a manager that it does not hear for the second.
	sessionPing    = 2 * time.Second
	sessionSilence = 8 * time.Second
	// sessionGap is how long what changed places may take; what is missing longer was lost, and a snapshot mends it.
	sessionGap = 300 * time.Millisecond
	// sessionAgain is how long an open waits for an answer at first before it is said again, then twice as long.
	sessionAgain = 250 * time.Millisecond
)

// sessionClock is what a session waits for. It is guarded by Session.mu.
type sessionClock struct {
	spoke, heard time.Time
	pinged       time.Time
	asked        wire.SessionOpen // of this turn
	again        time.Time        // when to say it again
	pause        time.Duration
}

// ping is when to say next that the viewer is there, and to ask whether the manager is: what is typed is not answered by itself.
func (c *sessionClock) ping() time.Time {
	since := c.heard
	if c.pinged.After(since) {
		since = c.pinged
	}
	if c.spoke.Before(since) {
		since = c.spoke
	}
	return since.Add(sessionPing)
}

func (c *sessionClock) open(now time.Time, o wire.SessionOpen) {
	c.asked, c.pause = o, sessionAgain
	c.again = now.Add(c.pause)
	c.spoke = now
	if c.heard.IsZero() {
		c.heard = now
	}
}

// run watches the clock until the session is over, and then ends its subscription.
func (s *Session) run() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			s.leave()
			return
		case <-timer.C:
		case <-s.poke:
		}
		timer.Reset(s.tick(time.Now()))
	}
}

func (s *Session) leave() {
	s.e.crowd.Lock()
	delete(s.e.sessions, s)
	s.e.crowd.Unlock()
	<-s.sub.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetHeard()
}

// tick does what is due and returns how long nothing else is.
func (s *Session) tick(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.clock
	connected := s.e.Connected()
	switch {
	case s.over != nil:
		return time.Hour
	case !connected:
		s.lostLocked()
		return sessionAgain
	case s.down: // on a connection that takes the place of the one that was lost
		s.backLocked()
	}
	if now.Sub(c.heard) >= sessionSilence {
		s.finishLocked(wire.Errorf(wire.CodeUnavailable, "read session %q: the manager has not answered for %s", s.offer.Session, sessionSilence))
		return time.Hour
	}
	if since, missing := s.heard.Missing(); missing && now.Sub(since) >= sessionGap {
		s.openTurn(0, 0)
	}
	if !s.answer && !now.Before(c.again) {
		c.pause = min(2*c.pause, sessionPing)
		c.again = now.Add(c.pause)
		s.sayOpen()
	}
	if !now.Before(c.ping()) {
		_ = s.say(wire.SessionFrame{Kind: wire.FramePing}) // a lost connection shows by itself
		// One before may be lost, and nothing else would say it.
		if s.taken > 0 && s.say(wire.SessionFrame{Kind: wire.FrameAck, Bytes: s.taken}) == nil {
			s.acked = s.taken
		}
		c.spoke, c.pinged = now, now
	}
	wait := min(c.heard.Add(sessionSilence).Sub(now), c.ping().Sub(now))
	if !s.answer {
		wait = min(wait, c.again.Sub(now))
	}
	if since, missing := s.heard.Missing(); missing {
		wait = min(wait, since.Add(sessionGap).Sub(now))
	}
	return max(wait, time.Millisecond)
}

// lost is told that the connection is lost.
func (s *Session) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lostLocked()
}

func (s *Session) lostLocked() {
	if s.down || s.over != nil {
		return
	}
	s.down = true
	s.push(SessionEvent{Kind: SessionLost}, 0)
	s.nudge()
}

// back is told that the connection is there again.
func (s *Session) back() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.backLocked()
	}
}

func (s *Session) backLocked() {
	s.down = false
	s.clock.heard = time.Now()
	s.openTurn(0, 0)
}

// receive takes what arrives for the viewers of this life in this session.
func (s *Session) receive(_ *feed, m *nats.Msg) {
	f, err := wire.DecodeSessionFrame(m.Data)
	if err != nil {
		s.e.drop(m, err)
		return
	}
	if f.Viewer != s.viewer {
		return // of another viewer
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil || f.Turn != s.turn {
		return
	}
	s.clock.heard, s.answer = now, true
	s.heard.Put(f.Seq, f, now, s.apply)
	if _, missing := s.heard.Missing(); missing {
		s.nudge()
	}
}

// apply takes one frame of this turn, in order. mu is held.
func (s *Session) apply(f wire.SessionFrame) {
	if s.over != nil {
		return
	}
	switch f.Kind {
	case wire.FrameSnapshot:
		s.piece(f)
	case wire.FrameOutput:
		if s.painted {
			s.push(SessionEvent{Kind: SessionOutput, Data: f.Data}, len(f.Data))
		}
	case wire.FrameResized:
		if s.painted && f.Cols > 0 && f.Rows > 0 {
			s.push(SessionEvent{Kind: SessionResized, Cols: f.Cols, Rows: f.Rows}, 0)
		}
	case wire.FrameDropped:
		s.push(SessionEvent{Kind: SessionDropped, Bytes: f.Bytes}, 0)
	case wire.FrameWritten:
		s.wrote(f)
	case wire.FrameEnded:
		s.push(SessionEvent{Kind: SessionEnded, Exit: f.Exit}, 0)
		s.finishLocked(io.EOF)
	case wire.FrameError:
		s.finishLocked(f.Error)
	}
}

// wrote takes what the manager tells of the input. What did not come before this turn began will not come any more. mu is held.
func (s *Session) wrote(f wire.SessionFrame) {
	s.paced = true
	if came := s.void + f.Taken; !s.told && came < s.before {
		s.push(SessionEvent{Kind: SessionDropped, Bytes: s.before - came}, 0)
		s.void += s.before - came
	}
	s.told = true
	s.push(SessionEvent{Kind: SessionWritten, Bytes: f.Bytes}, 0)
}

// piece takes one piece of a snapshot. What waits to be shown and is older is not shown any more. mu is held.
func (s *Session) piece(f wire.SessionFrame) {
	if f.First {
		s.pieces = make([]byte, 0, len(f.Data))
	}
	if s.pieces == nil || len(s.pieces)+len(f.Data) > maxSnapshot {
		s.finishLocked(wire.Errorf(wire.CodeResourceExhausted, "read session %q: a snapshot without a beginning, or of more than %d bytes", s.offer.Session, maxSnapshot))
		return
	}
	s.pieces = append(s.pieces, f.Data...)
	s.consume(queued{turn: s.turn, cost: uint64(len(f.Data))})
	if !f.Last {
		return
	}
	ev := SessionEvent{Kind: SessionSnapshot, Data: s.pieces, Cols: f.Cols, Rows: f.Rows, Overflow: f.Overflow}
	s.pieces = nil
	kept := s.queue[:0]
	for _, q := range s.queue {
		switch q.Kind {
		case SessionSnapshot, SessionOutput, SessionResized:
			ev.Overflow = ev.Overflow || q.Overflow
			s.waiting -= q.cost
			s.consume(q)
		default:
			kept = append(kept, q)
		}
	}
	s.queue = kept
	s.painted = true
	s.push(ev, 0)
	s.once.Do(func() { close(s.first) })
}

// push queues an event for Next. mu is held.
func (s *Session) push(ev SessionEvent, cost int) {
	if s.waiting += uint64(cost); s.waiting > 2*s.window {
		s.finishLocked(wire.Errorf(wire.CodeResourceExhausted, "read session %q: the manager sends more than its window of %d bytes", s.offer.Session, s.window))
		return
	}
	switch {
	case s.merge(ev, uint64(cost)):
	case len(s.queue) >= maxQueued && ev.Kind != SessionEnded:
		s.queue, s.waiting = nil, 0
		if !s.down {
			s.openTurn(0, 0) // a snapshot tells it shorter
		}
	default:
		s.queue = append(s.queue, queued{SessionEvent: ev, turn: s.turn, cost: uint64(cost)})
	}
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// merge puts an event together with the one that waits last, where both say less than one message may. Two sizes are not put together:
// a terminal that was small for a moment has lost what did not fit. mu is held.
func (s *Session) merge(ev SessionEvent, cost uint64) bool {
	if len(s.queue) == 0 {
		return false
	}
	last := &s.queue[len(s.queue)-1]
	switch {
	case last.Kind != ev.Kind || last.turn != s.turn:
		return false
	case ev.Kind == SessionOutput:
		if len(last.Data)+len(ev.Data) > wire.MaxSessionData {
			return false
		}
		last.Data = append(last.Data, ev.Data...)
		last.cost += cost
	case ev.Kind == SessionDropped:
		last.Bytes += ev.Bytes
	case ev.Kind == SessionWritten:
		last.Bytes = ev.Bytes
	default:
		return false
	}
	return true
}

// looking returns the sessions of the endpoint.
func (e *Endpoint) looking() []*Session {
	e.crowd.Lock()
	defer e.crowd.Unlock()
	return slices.Collect(maps.Keys(e.sessions))
}

// refuseSession ends the session whose frame the broker denied, and reports whether there was one.
func (e *Endpoint) refuseSession(subject string) bool {
	for _, s := range e.looking() {
		if s.in == subject {
			s.finish(e.denied(s.act()))
			return true
		}
	}
	return false
}
