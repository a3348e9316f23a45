package space

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// Channels is the store of channel settings of a space, its defaults included under wire.DefaultsKey.
type Channels struct {
	js     jetstream.JetStream
	space  wire.Space
	stream string
	prefix string
}

// Channel is one stored record.
type Channel struct {
	// Name is a channel or wire.DefaultsKey.
	Name     string
	Config   wire.ChannelConfig
	Revision uint64
}

// NewChannels returns the settings of s. It asks the broker nothing.
func NewChannels(js jetstream.JetStream, s wire.Space) *Channels {
	bucket := wire.ChannelsBucket(s)
	return &Channels{js: js, space: s, stream: BucketStream(bucket), prefix: wire.RecordPrefix(bucket)}
}

// Revision is a condition of [Channels.Set] and [Channels.Remove]: the record has this revision, 0 for none.
func Revision(rev uint64) *uint64 { return &rev }

// Get returns the record of a channel, or of the defaults, and its revision.
//
// Errors: bad-request for what is no channel; not-found when there is no record; internal when it cannot be read.
func (c *Channels) Get(ctx context.Context, name string) (wire.ChannelConfig, uint64, error) {
	if err := validateName(name); err != nil {
		return wire.ChannelConfig{}, 0, err
	}
	r, err := leaderGet(ctx, c.js, c.stream, leaderRequest{Last: c.prefix + name})
	if err == nil && removed(headerOf(r.Header)) {
		err = wire.ErrNotFound
	}
	if errors.Is(err, wire.ErrNotFound) {
		return wire.ChannelConfig{}, 0, wire.Errorf(wire.CodeNotFound, "read settings of channel %q: none in space %q", name, c.space)
	}
	if err != nil {
		return wire.ChannelConfig{}, 0, err
	}
	cfg, err := decodeConfig(name, r.Data)
	return cfg, r.Seq, err
}

// Set replaces the record of a channel, or of the defaults, and returns its new revision. A nil condition replaces
// whatever is there.
//
// Errors: bad-request for settings outside the contract, and for defaults without a delivery class; conflict when the
// condition does not hold.
func (c *Channels) Set(ctx context.Context, name string, cfg wire.ChannelConfig, when *uint64) (uint64, error) {
	if err := validateName(name); err != nil {
		return 0, err
	}
	if err := cfg.Validate(); err != nil {
		return 0, fmt.Errorf("set channel %q: %w", name, err)
	}
	if name == wire.DefaultsKey && cfg.DeliveryClass == "" {
		return 0, wire.Errorf(wire.CodeBadRequest, "set channel defaults: no delivery class; it is never inferred")
	}
	body, err := json.Marshal(cfg)
	if err != nil {
		return 0, wire.Errorf(wire.CodeInternal, "encode settings of channel %q: %v", name, err)
	}
	return c.put(ctx, name, nats.NewMsg, body, when)
}

// Remove removes the record of a channel, which then has the defaults. Removing what is not there is not an error.
//
// Errors: failed-precondition for the defaults; conflict when the condition does not hold.
func (c *Channels) Remove(ctx context.Context, name string, when *uint64) error {
	if name == wire.DefaultsKey {
		return wire.Errorf(wire.CodeFailedPrecondition, "remove channel defaults: a space always has them")
	}
	if err := validateName(name); err != nil {
		return err
	}
	_, rev, err := c.Get(ctx, name)
	if errors.Is(err, wire.ErrNotFound) && (when == nil || *when == 0) {
		return nil
	}
	if err != nil && !errors.Is(err, wire.ErrNotFound) && !errors.Is(err, wire.ErrInternal) {
		return err
	}
	if when != nil && *when != rev {
		return wire.Errorf(wire.CodeConflict, "remove settings of channel %q: revision is %d, not %d", name, rev, *when)
	}
	_, err = c.put(ctx, name, tombstone, nil, &rev)
	return err
}

// List returns every record, sorted by name. Records that cannot be read are left out, and counted.
func (c *Channels) List(ctx context.Context) (all []Channel, unreadable int, err error) {
	err = Scan(ctx, c.js, c.stream, c.prefix+">", func(m *Stored) error {
		name := strings.TrimPrefix(m.Subject, c.prefix)
		if removed(m.Header) || validateName(name) != nil {
			return nil
		}
		cfg, derr := decodeConfig(name, m.Data)
		if derr != nil {
			unreadable++
			return nil
		}
		all = append(all, Channel{Name: name, Config: cfg, Revision: m.Sequence})
		return nil
	})
	slices.SortFunc(all, func(a, b Channel) int { return strings.Compare(a.Name, b.Name) })
	return all, unreadable, err
}

func (c *Channels) put(ctx context.Context, name string, build func(string) *nats.Msg, body []byte, when *uint64) (uint64, error) {
	m := build(c.prefix + name)
	m.Data = body
	opts := []jetstream.PublishOpt{jetstream.WithRetryAttempts(0)}
	if when != nil {
		rev, err := c.condition(ctx, name, *when)
		if err != nil {
			return 0, err
		}
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(rev))
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	ack, err := c.js.PublishMsg(ctx, m, opts...)
	if err != nil {
		return 0, translate(fmt.Sprintf("write settings of channel %q", name), err)
	}
	return ack.Sequence, nil
}

// condition turns "there is none" into the revision of the tombstone of a record that was removed.
func (c *Channels) condition(ctx context.Context, name string, when uint64) (uint64, error) {
	if when != 0 {
		return when, nil
	}
	r, err := leaderGet(ctx, c.js, c.stream, leaderRequest{Last: c.prefix + name})
	switch {
	case errors.Is(err, wire.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case removed(headerOf(r.Header)):
		return r.Seq, nil
	}
	return 0, wire.Errorf(wire.CodeConflict, "write settings of channel %q: it has some, of revision %d", name, r.Seq)
}

func validateName(name string) error {
	if name == wire.DefaultsKey {
		return nil
	}
	return wire.ValidateChannel(name)
}

func decodeConfig(name string, data []byte) (wire.ChannelConfig, error) {
	cfg, err := wire.DecodeChannelConfig(data)
	if err != nil {
		return wire.ChannelConfig{}, wire.Errorf(wire.CodeInternal, "read settings of channel %q: %w", name, err)
	}
	return *cfg, nil
}

// tombstone is how a key-value bucket marks a removed key.
func tombstone(subject string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Header.Set(operationHeader, "DEL")
	return m
}

const operationHeader = "KV-Operation"

func removed(h nats.Header) bool { return h.Get(operationHeader) != "" }

func headerOf(raw []byte) nats.Header {
	if len(raw) == 0 {
		return nil
	}
	h, err := nats.DecodeHeadersMsg(raw)
	if err != nil {
		return nil
	}
	return h
}
