package relay

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// Defaults of [Options], and what is fixed.
const (
	DefaultSessions  = 64
	DefaultPerCaller = 16
	DefaultPerAgent  = 32
	DefaultWindow    = 256 << 10
	DefaultTimeout   = 5 * time.Second // of a call whose context has no deadline

	// OfferLife is how long an offer holds.
	OfferLife = 10 * time.Second
	// Silence is after what time without a word a viewer is taken to be gone.
	Silence = 20 * time.Second

	// A session that is over tells why for a while; of so many at most.
	afterlife  = time.Minute
	maxGone    = 128
	sweepEvery = time.Second
	// What a viewer sent waits in the connection up to this much; more is lost, and noticed.
	pendingFrames, pendingBytes = 1024, 4 << 20
)

// Options adjusts a [Relay]. The zero value works.
type Options struct {
	// Sessions bounds the sessions and open offers, PerCaller those of one life, PerAgent those at one terminal. Default 64, 16 and 32.
	Sessions, PerCaller, PerAgent int
	// Window is how many bytes of output may be under way to a viewer, at least wire.MinSessionWindow. Default 256 KiB.
	Window int
	// Logger may be nil.
	Logger *slog.Logger
}

// Relay keeps the sessions of one instance of the manager. Make one with [New].
type Relay struct {
	space    wire.Space
	instance string
	opts     Options
	log      *slog.Logger
	lines    atomic.Pointer[[]*nats.Conn] // newest last

	run  context.Context // of everything that the relay started
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex // guards the fields below, session.subs and the writing of lines
	sessions map[string]*session
	closed   bool

	life  sync.Mutex // guards ended; taken last
	ended bool       // nothing is started any more
}

// New returns the relay of an instance over nc, which the caller owns and whose credential has the supervisor profile; nil means that
// the connection comes with AddConn. It panics when space or instance cannot be.
func New(nc *nats.Conn, space wire.Space, instance string, opts *Options) *Relay {
	probe := wire.SessionSubject{Space: space, Endpoint: wire.ManagerEndpoint, Session: instance, Epoch: instance}
	if _, err := probe.Subject(); err != nil {
		panic("relay: New: " + err.Error())
	}
	r := &Relay{space: space, instance: instance, sessions: map[string]*session{}}
	if opts != nil {
		r.opts = *opts
	}
	r.opts.Sessions = orDefault(r.opts.Sessions, DefaultSessions)
	r.opts.PerCaller = orDefault(r.opts.PerCaller, DefaultPerCaller)
	r.opts.PerAgent = orDefault(r.opts.PerAgent, DefaultPerAgent)
	r.opts.Window = max(orDefault(r.opts.Window, DefaultWindow), wire.MinSessionWindow)
	if r.opts.Logger == nil {
		r.opts.Logger = slog.New(slog.DiscardHandler)
	}
	r.log = r.opts.Logger.With(logkey.Component, "relay", logkey.Space, string(space), logkey.Instance, instance)
	r.run, r.stop = context.WithCancel(context.Background())
	lines := []*nats.Conn{}
	if nc != nil {
		lines = append(lines, nc)
	}
	r.lines.Store(&lines)
	return r
}

func orDefault(n, def int) int {
	if n <= 0 {
		return def
	}
	return n
}

// Caller is who asked for a session, and in which mode. The broker holds both in the subject of the session.
type Caller struct {
	Life wire.Lifecycle
	Mode wire.Mode // none, owner or any
}

