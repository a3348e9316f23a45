package delivery

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func (d *Service) listChannels(ctx context.Context, caller wire.Lifecycle, in wire.ChannelsRequest) (*wire.ChannelsReply, error) {
	if in.Limit < 0 || in.Limit > wire.MaxChannelsPage {
		return nil, wire.Errorf(wire.CodeBadRequest, "list channels: limit %d outside 0 to %d", in.Limit, wire.MaxChannelsPage)
	}
	a, err := d.accessOf(ctx, caller)
	if err != nil {
		return nil, err
	}
	configs, unreadable, err := d.channels.List(ctx)
	if err != nil {
		return nil, d.refuse(ctx, "list channels", caller, err)
	}
	if unreadable > 0 {
		d.log.WarnContext(ctx, "channel settings that cannot be read are left out", logkey.Count, unreadable)
	}
	var counts map[string]uint64
	if len(a.read) > 0 {
		if counts, err = d.counts.get(ctx); err != nil {
			return nil, d.refuse(ctx, "count messages", caller, err)
		}
	}
	page := channelPage(configs, counts, a, in)
	if page.Partial = counts == nil && len(a.read) > 0; page.Partial {
		err = d.countEach(ctx, page.Channels)
	}
	return page, d.refuse(ctx, "count messages", caller, err)
}

// countEach counts the messages of the channels of a page that may be read, one request each.
func (d *Service) countEach(ctx context.Context, page []wire.ChannelInfo) error {
	for i, c := range page {
		if !c.Readable {
			continue
		}
		filter, err := wire.ChannelFilter(d.space, c.Channel)
		if err != nil {
			return err
		}
		_, n, err := countFrom(ctx, d.js, wire.ChatStream(d.space), filter, 1)
		if err != nil {
			return err
		}
		page[i].Messages = &n
	}
	return nil
}

// channelPage lists what the caller may know: every configured channel, and of the others those it may read.
func channelPage(configs []space.Channel, counts map[string]uint64, a access, in wire.ChannelsRequest) *wire.ChannelsReply {
	reply := &wire.ChannelsReply{Channels: []wire.ChannelInfo{}}
	known := make(map[string]space.Channel, len(configs))
	for _, c := range configs {
		known[c.Name] = c
	}
	reply.Defaults = known[wire.DefaultsKey].Config
	delete(known, wire.DefaultsKey)
	names := slices.Collect(maps.Keys(known))
	for name := range counts {
		if _, ok := known[name]; !ok && a.reads(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	limit := in.Limit
	if limit == 0 {
		limit = wire.MaxChannelsPage
	}
	size := 0
	for _, name := range names {
		if in.After != "" && name <= in.After {
			continue
		}
		info := channelInfo(name, known, counts, a, &reply.Defaults)
		size += infoRoom + 2*len(name) + configSize(info.Config)
		if len(reply.Channels) == limit || size > pageRoom && len(reply.Channels) > 0 {
			reply.Next = reply.Channels[len(reply.Channels)-1].Channel
			break
		}
		reply.Channels = append(reply.Channels, info)
	}
	return reply
}

// infoRoom bounds an entry of a channel list but for its name and record.
const infoRoom = 256

// configSize bounds the JSON of a record: a character takes at most six bytes, as an escape.
func configSize(c *wire.ChannelConfig) int {
	if c == nil {
		return 0
	}
	return 128 + 6*(len(c.Description)+len(c.Instructions)+len(c.ReplayWindow))
}

func channelInfo(name string, known map[string]space.Channel, counts map[string]uint64, a access, defaults *wire.ChannelConfig) wire.ChannelInfo {
	info := wire.ChannelInfo{Channel: name, Readable: a.reads(name), Writable: a.writes(name)}
	if c, ok := known[name]; ok {
		info.Config, info.Revision = &c.Config, c.Revision
	}
	if info.Readable {
		n := counts[name]
		info.Messages = &n
	}
	r := wire.ResolveChannel(info.Config, defaults)
	info.Replay, info.ReplayWindowMS, info.DeliveryClass = r.Replay, r.Window.Milliseconds(), string(r.Class)
	return info
}

func (d *Service) setChannel(ctx context.Context, caller wire.Lifecycle, in wire.ChannelSetRequest) (*wire.ChannelSetReply, error) {
	reply := &wire.ChannelSetReply{Channel: in.Channel}
	var err error
	if in.Config == nil {
		err = d.channels.Remove(ctx, in.Channel, in.Revision)
	} else {
		reply.Revision, err = d.channels.Set(ctx, in.Channel, *in.Config, in.Revision)
	}
	if err != nil {
		return nil, d.refuse(ctx, "set channel", caller, err)
	}
	d.log.InfoContext(ctx, "channel settings changed", logkey.Channel, in.Channel, logkey.Principal, caller.Principal.String(), logkey.Version, reply.Revision)
	r, err := d.resolve(ctx, in.Channel)
	if err != nil {
		return nil, d.refuse(ctx, "read channel settings", caller, err)
	}
	reply.Replay, reply.ReplayWindowMS, reply.DeliveryClass = r.Replay, r.Window.Milliseconds(), string(r.Class)
	return reply, nil
}

// counts keeps the number of stored messages by channel for a moment: everybody asks for the same ones.
type counts struct {
	js    jetstream.JetStream
	space wire.Space

	mu   sync.Mutex // guards the two below; held while asking the broker
	last map[string]uint64
	at   time.Time
}

const (
	// countsReuse is how old numbers may be that are given out.
	countsReuse = time.Second
	// maxCounted bounds the pairs of sender and channel that are counted at once. A space with more lists only the
	// channels that are configured.
	maxCounted = 20_000
)

func newCounts(js jetstream.JetStream, s wire.Space) *counts { return &counts{js: js, space: s} }

// get returns the numbers, nil when there are too many; the map must not be changed.
func (c *counts) get(ctx context.Context) (map[string]uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < countsReuse {
		return c.last, nil
	}
	subjects, err := space.Subjects(ctx, c.js, wire.ChatStream(c.space), wire.StreamSubjects(c.space, wire.KindChannel), maxCounted)
	if err != nil {
		return nil, err
	}
	c.last, c.at = countByChannel(c.space, subjects), time.Now()
	return c.last, nil
}

// countByChannel sums over senders. Subjects that no sender can have used do not count.
func countByChannel(s wire.Space, subjects map[string]uint64) map[string]uint64 {
	if subjects == nil {
		return nil
	}
	out := make(map[string]uint64)
	for subject, n := range subjects {
		sub, err := wire.ParseSubject(subject)
		if err == nil && sub.Kind == wire.KindChannel && sub.Space == s && sub.Surface() == nil {
			out[strings.Clone(sub.Channel)] += n
		}
	}
	return out
}
