package space

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
	return r.gather(ctx, what, inbox, Rest{Next: req.Seq}, fn)
}

// gather takes the answers until the broker says that was all.
func (r *reader) gather(ctx context.Context, what, inbox string, rest Rest, fn func(*Stored) error) (Rest, error) {
	var last uint64
	for {
		var msg *nats.Msg
		select {
		case <-ctx.Done():
			return rest, translate(what, ctx.Err())
		case msg = <-r.answers:
		}
		if msg.Subject != inbox {
			continue
		}
		// A stored message always carries the broker's sequence header, and its end mark never does. A publisher can
		// store a Status header, so the status alone proves nothing.
		if _, stored := msg.Header[headerSequence]; !stored {
			return r.end(what, msg.Header, last, rest)
		}
		m, prev, err := parseStored(msg)
		if err != nil {
			return rest, wire.Errorf(wire.CodeInternal, "%s: %v", what, err)
		}
		if prev != last {
			return rest, wire.Errorf(wire.CodeUnavailable, "%s: messages between %d and %d were lost on the way", what, last, m.Sequence)
		}
		last = m.Sequence
		rest.Next = last + 1
		rest.Pending = number(msg.Header, headerPending)
		if err := fn(m); err != nil {
			return rest, err
		}
	}
}

// end reads the broker's end mark.
func (r *reader) end(what string, h nats.Header, last uint64, rest Rest) (Rest, error) {
	switch code := h.Get(headerStatus); code {
	case "204":
		if got := number(h, headerLast); got != last {
			return rest, wire.Errorf(wire.CodeUnavailable, "%s: messages between %d and %d were lost on the way", what, last, got)
		}
		rest.Pending = number(h, headerPending)
		return rest, nil
	case "404":
		rest.Pending = 0
		return rest, nil
	case "503":
		return rest, translate(what, nats.ErrNoResponders)
	default:
		return rest, wire.Errorf(wire.CodeInternal, "%s: the broker answered %s", what, code)
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
