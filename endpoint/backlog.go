package endpoint

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

// What a backlog holds back of what arrives live while it is behind. Beyond that the oldest are dropped, for they are
// stored, and read again.
const (
	maxHeld      = 4096
	maxHeldBytes = 4 << 20
)

// backlog works off what the delivery service keeps for this endpoint: of one membership, or its mentions. One goroutine
// at a time reads what was missed and ends when there is no more; another one reports what was handled. Neither runs
// while nothing is missed and nothing is to be reported.
//
// Its ctx is its life, not that of a call: what it does by itself ends with it.
type backlog struct {
	e      *Endpoint
	of     reader
	sub    *Subscription // its run is held while a message is handled
	fn     func(*Delivery)
	manual bool
	ctx    context.Context
	cancel context.CancelFunc
	kick   chan struct{} // capacity 1, ends a pause
	freed  chan struct{} // capacity 1, a message was settled
	turn   chan struct{} // capacity 1, holds a value while a report is made
	behind atomic.Bool   // what arrives live is held back; changes with mu held
	lively bool          // something was shown since the last look; guarded by sub.run
	count  int           // of messages shown since it fell behind; guarded by sub.run
	total  int           // of messages shown; guarded by sub.run
	limit  int           // of the next page; used by the goroutine that catches up
	pause  time.Duration // before the first round; set before it starts
	outage outage        // used by the goroutine that catches up

	losses    map[wire.Loss]bool // that were told; used by the goroutine that catches up
	lostUntil uint64             // what retention took up to here was told; used by it too

	tasks sync.WaitGroup // added to with mu held, while it is not over

	mu          sync.Mutex // guards the fields below
	pos         progress
	version     uint64 // of pos
	reported    uint64 // the version that delivery has
	floor       uint64 // that delivery has
	news        int    // messages handled since the last report
	reportAt    time.Time
	failures    int  // of reports in a row
	reporting   bool // a report is made, or reportTimer will
	mute        bool // there is nobody to report to
	reportTimer *time.Timer
	over        bool   // nothing more begins
	working     bool   // the goroutine that catches up runs
	again       bool   // it must read once more before what arrives live can be believed to be everything
	answers     uint64 // pages that delivery gave
	retry       *Delivery
	retryAt     time.Time
	feed        *feed // the newest
	held        []heldMsg
	heldBytes   int
	timers      map[*time.Timer]struct{} // of messages that are shown again later
	look        *time.Timer
	idle        int // looks in a row that found nothing
}

type heldMsg struct {
	f    *feed
	m    *nats.Msg
	torn bool // something between it and the one before may be missing
}

// reader is what differs between a membership and mentions.
type reader interface {
	// round reads what was missed. After nil everything was shown, or backlog.again says that more is to be read.
	round(ctx context.Context) error
	// trouble is told that a round failed, which backlog.outage has counted, and returns how long to wait.
	trouble(err error) time.Duration
	// request is the report of a position, and false when there is nobody to report to.
	request(floor uint64, handled []wire.SequenceRange) (wire.AckRequest, bool)
	// refused is told that a report failed, or that it was the last one when err is nil.
	refused(err error)
}

// placement says what it means for the position that a message was handled.
type placement int

const (
	following placement = iota // everything before it was
	drifting                   // everything since the last one was
	detached                   // something since the last one may be missing
	apart                      // nothing
)

