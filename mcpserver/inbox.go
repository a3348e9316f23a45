package mcpserver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// class orders what waits: what is addressed to the agent, what names it, and what goes to everybody.
type class int

const (
	classDirect class = iota // direct and role messages
	classMention
	classAmbient
	classes
)

// Bounds of what is held here. Direct and role messages are bounded by the endpoint, see Prepare.
const (
	directLimit = 32
	roleLimit   = 1
	// maxHeldBytes bounds the messages that came by memberships, and those that came as mentions, each on its own.
	maxHeldBytes = 1 << 20
	// maxHeldCount bounds how many they are.
	maxHeldCount = 1024
	// keepEvery is how often a direct or role message that waits here is kept from being handed out again. The broker does
	// that 60 s after the last word about it.
	keepEvery = 20 * time.Second
	// backAfter is how long after a close the broker hands out again what was not acknowledged.
	backAfter = time.Second
)

// item is one message that waits.
type item struct {
	d       *endpoint.Delivery
	class   class
	src     source
	pattern string // of the membership that it came by
	size    int
	done    int  // characters of its body that were acknowledged
	showed  bool // a turn began with it, or the part after done, and it is not known whether the host kept that
	settled bool // it is acknowledged, or somebody is about to
}

// source says which bound a message counts against.
type source int

const (
	srcQueue source = iota // direct and role messages
	srcMention
	srcChannel
	sources
)

// inbox holds what came and was not acknowledged.
type inbox struct {
	own     wire.Principal
	arrived func(*item) // told outside of mu, for each new message

	mu      sync.Mutex // guards the fields below
	items   [classes][]*item
	count   [sources]int
	bytes   [sources]int
	blocked map[string]int // handlers that wait for room, by what they read
	freed   chan struct{}  // closed, and made anew, when room was made
	closed  bool
	refused map[string]bool          // patterns of memberships of which nothing is taken
	waiters map[string]chan struct{} // by the id that an answer names; closed when one is there, or none can come
}

func newInbox(own wire.Principal, arrived func(*item)) *inbox {
	return &inbox{
		own: own, arrived: arrived, blocked: map[string]int{}, freed: make(chan struct{}), refused: map[string]bool{},
		waiters: map[string]chan struct{}{},
	}
}

// fromQueue takes a direct or role message. One that the broker hands out again replaces itself.
func (b *inbox) fromQueue(d *endpoint.Delivery) {
	b.mu.Lock()
	for _, it := range b.items[classDirect] {
		if it.d.Kind == d.Kind && it.d.Sequence == d.Sequence {
			it.d = d
			b.mu.Unlock()
			return
		}
	}
	b.mu.Unlock()
	b.admit(&item{d: d, class: classDirect, src: srcQueue})
}

// fromChannel takes a message of a membership, and waits while there is no room.
func (b *inbox) fromChannel(pattern string) func(*endpoint.Delivery) {
	return func(d *endpoint.Delivery) {
		it := &item{d: d, class: classAmbient, src: srcChannel, pattern: pattern}
		if mentions(d, b.own) {
			it.class = classMention
		}
		b.admit(it)
	}
}

// fromMention takes a mention on a channel that the agent has not joined, and waits while there is no room.
func (b *inbox) fromMention(d *endpoint.Delivery) {
	b.admit(&item{d: d, class: classMention, src: srcMention})
}

// admit keeps a message. When the inbox was closed it does nothing: what was not settled comes again. So it does with what is refused.
func (b *inbox) admit(it *item) {
	if it.d.Sender == b.own && it.src != srcQueue {
		_ = it.d.Ack(context.Background()) // what one said oneself is no news; it comes again if this is not reported
		return
	}
	it.size = weight(it.d.Message)
	b.mu.Lock()
	for it.src != srcQueue && !b.unwantedLocked(it) && b.fullLocked(it) {
		wait := b.freed
		b.blocked[it.pattern]++
		b.mu.Unlock()
		<-wait
		b.mu.Lock()
		if b.blocked[it.pattern]--; b.blocked[it.pattern] == 0 {
			delete(b.blocked, it.pattern)
		}
	}
	if b.unwantedLocked(it) {
		b.mu.Unlock()
		return
	}
	b.items[it.class] = append(b.items[it.class], it)
	b.count[it.src]++
	b.bytes[it.src] += it.size
	if w := b.waiters[it.d.Message.ReplyTo]; w != nil && it.class == classDirect {
		delete(b.waiters, it.d.Message.ReplyTo)
		close(w)
	}
	if b.closesLocked() {
		for id, w := range b.waiters {
			delete(b.waiters, id)
			close(w)
		}
	}
	b.mu.Unlock()
	b.arrived(it)
}

// unwantedLocked reports whether nobody is to see a message: the next process has it, or it is of a membership that is given up.
func (b *inbox) unwantedLocked(it *item) bool {
	return b.closed || it.src == srcChannel && b.refused[it.pattern]
}

