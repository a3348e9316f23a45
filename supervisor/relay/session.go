package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/inorder"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// The states of a session, in their order.
const (
	stateOffered int32 = iota
	stateOpen
	stateOver
)

const (
	// gapWait is how long what changed places on the way may take. What is missing longer was lost.
	gapWait = time.Second
	// maxTyped bounds what was typed and waits for the terminal, in bytes and in frames.
	maxTyped, maxTypedFrames = 256 << 10, 1024
	// typeWithin bounds how long a terminal may take for one piece.
	typeWithin = 10 * time.Second
)

// session is an offer and what comes of it.
type session struct {
	r       *Relay
	id      string
	caller  Caller
	target  wire.UID
	term    Terminal
	drive   bool
	until   time.Time // of the offer
	in, out string
	room    chan struct{} // capacity 1: the viewer has consumed something
	work    chan struct{} // capacity 1: something is to be typed
	paces   chan struct{} // capacity 1: something was typed of which is to be told when it was written

	subs  map[*nats.Conn]*ear // guarded by Relay.mu
	state atomic.Int32        // written under mu

	mu     sync.Mutex // guards the fields below
	viewer uint64
	turn   uint32
	cancel context.CancelFunc // ends the view of the turn
	order  inorder.Queue[wire.SessionFrame]
	sent   uint64 // sequence of what was said last in this turn
	flow   uint64 // bytes of this turn that were sent
	acked  uint64 // those that were consumed
	heard  time.Time
	typed  []wire.SessionFrame // input and resizes that wait for the terminal
	typing int                 // bytes of them
	pacer  Pacer               // the terminal, of a viewer that keeps pace; set before anything is typed
	leave  context.CancelFunc  // ends what tells that
	taken  uint64              // bytes of input that came in their order, in all turns
	due    []entered           // of those, what the terminal has taken and not written
	wrote  uint64              // and what it has written
	last   wire.SessionFrame   // what it says once it is over
	over   time.Time
}

func (s *session) address() error {
	sub := wire.SessionSubject{
		Space: s.r.space, Mode: s.caller.Mode, Endpoint: wire.ManagerEndpoint, Session: s.id, Epoch: string(s.caller.Life.UID), In: true,
	}
	var err error
	if s.in, err = sub.Subject(); err != nil {
		return err
	}
	sub.In = false
	s.out, err = sub.Subject()
	return err
}

// listen takes what comes on nc. Relay.mu is held.
func (s *session) listen(nc *nats.Conn) error {
	sub, err := nc.Subscribe(s.in, s.receive)
	if err != nil {
		return err
	}
	if s.subs == nil {
		s.subs = map[*nats.Conn]*ear{}
	}
	e := &ear{sub: sub, done: make(chan struct{})}
	s.subs[nc] = e
	sub.SetClosedHandler(func(string) { close(e.done) })
	return sub.SetPendingLimits(pendingFrames, pendingBytes)
}

// ear is a subscription.
type ear struct {
	sub  *nats.Subscription
	done chan struct{} // closed when what came on it has been taken
}

// unlisten ends what comes on nc, after what has come already; the channel, which may be nil, closes then. Relay.mu is held.
func (s *session) unlisten(nc *nats.Conn) <-chan struct{} {
	e := s.subs[nc]
	if e == nil {
		return nil
	}
	delete(s.subs, nc)
	if !nc.IsConnected() || e.sub.Drain() != nil {
		_ = e.sub.Unsubscribe() // a closed connection has ended it already
	}
	return e.done
}

// deafen ends all of that. Relay.mu is held.
func (s *session) deafen() {
	for nc := range s.subs {
		s.unlisten(nc)
	}
}

// alive reports whether the session counts.
func (s *session) alive(now time.Time) bool {
	switch s.state.Load() {
	case stateOffered:
		return !now.After(s.until)
	case stateOpen:
		return true
	}
	return false
}

// ended is when the session was over.
func (s *session) ended() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// expire ends the session when its time has come, and reports whether it is over.
func (s *session) expire(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state.Load() {
	case stateOffered:
		if now.After(s.until) {
			s.finishLocked(refusal(wire.CodeExpired, "the offer of a session has expired, ask for another"), now)
		}
	case stateOpen:
		if now.Sub(s.heard) > Silence {
			s.finishLocked(refusal(wire.CodeUnavailable, "the viewer has said nothing for "+Silence.String()), now)
		}
	}
	return s.state.Load() == stateOver
}

func refusal(code wire.Code, text string) wire.SessionFrame {
	return wire.SessionFrame{Kind: wire.FrameError, Error: wire.Errorf(code, "%s", text)}
}

