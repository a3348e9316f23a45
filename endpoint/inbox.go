package endpoint

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/wire"
)

const (
	// fullPatience is how long a reader of a queue that hands out no more waits for what comes again all the same.
	fullPatience = time.Second
	// emptyPatience is how long a reader of an empty queue waits. The broker confirms a message to its sender before it
	// tells the queue, so that one who reads just after would be told that there is none.
	emptyPatience = 25 * time.Millisecond
)

// ReadDirect takes up to limit direct messages that wait for this principal now, and returns after 25 ms when none does:
// for programs that look and go. The caller settles each one when it has dealt with it; what is not settled, because the
// program ended before, waits again after the ack wait. Limit 0 means 256, the most. more says that there may be more.
//
// Errors are those of HandleDirect; already-exists when the endpoint handles its direct messages; resource-exhausted when
// so many are handed out and not settled that the broker hands out no more. With an error nothing was taken.
func (e *Endpoint) ReadDirect(ctx context.Context, limit int) (messages []*Delivery, more bool, err error) {
	if limit < 0 || limit > directWindow {
		return nil, false, wire.Errorf(wire.CodeBadRequest, "read direct messages: limit %d outside 0 to %d", limit, directWindow)
	}
	if limit == 0 {
		limit = directWindow
	}
	q, l, err := e.reader()
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	q.run.Lock()
	defer q.run.Unlock()
	now, err := q.inspect(ctx)
	if err != nil {
		return nil, false, err
	}
	if q.terms == (terms{}) {
		q.terms = now // before anything of it was shown
	}
	q.learn(now)
	patience := emptyPatience
	if now.full() {
		patience = fullPatience
	}
	messages, more, err = q.take(ctx, l, limit, patience)
	if len(messages) == 0 && err == nil && now.full() {
		return nil, false, wire.Errorf(wire.CodeResourceExhausted,
			"read direct messages: %d of at most %d are handed out and not settled; they come again after their ack wait", now.pending, now.maxPending)
	}
	return messages, more, err
}

// reader returns the queue of ReadDirect, which remembers what it has shown, and the link to use.
func (e *Endpoint) reader() (*queue, *link, error) {
	e.topo.Lock()
	defer e.topo.Unlock()
	l, err := e.current()
	if err != nil {
		return nil, nil, err
	}
	if e.queues[wire.KindDirect] != nil {
		return nil, nil, wire.Errorf(wire.CodeAlreadyExists, "read direct messages: they are handled already")
	}
	if e.inbox == nil {
		e.inbox = e.directQueue()
	}
	return e.inbox, l, nil
}

// take asks for messages once, and returns when the broker has sent what it had, or had nothing for the time of patience.
// It runs with q.run held.
func (q *queue) take(ctx context.Context, l *link, limit int, patience time.Duration) (messages []*Delivery, more bool, err error) {
	a := act{"read messages of queue", q.durable, subjectConsumerNext + q.stream + "." + q.durable, "queue " + q.durable}
	answers := make(chan *nats.Msg, limit+1)
	inbox := l.nc.NewInbox()
	sub, err := l.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, false, q.e.failure(a, err, false)
	}
	defer func() { _ = sub.Unsubscribe() }() // a closed connection has ended it already
	body := `{"batch":` + strconv.Itoa(limit) + `,"no_wait":true,"expires":` + strconv.FormatInt(int64(patience), 10) + `}`
	if err := l.nc.PublishRequest(a.subject, inbox, []byte(body)); err != nil {
		return nil, false, q.e.failure(a, err, false)
	}
	for taken := 0; taken < limit; {
		var m *nats.Msg
		select {
		case m = <-answers:
		case <-l.closed:
			err = errLinkClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
		switch {
		case err != nil && len(messages) > 0:
			return messages, true, nil // what came was taken, whatever became of the rest
		case err != nil:
			return nil, false, q.e.failure(a, err, false)
		case m.Subject == inbox:
			return messages, false, q.ended(a, m, len(messages))
		}
		taken++
		d := q.open(m)
		more = q.waiting() > 0
		if d == nil {
			continue
		}
		q.handled(d)
		messages = append(messages, d)
		more = more || d.Redelivered // what comes again is not among those that wait, and comes before them
	}
	return messages, more, nil
}

// ended reads the status that ends a request. It is an error when nothing came before it and it is not that nothing waits.
func (q *queue) ended(a act, m *nats.Msg, taken int) error {
	code := statusOf(m)
	switch {
	case len(m.Data) > 0 || !header.Whole(m):
		q.e.foreign(m, "queue "+q.durable)
		return nil
	case taken > 0, code == statusNoMessages, code == statusTimeout:
		return nil
	case code == statusNoResponders:
		return q.e.failure(a, errNoResponders, false)
	}
	return wire.Errorf(wire.CodeUnavailable, "%s %q: the broker says %s %q", a.verb, a.operand, code, m.Header.Get("Description"))
}
