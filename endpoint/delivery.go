package endpoint

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// Delivery is one received message. Sender, Channel, Role and Sequence are vouched for by the broker; everything in
// Message but the sender's id is the sender's claim.
type Delivery struct {
	Message *wire.Message
	// Kind is wire.KindChannel, wire.KindDirect or wire.KindRole.
	Kind   wire.Kind
	Sender wire.Principal
	// Channel is set on channel messages, Role on role messages.
	Channel, Role string
	// Sequence is the message's position in its stream.
	Sequence uint64
	// Time is when the broker stored the message, by its clock.
	Time time.Time
	// Redelivered says that the message was handed out before, here or to another holder of the role.
	Redelivered bool
	// Attempt counts how often this endpoint gave the direct or role message to its handler, this time included. What was
	// fetched and given back unhandled does not count, nor does what other processes did.
	Attempt int
	// Replayed says that the channel message was read from what is stored, to catch up or because JoinOptions.Replay asks
	// for it. A program that crashed may have seen it before.
	Replayed bool
	// Mentioned says that it comes from [Endpoint.HandleMentions].
	Mentioned bool
	// Requeued says that an operator put the message back after it was given up, so that it is shown although its id was
	// shown before. A sender can claim it of its own messages.
	Requeued bool

	q         *queue // nil for channel messages
	reply     string
	key       uint64 // in q.seen, valid when keyed
	keyed     bool
	delivered uint64 // how often the broker handed it out, to anyone
	settled   atomic.Bool

	b     *backlog // that a channel message is settled with; nil: it needs no settling
	at    uint64   // its place in the backlog, and how that is counted
	place placement
	// astray says that it was given back, so that later ones do not wait for it.
	astray bool
}

// The bodies of acknowledgements.
const (
	bodyAck        = "+ACK"
	bodyNak        = "-NAK"
	bodyTerm       = "+TERM"
	bodyInProgress = "+WPI"
)

// Ack says that the message was handled. Once Ack returned nil this endpoint does not show the message again, even
// when the broker repeats it because the acknowledgement was lost with the connection; after a crash it may come
// again. [Delivery.Confirm] also excludes that.
//
// On channel messages all of them do nothing, unless JoinOptions.Manual asks for them: then Ack and Term say that the
// message was handled, which is reported a moment later, or now when the membership was stopped; Confirm reports it now, and
// Nak shows it again after its delay.
// They return [ErrSettled] on a message that was
// settled already, unavailable when the broker was not reachable before ctx (or the default time) ended, and
// [ErrClosed].
func (d *Delivery) Ack(ctx context.Context) error { return d.settle(ctx, bodyAck, true) }

// Nak gives the message back. It is delivered again after delay, to any holder of the role for a role message. At the
// last of Options.MaxAttempts it is given up instead, see [EventGaveUp].
func (d *Delivery) Nak(ctx context.Context, delay time.Duration) error {
	return d.nak(ctx, delay, "")
}

// NakReason is Nak with a reason, which a direct message that is given up carries to its sender.
func (d *Delivery) NakReason(ctx context.Context, delay time.Duration, reason string) error {
	return d.nak(ctx, delay, reason)
}

func (d *Delivery) nak(ctx context.Context, delay time.Duration, reason string) error {
	if d.b != nil {
		return d.b.nak(d, delay, reason)
	}
	if d.q != nil && d.Attempt >= d.q.e.opts.MaxAttempts {
		return d.giveUp(ctx, reason)
	}
	return d.settle(ctx, d.nakBody(delay), false)
}

// nakBody asks for redelivery after delay. A delay that the broker reckons as nothing, or less, is said all the same: none
// at all would mean at once.
func (d *Delivery) nakBody(delay time.Duration) string {
	if delay <= 0 {
		return bodyNak
	}
	delay = wire.NakDelay(delay, int(d.delivered))
	return bodyNak + ` {"delay":` + strconv.FormatInt(delay.Nanoseconds(), 10) + `}`
}

// giveUp makes the message a dead letter. To terminate a role message would delete it from its work queue: it goes back
// again and again, unhandled here, until the broker's own bound of deliveries parks it.
func (d *Delivery) giveUp(ctx context.Context, reason string) error {
	why := "gave up after " + strconv.Itoa(d.Attempt) + " attempts"
	if reason != "" {
		why = oneLine(why + ": " + reason)
	}
	var err error
	if d.Kind == wire.KindRole {
		if err = d.settle(ctx, d.nakBody(gaveUpPause), false); err == nil {
			d.q.giveUp(d)
		}
	} else {
		err = d.settle(ctx, bodyTerm+" "+why, true)
	}
	if err != nil {
		return err
	}
	d.q.e.events.emit(EventGaveUp{Kind: d.Kind, Sender: d.Sender, ID: d.Message.ID, Attempts: d.Attempt, Reason: why})
	return nil
}