// receive takes a frame from a connection. Two connections may bring the same.
func (s *session) receive(m *nats.Msg) {
	f, err := wire.DecodeSessionFrame(m.Data)
	if err != nil {
		s.r.log.Debug("frame dropped", logkey.UID, s.target, logkey.Error, err)
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state.Load() {
	case stateOffered:
		s.take(f, now)
	case stateOpen:
		s.hear(f, now)
	case stateOver:
		s.tellEnd(f)
	}
}

// take opens the session for the first viewer that asks as the offer says. mu is held.
func (s *session) take(f wire.SessionFrame, now time.Time) {
	switch {
	case now.After(s.until):
		s.finishLocked(refusal(wire.CodeExpired, "the offer of a session has expired, ask for another"), now)
		s.tellEnd(f)
	case f.Kind != wire.FrameOpen:
		s.refuse(f, refusal(wire.CodeFailedPrecondition, "the session is not open"))
	case f.Open.Instance != s.r.instance || f.Open.UID != s.target:
		s.refuse(f, refusal(wire.CodeTargetMismatch, "the offer is of another agent or another supervisor"))
	default:
		s.state.Store(stateOpen)
		s.viewer, s.heard = f.Viewer, now
		s.keepPace(f.Open.Pace)
		s.r.log.Info("session opened", logkey.Principal, s.caller.Life.Principal.String(), logkey.UID, s.target)
		s.r.start(s.typist)
		s.begin(f, now)
	}
}

// keepPace has the viewer told what of its input was written, if it asks and the terminal can tell. mu is held.
func (s *session) keepPace(asked bool) {
	p, ok := s.term.(Pacer)
	if !asked || !ok || !s.drive {
		return
	}
	var ctx context.Context
	s.pacer = p
	ctx, s.leave = context.WithCancel(s.r.run)
	s.r.start(func() { s.pace(ctx) })
}

// refuse answers a frame of somebody whose session this is not. mu is held.
func (s *session) refuse(f, answer wire.SessionFrame) {
	answer.Viewer, answer.Turn, answer.Seq = f.Viewer, f.Turn, 1
	s.post(answer)
}

// tellEnd says again why the session is over. mu is held.
func (s *session) tellEnd(f wire.SessionFrame) {
	if f.Kind != wire.FrameOpen && f.Kind != wire.FramePing {
		return
	}
	a := s.last
	a.Viewer, a.Turn, a.Seq = f.Viewer, f.Turn, 1
	switch {
	case f.Viewer != s.viewer:
		a = refusal(wire.CodeConflict, "the offer of a session was taken")
		if s.turn == 0 { // by nobody
			a = s.last
		}
		a.Viewer, a.Turn, a.Seq = f.Viewer, f.Turn, 1
	case f.Turn == s.turn:
		a.Seq = max(s.sent, 1)
	}
	s.post(a)
}

// hear takes a frame of an open session. mu is held.
func (s *session) hear(f wire.SessionFrame, now time.Time) {
	switch {
	case f.Viewer != s.viewer:
		if f.Kind == wire.FrameOpen {
			s.refuse(f, refusal(wire.CodeConflict, "the offer of a session was taken"))
		}
		return
	case f.Turn > s.turn && f.Kind == wire.FrameOpen:
		s.heard = now
		s.begin(f, now)
		return
	case f.Turn != s.turn:
		return
	}
	s.heard = now
	s.order.Put(f.Seq, f, now, s.apply)
	if _, missing := s.order.Missing(); missing {
		wake(s.work)
	}
}

// begin starts a turn: what was under way is void, and the view begins anew. mu is held.
func (s *session) begin(f wire.SessionFrame, now time.Time) {
	s.turn, s.sent, s.flow, s.acked = f.Turn, 0, 0, 0
	s.order.Reset()
	s.order.Put(f.Seq, f, now, func(wire.SessionFrame) {})
	if s.cancel != nil {
		s.cancel()
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(s.r.run)
	if s.pacer != nil {
		s.sayWritten()
	}
	turn, cols, rows := s.turn, f.Open.Cols, f.Open.Rows
	s.r.start(func() {
		if s.drive && cols > 0 && rows > 0 {
			s.resize(ctx, cols, rows)
		}
		s.play(ctx, turn)
	})
}

// apply takes a frame of this turn, in order. mu is held.
func (s *session) apply(f wire.SessionFrame) {
	switch f.Kind {
	case wire.FrameInput:
		s.taken += uint64(len(f.Data))
		if !s.drive || s.typing+len(f.Data) > maxTyped || len(s.typed) >= maxTypedFrames {
			s.say(wire.SessionFrame{Kind: wire.FrameDropped, Bytes: uint64(len(f.Data))})
			return
		}
		s.typing += len(f.Data)
		s.typed = append(s.typed, f)
		wake(s.work)
	case wire.FrameResize:
		if !s.drive || f.Cols == 0 || f.Rows == 0 {
			return
		}
		if n := len(s.typed); n > 0 && s.typed[n-1].Kind == wire.FrameResize {
			s.typed = s.typed[:n-1] // nobody saw it yet
		}
		s.typed = append(s.typed, f)
		wake(s.work)
	case wire.FrameAck:
		s.acked = max(s.acked, min(f.Bytes, s.flow))
		wake(s.room)
	case wire.FramePing:
		s.say(wire.SessionFrame{Kind: wire.FramePong})
	case wire.FrameDetach:
		s.finishLocked(refusal(wire.CodeNotFound, "the viewer has left the session"), time.Now())
	}
}

func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// say sends f in its place. Without a connection it is lost, which its number shows. mu is held.
func (s *session) say(f wire.SessionFrame) {
	s.sent++
	f.Viewer, f.Turn, f.Seq = s.viewer, s.turn, s.sent
	s.post(f)
}

func (s *session) post(f wire.SessionFrame) {
	data, err := f.Append(nil)
	if err != nil {
		s.r.log.Error("frame not sent", logkey.UID, s.target, logkey.Error, err)
		return
	}
	if nc := s.r.line(); nc != nil {
		_ = nc.Publish(s.out, data) // what is lost is asked for again
	}
}

// finish ends the session with the last thing that it says.
func (s *session) finish(last wire.SessionFrame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishLocked(last, time.Now())
}

func (s *session) finishLocked(last wire.SessionFrame, now time.Time) {
	was := s.state.Swap(stateOver)
	if was == stateOver {
		return
	}
	s.last, s.over = last, now
	if was == stateOpen {
		s.say(last)
		s.r.log.Info("session over", logkey.Principal, s.caller.Life.Principal.String(), logkey.UID, s.target, logkey.Reason, reason(last))
	}
	if s.cancel != nil {
		s.cancel()
	}
	if s.leave != nil {
		s.leave()
	}
	wake(s.work)
}

func reason(f wire.SessionFrame) string {
	if f.Error != nil {
		return f.Error.Error()
	}
	return "the agent ended"
}
