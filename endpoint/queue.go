package endpoint

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/wire"
)

const (
	subjectConsumerInfo = "$JS.API.CONSUMER.INFO."
	subjectConsumerNext = "$JS.API.CONSUMER.MSG.NEXT."

	// A handler that panicked gets its message back after this pause, longer with each attempt.
	panicPause    = time.Second
	maxPanicPause = time.Minute
	panicReason   = "its handler panicked"
	// gaveUpPause is how long a role message that was given up here is left to other holders of the role, each time.
	gaveUpPause = time.Second
)

// queue is one durable of this endpoint being worked off: its direct messages, or those of its role. Its messages are
// fetched by a puller; a renewal replaces the puller and keeps the queue.
type queue struct {
	queueOf
	e     *Endpoint
	fn    func(*Delivery)
	terms terms // as they were at first

	cur *puller // guarded by Endpoint.topo

	run   sync.Mutex       // held while a message is handled; guards peers
	peers map[string]*peer // by subject

	mu     sync.Mutex // guards the fields below
	seen   seen
	held   map[uint64]time.Time // by sequence, unsettled deliveries whose handler returned, and when the broker gives up on them
	later  bool                 // the last handler returned without settling
	puller *puller              // cur, for whoever settles
	left   uint64               // messages that the broker had for us beside the last one
	full   bool                 // it was told that the broker hands out no more
}

// queueOf says which queue it is and how it is read.
type queueOf struct {
	kind            wire.Kind
	stream, durable string
	role            string
	limit           int // unsettled deliveries besides the one being handled; 0: any number
	window          int // most messages fetched ahead
}

// terms are what the broker says about a durable.
type terms struct {
	maxPending int    // unsettled deliveries at most, of all readers together
	pending    int    // unsettled deliveries when it said so
	waiting    uint64 // messages not handed out yet then
}

// Messages fetched ahead of the handler at most. Those of a role are kept from the other holders of the role meanwhile.
const (
	directWindow = 256
	roleWindow   = 32
)

// HandleDirect receives the direct messages to this principal, from the oldest one that was not acknowledged. It may be
// called once. The queue exists on the broker already; HandleDirect checks that before it returns. While
// Options.DirectLimit messages are unsettled after their handler returned, no more are taken.
//
// Errors: not-found when the broker has no such queue; permission-denied when the credential has no right to it;
// already-exists when the messages are handled already; unavailable, deadline-exceeded; [ErrClosed]. It panics on a nil
// handler.
func (e *Endpoint) HandleDirect(ctx context.Context, fn func(*Delivery)) error {
	return e.handle(ctx, e.directQueue(), fn)
}

func (e *Endpoint) directQueue() *queue {
	return e.newQueue(queueOf{
		kind: wire.KindDirect, stream: e.directStream, durable: wire.DirectDurable(e.identity.Lifecycle),
		limit: e.opts.DirectLimit, window: directWindow,
	})
}

// HandleRole receives messages to the role of this endpoint's credential, each given to one holder of the role. While
// Options.RoleLimit messages are unsettled after their handler returned, no more are taken. It may be called once.
//
// Errors are those of HandleDirect, and failed-precondition when the credential names no role.
func (e *Endpoint) HandleRole(ctx context.Context, fn func(*Delivery)) error {
	role := e.identity.Role
	if role == "" {
		return wire.Errorf(wire.CodeFailedPrecondition, "handle role messages: the credential of %s names no role", e.identity.Principal)
	}
	return e.handle(ctx, e.newQueue(queueOf{
		kind: wire.KindRole, role: role, stream: e.roleStream, durable: wire.RoleDurable(role),
		limit: e.opts.RoleLimit, window: roleWindow,
	}), fn)
}

func (e *Endpoint) newQueue(of queueOf) *queue {
	return &queue{
		queueOf: of, e: e, peers: make(map[string]*peer), held: make(map[uint64]time.Time), seen: newSeen(e.opts.DedupSize),
	}
}

func (e *Endpoint) handle(ctx context.Context, q *queue, fn func(*Delivery)) error {
	if fn == nil {
		panic("endpoint: a queue needs a handler")
	}
	q.fn = fn
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	var err error
	if q.terms, err = q.inspect(ctx); err != nil {
		return err
	}
	e.topo.Lock()
	defer e.topo.Unlock()
	if e.queues[q.kind] != nil {
		return wire.Errorf(wire.CodeAlreadyExists, "handle %s messages: they are handled already", q.kind)
	}
	l, err := e.current()
	if err != nil {
		return err
	}
	if err := q.start(l); err != nil {
		return e.failure(q.act(), err, false)
	}
	e.queues[q.kind] = q
	q.learn(q.terms)
	return nil
}

