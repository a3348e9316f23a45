package endpoint

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/wire"
)

const (
	// A pull request stands for pullExpires at the broker, which shows that it does every pullHeartbeat.
	pullExpires   = 30 * time.Second
	pullHeartbeat = 10 * time.Second
	// fetchedAhead bounds how long, by the pace so far, the messages fetched ahead keep the handler busy: what
	// waits here is neither handled by somebody else nor safe from its ack wait.
	fetchedAhead = 100 * time.Millisecond
	// Pauses after the broker refused a pull request.
	pullRetryMin = 250 * time.Millisecond
	pullRetryMax = 15 * time.Second
	// infoAnswer ends the subject of what the broker says about the queue; those of messages end in a number.
	infoAnswer = "info"
)

// puller fetches a queue's messages over one link.
//
// It is not the consumer of the jetstream package because that one cannot adapt how far it fetches ahead, which is
// what shares a role's work fairly, takes half a minute to notice a broker that has just restarted, and
// acknowledges only over the connection a message came on, which a renewal replaces.
type puller struct {
	q    *queue
	l    *link
	sub  *nats.Subscription
	done chan struct{} // closed after the last message was handled

	subject string // of pull requests
	inbox   string // prefix of what they are answered on, with the final dot

	mu       sync.Mutex    // guards the fields below
	round    int           // of requests; answers to those of earlier rounds are stale
	asked    int           // messages asked for in this round and not received
	ahead    int           // how many to ask for at once
	quick    int           // messages handled quickly in a row
	busy     bool          // the handler runs
	stopping bool          // no more requests
	idle     chan struct{} // closed once stopping and all that was asked for has come, or will not
	ended    bool          // the subscription was ended
	discard  bool          // give back what is still here
	heard    time.Time     // when the broker was last heard
	retry    time.Time     // not before then, after a refusal; zero: none
	failures int
	clock    *time.Timer // next look at the state
}

// start makes a puller for q on l. Endpoint.topo is held.
func (q *queue) start(l *link) error {
	p := &puller{
		q: q, l: l, done: make(chan struct{}), subject: subjectConsumerNext + q.stream + "." + q.durable,
		inbox: l.nc.NewInbox() + ".", ahead: 1, heard: time.Now(), idle: make(chan struct{}),
	}
	sub, err := l.nc.Subscribe(p.inbox+"*", p.receive)
	if err != nil {
		return err
	}
	p.sub = sub
	sub.SetClosedHandler(func(string) { close(p.done) })
	q.cur = p
	q.mu.Lock()
	q.puller = p
	q.mu.Unlock()
	l.mu.Lock()
	l.pullers = append(l.pullers, p)
	l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock = time.AfterFunc(pullHeartbeat, p.look)
	p.again()
	return nil
}

// wind asks for no more. The channel closes when nothing that was asked for can come any more: to end the puller
// before would make the broker deliver again, out of order, what was on its way.
func (p *puller) wind() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping = true
	p.clock.Stop()
	p.wound()
	return p.idle
}

// wound closes idle when it is time.
func (p *puller) wound() {
	if !p.stopping || p.asked > 0 {
		return
	}
	select {
	case <-p.idle:
	default:
		close(p.idle)
	}
}

// stop ends the puller: what was fetched is handled still, or given back when discard is set. The channel closes when
// no handler runs any more.
func (p *puller) stop(discard bool) <-chan struct{} {
	p.wind()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discard = p.discard || discard
	if !p.ended {
		p.ended = true
		drain(p.l.nc, p.sub)
	}
	return p.done
}

// receive takes whatever arrives on the inbox.
func (p *puller) receive(m *nats.Msg) {
	if strings.HasPrefix(m.Subject, p.inbox) {
		p.status(m)
		return
	}
	p.mu.Lock()
	p.asked--
	p.failures = 0
	p.heard = time.Now()
	started := p.heard
	discard := p.discard
	p.busy = !discard
	p.wound()
	p.mu.Unlock()
	if discard {
		p.q.giveBack(m)
		return
	}
	p.deliver(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	p.heard = time.Now()
	p.pace(p.heard.Sub(started))
	p.refillLocked()
}

func (p *puller) deliver(m *nats.Msg) {
	p.q.run.Lock()
	returned := false
	defer func() {
		p.q.run.Unlock()
		if !returned {
			go p.revive() // ends with p.done, which Close waits for
		}
	}()
	p.q.deliver(m)
	returned = true
}

// revive goes on with a new puller after a handler ended this one's goroutine. What waited here comes again when its ack
// wait has ended.
func (p *puller) revive() {
	p.wind()
	p.mu.Lock()
	p.ended, p.asked = true, 0
	p.wound()
	p.mu.Unlock()
	_ = p.sub.Unsubscribe() // a closed connection has ended it already
	p.q.e.restart(p)
	close(p.done) // nobody else can: the goroutine that would is gone
}

// pace adapts how many messages are fetched ahead to how long one takes.
func (p *puller) pace(took time.Duration) {
	switch whole := took * time.Duration(p.ahead); {
	case whole > fetchedAhead:
		p.quick = 0
		p.ahead = max(1, int(fetchedAhead/took))
	case 2*whole <= fetchedAhead:
		if p.quick++; p.quick >= p.ahead {
			p.quick = 0
			p.ahead = min(2*p.ahead, p.q.window)
		}
	}
}

func (p *puller) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refillLocked()
}

