package endpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/inorder"
	"github.com/cotal-go/cotal/wire"
)

// SessionEventKind says what a [SessionEvent] is about.
type SessionEventKind int

// What happens in a session.
const (
	SessionSnapshot SessionEventKind = iota + 1 // Data repaints an empty terminal of Cols by Rows to what the agent's shows
	SessionOutput                               // Data was written to the agent's terminal
	SessionResized                              // the agent's terminal has Cols by Rows now
	SessionDropped                              // Bytes that were typed did not reach the terminal, 0 when nobody knows how many
	SessionLost                                 // the connection is lost; a snapshot follows when it is back
	SessionWritten                              // Bytes of what was typed in this session were written to the terminal in all, see Session.Paced
	SessionEnded                                // the agent ended, see Exit; the session is over
)

// SessionEvent is one thing that a viewer is told.
type SessionEvent struct {
	Kind       SessionEventKind
	Data       []byte // the receiver's own
	Cols, Rows int    // each at least 1, where they are said to be set
	// Overflow says that a snapshot stands for output that this viewer was too slow for. Nothing ended and nothing is wrong.
	Overflow bool
	Bytes    uint64
	Exit     *wire.SessionExit
}

// SessionOptions adjusts a [Session]. The zero value works.
type SessionOptions struct {
	// Cols and Rows are the size of the viewer. A driver's becomes the size of the agent's terminal. A side of 0 is not known and
	// changes nothing, one above wire.MaxTerminalSide is taken as that.
	Cols, Rows int
	// Pace asks to be told what of the input was written to the terminal, so that the viewer need not type faster than the agent reads.
	// Whether it is told says [Session.Paced].
	Pace bool
}

// Session is a viewer's side of a session at the terminal of an agent. It goes on over reconnects and renewals of its endpoint.
// Make one with [Endpoint.Session]. All methods are safe for concurrent use, but that one goroutine at a time calls Next.
type Session struct {
	e      *Endpoint
	offer  wire.AttachReply
	in     string
	viewer uint64
	sub    *Subscription
	window uint64
	pace   bool // was asked for

	wakeup chan struct{} // capacity 1, wakes Next
	poke   chan struct{} // capacity 1, wakes the clock
	quit   chan struct{} // closed when the session is over
	done   chan struct{} // closed when nothing of it runs any more
	once   sync.Once
	first  chan struct{} // closed with the first snapshot, or when the session is over

	mu      sync.Mutex // guards the fields below
	turn    uint32
	said    uint64 // sequence of what was said last in this turn
	heard   inorder.Queue[wire.SessionFrame]
	painted bool // a snapshot of this turn has come whole
	answer  bool // something of this turn has come
	down    bool // the connection is lost
	pieces  []byte
	queue   []queued
	waiting uint64 // bytes of output in the queue
	taken   uint64 // bytes of this turn that were consumed
	acked   uint64 // those that were said to be
	paced   bool   // the manager tells what of the input was written
	typed   uint64 // bytes of input that were said, in all turns
	before  uint64 // those before this turn
	void    uint64 // those that are known not to have come
	told    bool   // in this turn, what came of those before it
	over    error
	clock   sessionClock
	unheard unheard
}

// queued is an event that was not shown yet, and what it counts against the window of its turn.
type queued struct {
	SessionEvent
	turn uint32
	cost uint64
}

// Bounds of what a viewer keeps for a manager that does not keep to the window.
const (
	maxSnapshot = 32 << 20
	maxQueued   = 4096
)

// Session takes the offer of a session and returns once the terminal can be shown: the first event is a snapshot of it, but for
// SessionWritten.
//
// Errors: conflict when the offer was taken, expired when it is too old, target-mismatch or not-found when it is of something else;
// permission-denied when the credential does not reach sessions; unavailable or deadline-exceeded when the manager does not answer;
// [ErrClosed].
func (e *Endpoint) Session(ctx context.Context, offer wire.AttachReply, opts *SessionOptions) (*Session, error) {
	s, err := e.newSession(offer)
	if err != nil {
		return nil, err
	}
	var o SessionOptions
	if opts != nil {
		o = *opts
	}
	s.pace = o.Pace
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	if err := s.begin(ctx, o); err != nil {
		return nil, err
	}
	select {
	case <-s.first:
	case <-ctx.Done():
		_ = s.Close() // it has no failure that adds to this one
		return nil, e.failure(s.act(), ctx.Err(), true)
	}
	s.mu.Lock()
	over, told := s.over, len(s.queue) > 0
	s.mu.Unlock()
	if over != nil && !told {
		<-s.done
		if over == io.EOF { // closed with its endpoint
			over = ErrClosed
		}
		return nil, over
	}
	return s, nil
}

