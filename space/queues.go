package space

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// Queues names the durables that one lifecycle must have.
type Queues struct {
	Lifecycle wire.Lifecycle
	Role      string // "" for none
	// Cut is the last sequence of the direct stream that the lifecycle must not read, see [DirectFrontier].
	Cut uint64
}

// DirectFrontier returns the last sequence of the stream of direct messages. A lifecycle that begins now reads what
// comes after it.
func DirectFrontier(ctx context.Context, js jetstream.JetStream, s wire.Space) (uint64, error) {
	st, err := received(ctx, func() (jetstream.Stream, error) { return js.Stream(ctx, wire.DirectStream(s)) })
	if err != nil {
		return 0, translate(fmt.Sprintf("read frontier of space %q", s), err)
	}
	return st.CachedInfo().State.LastSeq, nil
}

// EnsureQueues is [EnsureDurables] for a lifecycle that began at q.Cut: a queue that has to be made again, because the
// broker lost it, starts there. What had been acknowledged from it is then delivered once more; nothing is missed.
func EnsureQueues(ctx context.Context, js jetstream.JetStream, s wire.Space, q Queues) error {
	want, err := durables(s, q.Lifecycle, q.Role)
	if err != nil {
		return err
	}
	for _, d := range want {
		if d.config.DeliverPolicy == jetstream.DeliverByStartSequencePolicy {
			d.config.OptStartSeq = q.Cut + 1
		}
		if err := ensureDurable(ctx, js, s, d); err != nil {
			return err
		}
	}
	return nil
}

// RestoreQueues makes the queues that are missing and returns for how many lifecycles it did. The broker writes the definition of
// a consumer to disk when it likes, so a power cut can take a queue that was made seconds before, while the grant that
// stands for it is there. It lists consumers by the page and touches only those that miss and those of an earlier build,
// which take the bounds of this one in place.
func RestoreQueues(ctx context.Context, js jetstream.JetStream, s wire.Space, wanted []Queues) (int, error) {
	have := map[string]bool{}
	for _, stream := range []string{wire.DirectStream(s), wire.RoleStream(s)} {
		names, err := upgradeQueues(ctx, js, s, stream)
		if err != nil {
			return 0, err
		}
		for n := range names {
			have[stream+"."+n] = true
		}
	}
	if err := dropMentionQueues(ctx, js, s); err != nil {
		return 0, err
	}
	made := 0
	for _, q := range wanted {
		all, err := durables(s, q.Lifecycle, q.Role)
		if err != nil {
			return made, err
		}
		missing := false
		for _, d := range all {
			missing = missing || !have[d.stream+"."+d.config.Durable]
		}
		if !missing {
			continue
		}
		if err := EnsureQueues(ctx, js, s, q); err != nil {
			return made, err
		}
		made++
	}
	return made, nil
}
