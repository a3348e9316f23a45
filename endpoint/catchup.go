package endpoint

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	// pageAge is how long after it was read a page is shown: the right to read what is in it may end meanwhile.
	pageAge = 10 * time.Second
	// Messages of a page at first, and at least; it grows while pages are worked off in time.
	pageFirst = 512
	pageLeast = 16
	// What has caught up looks again after lookFirst to twice that, less a third, though nothing was told: a broker of a
	// cluster may lose live copies without anybody noticing. Each look that finds nothing doubles that, lookDoubles times.
	lookFirst   = 45 * time.Second
	lookJitter  = 30 * time.Second
	lookDoubles = 2
	// Pauses between rounds that fail, doubling, give or take a half.
	troubleFirst = 250 * time.Millisecond
	troubleLast  = time.Minute
	// Pauses after rounds that asked for another one and showed nothing, doubling.
	vainFirst = time.Millisecond
	vainLast  = time.Second
)

// errStale ends the use of a page that is too old.
var errStale = errors.New("page is too old")

// work catches up, and begins anew when a handler ended its goroutine.
func (b *backlog) work() {
	returned := false
	defer func() {
		if !returned {
			b.mu.Lock()
			b.working = false
			b.startLocked()
			b.mu.Unlock()
		}
		b.tasks.Done()
	}()
	b.catchUp()
	returned = true
}

func (b *backlog) catchUp() {
	vain := 0
	if b.pause > 0 {
		b.sleep(b.pause, b.kick)
		b.pause = 0
	}
	for {
		before := b.shown()
		err := b.of.round(b.ctx)
		if b.rest(err == nil) {
			return
		}
		switch {
		case err != nil:
			b.failed()
			b.sleep(b.of.trouble(err), b.kick)
		case b.shown() != before:
			b.outage, vain = outage{}, 0
		default: // what is told of cannot be read yet
			b.sleep(min(vainFirst<<min(vain, 10), vainLast), nil)
			b.outage, vain = outage{}, vain+1
		}
	}
}

// shown counts what was given to the handler.
func (b *backlog) shown() int {
	b.sub.run.Lock()
	defer b.sub.run.Unlock()
	return b.total
}

// rest reports whether there is nothing more to do; the goroutine must return then.
func (b *backlog) rest(calm bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over && (!calm || b.again || b.retry != nil) {
		return false
	}
	b.working = false
	return true
}

// sleep waits, unless it is kicked or the backlog ends.
func (b *backlog) sleep(d time.Duration, kick <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-kick:
	case <-b.ctx.Done():
	}
}

// troublePause is the pause after the nth failure in a row.
func troublePause(n int) time.Duration {
	d := min(troubleFirst<<min(n-1, 20), troubleLast)
	return d/2 + rand.N(d)
}

// begin starts a round: what happens from now on asks for another one.
func (b *backlog) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = false
	select {
	case <-b.kick:
	default:
	}
	if b.look != nil {
		b.look.Stop()
	}
}

// watchLocked sees to a later look. sub.run is held too.
func (b *backlog) watchLocked() {
	if b.over {
		return
	}
	if b.idle++; b.lively {
		b.idle, b.lively = 0, false
	}
	d := (lookFirst + rand.N(lookJitter)) << min(b.idle, lookDoubles)
	if b.look == nil {
		b.look = time.AfterFunc(d, b.nudge)
		return
	}
	b.look.Reset(d)
}

// tellCaughtUp tells how much was shown since it fell behind. sub.run is held.
func (b *backlog) tellCaughtUp() {
	if b.count > 0 {
		b.e.events.emit(EventCaughtUp{Pattern: b.sub.pattern, Count: b.count})
	}
	b.count = 0
}

// retries shows the message whose handler panicked until it is handled or given up.
func (b *backlog) retries(ctx context.Context) error {
	for {
		b.mu.Lock()
		d, wait := b.retry, time.Until(b.retryAt)
		b.mu.Unlock()
		if d == nil {
			return ctx.Err()
		}
		if b.sleep(wait, nil); ctx.Err() != nil {
			return ctx.Err()
		}
		b.mu.Lock()
		b.retry = nil
		b.mu.Unlock()
		b.show(ctx, d)
	}
}

// show gives one message to the handler, unless the backlog ended.
func (b *backlog) show(ctx context.Context, d *Delivery) {
	b.sub.run.Lock()
	defer b.sub.run.Unlock()
	switch {
	case ctx.Err() != nil:
	case d.place == apart && !d.Mentioned && len(d.Message.Mentions) > 0 && !b.e.shown.claim(d, false):
		b.account(d) // it came as a mention meanwhile
	default:
		b.once(d)
	}
}