func (e *Endpoint) newSession(offer wire.AttachReply) (*Session, error) {
	sub := wire.SessionSubject{
		Space: e.identity.Space, Mode: offer.Mode, Endpoint: wire.ManagerEndpoint, Session: offer.Session, Epoch: string(e.identity.UID), In: true,
	}
	in, err := sub.Subject()
	if err != nil {
		return nil, err
	}
	sub.In = false
	out, err := sub.Subject()
	if err != nil {
		return nil, err
	}
	if offer.Window < wire.MinSessionWindow {
		return nil, wire.Errorf(wire.CodeBadRequest, "open session: its window is %d bytes, at least %d", offer.Window, wire.MinSessionWindow)
	}
	s := &Session{
		e: e, offer: offer, in: in, viewer: rand.Uint64(), window: uint64(offer.Window), wakeup: make(chan struct{}, 1),
		poke: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}), first: make(chan struct{}),
	}
	s.sub = e.subscription("", out, nil)
	s.sub.verb, s.sub.take = "open session", s.receive
	return s, nil
}

// begin subscribes, takes the offer and starts the clock.
func (s *Session) begin(ctx context.Context, o SessionOptions) error {
	s.e.topo.Lock()
	defer s.e.topo.Unlock()
	if err := s.e.admit(ctx, s.sub); err != nil {
		return err
	}
	s.e.crowd.Lock()
	s.e.sessions[s] = struct{}{}
	s.e.crowd.Unlock()
	s.mu.Lock()
	s.openTurn(min(max(o.Cols, 0), wire.MaxTerminalSide), min(max(o.Rows, 0), wire.MaxTerminalSide))
	s.mu.Unlock()
	go s.run() // ends when the session is over, which Close and Endpoint.Close see to and wait for
	return nil
}

func (s *Session) act() act { return act{"open session", s.offer.Session, s.in, "sessions"} }

// Next returns the next event, and waits for it. Taking it says that those before it were shown, so that more may come.
//
// Errors: io.EOF after SessionEnded and after Close; unavailable when the manager stopped or does not answer any more, then a new offer
// may go on; permission-denied and others that the manager gives; cancelled or deadline-exceeded for ctx.
func (s *Session) Next(ctx context.Context) (SessionEvent, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			ev := s.pop()
			s.mu.Unlock()
			return ev, nil
		}
		err := s.over
		s.mu.Unlock()
		if err != nil {
			return SessionEvent{}, err
		}
		select {
		case <-s.wakeup:
		case <-s.quit:
		case <-ctx.Done():
			return SessionEvent{}, s.e.failure(act{verb: "read session", operand: s.offer.Session}, ctx.Err(), true)
		}
	}
}

// pop takes the oldest event. mu is held.
func (s *Session) pop() SessionEvent {
	q := s.queue[0]
	s.queue = s.queue[1:]
	if len(s.queue) == 0 {
		s.queue = nil
	}
	s.waiting -= q.cost
	s.consume(q)
	return q.SessionEvent
}

// consume counts what was shown, or will not be, and says so when it is worth a message. mu is held.
func (s *Session) consume(q queued) {
	if q.turn != s.turn {
		return
	}
	s.taken += q.cost
	if s.taken-s.acked < s.window/4 {
		return
	}
	if s.say(wire.SessionFrame{Kind: wire.FrameAck, Bytes: s.taken}) == nil {
		s.acked = s.taken
	}
}

// Paced reports whether the viewer is told, by SessionWritten, what of its input was written. It is not by a manager, or at an agent, that
// was started by an earlier build, and when it did not ask.
func (s *Session) Paced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paced
}