func newBacklog(e *Endpoint, of reader, sub *Subscription, fn func(*Delivery), manual bool) *backlog {
	b := &backlog{
		e: e, of: of, sub: sub, fn: fn, manual: manual, limit: pageFirst, timers: make(map[*time.Timer]struct{}),
		kick: make(chan struct{}, 1), freed: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
	b.ctx, b.cancel = context.WithCancel(noContext)
	return b
}

// call asks the delivery service, also while the endpoint closes.
func (b *backlog) call(ctx context.Context, command string, in, out any) error {
	c := b.e.caller.Load()
	if c == nil {
		var err error
		if c, err = b.e.controlCaller(); err != nil {
			return err
		}
	}
	return c.Call(ctx, control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, in, out)
}

// once gives a message to the handler and reports whether it was handled. A message that was not is shown again later:
// everything after it waits, unless it had been given back itself. sub.run is held.
func (b *backlog) once(d *Delivery) (ok bool) {
	defer func() {
		if !ok { // also when the handler ended its goroutine
			b.fumbled(d)
		}
	}()
	b.lively = true
	b.total++
	if b.manual && d.place == following {
		d.b = b
		b.mu.Lock()
		b.pos.begin(d.at)
		b.pos.reach(d.at)
		b.mu.Unlock()
		return !b.e.invoke(b.fn, d) || !d.settled.CompareAndSwap(false, true)
	}
	if b.e.invoke(b.fn, d) {
		return false
	}
	b.account(d)
	return true
}

// account notes that a message was handled, or needs no handling.
func (b *backlog) account(d *Delivery) {
	if d.place == apart {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accountLocked(d)
}

func (b *backlog) accountLocked(d *Delivery) {
	switch {
	case d.place != following:
		b.pos.grow(d.at, d.place == detached)
		b.pos.trim()
	case d.b != nil:
		b.pos.settle(d.at)
		signal(b.freed)
	default:
		b.pos.reach(d.at)
	}
	b.handledLocked()
}

// fumbled decides what becomes of a message whose handler panicked.
func (b *backlog) fumbled(d *Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Attempt >= b.e.opts.MaxAttempts {
		b.gaveUpLocked(d, panicReason)
		return
	}
	pause := min(panicPause<<min(d.Attempt-1, 6), maxPanicPause)
	if d.astray {
		b.laterLocked(d, pause)
		return
	}
	if d.place == apart && !d.Mentioned {
		b.e.shown.disown(d) // after a crash only the mention, if it is one, brings it again
	}
	b.retry, b.retryAt = d.next(), time.Now().Add(pause)
	b.behind.Store(true)
	b.startLocked()
}

// gaveUpLocked counts a message as handled that never will be.
func (b *backlog) gaveUpLocked(d *Delivery, reason string) {
	why := "gave up after " + strconv.Itoa(d.Attempt) + " attempts"
	if reason != "" {
		why = oneLine(why + ": " + reason)
	}
	if d.place != apart {
		b.accountLocked(d)
	}
	b.e.events.emit(EventGaveUp{Kind: d.Kind, Sender: d.Sender, ID: d.Message.ID, Attempts: d.Attempt, Reason: why})
}

// next is the same message for the next time that it is shown.
func (d *Delivery) next() *Delivery {
	return &Delivery{
		Message: d.Message, Kind: d.Kind, Sender: d.Sender, Channel: d.Channel, Sequence: d.Sequence, Time: d.Time,
		Redelivered: true, Attempt: d.Attempt + 1, Replayed: d.Replayed, Mentioned: d.Mentioned,
		at: d.at, place: d.place, b: d.b, astray: d.astray,
	}
}

// laterLocked shows a message again after a pause, by itself.
func (b *backlog) laterLocked(d *Delivery, pause time.Duration) {
	if b.over {
		return
	}
	n := d.next()
	n.astray = true
	var t *time.Timer
	t = time.AfterFunc(pause, func() {
		b.mu.Lock()
		_, mine := b.timers[t]
		delete(b.timers, t)
		if mine && !b.over {
			b.tasks.Add(1)
		} else {
			mine = false
		}
		b.mu.Unlock()
		if !mine {
			return
		}
		defer b.tasks.Done()
		b.sub.run.Lock()
		defer b.sub.run.Unlock()
		if b.ctx.Err() == nil {
			b.once(n)
		}
	})
	b.timers[t] = struct{}{}
}

// settle is Ack and Term of a message of Manual.
func (b *backlog) settle(ctx context.Context, d *Delivery) error {
	b.mu.Lock()
	over := b.over
	b.mu.Unlock()
	if over { // nothing reports it later
		return b.confirm(ctx, d)
	}
	if !d.settled.CompareAndSwap(false, true) {
		return ErrSettled
	}
	b.account(d)
	return nil
}

// nak shows a message again after a while, or gives it up.
func (b *backlog) nak(d *Delivery, delay time.Duration, reason string) error {
	if !d.settled.CompareAndSwap(false, true) {
		return ErrSettled
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Attempt >= b.e.opts.MaxAttempts {
		b.gaveUpLocked(d, reason)
		return nil
	}
	b.laterLocked(d, max(0, delay))
	return nil
}

// confirm settles a message and reports it.
func (b *backlog) confirm(ctx context.Context, d *Delivery) error {
	if !d.settled.CompareAndSwap(false, true) {
		return ErrSettled
	}
	b.account(d)
	err := b.report(ctx)
	if err != nil { // whoever is told an error may give it back: no later report says that it was handled
		b.mu.Lock()
		b.pos.begin(d.at)
		b.version++
		b.mu.Unlock()
		d.settled.Store(false)
	}
	return err
}

// fall makes the backlog read once more, and hold back what arrives live until then.
func (b *backlog) fall() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind.Store(true)
	b.again = true
	b.startLocked()
}

// nudge makes the backlog read once more. If it only waits to try again, what arrives live is shown meanwhile.
func (b *backlog) nudge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.working {
		b.behind.Store(true)
	}
	b.again = true
	b.startLocked()
}

// startLocked starts the goroutine that catches up, or ends its pause.
func (b *backlog) startLocked() {
	signal(b.kick)
	if b.working || b.over {
		return
	}
	b.working = true
	b.tasks.Add(1)
	go b.work() // ends with ctx at the latest; whoever halts the backlog waits for its tasks
}

// moved is told that f replaces the feed there was.
func (b *backlog) moved(f *feed) {
	b.mu.Lock()
	b.feed = f
	b.mu.Unlock()
	b.nudge()
}

// owns reports whether sub is the backlog's newest.
func (b *backlog) owns(sub *nats.Subscription) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.feed != nil && b.feed.sub == sub
}

