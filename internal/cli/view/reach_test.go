package view_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

// What becomes of a message is one phrase, and none of them promises more than is known.
func TestReachPhrases(t *testing.T) {
	seen := time.Date(2026, 3, 1, 9, 30, 0, 0, time.Local)
	bob := target.Peer{Principal: "local.bob", Status: "offline", Seen: seen}
	killed := target.Peer{Principal: "local.bob", Status: "offline", Seen: seen, GoneAt: seen.Add(2 * time.Second)}
	absent := target.Peer{Principal: "local.bob", Status: target.StatusAbsent}
	silent := wire.ReachReply{Tier: target.ReachUnknown, Reason: "delivery does not answer"}
	for _, tt := range []struct{ got, want string }{
		{view.ToPeer(bob, wire.ReachReply{Tier: wire.ReachLive, Live: 1}), "local.bob is there"},
		{view.ToPeer(bob, wire.ReachReply{Tier: wire.ReachLive, StaleSince: seen.UnixMilli()}), "local.bob is there (as of 2026-03-01 09:30:00)"},
		{view.ToPeer(bob, wire.ReachReply{Tier: wire.ReachStored}), "local.bob is offline since 2026-03-01 09:30:00 and gets it when it comes back"},
		{view.ToPeer(killed, wire.ReachReply{Tier: wire.ReachStored}), "local.bob is offline since 2026-03-01 09:30:02 and gets it when it comes back"},
		{view.ToPeer(absent, wire.ReachReply{Tier: wire.ReachStored}), "local.bob is away and gets it when it comes back"},
		{view.ToPeer(bob, silent), "delivery does not answer, so who reads it is unknown"},
		{view.ToRole("r", wire.ReachReply{Tier: wire.ReachLive, Live: 1}), "its holder is there and takes it"},
		{view.ToRole("r", wire.ReachReply{Tier: wire.ReachLive, Live: 2}), "one of 2 holders that are there takes it"},
		{view.ToRole("r", wire.ReachReply{Tier: wire.ReachStored}), "no holder of the role is there; it waits for one"},
		{view.ToRole("r", wire.ReachReply{Tier: wire.ReachNobody}), "nobody is granted role r yet; it waits"},
		{view.ToRole("r", silent), "delivery does not answer, so who reads it is unknown"},
		{view.ToChannel(wire.ReachReply{Tier: wire.ReachLive, Live: 1}), "1 member is there"},
		{view.ToChannel(wire.ReachReply{Tier: wire.ReachLive, Live: 2, Stored: 1}), "2 members are there, 1 is away and gets it later"},
		{view.ToChannel(wire.ReachReply{Tier: wire.ReachStored, Stored: 2}), "nobody listens at the moment, 2 are away and get it later"},
		{view.ToChannel(wire.ReachReply{Tier: wire.ReachNobody}), "nobody listens at the moment"},
		{view.ToChannel(silent), "delivery does not answer, so who reads it is unknown"},
	} {
		if tt.got != tt.want {
			t.Errorf("phrase = %q, want %q", tt.got, tt.want)
		}
	}
}