// Offer makes an offer of a session at the terminal t of agent target to the life of caller, and returns once it can be taken. With
// Drive in the request the session may type and sets the terminal's size when it begins.
//
// Errors: bad-request for a size, life or mode that cannot be; resource-exhausted when there are too many sessions and open offers, with "used" and
// "allowed"; unavailable when the relay is closed, has no connection, or the terminal is gone; deadline-exceeded.
func (r *Relay) Offer(ctx context.Context, caller Caller, target wire.UID, t Terminal, req wire.AttachRequest) (wire.AttachReply, error) {
	if max(req.Cols, req.Rows) > wire.MaxTerminalSide || min(req.Cols, req.Rows) < 0 {
		return wire.AttachReply{}, wire.Errorf(wire.CodeBadRequest, "offer session: a terminal of %d by %d, at most %d either way", req.Cols, req.Rows, wire.MaxTerminalSide)
	}
	if err := target.Validate(); err != nil {
		return wire.AttachReply{}, err
	}
	r.mu.Lock()
	err := r.full(caller.Life, target, time.Now()) // before the terminal is asked anything
	r.mu.Unlock()
	if err != nil {
		return wire.AttachReply{}, err
	}
	cols, rows, err := t.Size(ctx)
	if err != nil {
		return wire.AttachReply{}, err
	}
	s := &session{
		r: r, id: rand.Text(), caller: caller, target: target, term: t, drive: req.Drive,
		until: time.Now().Add(OfferLife), room: make(chan struct{}, 1), work: make(chan struct{}, 1),
		paces: make(chan struct{}, 1),
	}
	if err := s.address(); err != nil {
		return wire.AttachReply{}, err
	}
	if err := r.admit(s); err != nil {
		return wire.AttachReply{}, err
	}
	for _, nc := range *r.lines.Load() {
		if err := flush(ctx, nc); err != nil && nc.IsConnected() {
			s.finish(wire.SessionFrame{Kind: wire.FrameError, Error: wire.Errorf(wire.CodeUnavailable, "offer session: %v", err)})
			return wire.AttachReply{}, wire.Errorf(wire.CodeUnavailable, "offer session: the broker does not answer: %v", err)
		}
	}
	return wire.AttachReply{
		Session: s.id, Mode: caller.Mode, Instance: r.instance, UID: target, Window: r.opts.Window, Cols: cols, Rows: rows,
	}, nil
}

// flush returns once the broker has seen everything that was sent on nc, within DefaultTimeout unless ctx says otherwise.
func flush(ctx context.Context, nc *nats.Conn) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	return nc.FlushWithContext(ctx)
}

// admit counts a session in and subscribes it.
func (r *Relay) admit(s *session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := *r.lines.Load()
	if r.closed || len(lines) == 0 {
		return wire.Errorf(wire.CodeUnavailable, "offer session: the supervisor is about to stop, or is not connected yet")
	}
	now := time.Now()
	if err := r.full(s.caller.Life, s.target, now); err != nil {
		return err
	}
	var gone []*session
	for _, o := range r.sessions {
		if o.state.Load() == stateOver {
			gone = append(gone, o)
		}
	}
	r.bury(gone, now)
	for _, nc := range lines {
		if err := s.listen(nc); err != nil && !nc.IsClosed() {
			s.deafen()
			return wire.Errorf(wire.CodeUnavailable, "offer session: %v", err)
		}
	}
	r.sessions[s.id] = s
	return nil
}

// full refuses one session more, over a limit. mu is held.
func (r *Relay) full(caller wire.Lifecycle, target wire.UID, now time.Time) error {
	all, own, there := 0, 0, 0
	for _, o := range r.sessions {
		if !o.alive(now) {
			continue
		}
		all++
		if o.caller.Life == caller {
			own++
		}
		if o.target == target {
			there++
		}
	}
	for _, l := range []struct {
		used, allowed int
		of            string
	}{
		{own, r.opts.PerCaller, "of " + caller.Principal.String()},
		{there, r.opts.PerAgent, "at this terminal"},
		{all, r.opts.Sessions, "of this supervisor"},
	} {
		if l.used >= l.allowed {
			e := wire.Errorf(wire.CodeResourceExhausted, "offer session: %d sessions and open offers %s, at most %d; end one first", l.used, l.of, l.allowed)
			e.Outcome = wire.OutcomeNotExecuted
			e.Details = map[string]any{"used": l.used, "allowed": l.allowed}
			return e
		}
	}
	return nil
}