// refillLocked asks for more once half of what was asked for has arrived.
func (p *puller) refillLocked() {
	if p.stopping || p.busy || !p.retry.IsZero() {
		return
	}
	want := min(p.ahead, p.q.room())
	if want <= 0 || p.asked > want/2 {
		return
	}
	p.request(want - max(p.asked, 0))
}

// again begins a new round: whatever was asked for before counts as lost.
func (p *puller) again() {
	p.round++
	p.asked = 0
	p.retry = time.Time{}
	p.heard = time.Now()
	p.refillLocked()
}

func (p *puller) request(n int) {
	body := make([]byte, 0, 80)
	body = append(body, `{"batch":`...)
	body = strconv.AppendInt(body, int64(n), 10)
	body = append(body, `,"expires":`...)
	body = strconv.AppendInt(body, int64(pullExpires), 10)
	body = append(body, `,"idle_heartbeat":`...)
	body = strconv.AppendInt(body, int64(pullHeartbeat), 10)
	body = append(body, '}')
	if err := p.l.nc.PublishRequest(p.subject, p.inbox+strconv.Itoa(p.round), body); err == nil {
		p.asked = max(p.asked, 0) + n
	} // else the connection is away, and its return begins a new round
}

// status reads an answer that is no message.
func (p *puller) status(m *nats.Msg) {
	if m.Subject[len(p.inbox):] == infoAnswer {
		p.q.informed(m)
		return
	}
	code := statusOf(m)
	if code == "" || len(m.Data) > 0 || !header.Whole(m) {
		p.q.e.foreign(m, "queue "+p.q.durable)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
	if m.Subject[len(p.inbox):] != strconv.Itoa(p.round) {
		return
	}
	if p.stopping && code != statusHeartbeat && code != statusTimeout {
		p.asked = 0
		p.wound()
		return
	}
	switch description := strings.ToLower(m.Header.Get("Description")); {
	case code == statusHeartbeat:
		p.failures = 0
		if p.q.stalled() { // if it is lost, the next heartbeat asks again
			_ = p.l.nc.PublishRequest(subjectConsumerInfo+p.q.stream+"."+p.q.durable, p.inbox+infoAnswer, nil)
		}
	case code == statusTimeout, code == statusNoMessages,
		code == statusConflict && (strings.Contains(description, "batch completed") || strings.Contains(description, "maxbytes")):
		// One request has ended; its messages will not come.
		left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		if err != nil {
			left = p.asked
		}
		p.asked = max(0, p.asked-left)
		p.wound()
		p.refillLocked()
	case code == statusConflict && (strings.Contains(description, "leadership") || strings.Contains(description, "shutdown")):
		p.backOff()
	default:
		p.lost(code, m.Header.Get("Description"))
		p.backOff()
	}
}

// lost reports, once until it is well again, why no messages can come. The first time says nothing yet: a broker that has
// just started needs a moment.
func (p *puller) lost(code, description string) {
	if p.failures != 1 {
		return
	}
	err := wire.Errorf(wire.CodeUnavailable, "fetch messages of queue %q: the broker says %s %q", p.q.durable, code, description)
	if code == statusNoResponders {
		err = wire.Errorf(wire.CodeUnavailable, "fetch messages of queue %q: nothing serves it", p.q.durable)
	}
	p.q.e.events.emit(EventQueueLost{Kind: p.q.kind, Err: err})
	if p.q.e.opts.Open != nil {
		p.q.e.unenrolled.Store(true)
		p.q.e.wake()
	}
}

// backOff ends the round and begins the next after a pause that grows with each failure in a row.
func (p *puller) backOff() {
	p.round++
	p.asked = 0
	pause := min(pullRetryMin<<min(p.failures, 10), pullRetryMax)
	p.failures++
	p.retry = time.Now().Add(pause)
	p.clock.Reset(pause)
}

// look runs on the clock: it begins a new round when a pause is over or the broker went silent, and asks for more when
// the broker has taken back what was held.
func (p *puller) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return
	}
	next := pullHeartbeat
	now := time.Now()
	switch {
	case !p.retry.IsZero():
		if wait := p.retry.Sub(now); wait > 0 {
			next = wait
		} else {
			p.again()
		}
	case p.busy:
	case p.asked > 0 && now.Sub(p.heard) > 2*pullHeartbeat+pullHeartbeat/2:
		p.again()
	default:
		p.refillLocked()
	}
	p.clock.Reset(next)
}

// denied is told that the broker denied a request of this puller.
func (p *puller) denied(err *wire.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return
	}
	if p.failures == 0 {
		p.q.e.events.emit(EventQueueLost{Kind: p.q.kind, Err: err})
	}
	p.backOff()
}

// reconnected begins a new round: the broker forgot the requests of the connection that was lost.
func (p *puller) reconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = 0
	if p.stopping {
		p.asked = 0
		p.wound()
		return
	}
	p.again()
}
