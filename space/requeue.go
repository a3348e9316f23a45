package space

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// mark says that a dead letter is being put back, and under which message id. The id is random: one that could be
// foreseen could be used up by whoever may publish to the stream, and the message would be taken for stored.
type mark struct {
	V        int    `json:"v"`
	MsgID    string `json:"msgId"`
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`

	rev uint64
	at  time.Time
}

// markRest is how long a mark stands for a call that may still be at work.
const markRest = time.Minute

// Requeue stores the message of a dead letter once more, under the subject that it had and with wire.HeaderRequeued, so
// that the queue hands it over like a new one, and returns its new sequence. Then it removes the old message and the
// notice. A call that was interrupted at any point is finished by the next one: what was put back is not put back
// again, and nothing is removed before it was. Sequence 0 says that an earlier call had put it back.
//
// Errors: not-found when there is no such dead letter; failed-precondition when its message is stored no more;
// resource-exhausted when the stream is full, in which case the message stays where it is; conflict when somebody else is,
// or within the last minute was, putting it back. When an earlier call was interrupted and its copy of role work is not
// in the queue, nobody can tell whether it was done and left, or never got there: the error is failed-precondition
// with outcome unknown, the message is kept, and one more call puts it back for certain.
func Requeue(ctx context.Context, js jetstream.JetStream, s wire.Space, id uint64) (sequence uint64, err error) {
	d, err := getNotice(ctx, js, s, id)
	if err != nil {
		return 0, err
	}
	m, err := getMark(ctx, js, s, id)
	if err != nil {
		return 0, err
	}
	msg, err := original(ctx, js, d)
	if m == nil && (err == nil || errors.Is(err, errGone)) { // a mark is made of a dead letter only
		if dead, werr := newWitness(js, s).handed(ctx, &d, msg.Subject, msg.Time); werr != nil || !dead {
			return 0, cmp.Or(werr, noLetter(s, id))
		}
	}
	switch {
	case errors.Is(err, errGone) && m == nil:
		return 0, wire.Errorf(wire.CodeFailedPrecondition, "requeue dead letter %d: message %d is stored no more in stream %q; drop it", id, d.Sequence, d.Stream)
	case errors.Is(err, errGone): // it is removed only after it was put back
		return 0, bury(ctx, js, s, d, m)
	case err != nil:
		return 0, err
	case m == nil:
		m, err = putMark(ctx, js, s, d)
	default:
		sequence, err = findCopy(ctx, js, s, d, m, msg.Subject)
	}
	if err != nil {
		return 0, err
	}
	if sequence == 0 {
		if sequence, err = putBack(ctx, js, d, m, msg); err != nil {
			return 0, err
		}
	}
	return sequence, bury(ctx, js, s, d, m)
}

// DropDeadLetter removes the message of a dead letter, if it is still stored, and then the notice. It cannot be undone. A
// call that was interrupted is finished by the next one. Of a notice that is no dead letter it removes the notice alone.
//
// Errors: not-found when there is no such dead letter.
func DropDeadLetter(ctx context.Context, js jetstream.JetStream, s wire.Space, id uint64) error {
	d, err := getNotice(ctx, js, s, id)
	if wire.CodeOf(err) == wire.CodeInternal { // a notice that cannot be read names no message
		return remove(ctx, js, wire.DeadStream(s), id)
	}
	if err != nil {
		return err
	}
	m, err := getMark(ctx, js, s, id)
	if err != nil {
		return err
	}
	if m == nil {
		dead, err := newWitness(js, s).describe(ctx, &d)
		if err != nil {
			return err
		}
		if !dead {
			return remove(ctx, js, wire.DeadStream(s), id)
		}
	}
	return bury(ctx, js, s, d, m)
}

// bury removes the message, then the notice, then the mark.
func bury(ctx context.Context, js jetstream.JetStream, s wire.Space, d DeadLetter, m *mark) error {
	err := remove(ctx, js, d.Stream, d.Sequence)
	if err == nil {
		err = remove(ctx, js, wire.DeadStream(s), d.ID)
	}
	if err == nil && m != nil {
		err = remove(ctx, js, wire.DeadStream(s), m.rev)
	}
	if err != nil {
		return fmt.Errorf("remove dead letter %d: run it again: %w", d.ID, err)
	}
	return nil
}

// remove removes one message of a stream, if it is there.
func remove(ctx context.Context, js jetstream.JetStream, stream string, sequence uint64) error {
	err := table{js: js, stream: stream}.remove(ctx, fmt.Sprintf("remove message %d of stream %q", sequence, stream), sequence)
	if errors.Is(err, wire.ErrConflict) {
		return nil
	}
	return err
}

// putBack stores the copy. The message id keeps it single while the broker remembers it, also when an answer was lost.
func putBack(ctx context.Context, js jetstream.JetStream, d DeadLetter, m *mark, r record) (uint64, error) {
	msg := nats.NewMsg(r.Subject)
	msg.Data = r.Data
	for name, values := range headerOf(r.Header) {
		if !strings.HasPrefix(strings.ToLower(name), "nats-") { // what steers the broker was said for the first time
			msg.Header[name] = values
		}
	}
	msg.Header.Set(wire.HeaderRequeued, strconv.FormatUint(d.Sequence, 10))
	ctx, cancel := bounded(ctx)
	defer cancel()
	ack, err := js.PublishMsg(ctx, msg, jetstream.WithMsgID(m.MsgID), jetstream.WithExpectStream(d.Stream))
	if err != nil {
		return 0, translate(fmt.Sprintf("requeue dead letter %d", d.ID), err)
	}
	return ack.Sequence, nil
}

// findCopy looks for what an earlier call put back. It returns 0 when that call certainly put nothing back.
func findCopy(ctx context.Context, js jetstream.JetStream, s wire.Space, d DeadLetter, m *mark, subject string) (sequence uint64, err error) {
	// By the batch: whoever sends to the same address may have sent much since. A copy of the stream that lags by more than
	// the time for which the broker remembers ids is not to be expected.
	for q := (Query{Filter: subject, Since: m.at.Add(-markRest)}); sequence == 0; {
		rest, err := Read(ctx, js, d.Stream, q, func(r *Stored) error {
			if r.Header.Get(nats.MsgIdHdr) == m.MsgID {
				sequence = r.Sequence
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("requeue dead letter %d: %w", d.ID, err)
		}
		if rest.Pending == 0 {
			break
		}
		q.From = rest.Next
	}
	if sequence != 0 {
		return sequence, nil
	}
	if d.Stream != wire.RoleStream(s) {
		return 0, nil // direct messages stay in their stream when they are handled
	}
	if time.Since(m.at) < markRest {
		return 0, wire.Errorf(wire.CodeConflict, "requeue dead letter %d: another call put it back, or is about to; ask again in %s", d.ID, markRest)
	}
	if err := remove(ctx, js, wire.DeadStream(s), m.rev); err != nil {
		return 0, err
	}
	e := wire.Errorf(wire.CodeFailedPrecondition,
		"requeue dead letter %d: a call of %s was interrupted and may have put it back; if the work was done, drop it, else requeue it again", d.ID, m.at.Format(time.RFC3339))
	e.Outcome = wire.OutcomeUnknown
	return 0, e
}

func getMark(ctx context.Context, js jetstream.JetStream, s wire.Space, id uint64) (*mark, error) {
	r, err := leaderGet(ctx, js, wire.DeadStream(s), leaderRequest{Last: markSubject(s, id)})
	if wire.CodeOf(err) == wire.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("requeue dead letter %d: %w", id, err)
	}
	m := mark{rev: r.Seq, at: r.Time}
	if err := wire.Decode(r.Data, &m, deadSize); err != nil || m.V != 1 || m.MsgID == "" {
		return nil, wire.Errorf(wire.CodeInternal, "requeue dead letter %d: its mark cannot be read", id)
	}
	return &m, nil
}

func putMark(ctx context.Context, js jetstream.JetStream, s wire.Space, d DeadLetter) (*mark, error) {
	m := mark{V: 1, MsgID: "requeue-" + wire.NewNonce(), Stream: d.Stream, Sequence: d.Sequence}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "requeue dead letter %d: %v", d.ID, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: markSubject(s, d.ID), Data: body},
		jetstream.WithExpectLastSequencePerSubject(0), jetstream.WithRetryAttempts(0))
	if err != nil {
		return nil, translate(fmt.Sprintf("requeue dead letter %d: mark it", d.ID), err)
	}
	m.rev, m.at = ack.Sequence, time.Now()
	return &m, nil
}

func markSubject(s wire.Space, id uint64) string {
	return wire.DeadMarks(s) + strconv.FormatUint(id, 10)
}
