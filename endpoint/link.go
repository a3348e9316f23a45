package endpoint

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// keepWaiters is how many finished waiters a link keeps for the next sends.
	keepWaiters = 16
	// keepBuffer is the largest encoding buffer a kept waiter holds on to.
	keepBuffer = 8 << 10
	// A broker that has just started answers "nobody listens" until its streams are up.
	storeRetries   = 2
	storeRetryWait = 250 * time.Millisecond
)

// link is one broker connection of an endpoint and the answers waited for on it. An endpoint has one, and for a
// moment two while it renews its credential.
//
// Answers to publishes come to one subscription below the endpoint's own inbox. The subject of an answer is unknown
// to everybody else, and what arrives there is matched by the subject the message itself carries: a stored message
// that somebody makes the broker deliver here carries another and is dropped.
type link struct {
	e        *Endpoint
	nc       *nats.Conn
	creds    atomic.Pointer[trust.Credentials] // presented at the next reconnect; nil in open mode
	inbox    string                            // prefix of answers, with the final dot
	dialer   *dialer                           // nil for an in-process connection
	at       *dial.Locator                     // where the broker is now; nil for where it was
	looking  sync.WaitGroup                    // of it
	closed   chan struct{}                     // closed when nc has ended and its callbacks have run
	replaced chan struct{}                     // closed when the endpoint has another link
	refused  atomic.Int32                      // refusals of the credential since the last success; lengthens the pauses

	mu      sync.Mutex // guards the fields below
	waiters map[string]*waiter
	free    []*waiter
	issued  uint64 // waiters made, numbers their answer subjects
	order   uint64
	pullers []*puller
	denials map[string]int // of subscriptions, expected and read elsewhere, by filter
	retired bool           // no new exchanges
	idle    chan struct{}  // closed once retired and nothing is waited for

	deniedSubject string // the last denial that was told, and when
	deniedAt      time.Time
}

// waiter is one publish that waits for its answer. Everything in it is reused by the next.
type waiter struct {
	msg   nats.Msg
	id    []string // the value of the message id header inside msg.Header
	buf   []byte   // msg.Data
	draft wire.Message
	done  chan answer // capacity 1
	timer *time.Timer
	order uint64    // age, for denials
	sent  bool      // reached the connection's buffer at least once; guarded by link.mu while waiting
	at    time.Time // when it did first
	again bool      // sent more than once, so a second answer may come
}

type answer struct {
	msg *nats.Msg
	err error
}

// borrow takes a waiter, or reports errRetired when this link takes no more.
func (l *link) borrow() (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return nil, errRetired
	}
	if n := len(l.free); n > 0 {
		w := l.free[n-1]
		l.free = l.free[:n-1]
		return w, nil
	}
	l.issued++
	w := &waiter{done: make(chan answer, 1), id: make([]string, 1)}
	w.msg.Header = nats.Header{}
	w.msg.Reply = l.inbox + strconv.FormatUint(l.issued, 36)
	return w, nil
}

// giveBack keeps w for reuse unless a late answer to it may still come.
func (l *link) giveBack(w *waiter, answered bool) {
	if !answered || w.again || cap(w.buf) > keepBuffer {
		return
	}
	w.draft, w.msg.Data = wire.Message{}, nil
	w.sent = false
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) < keepWaiters && !l.retired {
		l.free = append(l.free, w)
	}
}

// setID puts the message id header on w, or takes it off.
func (w *waiter) setID(id string) {
	if id == "" {
		delete(w.msg.Header, nats.MsgIdHdr)
		return
	}
	w.id[0] = id
	w.msg.Header[nats.MsgIdHdr] = w.id
}

// exchange publishes w and waits for its answer, for the default time when ctx has no deadline. While the connection
// is away it waits for it, and what may have been lost with the old one is sent again under the same id. The
// sent result says whether the broker may have it.
func (l *link) exchange(ctx context.Context, w *waiter) (msg *nats.Msg, sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	var timeout <-chan time.Time
	if _, ok := ctx.Deadline(); !ok {
		timeout = w.arm(l.e.opts.RequestTimeout)
		defer w.timer.Stop()
	}
	for try := 0; ; try++ {
		msg, err = l.once(ctx, w, timeout)
		if !errors.Is(err, errNoResponders) || try == storeRetries {
			return msg, w.sent, err
		}
		pause := time.NewTimer(storeRetryWait)
		select {
		case <-pause.C:
		case <-timeout:
			try = storeRetries
		case <-ctx.Done():
			try = storeRetries
		}
		pause.Stop()
		if try == storeRetries {
			return nil, w.sent, err
		}
	}
}

func (w *waiter) arm(d time.Duration) <-chan time.Time {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
	return w.timer.C
}

// once sends w and waits for one answer.
func (l *link) once(ctx context.Context, w *waiter, timeout <-chan time.Time) (*nats.Msg, error) {
	if err := l.enter(w); err != nil {
		return nil, err
	}
	if err := l.publish(w); err != nil {
		l.leave(w)
		return nil, err
	}
	var a answer
	select {
	case a = <-w.done:
	case <-ctx.Done():
		a = l.abandon(w, ctx.Err())
	case <-timeout:
		a = l.abandon(w, errNoAnswer)
	}
	if a.err == nil && len(a.msg.Data) == 0 && statusOf(a.msg) == statusNoResponders {
		w.sent = w.again // the broker says that nobody took it, this time
		return nil, errNoResponders
	}
	return a.msg, a.err
}