func (q *queue) act() act {
	return act{"handle messages of queue", q.durable, subjectConsumerInfo + q.stream + "." + q.durable, "queue " + q.durable}
}

// inspect asks the broker about the durable, so that a wrong name or right is an error now and not silence.
func (q *queue) inspect(ctx context.Context) (terms, error) {
	a := q.act()
	msg, err := q.e.request(ctx, a, nil)
	if err != nil {
		return terms{}, err
	}
	return parseTerms(a, msg.Data)
}

func parseTerms(a act, data []byte) (terms, error) {
	var info struct {
		stored
		Config struct {
			MaxAckPending int `json:"max_ack_pending"`
		} `json:"config"`
		NumAckPending int    `json:"num_ack_pending"`
		NumPending    uint64 `json:"num_pending"`
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return terms{}, wire.Errorf(wire.CodeInternal, "%s %q: the broker's answer is not about a queue", a.verb, a.operand)
	}
	if info.Error != nil {
		return terms{}, info.refusal(a)
	}
	return terms{maxPending: info.Config.MaxAckPending, pending: info.NumAckPending, waiting: info.NumPending}, nil
}

// deliver handles one message of the durable. It runs with q.run held.
func (q *queue) deliver(m *nats.Msg) {
	d := q.open(m)
	if d == nil {
		return
	}
	calm := false
	defer func() { // also when the handler ends the goroutine
		q.handled(d)
		if !calm && !d.settled.Load() {
			pause := min(panicPause<<min(d.delivered-1, 6), maxPanicPause)
			_ = d.nak(noContext, pause, panicReason) // without it the ack wait ends just so
		}
	}()
	calm = !q.e.invoke(q.fn, d)
}

// open checks a message of the durable and decides whether it is shown; nil: it is not, and was settled. It runs with
// q.run held.
func (q *queue) open(m *nats.Msg) *Delivery {
	from, ok := parseOrigin(m.Reply, q.stream, q.durable)
	if !ok {
		// Somebody had a message of another queue sent here. It is not ours to acknowledge.
		q.e.foreign(m, "queue "+q.durable)
		return nil
	}
	if !header.Whole(m) {
		q.terminate(m, errHeader())
		return nil
	}
	p, err := q.peer(m.Subject)
	var msg *wire.Message
	if err == nil {
		msg, err = decode(p.sub, m.Data)
	}
	if err != nil {
		q.terminate(m, err)
		return nil
	}
	d := &Delivery{
		Message: msg, Kind: q.kind, Sender: p.sub.Sender, Role: q.role, Sequence: from.sequence, Time: from.at,
		Redelivered: from.delivered > 1, q: q, reply: m.Reply, delivered: from.delivered,
	}
	id := msg.ID
	if was := requeued(m, from.sequence); was > 0 && id != "" {
		d.Requeued = true
		id += "\x00" + strconv.FormatUint(was, 10) // another message, as far as repetition goes
	}
	d.key, d.keyed = q.seen.key(p.sender, id)
	switch q.admit(d, from.left) {
	case verdictKnown:
		_ = q.e.tryPublish(m.Reply, bodyAck) // if it is lost, the message comes again and is recognised again
		return nil
	case verdictRefused:
		_ = q.e.tryPublish(m.Reply, d.nakBody(gaveUpPause)) // if it is lost, the ack wait does the same later
		return nil
	}
	return d
}

// requeued returns the sequence that a message had before an operator put it back into its queue; 0: nobody did. Its
// sender can set the header too. That makes an id show twice which is the sender's own, as a second id would.
func requeued(m *nats.Msg, seq uint64) uint64 {
	if len(m.Header) == 0 {
		return 0
	}
	was, err := strconv.ParseUint(m.Header.Get(wire.HeaderRequeued), 10, 64)
	if err != nil || was >= seq {
		return 0
	}
	return was
}

// giveBack returns a message that was fetched and will not be handled here.
func (q *queue) giveBack(m *nats.Msg) {
	if _, ok := parseOrigin(m.Reply, q.stream, q.durable); ok {
		_ = q.e.tryPublish(m.Reply, bodyNak) // if it is lost, the ack wait does the same later
	}
}

