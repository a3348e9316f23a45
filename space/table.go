package space

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// table is one bucket of records that services alone write: reads of a key go to the leader, writes are
// compare-and-swap, and what is removed leaves nothing behind.
type table struct {
	js     jetstream.JetStream
	stream string
	prefix string // of the subjects of records
}

func newTable(js jetstream.JetStream, bucket string) table {
	return table{js: js, stream: BucketStream(bucket), prefix: wire.RecordPrefix(bucket)}
}

// get returns the record of a key. A missing one is not-found.
func (t table) get(ctx context.Context, key string) (record, error) {
	return leaderGet(ctx, t.js, t.stream, leaderRequest{Last: t.prefix + key})
}

// put writes a record while the one there has revision rev, 0 for none.
func (t table) put(ctx context.Context, what, key string, v any, rev uint64) (uint64, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return 0, wire.Errorf(wire.CodeInternal, "%s: %v", what, err)
	}
	return t.putBody(ctx, what, key, body, rev)
}

// putBody is put of a value that is JSON already.
func (t table) putBody(ctx context.Context, what, key string, body []byte, rev uint64) (uint64, error) {
	if len(body) > recordSize-headerRoom {
		return 0, wire.Errorf(wire.CodeResourceExhausted, "%s: a record of %d bytes, at most %d", what, len(body), recordSize-headerRoom)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	ack, err := t.js.PublishMsg(ctx, &nats.Msg{Subject: t.prefix + key, Data: body},
		jetstream.WithExpectLastSequencePerSubject(rev), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, translate(what, err)
	}
	return ack.Sequence, nil
}

// padded adds spaces to a record so that it weighs the same whatever revision it replaces, which its header names: then it
// fits in place of one as long also when the bucket is full.
func padded(body []byte, rev uint64) []byte {
	for digits := len(strconv.FormatUint(rev, 10)); digits < 20; digits++ {
		body = append(body, ' ')
	}
	return body
}

// Answers of the broker to the removal of a message that is not there.
const (
	codeSequenceNotFound = 10043
	codeDeleteFailed     = 10057
)

// remove removes the record that has revision rev. When another one took its place, or none, it is a conflict: a
// revision is a place in the stream, so nothing else can be hit.
func (t table) remove(ctx context.Context, what string, rev uint64) error {
	body, err := json.Marshal(struct {
		Seq     uint64 `json:"seq"`
		NoErase bool   `json:"no_erase"`
	}{rev, true})
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "%s: %v", what, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	msg, err := t.js.Conn().RequestWithContext(ctx, apiSubject(t.js, "STREAM.MSG.DELETE."+t.stream), body)
	if err != nil {
		return translate(what, err)
	}
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Success bool                `json:"success"`
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil || resp.Error == nil && !resp.Success {
		return wire.Errorf(wire.CodeInternal, "%s: unreadable answer of the broker", what)
	}
	if resp.Error != nil {
		if resp.Error.ErrorCode == codeSequenceNotFound || resp.Error.ErrorCode == codeDeleteFailed {
			return wire.Errorf(wire.CodeConflict, "%s: revision %d is gone", what, rev)
		}
		return translate(what, resp.Error)
	}
	return nil
}

// removeAll removes every record whose key matches, those that cannot be read included, one request each.
func (t table) removeAll(ctx context.Context, what, keys string) error {
	return leaderScan(ctx, t.js, t.stream, t.prefix+keys, func(r record) error {
		err := t.remove(ctx, fmt.Sprintf("%s, record %d", what, r.Seq), r.Seq)
		if errors.Is(err, wire.ErrConflict) {
			return nil
		}
		return err
	})
}

// changes calls fn with every record whose key matches that was written after a sequence, in the order of writing, and
// returns the sequence to go on from.
func (t table) changes(ctx context.Context, keys string, after uint64, fn func(*Stored)) (uint64, error) {
	r, err := newReader(t.js, t.stream, batchMessages)
	if err != nil {
		return after, err
	}
	defer r.close()
	for {
		rest, err := r.read(ctx, Query{Filter: t.prefix + keys, From: after + 1}, func(m *Stored) error {
			fn(m)
			return nil
		})
		after = max(after, rest.Next-1)
		if err != nil || rest.Pending == 0 {
			return after, err
		}
	}
}

// total counts the records whose key matches.
func (t table) total(ctx context.Context, keys string) (int, error) {
	n := 0
	q := Query{Filter: t.prefix + keys, From: 1, Limit: 1, MaxBytes: 1, Unreadable: func(int) { n = 1 }}
	rest, err := Read(ctx, t.js, t.stream, q, func(*Stored) error {
		n = 1
		return nil
	})
	return n + int(rest.Pending), err
}