// enter registers w before it is published, so that neither answer nor denial nor reconnect can miss it.
func (l *link) enter(w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return errRetired
	}
	l.order++
	w.order = l.order
	l.waiters[w.msg.Reply] = w
	return nil
}

// publish hands w to the connection. While the connection is away that is refused, and [link.resend] does it later.
func (l *link) publish(w *waiter) error {
	err := l.nc.PublishMsg(&w.msg)
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return nil
	}
	if err == nil {
		l.mu.Lock()
		w.went()
		l.mu.Unlock()
	}
	return err
}

// went notes that w reached the connection. link.mu is held.
func (w *waiter) went() {
	if w.sent {
		w.again = true
		return
	}
	w.sent, w.at = true, time.Now()
}

// leave ends waiting without an answer.
func (l *link) leave(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drop(w)
}

// drop forgets w and reports whether it was waiting. l.mu is held.
func (l *link) drop(w *waiter) bool {
	if l.waiters[w.msg.Reply] != w {
		return false
	}
	delete(l.waiters, w.msg.Reply)
	l.settleIdle()
	return true
}

// abandon ends waiting with err, unless an answer came first.
func (l *link) abandon(w *waiter, err error) answer {
	if !l.leave(w) {
		return <-w.done
	}
	return answer{err: err}
}

// onAnswer takes a message from the answer subscription to the waiter its own subject names.
func (l *link) onAnswer(m *nats.Msg) {
	l.mu.Lock()
	w := l.waiters[m.Subject]
	if w != nil {
		l.drop(w)
	}
	l.mu.Unlock()
	if w != nil {
		w.done <- answer{msg: m}
		return
	}
	if !strings.HasPrefix(m.Subject, l.inbox) { // else it came after its waiter gave up
		l.e.foreign(m, "an answer subscription")
	}
}

// resendLimit is how long after it first left a message is sent again. The broker knows its id for two minutes; later it
// would store it a second time.
const resendLimit = 90 * time.Second

// resend publishes again, after a reconnect, everything that still waits. Publishing happens under the lock so that no
// waiter is reused meanwhile.
func (l *link) resend(nc *nats.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiters {
		if w.sent && w.msg.Header[nats.MsgIdHdr] != nil && time.Since(w.at) > resendLimit {
			l.drop(w)
			w.done <- answer{err: errNoAnswer}
		} else if err := nc.PublishMsg(&w.msg); err == nil {
			w.went()
		}
	}
}

// refuse fails the oldest exchange that a permission violation of the broker belongs to, and reports
// whether there was one.
func (l *link) refuse(subject string, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest *waiter
	for _, w := range l.waiters {
		if w.msg.Subject == subject && (oldest == nil || w.order < oldest.order) {
			oldest = w
		}
	}
	if oldest == nil {
		return false
	}
	l.drop(oldest)
	oldest.sent = oldest.again
	oldest.done <- answer{err: err}
	return true
}

// refusePull tells the puller whose request was denied, and reports whether there was one.
func (l *link) refusePull(subject string) bool {
	for _, p := range l.pulling() {
		if p.subject == subject {
			p.denied(l.e.denied(act{"fetch messages of queue", p.q.durable, subject, "queue " + p.q.durable}))
			return true
		}
	}
	return false
}

// pulling returns the pullers of this link.
func (l *link) pulling() []*puller {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.pullers)
}

// expect says that a subscription to filter is read for denials by confirm, n times; no event is due for those.
func (l *link) expect(filter string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.denials == nil {
		l.denials = make(map[string]int)
	}
	if l.denials[filter] += n; l.denials[filter] <= 0 {
		delete(l.denials, filter)
	}
}

// expected reports whether a denied subscription is read elsewhere.
func (l *link) expected(filter string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.denials[filter] == 0 {
		return false
	}
	if l.denials[filter]--; l.denials[filter] == 0 {
		delete(l.denials, filter)
	}
	return true
}

// fail ends everything that waits, after the connection closed for good.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	for _, w := range l.waiters {
		l.drop(w)
		w.done <- answer{err: err}
	}
	l.settleIdle()
}

// retire lets nothing new begin and returns a channel that closes when nothing is waited for any more.
func (l *link) retire() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	l.settleIdle()
	return l.idle
}

// settleIdle closes idle when it is time. l.mu is held.
func (l *link) settleIdle() {
	if !l.retired || len(l.waiters) > 0 {
		return
	}
	select {
	case <-l.idle:
	default:
		close(l.idle)
	}
}

func (l *link) isRetired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retired
}

// close ends the connection and waits until its callbacks have run.
func (l *link) close() {
	if l.dialer != nil {
		l.dialer.cancel()
	}
	l.nc.Close()
	<-l.closed
	l.looking.Wait()
}

// Statuses that the broker puts into headers instead of a body.
const (
	statusHeader       = "Status"
	statusHeartbeat    = "100"
	statusNoMessages   = "404"
	statusTimeout      = "408"
	statusConflict     = "409"
	statusNoResponders = "503"
)

func statusOf(m *nats.Msg) string {
	if len(m.Header) == 0 {
		return ""
	}
	return m.Header.Get(statusHeader)
}
