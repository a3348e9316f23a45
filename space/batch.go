package space

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/wire"
)

// Stored is one stored message. Subject, Sequence and Time are the broker's word, whatever headers the publisher set.
type Stored struct {
	Subject  string
	Sequence uint64
	Time     time.Time
	Header   nats.Header
	Data     []byte
}

// Query selects stored messages in stored order.
type Query struct {
	// Filter is a subject, wildcards allowed.
	Filter string
	// From is the first sequence. When it is 0 Since applies: the earliest stored time, zero for the oldest kept.
	From  uint64
	Since time.Time
	// Limit bounds the messages, MaxBytes what they weigh in the broker; one message is always given. 0 means 1000
	// and 1 MiB.
	Limit    int
	MaxBytes int
	// Unreadable, when set, is called in stored order for each message that is left out because its publisher hid
	// what the broker says about it, with what it weighs. Such a message counts towards Limit.
	Unreadable func(size int)
}

// Rest says what lies after a batch.
type Rest struct {
	// Next is the sequence to go on from; it is Query.From when there was nothing.
	Next uint64
	// Pending counts the matching messages after the batch when it was read.
	Pending uint64
}

const (
	batchMessages = 1000
	batchBytes    = 1 << 20

	headerSubject  = "Nats-Subject"
	headerSequence = "Nats-Sequence"
	headerTime     = "Nats-Time-Stamp"
	headerLast     = "Nats-Last-Sequence"
	headerPending  = "Nats-Num-Pending"
	headerStatus   = "Status"
)

// Read calls fn with the messages of one batch, by direct get: no consumer is made and nothing is moved. An error of
// fn ends it and is returned as it is.
//
// Errors: unavailable when the stream is not there or a message of the batch was lost on the way; deadline-exceeded.
func Read(ctx context.Context, js jetstream.JetStream, stream string, q Query, fn func(*Stored) error) (Rest, error) {
	setDefault(&q.Limit, batchMessages)
	r, err := newReader(js, stream, q.Limit)
	if err != nil {
		return Rest{}, err
	}
	defer r.close()
	return r.read(ctx, q, fn)
}

// Scan is [Read] over everything that matches filter, batch by batch.
func Scan(ctx context.Context, js jetstream.JetStream, stream, filter string, fn func(*Stored) error) error {
	r, err := newReader(js, stream, batchMessages)
	if err != nil {
		return err
	}
	defer r.close()
	for q := (Query{Filter: filter, From: 1}); ; {
		rest, err := r.read(ctx, q, fn)
		if err != nil || rest.Pending == 0 {
			return err
		}
		q.From = rest.Next
	}
}

// reader asks one stream, one request at a time, over one inbox.
type reader struct {
	js      jetstream.JetStream
	stream  string
	subject string
	inbox   string
	limit   int // most messages of one batch; the answers have room for them and the end mark
	answers chan *nats.Msg
	sub     *nats.Subscription
	asked   int
}

// newReader listens with a channel: the client's other ways of receiving turn an empty message with a Status header
// of 503, which any publisher can store, into an error.
func newReader(js jetstream.JetStream, stream string, limit int) (*reader, error) {
	r := &reader{
		js: js, stream: stream, subject: apiSubject(js, "DIRECT.GET."+stream), inbox: js.Conn().NewInbox(),
		limit: limit, answers: make(chan *nats.Msg, limit+1),
	}
	var err error
	if r.sub, err = js.Conn().ChanSubscribe(r.inbox+".*", r.answers); err != nil {
		return nil, translate(fmt.Sprintf("read stream %q", stream), err)
	}
	return r, nil
}

func (r *reader) close() { _ = r.sub.Unsubscribe() }