// AddConn carries all sessions on nc too, and later output goes there. It returns once the broker has the subscriptions. Errors:
// unavailable, deadline-exceeded; then nothing has changed.
func (r *Relay) AddConn(ctx context.Context, nc *nats.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := *r.lines.Load()
	if slices.Contains(lines, nc) {
		return nil
	}
	for _, s := range r.sessions {
		if err := s.listen(nc); err != nil {
			r.forget(nc)
			return wire.Errorf(wire.CodeUnavailable, "carry sessions: %v", err)
		}
	}
	if err := flush(ctx, nc); err != nil {
		r.forget(nc)
		return wire.Errorf(wire.CodeUnavailable, "carry sessions: the broker does not answer: %v", err)
	}
	next := append(slices.Clone(lines), nc)
	r.lines.Store(&next)
	return nil
}

// RemoveConn ends the use of nc, which stays the caller's own, and returns when what came on it has been taken, at the latest after
// DefaultTimeout. Output that was sent there may be under way still, so it should be flushed before it is closed.
func (r *Relay) RemoveConn(nc *nats.Conn) {
	r.mu.Lock()
	next := slices.DeleteFunc(slices.Clone(*r.lines.Load()), func(l *nats.Conn) bool { return l == nc })
	r.lines.Store(&next)
	ended := r.forget(nc)
	r.mu.Unlock()
	limit := time.NewTimer(DefaultTimeout)
	defer limit.Stop()
	for _, done := range ended {
		select {
		case <-done:
		case <-limit.C:
			return
		}
	}
}

// forget ends what sessions have on nc, and returns channels that close when it has ended. mu is held.
func (r *Relay) forget(nc *nats.Conn) []<-chan struct{} {
	var ended []<-chan struct{}
	for _, s := range r.sessions {
		if done := s.unlisten(nc); done != nil {
			ended = append(ended, done)
		}
	}
	return ended
}

// line is the connection for what is sent: the newest that works, nil without any.
func (r *Relay) line() *nats.Conn {
	lines := *r.lines.Load()
	for _, nc := range slices.Backward(lines) {
		if nc.IsConnected() {
			return nc
		}
	}
	return nil
}

// Sessions counts the sessions that are open.
func (r *Relay) Sessions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.sessions {
		if s.state.Load() == stateOpen {
			n++
		}
	}
	return n
}

// End ends the sessions at an agent with err, which its viewers are told.
func (r *Relay) End(target wire.UID, err *wire.Error) {
	for _, s := range r.all() {
		if s.target == target {
			s.finish(wire.SessionFrame{Kind: wire.FrameError, Error: err})
		}
	}
}

func (r *Relay) all() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*session, 0, len(r.sessions))
	for _, s := range r.sessions {
		all = append(all, s)
	}
	return all
}

// Run ends offers and viewers whose time is over, until ctx ends; then it closes the relay and returns nil.
func (r *Relay) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.Close()
			return nil
		case <-r.run.Done():
			r.Close()
			return nil
		case <-tick.C:
			r.sweep(time.Now())
		}
	}
}

// Close tells every viewer that the supervisor stops, ends all sessions and waits for what runs. It may be called more than once.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for _, s := range r.all() {
		s.finish(wire.SessionFrame{Kind: wire.FrameError, Error: wire.Errorf(wire.CodeUnavailable, "the supervisor stops; the agent goes on")})
	}
	r.life.Lock()
	r.ended = true
	r.life.Unlock()
	r.stop()
	r.wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		s.deafen()
	}
	clear(r.sessions)
}

// sweep ends what is late and forgets what has been over for long.
func (r *Relay) sweep(now time.Time) {
	var gone []*session
	for _, s := range r.all() {
		if s.expire(now) {
			gone = append(gone, s)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bury(gone, now)
}

// bury forgets of the sessions that are over those that have been for long, and the oldest of too many. mu is held.
func (r *Relay) bury(gone []*session, now time.Time) {
	slices.SortFunc(gone, func(a, b *session) int { return a.ended().Compare(b.ended()) })
	for i, s := range gone {
		if len(gone)-i > maxGone || now.Sub(s.ended()) > afterlife {
			s.deafen()
			delete(r.sessions, s.id)
		}
	}
}

// start runs f until it returns, unless the relay is closed.
func (r *Relay) start(f func()) {
	r.life.Lock()
	defer r.life.Unlock()
	if !r.ended {
		r.wg.Go(f)
	}
}
