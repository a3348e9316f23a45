package endpoint

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/wire"
)

// Headers that the broker puts on the live copy of a stored message.
const (
	headerSequence     = "Nats-Sequence"
	headerLastSequence = "Nats-Last-Sequence"
	headerTime         = "Nats-Time-Stamp"
)

// How much one subscription or queue remembers of the subjects it received: their number, and what they take in bytes,
// since a channel may have a long name.
const (
	maxPeers     = 8192
	maxPeerBytes = 4 << 20
	peerBytes    = 256 // besides the subject itself
)

// Subscription receives the live messages of the channels of one pattern.
type Subscription struct {
	e       *Endpoint
	pattern string
	filter  string
	verb    string // what it is for, when it is not a channel
	fn      func(*Delivery)
	take    func(*feed, *nats.Msg) // what is received, on the goroutine of the feed
	again   func(*feed)            // if not nil, told of the feed that replaces a broken or old one

	cur    *feed  // where messages come from; guarded by Endpoint.topo
	made   uint64 // feeds made; guarded by Endpoint.topo
	left   atomic.Bool
	breaks uint64 // of the endpoint when the subscription was made

	run   sync.Mutex // held while a message is handled; guards the fields below
	peers map[string]*peer
	bytes int // that peers take
	seen  seen
	base  uint64 // what was stored after this sequence has been received, whoever sent it
	hazy  bool   // something may have been missed before base of a subject that is not in peers

	forgotten uint64 // what was known of subjects that are not in peers does not go beyond it
}

// feed is a subscription's body on one link.
type feed struct {
	l       *link
	n       uint64 // which feed of its subscription, from 1
	returns uint64 // how often the connection had come back before
	sub     *nats.Subscription
	lapse   lapse
	dropped chan struct{} // closed when the feed never came into use
	done    chan struct{} // closed after the last message of this feed, and of those before it, was handled
}

// peer is what is known of one sender's subject, so that a subject is taken apart once and not per message.
type peer struct {
	sub    wire.Subject
	sender string // dot form
	last   uint64 // the sequence received last
	at     time.Time
	given  uint64 // what is stored was read up to here, as far as a membership wants it
}

// noWait is the end of a feed that never was.
var noWait = func() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// Pattern returns what the subscription covers.
func (s *Subscription) Pattern() string { return s.pattern }

// String names the subscription.
func (s *Subscription) String() string { return "subscription to channels " + strconv.Quote(s.pattern) }

