package target

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// ChannelConfig is the record of a channel, or of the defaults, and its revision; the zero record and 0 when there is
// none. The revision of the defaults is not told.
func ChannelConfig(ctx context.Context, ep *endpoint.Endpoint, key string) (wire.ChannelConfig, uint64, error) {
	list, err := ep.Channels(ctx)
	if err != nil {
		return wire.ChannelConfig{}, 0, err
	}
	if key == wire.DefaultsKey {
		return list.Defaults, 0, nil
	}
	for _, c := range list.Channels {
		if c.Channel == key {
			if c.Config != nil {
				return *c.Config, c.Revision, nil
			}
			return wire.ChannelConfig{}, c.Revision, nil
		}
	}
	return wire.ChannelConfig{}, 0, nil
}

// SetChannel writes a record through delivery.
func SetChannel(ctx context.Context, ep *endpoint.Endpoint, req wire.ChannelSetRequest) (wire.ChannelSetReply, error) {
	var reply wire.ChannelSetReply
	err := Ask(ctx, ep, wire.CommandChannelSet, req, &reply)
	return reply, err
}

// MeantChannel is a hint that names channels which are near one in which the caller has just posted, when that was the first message of it as
// far as the caller may read; "" for none, and when nobody says. It is asked after the post: the answer is kept for a moment, and whoever
// lists channels next is to find this one.
func MeantChannel(ctx context.Context, ep *endpoint.Endpoint, channel string) string {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	list, err := ep.Channels(ctx)
	if err != nil || list.Partial {
		return ""
	}
	names := make([]string, 0, len(list.Channels))
	for _, c := range list.Channels {
		if c.Channel != channel {
			names = append(names, c.Channel)
			continue
		}
		if c.Config != nil || c.Messages == nil || *c.Messages > 1 {
			return ""
		}
	}
	return command.Meant(channel, names)
}

// NoteUnknown tells a person about whose channel there is nothing to show that the space does not know it at all, and which may have been
// meant.
func NoteUnknown(ctx context.Context, e *command.Env, ep *endpoint.Endpoint, channel string) {
	others, unknown := unknownChannel(ctx, ep, channel)
	if !unknown {
		return
	}
	e.Note("hint: space %s has no channel of that name yet; those that it has: cotal channels list", ep.Space())
	if meant := command.Meant(channel, others); meant != "" {
		e.Note("hint: %s", meant)
	}
}

// Quiet is how long a command that listens waits before it asks whether the name of a channel is mistyped. Delivery keeps its list for a
// moment: asked at once, whoever posts there first and lists channels then would not find it.
const Quiet = 2 * time.Second

// Mistyped is a hint that names channels which are near one that the space does not know; "" for a pattern, for a channel that is known or
// near none, and when nobody says.
func Mistyped(ctx context.Context, ep *endpoint.Endpoint, channel string) string {
	if wire.ValidateChannel(channel) != nil {
		return ""
	}
	others, unknown := unknownChannel(ctx, ep, channel)
	meant := command.Meant(channel, others)
	if !unknown || meant == "" {
		return ""
	}
	return "space " + string(ep.Space()) + " has no channel #" + channel + " yet; " + meant
}

// unknownChannel reports whether the space is known not to have a channel, and which it has. What an identity is not told of may be there.
func unknownChannel(ctx context.Context, ep *endpoint.Endpoint, channel string) (others []string, unknown bool) {
	if id := ep.Identity(); SeesPart(id) && !wire.PatternsCover(id.Subscribe, channel) {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	list, err := ep.Channels(ctx)
	if err != nil || list.Partial {
		return nil, false
	}
	for _, c := range list.Channels {
		if c.Channel == channel {
			return nil, false
		}
		others = append(others, c.Channel)
	}
	return others, true
}