// Input types data at the agent's terminal, after all that was typed before. When it fails nothing, or only the beginning, was typed:
// nothing is kept for later. Only a driver may type; what a viewer types that only looks comes back as SessionDropped.
//
// Errors: unavailable while the connection is lost; io.EOF and others when the session is over, see Next.
func (s *Session) Input(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for chunk := range slices.Chunk(data, wire.MaxSessionData) {
		if err := s.sayNow(wire.SessionFrame{Kind: wire.FrameInput, Data: chunk}); err != nil {
			return err
		}
		s.typed += uint64(len(chunk))
	}
	return nil
}

// Resize says that the viewer has another size now. A driver's becomes the size of the agent's terminal; SessionResized says when. The
// bounds are those of SessionOptions, the errors those of Input.
func (s *Session) Resize(cols, rows int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sayNow(wire.SessionFrame{
		Kind: wire.FrameResize, Cols: min(max(cols, 0), wire.MaxTerminalSide), Rows: min(max(rows, 0), wire.MaxTerminalSide),
	})
}

// Repaint asks for a snapshot. Output that came before and was not taken yet is forgotten, the snapshot shows it. Errors are those of
// Input; while the connection is lost a snapshot comes anyhow, later.
func (s *Session) Repaint() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return s.over
	}
	if !s.down {
		s.openTurn(0, 0)
	}
	return nil
}

// Close leaves the agent's terminal as it is. It may be called more than once, and returns nil.
func (s *Session) Close() error {
	<-s.end()
	return nil
}

// end ends the session; the channel closes when nothing of it runs any more.
func (s *Session) end() <-chan struct{} {
	s.finish(io.EOF)
	return s.done
}

// finish ends the session with err, what Next returns from then on.
func (s *Session) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishLocked(err)
}

func (s *Session) finishLocked(err error) {
	if s.over != nil {
		return
	}
	if err == io.EOF { // who ends by an agent's end needs not be told, and it does no harm
		_ = s.say(wire.SessionFrame{Kind: wire.FrameDetach}) // if it is lost, silence says the same
	}
	s.over = err
	s.once.Do(func() { close(s.first) })
	close(s.quit)
}

// sayNow says f, or tells why that cannot be now. mu is held.
func (s *Session) sayNow(f wire.SessionFrame) error {
	if s.over != nil {
		return s.over
	}
	if err := s.say(f); err != nil {
		return wire.Errorf(wire.CodeUnavailable, "send to session %q: not connected, nothing was sent", s.offer.Session)
	}
	return nil
}

// say sends f in its place, at once or not at all. mu is held.
func (s *Session) say(f wire.SessionFrame) error {
	if s.down {
		return nats.ErrConnectionReconnecting
	}
	f.Viewer, f.Turn, f.Seq = s.viewer, s.turn, s.said+1
	data, err := f.Append(nil)
	if err != nil {
		return err
	}
	if err := s.e.link.Load().nc.Publish(s.in, data); err != nil {
		return err
	}
	s.said++
	s.clock.spoke = time.Now()
	return nil
}

// openTurn begins anew: what was under way is void, and a snapshot comes. mu is held.
func (s *Session) openTurn(cols, rows int) {
	s.turn++
	s.before, s.told = s.typed, false
	s.said, s.taken, s.acked = 0, 0, 0
	s.painted, s.answer, s.pieces = false, false, nil
	s.unheard.count = 0
	s.heard.Reset()
	s.clock.open(time.Now(), wire.SessionOpen{V: 1, Instance: s.offer.Instance, UID: s.offer.UID, Cols: cols, Rows: rows, Pace: s.pace})
	s.sayOpen()
}

// sayOpen says the open of this turn, again when it was said before. mu is held.
func (s *Session) sayOpen() {
	open := s.clock.asked
	f := wire.SessionFrame{Kind: wire.FrameOpen, Viewer: s.viewer, Turn: s.turn, Seq: 1, Open: &open}
	data, err := f.Append(nil)
	if err == nil && !s.down {
		nc := s.e.link.Load().nc
		_ = nc.PublishMsg(&nats.Msg{Subject: s.in, Reply: s.askHeard(nc), Data: data}) // the clock says it again
	}
	s.said = max(s.said, 1)
	s.nudge()
}

// nudge makes the clock look.
func (s *Session) nudge() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// String names the session without what would open it.
func (s *Session) String() string {
	return fmt.Sprintf("session at %s, viewer %x", s.offer.UID, binary.BigEndian.AppendUint64(nil, s.viewer)[:2])
}