// Listen receives live messages of every channel that the pattern matches. When it returns nil, the broker has accepted
// the subscription: everything stored from then on arrives, or is reported as an [EventGap] when the next message of
// the same sender on the same channel arrives.
//
// The handler is called with one message after the other, and must return. It must neither leave its own subscription
// nor close its endpoint; both wait for it.
//
// Errors: bad-request for a bad pattern; permission-denied when the credential does not cover the whole pattern;
// unavailable or deadline-exceeded when the broker did not confirm; [ErrClosed]. It panics on a nil handler.
func (e *Endpoint) Listen(ctx context.Context, pattern string, fn func(*Delivery)) (*Subscription, error) {
	if fn == nil {
		panic("endpoint: Listen needs a handler")
	}
	filter, err := wire.LiveFilter(e.identity.Space, pattern)
	if err != nil {
		return nil, err
	}
	s := e.subscription(pattern, filter, fn)
	s.take = s.receive
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	e.topo.Lock()
	defer e.topo.Unlock()
	if err := e.admit(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

// subscription is one that is not subscribed yet.
func (e *Endpoint) subscription(pattern, filter string, fn func(*Delivery)) *Subscription {
	return &Subscription{
		e: e, pattern: pattern, filter: filter, fn: fn,
		peers: make(map[string]*peer), seen: newSeen(e.opts.DedupSize), breaks: e.breaks.Load(),
	}
}

// admit subscribes s and returns nil once the broker has accepted it. topo is held.
func (e *Endpoint) admit(ctx context.Context, s *Subscription) error {
	l, err := e.current()
	if err != nil {
		return err
	}
	if s.cur, err = s.attach(l, noWait); err != nil {
		return e.failure(s.act(), err, false)
	}
	denied, err := l.confirm(ctx, s.filter)
	if err == nil && len(denied) == 0 {
		e.joins[s] = struct{}{}
		return nil
	}
	s.left.Store(true)
	_ = s.cur.sub.Unsubscribe() // a closed connection has ended it already
	if err != nil {
		return e.failure(s.act(), err, false)
	}
	return e.denied(s.act())
}

func (s *Subscription) act() act {
	if s.verb != "" {
		return act{s.verb, s.filter, s.filter, "that subscription"}
	}
	return act{"join channel", s.pattern, s.filter, "subscribe " + s.pattern}
}

// Leave ends the subscription. When it returns nil no handler runs and none will. It waits for the running one, so a
// handler must not leave its own subscription; when ctx ends first the rest happens by itself.
func (s *Subscription) Leave(ctx context.Context) error {
	select {
	case <-s.end():
		return nil
	case <-ctx.Done():
		return s.e.failure(act{verb: "leave channel", operand: s.pattern}, ctx.Err(), true)
	}
}

// end ends the subscription; the channel closes when its handler does not run any more.
func (s *Subscription) end() <-chan struct{} {
	s.left.Store(true)
	s.e.topo.Lock()
	cur := s.cur
	delete(s.e.joins, s)
	s.e.topo.Unlock()
	_ = cur.sub.Unsubscribe() // a closed connection has ended it already
	return cur.done
}

// attach subscribes on l. Messages wait until before is closed: until the feed that this one follows has ended.
func (s *Subscription) attach(l *link, before <-chan struct{}) (*feed, error) {
	s.made++
	f := &feed{l: l, n: s.made, returns: l.nc.Stats().Reconnects, done: make(chan struct{}), dropped: make(chan struct{})}
	open := false // used by the subscription's goroutine alone
	sub, err := l.nc.Subscribe(s.filter, func(m *nats.Msg) {
		if !open {
			select {
			case <-before:
				open = true
			case <-l.closed:
				return
			case <-f.dropped:
				return
			}
		}
		returned := false
		defer func() {
			if !returned {
				go s.revive(f) // ends with f.done, which Close and Leave wait for
			}
		}()
		s.take(f, m)
		returned = true
	})
	if err != nil {
		return nil, err
	}
	f.sub = sub
	sub.SetClosedHandler(func(string) {
		select {
		case <-before:
		case <-f.dropped:
		}
		close(f.done)
	})
	return f, sub.SetPendingLimits(s.e.opts.LiveBacklog, s.e.opts.LiveBacklog*liveBacklogBytes)
}

// revive goes on with a new feed after a handler ended the goroutine of f. What waited there is lost, and shows as a gap.
func (s *Subscription) revive(f *feed) {
	s.e.topo.Lock()
	defer s.e.topo.Unlock()
	defer close(f.done) // nobody else can: the goroutine that would is gone
	s.e.breaks.Add(1)
	if s.cur == f && !s.left.Load() && !s.e.closing.Load() {
		if next, err := s.attach(f.l, f.done); err == nil { // else the connection is closed, and its successor attaches
			s.cur = next
			if s.again != nil {
				s.again(next)
			}
		}
	}
	_ = f.sub.Unsubscribe() // a closed connection has ended it already
}

// liveBacklogBytes is the mean message size that LiveBacklog is thought for; a backlog of larger ones ends sooner.
const liveBacklogBytes = 1 << 10

// confirm returns once the broker has decided about subscriptions made on l, with those that it denied.
//
// The broker reports a denied subscription asynchronously, before it answers the next ping. nats.go keeps that error
// with the subscription but shows it only to synchronous ones, so a second, throw-away subscription to each subject
// is read in place of the real one.
func (l *link) confirm(ctx context.Context, filters ...string) (denied []string, err error) {
	probes := make([]*nats.Subscription, 0, len(filters))
	defer func() {
		for _, p := range probes {
			_ = p.Unsubscribe() // a closed connection has ended it already
		}
	}()
	const each = 2 // denials: of the real subscription, and of the probe
	for _, f := range filters {
		ch := make(chan *nats.Msg, 1)
		ch <- &nats.Msg{} // so that the read below never waits, and nothing real is taken
		p, err := l.nc.ChanSubscribe(f, ch)
		if err != nil {
			return nil, err
		}
		l.expect(f, each)
		probes = append(probes, p)
	}
	err = l.nc.FlushWithContext(ctx)
	for _, p := range probes {
		if _, perr := p.NextMsg(time.Minute); err == nil && errors.Is(perr, nats.ErrPermissionViolation) {
			denied = append(denied, p.Subject)
		} else {
			l.expect(p.Subject, -each)
		}
	}
	return denied, err
}

// arrival is a live message whose frame was checked; nothing of its body was.
type arrival struct {
	p         *peer
	seq, last uint64
	at        time.Time
}

// receive handles one live message.
func (s *Subscription) receive(f *feed, m *nats.Msg) {
	s.run.Lock()
	defer s.run.Unlock()
	if s.left.Load() {
		return
	}
	a, ok := s.inspect(m)
	if !ok || !s.advance(f, a) {
		return
	}
	if d := s.read(a, m); d != nil && s.fresh(d, a.p.sender) && s.e.invoke(s.fn, d) {
		s.e.shown.disown(d)
	}
}

// inspect checks where a message comes from and what the broker says about it.
func (s *Subscription) inspect(m *nats.Msg) (a arrival, ok bool) {
	if !header.Whole(m) {
		s.e.drop(m, errHeader())
		return a, false
	}
	if a.p = s.peers[m.Subject]; a.p == nil {
		var err error
		if a.p, err = s.learn(m.Subject); err != nil {
			s.e.drop(m, err)
			return a, false
		}
	}
	if a.seq, a.last, a.at, ok = livePosition(m.Header); !ok {
		s.e.drop(m, wire.Errorf(wire.CodeBadRequest, "live message without the broker's position"))
	}
	return a, ok
}

// read decodes the body; nil: it is no message, which was reported.
func (s *Subscription) read(a arrival, m *nats.Msg) *Delivery {
	msg, err := decode(a.p.sub, m.Data)
	if err != nil {
		s.e.drop(m, err)
		return nil
	}
	return &Delivery{
		Message: msg, Kind: wire.KindChannel, Sender: a.p.sub.Sender, Channel: a.p.sub.Channel, Sequence: a.seq, Time: a.at,
	}
}

// fresh reports whether neither this subscription showed the sender's message before nor the handler of mentions did.
func (s *Subscription) fresh(d *Delivery, sender string) bool {
	if key, ok := s.seen.key(sender, d.Message.ID); ok {
		if _, dup := s.seen.find(key); dup {
			return false
		}
		s.seen.put(key, mark{seq: d.Sequence, settled: true})
	}
	return len(d.Message.Mentions) == 0 || s.e.shown.claim(d, false)
}

// learn takes a subject apart that was not seen before.
func (s *Subscription) learn(subject string) (*peer, error) {
	sub, err := wire.ParseSubject(subject)
	if err != nil {
		return nil, err
	}
	if err := sub.Surface(); err != nil {
		return nil, err
	}
	if sub.Kind != wire.KindLive || sub.Space != s.e.identity.Space || !wire.PatternMatches(s.pattern, sub.Channel) {
		return nil, misplaced("subscription %q", s.pattern)
	}
	if len(s.peers) >= maxPeers || s.bytes >= maxPeerBytes {
		s.forget()
	}
	p := &peer{sub: sub, sender: sub.Sender.String(), given: s.forgotten}
	s.peers[subject] = p
	s.bytes += peerBytes + len(subject)
	return p, nil
}

// forget drops a quarter of the subjects. Gaps of those can then be told for certain only from what was stored after the
// last of them.
func (s *Subscription) forget() {
	s.hazy = true
	n := len(s.peers)/4 + 1
	for subject, p := range s.peers {
		if n == 0 {
			return
		}
		n--
		s.base = max(s.base, p.last)
		s.forgotten = max(s.forgotten, p.last, p.given)
		s.bytes -= peerBytes + len(subject)
		delete(s.peers, subject)
	}
}

// advance moves a peer's position to a message and reports whether it is new. Its last is the sequence before it on the
// same subject: if that was not received, there is a gap.
func (s *Subscription) advance(f *feed, a arrival) bool {
	p := a.p
	if a.seq <= p.last {
		if !a.at.After(p.at) {
			return false // the same again, from the overlap of two links
		}
		// Newer by time, older by number: the stream was made anew. The others show that themselves.
		p.last = 0
	}
	s.tellGap(f, p, a.last)
	if s.base == 0 {
		s.base = a.seq
		s.hazy = s.hazy || s.interrupted(f)
	}
	p.last, p.at = a.seq, a.at
	return true
}

// tellGap reports that last, or what came before it, was not received. Of a subject not heard before that is certain
// only when last is after base: else it may have been stored before the subscription was made.
func (s *Subscription) tellGap(f *feed, p *peer, last uint64) {
	gap := EventGap{Sender: p.sub.Sender, Channel: p.sub.Channel, To: last}
	switch known := cmp.Or(p.last, s.base); {
	case known > 0 && last > known:
		gap.From = known + 1
	case p.last == 0 && last > 0 && (s.base == 0 || s.hazy) && s.interrupted(f):
		gap.From, gap.Possible = 1, true
	default:
		return
	}
	s.e.events.emit(gap)
}

// overflowed is told that messages of sub were dropped: those of a membership or mentions are read again.
func (e *Endpoint) overflowed(sub *nats.Subscription) {
	e.breaks.Add(1)
	for _, b := range e.backlogs() {
		if b.owns(sub) {
			b.nudge()
			return
		}
	}
	e.events.emit(EventOverflow{Subject: sub.Subject})
}

// interrupted reports whether the subscription may have missed anything since it was made.
func (s *Subscription) interrupted(f *feed) bool {
	if s.e.breaks.Load() != s.breaks || f.l.nc.Stats().Reconnects != f.returns {
		return true // the second tells before the first, which callbacks count
	}
	dropped, err := f.sub.Dropped()
	return dropped > 0 || err != nil
}

// livePosition reads the broker's headers of a live copy whose header block is whole. The publisher may have sent headers
// of the same names; the broker's come last.
func livePosition(h nats.Header) (seq, last uint64, at time.Time, ok bool) {
	seq, err := strconv.ParseUint(wire.BrokerHeader(h[headerSequence]), 10, 64)
	if err != nil || seq == 0 {
		return 0, 0, at, false
	}
	if last, err = strconv.ParseUint(wire.BrokerHeader(h[headerLastSequence]), 10, 64); err != nil || last >= seq {
		return 0, 0, at, false
	}
	at, err = time.Parse(time.RFC3339Nano, wire.BrokerHeader(h[headerTime]))
	return seq, last, at, err == nil
}

// decode reads a message and checks it against the subject it arrived on.
func decode(sub wire.Subject, data []byte) (*wire.Message, error) {
	msg, err := wire.DecodeMessage(data)
	if err != nil {
		return nil, err
	}
	if err := wire.CheckSender(sub, msg); err != nil {
		return nil, err
	}
	return msg, nil
}

// invoke runs a handler and survives its panic, which it reports. A handler that ends its goroutine, as a failing test
// does, is reported too; whoever calls invoke goes on in another goroutine.
func (e *Endpoint) invoke(fn func(*Delivery), d *Delivery) (panicked bool) {
	returned := false
	e.handling.Add(1)
	defer func() {
		e.handling.Add(-1)
		if returned {
			return
		}
		panicked = true
		v := recover()
		if v == nil {
			v = "the handler ended its goroutine"
		}
		e.events.emit(EventPanic{Kind: d.Kind, Sender: d.Sender, Value: v, Stack: debug.Stack()})
	}()
	fn(d)
	returned = true
	return false
}

// errHeader is of a message whose publisher hid what the broker says about it.
func errHeader() error {
	return wire.Errorf(wire.CodeBadRequest, "header block that ends before its length")
}

// drop reports something received that is no message of this endpoint.
func (e *Endpoint) drop(m *nats.Msg, err error) {
	reason := wire.ReasonOf(err)
	if reason == "" {
		reason = wire.ReasonSubject
	}
	e.events.emit(EventDropped{Reason: reason, Subject: m.Subject, Err: err})
}

// foreign reports a message that was delivered to a subscription it does not belong to.
func (e *Endpoint) foreign(m *nats.Msg, where string) { e.drop(m, misplaced("%s", where)) }

func misplaced(format string, args ...any) error {
	return wire.Errorf(wire.CodeBadRequest, "arrived on "+format+", where it does not belong", args...)
}