type batchRequest struct {
	Seq       uint64     `json:"seq,omitempty"`
	Filter    string     `json:"next_by_subj"`
	Batch     int        `json:"batch"`
	MaxBytes  int        `json:"max_bytes"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

func (r *reader) read(ctx context.Context, q Query, fn func(*Stored) error) (Rest, error) {
	what := fmt.Sprintf("read %q of stream %q", q.Filter, r.stream)
	req := batchRequest{Seq: q.From, Filter: q.Filter, Batch: q.Limit, MaxBytes: q.MaxBytes}
	setDefault(&req.Batch, r.limit)
	setDefault(&req.MaxBytes, batchBytes)
	switch {
	case q.From == 0 && !q.Since.IsZero():
		since := q.Since.UTC()
		req.StartTime = &since
	case q.From == 0:
		req.Seq = 1
	}
	body, err := json.Marshal(req)
	if err != nil {
		return Rest{}, wire.Errorf(wire.CodeInternal, "%s: %v", what, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	// Each request has its own last token, so that what is left of one that was given up is not taken for the next.
	r.asked++
	inbox := r.inbox + "." + strconv.Itoa(r.asked)
	if err := r.js.Conn().PublishRequest(r.subject, inbox, body); err != nil {
		return Rest{}, translate(what, err)
	}
	b := batch{what: what, rest: Rest{Next: req.Seq}, fn: fn, unreadable: q.Unreadable}
	err = r.gather(ctx, inbox, &b)
	return b.rest, err
}

// gather takes the answers until the broker says that was all.
func (r *reader) gather(ctx context.Context, inbox string, b *batch) error {
	for {
		var msg *nats.Msg
		select {
		case <-ctx.Done():
			return translate(b.what, ctx.Err())
		case msg = <-r.answers:
		}
		if msg.Subject != inbox {
			continue
		}
		if done, err := b.take(msg); done || err != nil {
			return err
		}
	}
}

// batch is what has come of one request.
type batch struct {
	what       string
	rest       Rest
	fn         func(*Stored) error
	unreadable func(size int)
	last       uint64 // sequence of the last message that could be read
	hidden     uint64 // messages since then that could not
}

// take handles one answer and reports whether it was the broker's end mark.
//
// A stored message carries the broker's sequence header, and the end mark does not. A publisher can store what looks
// like an end mark, or end his header block early so that the broker's sequence is not read: only of a header block
// that was read to its end does this tell the two apart.
func (b *batch) take(msg *nats.Msg) (done bool, err error) {
	if !header.Whole(msg) {
		b.hide(msg)
		return false, nil
	}
	if _, stored := msg.Header[headerSequence]; !stored {
		return true, b.end(msg.Header)
	}
	m, previous, err := parseStored(msg)
	if err != nil {
		b.hide(msg)
		return false, nil
	}
	if !b.follows(previous) || m.Sequence <= previous {
		return false, b.lost(m.Sequence)
	}
	b.last, b.hidden = m.Sequence, 0
	b.rest.Next = m.Sequence + 1
	b.rest.Pending = number(msg.Header, headerPending)
	return false, b.fn(m)
}

// hide leaves a message out.
func (b *batch) hide(msg *nats.Msg) {
	b.hidden++
	if b.unreadable != nil {
		b.unreadable(msg.Size() - len(msg.Subject) - len(msg.Reply))
	}
}

// follows reports whether previous, which the broker says came last, is what did. Of messages that cannot be read only
// their number is known.
func (b *batch) follows(previous uint64) bool {
	if b.hidden == 0 {
		return previous == b.last
	}
	return previous >= b.last+b.hidden
}

func (b *batch) lost(next uint64) error {
	return wire.Errorf(wire.CodeUnavailable, "%s: messages between %d and %d were lost on the way", b.what, b.last, next)
}

// end reads the broker's end mark.
func (b *batch) end(h nats.Header) error {
	switch code := h.Get(headerStatus); code {
	case "204":
		got := number(h, headerLast)
		if !b.follows(got) {
			return b.lost(got)
		}
		if b.hidden > 0 {
			b.rest.Next = got + 1
		}
		b.rest.Pending = number(h, headerPending)
		return nil
	case "404":
		b.rest.Pending = 0
		return nil
	case "503":
		return translate(b.what, nats.ErrNoResponders)
	default:
		return wire.Errorf(wire.CodeInternal, "%s: the broker answered %s", b.what, code)
	}
}

func parseStored(msg *nats.Msg) (m *Stored, previous uint64, err error) {
	m = &Stored{Subject: wire.BrokerHeader(msg.Header[headerSubject]), Header: msg.Header, Data: msg.Data}
	if m.Sequence, err = strconv.ParseUint(wire.BrokerHeader(msg.Header[headerSequence]), 10, 64); err != nil {
		return nil, 0, fmt.Errorf("unreadable sequence of a stored message: %w", err)
	}
	if m.Time, err = time.Parse(time.RFC3339Nano, wire.BrokerHeader(msg.Header[headerTime])); err != nil {
		return nil, 0, fmt.Errorf("unreadable time of message %d: %w", m.Sequence, err)
	}
	return m, number(msg.Header, headerLast), nil
}

func number(h nats.Header, key string) uint64 {
	n, _ := strconv.ParseUint(wire.BrokerHeader(h[key]), 10, 64)
	return n
}
