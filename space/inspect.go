package space

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// QueueState is how far a durable is, in sequences of its stream.
type QueueState struct {
	// First is the first sequence that it may give out, 0 for all.
	First uint64
	// Delivered is the last sequence that it handed over; nothing after it was.
	Delivered uint64
	// Floor is the sequence up to which everything it handed over was settled, or given up. Above it some may be settled
	// too, out of order; the broker does not tell which.
	Floor uint64
	// Held counts what was handed over and is not settled, Waiting what was never handed over.
	Held, Waiting uint64
}

// InspectQueue returns the state of a durable.
//
// Errors: not-found when there is no such durable; failed-precondition when the stream is not there; unavailable;
// deadline-exceeded.
func InspectQueue(ctx context.Context, js jetstream.JetStream, stream, durable string) (QueueState, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	c, err := received(ctx, func() (jetstream.Consumer, error) { return js.Consumer(ctx, stream, durable) })
	if err != nil {
		return QueueState{}, translate(fmt.Sprintf("inspect consumer %q of stream %q", durable, stream), err)
	}
	info := c.CachedInfo()
	return QueueState{
		First: info.Config.OptStartSeq, Delivered: info.Delivered.Stream, Floor: info.AckFloor.Stream,
		Held: uint64(max(info.NumAckPending, 0)), Waiting: info.NumPending,
	}, nil
}
