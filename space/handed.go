package space

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// The broker notes that a message was refused for good whenever the reader of a queue says so, whichever sequence the reader
// names: one of another queue, or one that was not given out yet. What of it is true must be looked up.

// Handed reports whether a queue was handed a stored message: it is addressed to the queue, and lies between where the queue
// began and the last message that it gave out. Of a queue that is no more only the address is left to compare.
//
// Errors: bad-request when that is no queue of direct or role messages; those of [InspectQueue] but not-found.
func Handed(ctx context.Context, js jetstream.JetStream, s wire.Space, stream, consumer string, m *Stored) (bool, error) {
	d := DeadLetter{Stream: stream, Consumer: consumer, Sequence: m.Sequence, At: m.Time}
	if err := d.name(s); err != nil {
		return false, err
	}
	return newWitness(js, s).handed(ctx, &d, m.Subject, m.Time)
}

// witness compares notices with what the broker says of the queues. It asks once for each.
type witness struct {
	js     jetstream.JetStream
	space  wire.Space
	queues map[string]*QueueState // by stream and name, nil for one that is no more
}

func newWitness(js jetstream.JetStream, s wire.Space) *witness {
	return &witness{js: js, space: s, queues: map[string]*QueueState{}}
}

// handed reports whether the queue of a notice was handed its message, which was stored on a subject at a time; the subject
// is "" when it is stored no more. When there is neither a queue nor a message nothing speaks for the notice.
func (w *witness) handed(ctx context.Context, d *DeadLetter, subject string, stored time.Time) (bool, error) {
	if subject != "" && !d.addressed(w.space, subject) {
		return false, nil
	}
	q, err := w.queue(ctx, d.Stream, d.Consumer)
	if err != nil {
		return false, err
	}
	if q == nil { // it cannot have been handed what was stored after its notice
		return subject != "" && !stored.After(d.At), nil
	}
	return d.Sequence >= q.First && d.Sequence <= q.Delivered, nil
}

func (w *witness) queue(ctx context.Context, stream, consumer string) (*QueueState, error) {
	key := stream + "." + consumer
	if q, ok := w.queues[key]; ok {
		return q, nil
	}
	q, err := InspectQueue(ctx, w.js, stream, consumer)
	switch {
	case err == nil:
		w.queues[key] = &q
	case errors.Is(err, wire.ErrNotFound):
		w.queues[key] = nil
	default:
		return nil, err
	}
	return w.queues[key], nil
}

// describe adds to a notice what the message itself says, and reports whether it is a dead letter at all.
func (w *witness) describe(ctx context.Context, d *DeadLetter) (bool, error) {
	r, err := original(ctx, w.js, *d)
	if errors.Is(err, errGone) {
		d.Gone = true
		return w.handed(ctx, d, "", time.Time{})
	}
	if err != nil {
		return false, err
	}
	if ok, err := w.handed(ctx, d, r.Subject, r.Time); err != nil || !ok {
		return false, err
	}
	d.Message, d.Size, d.StoredAt = r.Data, len(r.Data), r.Time
	if sub, err := wire.ParseSubject(r.Subject); err == nil {
		d.Sender = sub.Sender.String()
	}
	if m, err := wire.DecodeMessage(r.Data); err == nil {
		d.MessageID = m.ID
	}
	return true, nil
}

// addressed reports whether what is stored on a subject is for the queue of the dead letter.
func (d *DeadLetter) addressed(s wire.Space, subject string) bool {
	sub, err := wire.ParseSubject(subject)
	if err != nil || sub.Space != s || sub.Kind.String() != d.Kind {
		return false
	}
	if sub.Kind == wire.KindRole {
		return sub.Role == d.Recipient
	}
	return sub.To == d.Lifecycle.Principal
}

// name fills in whose queue it is.
func (d *DeadLetter) name(s wire.Space) (err error) {
	switch d.Stream {
	case wire.DirectStream(s):
		d.Kind = wire.KindDirect.String()
		if d.Lifecycle, err = wire.ParseDirectDurable(d.Consumer); err == nil {
			d.Recipient, d.UID = d.Lifecycle.Principal.String(), d.Lifecycle.UID
		}
	case wire.RoleStream(s):
		d.Kind = wire.KindRole.String()
		d.Recipient, err = wire.ParseRoleDurable(d.Consumer)
	default:
		err = wire.Errorf(wire.CodeBadRequest, "stream %q has no queues in space %q", d.Stream, s)
	}
	return err
}