func (b *inbox) fullLocked(it *item) bool {
	return b.count[it.src] > 0 && (b.count[it.src] >= maxHeldCount || b.bytes[it.src]+it.size > maxHeldBytes)
}

// weight is about what a message costs in memory.
func weight(m *wire.Message) int {
	n := 256
	for i := range m.Parts {
		n += len(m.Parts[i].Text) + len(m.Parts[i].Data) + len(m.Parts[i].Raw) + 64
	}
	return n
}

// removeLocked forgets a message that was settled.
func (b *inbox) removeLocked(it *item) {
	list := b.items[it.class]
	i := slices.Index(list, it)
	if i < 0 {
		return
	}
	b.items[it.class] = slices.Delete(list, i, i+1)
	b.count[it.src]--
	b.bytes[it.src] -= it.size
	if it.src != srcQueue {
		b.stirLocked()
	}
}

// ack says of messages that they were handled. What could not be said is shown again; the error is the first reason.
func (b *inbox) ack(ctx context.Context, items []*item) (done int, err error) {
	for _, it := range items {
		b.mu.Lock()
		d, busy := it.d, it.settled
		it.settled = true
		b.mu.Unlock()
		if busy {
			continue
		}
		aerr := d.Ack(ctx)
		b.mu.Lock()
		if aerr == nil || errors.Is(aerr, endpoint.ErrSettled) {
			b.removeLocked(it)
			done++
		} else {
			it.settled = false
			if err == nil {
				err = aerr
			}
		}
		b.mu.Unlock()
	}
	return done, err
}

// showed notes that a turn began with what a page shows.
func (b *inbox) showed(entries []entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		e.it.showed = true
	}
}

// each calls fn with every message that waits, in the order in which pages show them, until it returns false.
func (b *inbox) each(fn func(*item) bool) {
	b.mu.Lock()
	var all []*item
	for c := range b.items {
		all = append(all, b.items[c]...)
	}
	b.mu.Unlock()
	for _, it := range all {
		if !fn(it) {
			return
		}
	}
}

// counts is how many messages wait here, by class.
func (b *inbox) counts() (n [classes]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.items {
		n[c] = len(b.items[c])
	}
	return n
}

// stuck are the patterns of memberships of which a message waits for room.
func (b *inbox) stuck() (patterns []string, mentions bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.blocked {
		if p == "" {
			mentions = true
			continue
		}
		patterns = append(patterns, p)
	}
	slices.Sort(patterns)
	return patterns, mentions
}

// closesLocked reports whether no direct message comes until one that is here was acknowledged.
func (b *inbox) closesLocked() bool {
	n := 0
	for _, it := range b.items[classDirect] {
		if it.d.Kind == wire.KindDirect {
			n++
		}
	}
	return n >= directLimit
}

// answer returns a channel that closes when a direct message is here that answers a message, or none can come; forget ends the wait.
func (b *inbox) answer(id string) (came <-chan struct{}, forget func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := make(chan struct{})
	if b.closesLocked() || slices.ContainsFunc(b.items[classDirect], func(it *item) bool { return it.d.Message.ReplyTo == id }) {
		close(w)
		return w, func() {}
	}
	b.waiters[id] = w
	return w, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.waiters[id] == w {
			delete(b.waiters, id)
		}
	}
}

// answering picks the direct messages that answer a message.
func (b *inbox) answering(id string) func(*item) bool {
	return func(it *item) bool { return it.class == classDirect && it.d.Message.ReplyTo == id }
}

// keep tells the broker, until ctx ends, that what waits here is being worked on.
func (b *inbox) keep(ctx context.Context) {
	t := time.NewTicker(keepEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for _, d := range b.queued() {
			_ = d.InProgress(ctx) // without it the message comes again, and replaces itself
		}
	}
}

func (b *inbox) queued() (ds []*endpoint.Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range b.items[classDirect] {
		ds = append(ds, it.d)
	}
	return ds
}

// refuse forgets what came by a membership whose unread messages are not wanted, and takes nothing more of it until admit is called.
func (b *inbox) refuse(pattern string) (admit func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[pattern] = true
	for c := range b.items {
		for _, it := range slices.Clone(b.items[c]) {
			if it.src == srcChannel && it.pattern == pattern {
				it.settled = true
				b.removeLocked(it)
			}
		}
	}
	b.stirLocked()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.refused, pattern)
	}
}

// stirLocked lets handlers that wait look again.
func (b *inbox) stirLocked() {
	close(b.freed)
	b.freed = make(chan struct{})
}

// close lets handlers that wait return and gives back what was not acknowledged, so that the next process has it soon.
func (b *inbox) close(ctx context.Context) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.closed = true
	b.stirLocked()
	b.mu.Unlock()
	for _, d := range b.queued() {
		if d.Attempt < maxReturns {
			_ = d.Nak(ctx, backAfter) // else its ack wait ends just so
		}
	}
}

// maxReturns keeps what is given back at a close from counting as given up.
const maxReturns = endpoint.DefaultMaxAttempts - 1
