package target

import (
	"context"
	"slices"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// AnswerWithin bounds a question to delivery that a command can do without.
const AnswerWithin = 2 * time.Second

// ReachUnknown is the tier of a message about whose readers nobody could be asked.
const ReachUnknown = "unknown"

const silence = "delivery does not answer"

// Silent reports whether err says that nobody answered, and not that the answer was no.
func Silent(err error) bool {
	c := wire.CodeOf(err)
	return c == wire.CodeUnavailable || c == wire.CodeDeadlineExceeded
}

// Reach asks delivery who would get a message now. A question that has no answer is no error: the tier is then unknown
// and the reason says why.
func Reach(ctx context.Context, ep *endpoint.Endpoint, req wire.ReachRequest) wire.ReachReply {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	var r wire.ReachReply
	err := Ask(ctx, ep, wire.CommandReach, req, &r)
	switch {
	case Silent(err):
		return wire.ReachReply{Tier: ReachUnknown, Reason: silence}
	case err != nil:
		return wire.ReachReply{Tier: ReachUnknown, Reason: err.Error()}
	}
	return r
}

// MentionBeyond is the reason of a mention that has no effect because as many as count come before it.
const MentionBeyond = "beyond"

// ReachChannel is Reach of a channel, with what becomes of mentions. Of those that a message has too many of it says so
// without asking.
func ReachChannel(ctx context.Context, ep *endpoint.Endpoint, channel string, mentions []string) wire.ReachReply {
	counting := min(len(mentions), wire.MaxMentioned)
	r := Reach(ctx, ep, wire.ReachRequest{Channel: channel, Mentions: mentions[:counting]})
	if len(r.Mentions) == 0 { // nobody could say
		return r
	}
	for _, name := range mentions[counting:] {
		r.Mentions = append(r.Mentions, wire.MentionReach{Name: name, Tier: wire.ReachNobody, Reason: MentionBeyond})
	}
	return r
}

// ReachPeer is FindPeer, and who would get a message to the peer. Without the records of the project delivery says whether
// the peer exists.
//
// Errors: those of FindPeer.
func (t *Target) ReachPeer(ctx context.Context, ep *endpoint.Endpoint, name string) (Peer, wire.ReachReply, error) {
	p, err := t.FindPeer(ctx, ep, name)
	if err != nil {
		return Peer{}, wire.ReachReply{}, err
	}
	if p.Status == StatusUnknown { // delivery was asked a moment ago
		return p, wire.ReachReply{Tier: ReachUnknown, Reason: silence}, nil
	}
	r := Reach(ctx, ep, wire.ReachRequest{To: p.Principal})
	if r.Tier == wire.ReachNobody {
		known, _, err := t.seen(ctx, ep)
		if err != nil {
			return Peer{}, wire.ReachReply{}, err
		}
		if slices.ContainsFunc(known, func(k Peer) bool { return k.Principal == p.Principal }) { // it was here, and delivery says why it is over
			return Peer{}, wire.ReachReply{}, command.Hint(wire.Errorf(wire.CodeNotFound, "nothing reaches %q any more: %s", p.Principal, r.Reason),
				"who is there: cotal roster")
		}
		return Peer{}, wire.ReachReply{}, Nobody(known, nil, name)
	}
	return p, r, nil
}
