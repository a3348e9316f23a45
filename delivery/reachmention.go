package delivery

import (
	"context"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/cotal-go/cotal/wire"
)

func checkMentions(in wire.ReachRequest) error {
	switch {
	case len(in.Mentions) > 0 && in.Channel == "":
		return wire.Errorf(wire.CodeBadRequest, "ask for reach: mentions go with a channel")
	case len(in.Mentions) > wire.MaxMentioned:
		return wire.Errorf(wire.CodeBadRequest, "ask for reach: %d mentions, and %d count", len(in.Mentions), wire.MaxMentioned)
	}
	for _, name := range in.Mentions {
		if name == "" || len(name) > wire.MaxName*utf8.UTFMax {
			return wire.Errorf(wire.CodeBadRequest, "ask for reach: mention %q is not 1 to %d characters", clip(name), wire.MaxName)
		}
	}
	return nil
}

// reachMentions says whom names mean in a message of the caller to a channel, by the rule by which pointers are stored, see
// [mentions.meant].
func (d *Service) reachMentions(ctx context.Context, caller wire.Lifecycle, channel string, names []string) ([]wire.MentionReach, error) {
	dir := d.mentions.names
	if err := dir.sync(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	out := make([]wire.MentionReach, len(names))
	meant := map[wire.Lifecycle][]int{} // where in out
	for i, name := range names {
		l, holders := resolve(dir, name, now)
		m := wire.MentionReach{Name: name, Tier: wire.ReachNobody}
		if holders == 1 {
			m.Principal = l.Principal.String()
		}
		switch {
		case holders == 0:
			m.Reason = wire.MentionUnknown
		case holders > 1:
			m.Reason = wire.MentionAmbiguous
		case l.Principal == caller.Principal:
			m.Reason = wire.MentionSelf
		case !dir.reads(l, channel):
			m.Reason = wire.MentionUnread
		default:
			meant[l] = append(meant[l], i)
		}
		out[i] = m
	}
	err := d.standings(ctx, maps.Keys(meant), func(l wire.Lifecycle, s standing) {
		tier, reason := mentionTier(l, s)
		for _, i := range meant[l] {
			out[i].Tier, out[i].Reason = tier, reason
		}
	})
	return out, err
}

// mentionTier is what becomes of a pointer for a life that had a grant a moment ago.
func mentionTier(l wire.Lifecycle, s standing) (tier, reason string) {
	switch {
	case s.ended != "", s.life.UID != l.UID:
		return wire.ReachNobody, wire.MentionUnknown
	case s.here:
		return wire.ReachLive, ""
	case s.away:
		return wire.ReachStored, wire.MentionOffline
	}
	return wire.ReachStored, wire.MentionUnsure
}
