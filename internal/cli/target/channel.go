package target

import (
	"context"

	"github.com/cotal-go/cotal/endpoint"
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
