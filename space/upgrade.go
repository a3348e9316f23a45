package space

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// This file knows the shape of spaces that the build before made: schema 1. Mention pointers were to be stored where they
// are published now, and nothing wrote any; queues handed over without a bound. Exactly that shape is brought to the
// present one, in place: no message and no position is touched. Anything else stays drift.
const earlierSchema = "1"

// earlierStream is what the build before made instead of want.
func earlierStream(s wire.Space, want jetstream.StreamConfig) jetstream.StreamConfig {
	want.Metadata = map[string]string{schemaKey: earlierSchema}
	if want.Name == wire.MentionStream(s) {
		want.Subjects, want.AllowDirect, want.RePublish = []string{wire.StreamSubjects(s, wire.KindMention)}, false, nil
	}
	return want
}

// upgradable says that what differs is all of the earlier shape, so that Ensure may change it.
func upgradable(s wire.Space, want, have jetstream.StreamConfig) bool {
	return have.Metadata[schemaKey] == earlierSchema && len(blocking(compareStream(earlierStream(s, want), have))) == 0
}

// earlierDurable reports whether have is the queue that the build before made for d.
func earlierDurable(d durable, have jetstream.ConsumerConfig) bool {
	want := d.config
	want.MaxDeliver, want.BackOff = -1, nil
	return len(compareConsumer(d.stream, want, have)) == 0
}

// upgradeDurable puts the present bounds on a queue. Its place, and what it has handed over, stay.
func upgradeDurable(ctx context.Context, js jetstream.JetStream, s wire.Space, stream string, have jetstream.ConsumerConfig) error {
	have.MaxDeliver, have.BackOff, have.AckWait = wire.MaxDeliveries, wire.RedeliveryWaits(), wire.RedeliveryWait(1)
	if _, err := js.UpdateConsumer(ctx, stream, have); err != nil {
		return translate(fmt.Sprintf("upgrade consumer %q of space %q", have.Durable, s), err)
	}
	return nil
}

// upgradeQueues brings the queues of the stream that an earlier build made to the present bounds, and returns the names
// of all that there are.
func upgradeQueues(ctx context.Context, js jetstream.JetStream, s wire.Space, stream string) (map[string]bool, error) {
	what := fmt.Sprintf("list consumers of space %q", s)
	st, err := received(ctx, func() (jetstream.Stream, error) { return js.Stream(ctx, stream) })
	if err != nil {
		return nil, translate(what, err)
	}
	names := map[string]bool{}
	var earlier []jetstream.ConsumerConfig
	list := st.ListConsumers(ctx)
	for info := range list.Info() {
		names[info.Name] = true
		if ours := strings.HasPrefix(info.Name, "dm_") || strings.HasPrefix(info.Name, "svc_"); ours && unbounded(info.Config) {
			earlier = append(earlier, info.Config)
		}
	}
	if err := list.Err(); err != nil {
		return nil, translate(what, err)
	}
	for _, c := range earlier {
		if err := upgradeDurable(ctx, js, s, stream, c); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, err
		}
	}
	return names, nil
}

// unbounded is the mark of a queue of the build before.
func unbounded(c jetstream.ConsumerConfig) bool {
	return c.MaxDeliver == -1 && len(c.BackOff) == 0 && c.AckWait == wire.RedeliveryWait(1) && c.AckPolicy == jetstream.AckExplicitPolicy
}

// dropMentionQueues deletes the queues of mention pointers of the build before: pointers are read on pull now.
func dropMentionQueues(ctx context.Context, js jetstream.JetStream, s wire.Space) error {
	what := fmt.Sprintf("remove queues of mention pointers of space %q", s)
	st, err := received(ctx, func() (jetstream.Stream, error) { return js.Stream(ctx, wire.MentionStream(s)) })
	if err != nil {
		return translate(what, err)
	}
	if st.CachedInfo().State.Consumers == 0 {
		return nil
	}
	var names []string
	list := st.ConsumerNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		return translate(what, err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, "dlv_") })
	for _, name := range names {
		if err := st.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return translate(what, err)
		}
	}
	return nil
}
