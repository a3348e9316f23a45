package space

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/wire"
)

// Bounds is where a stream begins and ends at a moment, as its leader says.
type Bounds struct {
	// First is the sequence of the oldest message that is stored; everything before it is gone. In an empty stream
	// it is 0, or one beyond Last.
	First uint64
	// Last is the last sequence that was given out.
	Last uint64
	// Replicas is how many copies there are. With more than one a direct get may be answered by a copy that
	// lacks the newest messages for a moment; see [NextAtLeader].
	Replicas int
}

// BoundsOf returns the bounds of a stream. Errors are those of [State].
func BoundsOf(ctx context.Context, js jetstream.JetStream, stream string) (Bounds, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	st, err := received(ctx, func() (jetstream.Stream, error) { return js.Stream(ctx, stream) })
	if err != nil {
		return Bounds{}, translate(fmt.Sprintf("inspect stream %q", stream), err)
	}
	info := st.CachedInfo()
	return Bounds{First: info.State.FirstSeq, Last: info.State.LastSeq, Replicas: info.Config.Replicas}, nil
}

// NextAtLeader returns the sequence of the first message on filter at or after a sequence, 0 when there is none. The
// leader answers, so it sees every message that was acknowledged.
func NextAtLeader(ctx context.Context, js jetstream.JetStream, stream, filter string, from uint64) (uint64, error) {
	r, err := leaderGet(ctx, js, stream, leaderRequest{Seq: from, Next: filter})
	if errors.Is(err, wire.ErrNotFound) {
		return 0, nil
	}
	return r.Seq, err
}

// MentionsKept is how many pointers are kept for one life of a principal, handled ones included.
const MentionsKept = mentionPerSubject

// eachWindow bounds the requests of ReadEach that are on their way at a time.
const eachWindow = 128

// ReadEach reads single messages of a stream, many at a time, and calls fn for each sequence in no particular order: with
// the message, or nil and whether it is gone or stored so that it cannot be read. An error of fn ends it.
//
// Errors: unavailable when the stream is not there; deadline-exceeded.
func ReadEach(ctx context.Context, js jetstream.JetStream, stream string, sequences []uint64, fn func(i int, m *Stored, gone bool) error) error {
	if len(sequences) == 0 {
		return nil
	}
	r, err := newReader(js, stream, min(len(sequences), eachWindow))
	if err != nil {
		return err
	}
	defer r.close()
	ctx, cancel := bounded(ctx)
	defer cancel()
	asked := 0
	for done := 0; done < len(sequences); done++ {
		for ; asked < len(sequences) && asked-done < eachWindow; asked++ {
			if err := r.ask(asked, sequences[asked]); err != nil {
				return err
			}
		}
		if err := r.answer(ctx, sequences, fn); err != nil {
			return err
		}
	}
	return nil
}

// ask requests one message; the answer names the place in the list.
func (r *reader) ask(i int, sequence uint64) error {
	body, err := json.Marshal(struct {
		Seq uint64 `json:"seq"`
	}{sequence})
	if err == nil {
		err = r.js.Conn().PublishRequest(r.subject, r.inbox+"."+strconv.Itoa(i), body)
	}
	if err != nil {
		return translate(fmt.Sprintf("read message %d of stream %q", sequence, r.stream), err)
	}
	return nil
}

// answer takes one answer.
func (r *reader) answer(ctx context.Context, sequences []uint64, fn func(int, *Stored, bool) error) error {
	var msg *nats.Msg
	select {
	case <-ctx.Done():
		return translate(fmt.Sprintf("read messages of stream %q", r.stream), ctx.Err())
	case msg = <-r.answers:
	}
	i, err := strconv.Atoi(strings.TrimPrefix(msg.Subject, r.inbox+"."))
	if err != nil || i < 0 || i >= len(sequences) {
		return wire.Errorf(wire.CodeInternal, "read messages of stream %q: an answer to nothing", r.stream)
	}
	if !header.Whole(msg) {
		return fn(i, nil, false)
	}
	if _, stored := msg.Header[headerSequence]; !stored {
		switch code := msg.Header.Get(headerStatus); code {
		case "404":
			return fn(i, nil, true)
		case "503":
			return translate(fmt.Sprintf("read messages of stream %q", r.stream), nats.ErrNoResponders)
		default:
			return wire.Errorf(wire.CodeInternal, "read message %d of stream %q: the broker answered %s", sequences[i], r.stream, code)
		}
	}
	m, _, err := parseStored(msg)
	if err != nil || m.Sequence != sequences[i] {
		return fn(i, nil, false)
	}
	return fn(i, m, false)
}