// room waits until one more message may be shown and not settled.
func (b *backlog) room(ctx context.Context) error {
	for b.manual {
		b.mu.Lock()
		full := b.pos.full()
		b.mu.Unlock()
		if !full {
			break
		}
		select {
		case <-b.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// page is a part of what is stored.
type page struct {
	at       time.Time // when it was asked for
	messages []wire.PulledMessage
	losses   []wire.Loss // by where they begin
	next     uint64      // where the next one begins; 0: there is none
	take     func()      // what follows from its end
}

// give shows a message of a page.
type give func(ctx context.Context, p *page, m *wire.PulledMessage) error

// fetch reads the page that begins at a place, of at most limit messages.
type fetch func(ctx context.Context, from uint64, limit int) (*page, error)

// read walks through pages from a place on and gives their messages to give, which may wait. The next page is fetched
// while one is shown. errStale asks for another read, from where the messages that were shown end.
func (b *backlog) read(ctx context.Context, from uint64, fetch fetch, give give) error {
	type result struct {
		p   *page
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	p, err := fetch(ctx, from, b.limit)
	for err == nil {
		ahead := make(chan result, 1)
		more := p.next > from
		if more {
			from = p.next
			next, limit := from, min(2*b.limit, wire.MaxPullPage)
			wg.Go(func() {
				p, err := fetch(ctx, next, limit)
				ahead <- result{p, err}
			})
		}
		shown, err := showPage(ctx, p, give)
		switch {
		case err != nil:
			return err
		case shown < len(p.messages):
			b.limit = max(pageLeast, 2*shown)
			return errStale
		}
		b.limit = min(2*b.limit, wire.MaxPullPage)
		if p.take != nil {
			p.take()
		}
		if !more {
			return nil
		}
		r := <-ahead
		if p, err = r.p, r.err; err != nil {
			return err
		}
	}
	return err
}

// showPage gives the messages of a page until it is too old, and returns how many.
func showPage(ctx context.Context, p *page, give give) (int, error) {
	for i := range p.messages {
		if time.Since(p.at) > pageAge {
			return i, nil
		}
		if err := give(ctx, p, &p.messages[i]); err != nil {
			return i, err
		}
	}
	return len(p.messages), nil
}

// pulling is what a pull does with what it reads.
type pulling struct {
	came  func() // a page is there
	give  func(context.Context, *wire.PulledMessage) error
	taken func(after uint64, r *wire.PullReply) // the page was shown
	apart bool                                  // the sequences of losses are not those of messages
}

// pull reads everything that delivery has for the backlog and that is not dealt with.
func (b *backlog) pull(ctx context.Context, req wire.PullRequest, do pulling) error {
	fetch := func(ctx context.Context, after uint64, limit int) (*page, error) {
		req := req
		req.After, req.Limit = after, limit
		at, r := time.Now(), new(wire.PullReply)
		if err := b.call(ctx, wire.CommandPull, req, r); err != nil {
			return nil, err
		}
		b.mu.Lock()
		b.answers++
		b.mu.Unlock()
		do.came()
		p := &page{at: at, messages: r.Messages, next: r.Next, losses: byPlace(r.Losses)}
		p.take = func() {
			b.tellLosses(ctx, p, math.MaxUint64)
			do.taken(after, r)
		}
		return p, nil
	}
	give := func(ctx context.Context, p *page, m *wire.PulledMessage) error {
		until := m.Sequence
		if do.apart {
			until = math.MaxUint64
		}
		b.tellLosses(ctx, p, until)
		return do.give(ctx, m)
	}
	for {
		b.mu.Lock()
		from := b.pos.through
		b.mu.Unlock()
		if err := b.read(ctx, from, fetch, give); !errors.Is(err, errStale) {
			return err
		}
	}
}

// pulled checks a message of a page.
func (b *backlog) pulled(m *wire.PulledMessage) (*Delivery, error) {
	d, err := b.e.historic(m.Channel, m.HistoryMessage)
	if err != nil {
		b.e.events.emit(EventDropped{Reason: wire.ReasonOf(err), Subject: "messages of " + m.Channel, Err: err})
		return nil, err
	}
	d.Replayed, d.Attempt, d.at = true, 1, m.Sequence
	return d, nil
}