// peer returns what is known of a subject, which must be one of this queue.
func (q *queue) peer(subject string) (*peer, error) {
	if p := q.peers[subject]; p != nil {
		return p, nil
	}
	sub, err := wire.ParseSubject(subject)
	if err != nil {
		return nil, err
	}
	if err := sub.Surface(); err != nil {
		return nil, err
	}
	id := q.e.identity
	if sub.Kind != q.kind || sub.Space != id.Space ||
		q.kind == wire.KindDirect && sub.To != id.Principal || q.kind == wire.KindRole && sub.Role != q.role {
		return nil, misplaced("queue %q", q.durable)
	}
	if len(q.peers) >= maxPeers {
		clear(q.peers)
	}
	p := &peer{sub: sub, sender: sub.Sender.String()}
	q.peers[subject] = p
	return p, nil
}

// terminate tells the broker never to deliver m again, and reports it.
func (q *queue) terminate(m *nats.Msg, err error) {
	q.e.drop(m, err)
	reason := wire.ReasonOf(err)
	if reason == "" {
		reason = wire.ReasonSubject
	}
	_ = q.e.tryPublish(m.Reply, bodyTerm+" "+string(reason)) // if it is lost, it comes again and goes again
}

// verdict is what becomes of a message that arrived.
type verdict int

const (
	verdictShow    verdict = iota
	verdictKnown           // settled before, or a second copy
	verdictRefused         // given up before
)

// admit decides whether a message is shown: not when it was settled before, nor when it is another copy, sent
// again, of one that was shown. A message that was shown and not settled is shown again when it comes again, until it was
// given up. left is how many more the broker had.
func (q *queue) admit(d *Delivery, left uint64) verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left = left
	d.Attempt = int(d.delivered) // all there is to go by without an id
	if d.keyed {
		m, ok := q.seen.find(d.key)
		switch {
		case !ok:
			m = mark{seq: d.Sequence}
		case m.settled || m.seq != d.Sequence:
			return verdictKnown
		case m.gaveUp:
			return verdictRefused
		}
		m.runs++
		d.Attempt = m.runs
		q.seen.put(d.key, m)
	}
	delete(q.held, d.Sequence)
	return verdictShow
}

// giveUp notes that d's handler is not asked again.
func (q *queue) giveUp(d *Delivery) {
	if !d.keyed {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seen.put(d.key, mark{seq: d.Sequence, gaveUp: true})
}

// handled notes that the handler returned: an unsettled message counts against the limit from now on.
func (q *queue) handled(d *Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.later = !d.settled.Load()
	if !q.later {
		return
	}
	q.held[d.Sequence] = time.Now().Add(wire.RedeliveryWait(int(d.delivered)))
	if limit := q.terms.maxPending; limit > 0 && len(q.held) >= limit {
		if q.expire(); len(q.held) >= limit {
			q.tellFull(len(q.held))
		}
	}
}

// hold renews the time after which the broker gives up on d.
func (q *queue) hold(d *Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.held[d.Sequence]; ok {
		q.held[d.Sequence] = time.Now().Add(wire.RedeliveryWait(int(d.delivered)))
	}
}

// release notes that d is settled; final means that it must not be shown again.
func (q *queue) release(d *Delivery, final bool) {
	q.mu.Lock()
	if final && d.keyed {
		q.seen.put(d.key, mark{seq: d.Sequence, settled: true})
	}
	_, freed := q.held[d.Sequence]
	delete(q.held, d.Sequence)
	if q.full && len(q.held) < q.terms.maxPending*9/10 {
		q.full = false
	}
	p := q.puller
	q.mu.Unlock()
	if freed && p != nil {
		p.refill()
	}
}

// room returns how many more messages may be fetched, and forgets those that the broker has taken back by now.
func (q *queue) room() int {
	if q.limit == 0 {
		return q.window
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.later && len(q.held) == 0 {
		return q.window // its handler settles before it returns
	}
	q.expire()
	return min(q.window, q.limit-len(q.held))
}

// expire forgets the deliveries that the broker has taken back by now. q.mu is held.
func (q *queue) expire() {
	now := time.Now()
	for seq, until := range q.held {
		if !now.Before(until) {
			delete(q.held, seq)
		}
	}
}