// keep holds a live message back, and is false when the backlog is not behind any more.
func (b *backlog) keep(h heldMsg) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.behind.Load() {
		return false
	}
	if h.f.n > b.feed.n {
		b.feed = h.f
	}
	b.held = append(b.held, h)
	b.heldBytes += h.m.Size()
	for len(b.held) > maxHeld || b.heldBytes > maxHeldBytes && len(b.held) > 1 {
		b.dropHeldLocked()
		b.held[0].torn = true
		b.again = true
	}
	return true
}

func (b *backlog) dropHeldLocked() {
	b.heldBytes -= b.held[0].m.Size()
	b.held[0] = heldMsg{}
	if b.held = b.held[1:]; len(b.held) == 0 {
		b.held = nil
	}
}

// releaseHeld shows what was held back, in order, until there is none or show says that a message cannot be shown yet, or
// more is to be read first, unless hasty is set. It reports whether live messages flow again. sub.run is held.
func (b *backlog) releaseHeld(hasty bool, show func(heldMsg) bool) bool {
	for {
		b.mu.Lock()
		if b.again && !hasty || b.over || b.retry != nil {
			b.mu.Unlock()
			return false
		}
		if len(b.held) == 0 {
			b.behind.Store(false)
			b.mu.Unlock()
			return true
		}
		h := b.held[0]
		b.mu.Unlock()
		ok := show(h)
		b.mu.Lock()
		if ok && len(b.held) > 0 && b.held[0].m == h.m { // else it was dropped meanwhile
			b.dropHeldLocked()
		}
		b.mu.Unlock()
		if !ok {
			return false
		}
	}
}

// halt lets nothing new begin.
func (b *backlog) halt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.cancel()
	for t := range b.timers {
		t.Stop()
	}
	clear(b.timers)
	for _, t := range []*time.Timer{b.look, b.reportTimer} {
		if t != nil {
			t.Stop()
		}
	}
	b.held, b.heldBytes = nil, 0
}

// ended returns a channel that closes when nothing of a halted backlog runs.
func (b *backlog) ended() <-chan struct{} {
	done := make(chan struct{})
	go func() { // ends with the program's own handlers
		b.tasks.Wait()
		close(done)
	}()
	return done
}

// signal wakes whoever waits on a channel of capacity 1.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
