package wire_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/wire"
)

func TestResolveChannel(t *testing.T) {
	on, off := true, false
	for _, c := range []struct {
		name          string
		cfg, defaults *wire.ChannelConfig
		want          wire.ResolvedChannel
	}{
		{"nothing", nil, nil, wire.ResolvedChannel{Replay: true, Class: wire.ClassDurable}},
		{"silent", &wire.ChannelConfig{}, &wire.ChannelConfig{}, wire.ResolvedChannel{Replay: true, Class: wire.ClassDurable}},
		{"defaults", nil, &wire.ChannelConfig{Replay: &off, ReplayWindow: "90m", DeliveryClass: "live"},
			wire.ResolvedChannel{Window: 90 * time.Minute, Class: wire.ClassLive}},
		{"channel wins", &wire.ChannelConfig{Replay: &on, ReplayWindow: "2d", DeliveryClass: "durable"}, &wire.ChannelConfig{Replay: &off, ReplayWindow: "90m", DeliveryClass: "live"},
			wire.ResolvedChannel{Replay: true, Window: 48 * time.Hour, Class: wire.ClassDurable}},
		{"channel fills in", &wire.ChannelConfig{DeliveryClass: "live"}, &wire.ChannelConfig{ReplayWindow: "10s", DeliveryClass: "durable"},
			wire.ResolvedChannel{Replay: true, Window: 10 * time.Second, Class: wire.ClassLive}},
		{"unreadable window", &wire.ChannelConfig{ReplayWindow: "soon"}, nil, wire.ResolvedChannel{Class: wire.ClassDurable}},
	} {
		if got := wire.ResolveChannel(c.cfg, c.defaults); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if wire.ValidateChannel(wire.DefaultsKey) == nil {
		t.Errorf("%q is a channel name", wire.DefaultsKey)
	}
}
