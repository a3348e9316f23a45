package endpoint

import (
	"github.com/nats-io/nats.go"
)

// learn takes note of what the broker said about the queue, and reports when it hands out no more.
func (q *queue) learn(t terms) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left = t.waiting
	if t.full() {
		q.tellFull(t.pending)
	}
}

// full says that the broker hands out no more.
func (t terms) full() bool { return t.maxPending > 0 && t.pending >= t.maxPending }

// waiting returns how many messages the broker had for us beside the last one.
func (q *queue) waiting() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.left
}

// stalled reports whether it is worth asking why the broker sends nothing: it had more messages, or some that we have
// not settled may be among too many, and this was not told yet.
func (q *queue) stalled() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.full && (q.left > 0 || len(q.held) > 0)
}

// informed reads the broker's answer to a question about the queue.
func (q *queue) informed(m *nats.Msg) {
	t, err := parseTerms(q.act(), m.Data)
	if err != nil {
		return // the puller finds out what is wrong, and reports it
	}
	q.learn(t)
}

// tellFull reports, once until there is room again, that the broker hands out no more. q.mu is held.
func (q *queue) tellFull(pending int) {
	if q.full {
		return
	}
	q.full = true
	q.e.events.emit(EventQueueFull{Kind: q.kind, Pending: pending})
}
