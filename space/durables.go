package space

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// Shape of the durables. How often and after how long they hand over again is of the contract: wire.RedeliveryWaits.
const (
	// maxPending bounds what one lifecycle holds unacknowledged.
	maxPending = 1000
	// rolePending bounds what all holders of a role hold together, so that one that never acknowledges does not
	// stop the others at once.
	rolePending = 10_000
	// maxWaiting bounds open pull requests of one lifecycle, roleWaiting those of all holders of a role.
	maxWaiting  = 64
	roleWaiting = 4096
	// maxBatch and roleBatch bound what one pull request asks for, maxExpires how long it stands, so that one request
	// cannot reserve a role's work for an hour.
	maxBatch   = 256
	roleBatch  = 32
	maxExpires = time.Minute
)

// EnsureDurables creates the queues of a lifecycle: its direct messages from now on (what was sent to an earlier life
// of the same name stays unread), and with a role the queue that all its holders share. It is
// idempotent: a queue that exists keeps its place, and one of an earlier build takes the bounds of this one.
//
// Errors: [ErrDrift] when a queue of that name exists with other settings, and nothing of it was changed;
// resource-exhausted at the account's consumer limit; failed-precondition when the space was not made.
func EnsureDurables(ctx context.Context, js jetstream.JetStream, s wire.Space, l wire.Lifecycle, role string) error {
	return ensureDurables(ctx, js, s, l, role, 0)
}

// EnsureTransient is [EnsureDurables] for a lifecycle that nobody will end: its own queues go by themselves once
// nothing was read from them for idle. The queue of a role stays.
func EnsureTransient(ctx context.Context, js jetstream.JetStream, s wire.Space, l wire.Lifecycle, role string, idle time.Duration) error {
	return ensureDurables(ctx, js, s, l, role, idle)
}

func ensureDurables(ctx context.Context, js jetstream.JetStream, s wire.Space, l wire.Lifecycle, role string, idle time.Duration) error {
	want, err := durables(s, l, role)
	if err != nil {
		return err
	}
	for _, d := range want {
		if d.stream != wire.RoleStream(s) {
			d.config.InactiveThreshold = idle
		}
		if err := ensureDurable(ctx, js, s, d); err != nil {
			return err
		}
	}
	return nil
}

// RemoveDurables deletes the queues of a lifecycle. The queue of a role stays: others share it. What is gone already
// is not an error.
func RemoveDurables(ctx context.Context, js jetstream.JetStream, s wire.Space, l wire.Lifecycle) error {
	all, err := durables(s, l, "")
	if err != nil {
		return err
	}
	for _, d := range all {
		_, err := received(ctx, func() (struct{}, error) { return struct{}{}, js.DeleteConsumer(ctx, d.stream, d.config.Durable) })
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return translate(fmt.Sprintf("remove consumer %q of space %q", d.config.Durable, s), err)
		}
	}
	return nil
}

type durable struct {
	stream string
	config jetstream.ConsumerConfig
}

func durables(s wire.Space, l wire.Lifecycle, role string) ([]durable, error) {
	dm, err := wire.DirectFilter(s, l.Principal)
	if err != nil {
		return nil, err
	}
	direct := queue(wire.DirectDurable(l), dm)
	direct.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
	out := []durable{{wire.DirectStream(s), direct}}
	if role == "" {
		return out, nil
	}
	svc, err := wire.RoleFilter(s, role)
	if err != nil {
		return nil, err
	}
	shared := queue(wire.RoleDurable(role), svc)
	shared.MaxAckPending, shared.MaxWaiting, shared.MaxRequestBatch = rolePending, roleWaiting, roleBatch
	return append(out, durable{wire.RoleStream(s), shared}), nil
}

func queue(name, filter string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: name, FilterSubject: filter, DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: wire.RedeliveryWait(1), MaxDeliver: wire.MaxDeliveries, BackOff: wire.RedeliveryWaits(), MaxAckPending: maxPending,
		MaxWaiting: maxWaiting, MaxRequestBatch: maxBatch, MaxRequestExpires: maxExpires,
	}
}

func ensureDurable(ctx context.Context, js jetstream.JetStream, s wire.Space, d durable) error {
	what := fmt.Sprintf("create consumer %q of space %q", d.config.Durable, s)
	look := func() (jetstream.Consumer, error) { return js.Consumer(ctx, d.stream, d.config.Durable) }
	have, err := received(ctx, look)
	if err == nil {
		return settleDurable(ctx, js, s, d, have.CachedInfo().Config)
	}
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return translate(what, err)
	}
	if d.config.DeliverPolicy == jetstream.DeliverByStartSequencePolicy && d.config.OptStartSeq == 0 {
		st, err := received(ctx, func() (jetstream.Stream, error) { return js.Stream(ctx, d.stream) })
		if err != nil {
			return translate(what, err)
		}
		d.config.OptStartSeq = st.CachedInfo().State.LastSeq + 1
	}
	_, err = received(ctx, func() (jetstream.Consumer, error) { return js.CreateConsumer(ctx, d.stream, d.config) })
	if errors.Is(err, jetstream.ErrConsumerExists) || errors.Is(err, jetstream.ErrConsumerNameAlreadyInUse) {
		// Another call made it first, with its own cut.
		if have, err = received(ctx, look); err == nil {
			return settleDurable(ctx, js, s, d, have.CachedInfo().Config)
		}
	}
	return crowded(ctx, js, d.stream, translate(what, err))
}

// crowded adds the figures to an error about too many consumers. The limit is by stream, and it is met.
func crowded(ctx context.Context, js jetstream.JetStream, stream string, err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Code != wire.CodeResourceExhausted {
		return err
	}
	st, serr := State(ctx, js, stream)
	if serr != nil {
		return err
	}
	e.Message += fmt.Sprintf(": %d used of %d allowed on stream %q", st.Consumers, st.Consumers, stream)
	e.Details = map[string]any{"resource": "consumers", "needed": 1, "used": st.Consumers, "allowed": st.Consumers}
	return err
}

// settleDurable accepts a queue that is as it should be and brings one of an earlier build to this shape, in place.
func settleDurable(ctx context.Context, js jetstream.JetStream, s wire.Space, d durable, have jetstream.ConsumerConfig) error {
	diff := compareConsumer(d.stream, d.config, have)
	switch {
	case len(diff) == 0:
		return nil
	case !earlierDurable(d, have):
		return &DriftError{Space: s, Drifts: diff}
	}
	return upgradeDurable(ctx, js, s, d.stream, have)
}