// Term says that the message cannot be handled and must not be delivered again, by anyone. It becomes a dead letter with
// that reason. A direct message stays stored with it, and its sender is told; of a role message only the notice stays.
func (d *Delivery) Term(ctx context.Context, reason string) error {
	body := bodyTerm
	if reason != "" {
		body += " " + oneLine(reason)
	}
	return d.settle(ctx, body, true)
}

// InProgress says that the message is still being worked on; the ack wait begins anew.
func (d *Delivery) InProgress(ctx context.Context) error {
	if d.q == nil && d.b == nil {
		return nil
	}
	if d.settled.Load() {
		return ErrSettled
	}
	if d.b != nil {
		return nil // it is nobody else's meanwhile
	}
	d.q.hold(d)
	return d.q.e.publish(ctx, act{verb: "extend message", operand: d.Message.ID, subject: d.reply}, d.reply, bodyInProgress)
}

// Confirm is Ack that also waits until the broker has recorded it: after nil the message is never delivered again.
// After deadline-exceeded it may have been recorded or not.
func (d *Delivery) Confirm(ctx context.Context) error {
	if d.b != nil {
		return d.b.confirm(ctx, d)
	}
	if d.q == nil {
		return nil
	}
	if !d.settled.CompareAndSwap(false, true) {
		return ErrSettled
	}
	a := act{verb: "confirm message", operand: d.Message.ID, subject: d.reply, missing: "its queue"}
	if _, err := d.q.e.request(ctx, a, []byte(bodyAck)); err != nil {
		d.settled.Store(false)
		return err
	}
	d.q.release(d, true)
	return nil
}

func (d *Delivery) settle(ctx context.Context, body string, final bool) error {
	if d.b != nil {
		return d.b.settle(ctx, d)
	}
	if d.q == nil {
		return nil
	}
	if !d.settled.CompareAndSwap(false, true) {
		return ErrSettled
	}
	a := act{verb: "settle message", operand: d.Message.ID, subject: d.reply}
	if err := d.q.e.publish(ctx, a, d.reply, body); err != nil {
		d.settled.Store(false)
		return err
	}
	d.q.release(d, final)
	return nil
}

// maxReason bounds a reason as the broker writes it down, in JSON: it does not keep a notice that is too large.
const maxReason = 512

// oneLine keeps a reason from breaking the protocol's line, and short.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	room := maxReason
	for i, r := range s {
		if strings.ContainsRune("\"\\<>&\u2028\u2029", r) {
			room -= 6 // as an escape
		} else {
			room -= utf8.RuneLen(r)
		}
		if room < 0 {
			return s[:i]
		}
	}
	return s
}

const (
	publishRetryMin = 10 * time.Millisecond
	publishRetryMax = 250 * time.Millisecond
)

// publish sends without waiting for an answer. While the connection is away it waits for it.
func (e *Endpoint) publish(ctx context.Context, a act, subject, body string) error {
	err := e.tryPublish(subject, body)
	if !errors.Is(err, nats.ErrReconnectBufExceeded) {
		return e.published(a, err)
	}
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	for pause := publishRetryMin; ; pause = min(2*pause, publishRetryMax) {
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return e.failure(a, ctx.Err(), false)
		case <-t.C:
		}
		if err := e.tryPublish(subject, body); !errors.Is(err, nats.ErrReconnectBufExceeded) {
			return e.published(a, err)
		}
	}
}

func (e *Endpoint) tryPublish(subject, body string) error {
	l := e.link.Load()
	err := l.nc.Publish(subject, []byte(body))
	if errors.Is(err, nats.ErrConnectionClosed) && !e.closing.Load() {
		return nats.ErrReconnectBufExceeded // being replaced: the next look finds the new link
	}
	return err
}

func (e *Endpoint) published(a act, err error) error {
	switch {
	case err == nil:
		return nil
	case e.closing.Load():
		return ErrClosed
	default:
		return e.failure(a, err, false)
	}
}

// request sends data to a.subject and returns the one answer.
func (e *Endpoint) request(ctx context.Context, a act, data []byte) (*nats.Msg, error) {
	return e.roundTrip(ctx, &outgoing{subject: a.subject, data: data, act: a})
}
