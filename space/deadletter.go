package space

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// MaxDeadPage is the most dead letters of one page, and the default.
const MaxDeadPage = 500

// DeadLetter is a direct or role message that the broker no longer hands over. What it is and why it died is the broker's
// word, but for the Reason and the Deliveries of what is Terminated, which the receiver gave, and MessageID, which the sender
// claims. A notice about a message that its queue was never handed is no dead letter: whoever reads one queue can have the
// broker note anything about any message, see [Handed].
type DeadLetter struct {
	// ID is the sequence of the broker's notice. It is what the other functions take.
	ID uint64 `json:"id"`
	// Kind is "direct" or "role".
	Kind string `json:"kind"`
	// Stream and Sequence are where the message is stored, Consumer is the queue that gave it up.
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	Consumer string `json:"consumer"`
	// Recipient is a principal in dot form, or a role. Lifecycle is the life of that principal whose queue it was.
	Recipient string         `json:"recipient"`
	Lifecycle wire.Lifecycle `json:"-"`
	UID       wire.UID       `json:"uid,omitempty"`
	// Deliveries is how often it was handed over. Terminated says that the receiver refused it for good.
	Deliveries int       `json:"deliveries"`
	Terminated bool      `json:"terminated,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	At         time.Time `json:"at"`
	// Gone says that the message is stored no more. Then what follows is not known.
	Gone      bool      `json:"gone,omitempty"`
	Sender    string    `json:"sender,omitempty"`
	MessageID string    `json:"messageId,omitempty"`
	StoredAt  time.Time `json:"storedAt,omitzero"`
	Size      int       `json:"size,omitempty"`
	// Message is the body, as it was sent. Only [GetDeadLetter] fills it in.
	Message []byte `json:"message,omitempty"`
}

// notice is what the broker says of a message that it gave up.
type notice struct {
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	Sequence   uint64 `json:"stream_seq"`
	Deliveries int    `json:"deliveries"`
	Reason     string `json:"reason"`
}

// DeadLetters returns the dead letters after the given id, oldest first, at most limit of them, and the id to go on from:
// 0 at the end. It reads each message for what it says of it, one at a time, and keeps no body. A page may hold fewer than
// limit, or none, and not be the last.
//
// Errors: bad-request for a limit above MaxDeadPage; failed-precondition when the space was not made; unavailable.
func DeadLetters(ctx context.Context, js jetstream.JetStream, s wire.Space, after uint64, limit int) (letters []DeadLetter, next uint64, err error) {
	if limit < 0 || limit > MaxDeadPage {
		return nil, 0, wire.Errorf(wire.CodeBadRequest, "list dead letters of space %q: limit %d outside 0 to %d", s, limit, MaxDeadPage)
	}
	setDefault(&limit, MaxDeadPage)
	q := Query{Filter: wire.DeadNotices, From: after + 1, Limit: limit}
	rest, err := Read(ctx, js, wire.DeadStream(s), q, func(m *Stored) error {
		if d, err := readNotice(s, m.Subject, m.Data); err == nil { // what no broker wrote is no dead letter
			d.ID, d.At = m.Sequence, m.Time
			letters = append(letters, d)
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list dead letters of space %q: %w", s, err)
	}
	w, notices := newWitness(js, s), letters
	letters = letters[:0]
	for _, d := range notices {
		dead, err := w.describe(ctx, &d)
		if err != nil {
			return nil, 0, err
		}
		if d.Message = nil; dead {
			letters = append(letters, d)
		}
	}
	if rest.Pending > 0 {
		next = rest.Next - 1
	}
	return letters, next, nil
}

// GetDeadLetter returns one dead letter with its body.
//
// Errors: not-found when there is none with that id; internal when the notice cannot be read.
func GetDeadLetter(ctx context.Context, js jetstream.JetStream, s wire.Space, id uint64) (DeadLetter, error) {
	d, err := getNotice(ctx, js, s, id)
	if err != nil {
		return DeadLetter{}, err
	}
	dead, err := newWitness(js, s).describe(ctx, &d)
	if err == nil && !dead {
		err = noLetter(s, id)
	}
	if err != nil {
		return DeadLetter{}, err
	}
	return d, nil
}

// noLetter is the answer about what is no dead letter.
func noLetter(s wire.Space, id uint64) error {
	return wire.Errorf(wire.CodeNotFound, "no dead letter %d in space %q", id, s)
}

// FindDead returns the last notice that a queue gave up the message with this sequence, nil when there is none or the queue
// was never handed it.
func FindDead(ctx context.Context, js jetstream.JetStream, s wire.Space, stream, consumer string, sequence uint64) (*DeadLetter, error) {
	what := fmt.Sprintf("find dead letter %d of queue %q", sequence, consumer)
	q := Query{Filter: wire.DeadFilter(stream, consumer), From: 1}
	// A message dies after it was stored, so that of a message that is there the notices before it need not be read.
	var subject string
	_, err := Read(ctx, js, stream, Query{Filter: ">", From: sequence, Limit: 1}, func(m *Stored) error {
		if m.Sequence == sequence {
			q.From, q.Since, subject = 0, m.Time, m.Subject
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var found *DeadLetter
	for {
		rest, err := Read(ctx, js, wire.DeadStream(s), q, func(m *Stored) error {
			if d, err := readNotice(s, m.Subject, m.Data); err == nil && d.Sequence == sequence {
				d.ID, d.At = m.Sequence, m.Time
				found = &d
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		if rest.Pending == 0 {
			break
		}
		q.From = rest.Next
	}
	if found == nil {
		return nil, nil
	}
	if dead, err := newWitness(js, s).handed(ctx, found, subject, q.Since); err != nil || !dead {
		return nil, err
	}
	return found, nil
}

func getNotice(ctx context.Context, js jetstream.JetStream, s wire.Space, id uint64) (DeadLetter, error) {
	r, err := leaderGet(ctx, js, wire.DeadStream(s), leaderRequest{Seq: id})
	if wire.CodeOf(err) == wire.CodeNotFound {
		return DeadLetter{}, noLetter(s, id)
	}
	if err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %d: %w", id, err)
	}
	d, err := readNotice(s, r.Subject, r.Data)
	if wire.CodeOf(err) == wire.CodeBadRequest { // a mark
		return DeadLetter{}, noLetter(s, id)
	}
	d.ID, d.At = id, r.Time
	return d, err
}

// readNotice reads one notice. Its subject says which queue of which stream it is about.
func readNotice(s wire.Space, subject string, body []byte) (DeadLetter, error) {
	sub, err := wire.ParseDeadSubject(subject)
	if err != nil {
		return DeadLetter{}, err
	}
	var n notice
	if err := wire.Decode(body, &n, deadSize); err != nil {
		return DeadLetter{}, wire.Errorf(wire.CodeInternal, "read notice of a dead letter: %v", err)
	}
	if n.Sequence == 0 || n.Stream != sub.Stream || n.Consumer != sub.Consumer {
		return DeadLetter{}, wire.Errorf(wire.CodeInternal, "read notice of a dead letter: it names %q of %q, its subject %q of %q", n.Consumer, n.Stream, sub.Consumer, sub.Stream)
	}
	d := DeadLetter{
		Stream: n.Stream, Sequence: n.Sequence, Consumer: n.Consumer, Deliveries: n.Deliveries, Terminated: sub.Terminated,
		Reason: DeadReason(sub.Terminated, n.Deliveries, n.Reason),
	}
	if err := d.name(s); err != nil {
		return DeadLetter{}, wire.Errorf(wire.CodeInternal, "read notice of a dead letter: %v", err)
	}
	return d, nil
}

// DeadReason is why a message died, in words also where its receiver gave none: who serves a role cannot, and who never
// answered did not.
func DeadReason(terminated bool, deliveries int, reason string) string {
	switch {
	case reason != "":
		return reason
	case terminated:
		return "refused by its receiver, which gave no reason"
	}
	return fmt.Sprintf("not handled after %d deliveries", deliveries)
}

// errGone says that the message of a dead letter is stored no more.
var errGone = errors.New("message is stored no more")

func original(ctx context.Context, js jetstream.JetStream, d DeadLetter) (record, error) {
	r, err := leaderGet(ctx, js, d.Stream, leaderRequest{Seq: d.Sequence})
	if wire.CodeOf(err) == wire.CodeNotFound {
		return record{}, errGone
	}
	if err != nil {
		return record{}, fmt.Errorf("read message of dead letter %d: %w", d.ID, err)
	}
	return r, nil
}
