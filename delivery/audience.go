package delivery

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// maxAudience bounds the recipients of a channel message that one receipt looks at; those beyond are counted.
	maxAudience = 500
	// pointerMessages and pointerBytes bound the search for the pointers of one message.
	pointerMessages = 2000
	pointerBytes    = 1 << 20
)

// attendee is one life for which a channel message is kept: as a durable member, or because it is mentioned.
type attendee struct {
	life    wire.Lifecycle
	handled bool
	left    bool // its membership has ended
	seen    bool // who reads the channel may know of it
}

// channelFate follows a channel message: to the durable members of its channel at the time and to the mentioned, but not to
// its sender. A viewer
// who may not read the channel learns only how many they are, and so of the members by a pattern that its read list does not
// cover, as [Service.memberships] does not list them either.
func (d *Service) channelFate(ctx context.Context, v viewer, f *found) (out []wire.RecipientReceipt, hidden int, err error) {
	audience, err := d.audience(ctx, f.sub.Channel, f.sequence, func(m space.Membership) bool {
		return v.all || m.Lifecycle.Principal == v.who || wire.PatternsCover(v.access.read, m.Pattern)
	})
	if err != nil {
		return nil, 0, err
	}
	if err := d.mentioned(ctx, f, audience); err != nil {
		return nil, 0, err
	}
	for l := range audience {
		if l.Principal == f.sub.Sender {
			delete(audience, l)
		}
	}
	if !v.all && !v.access.reads(f.sub.Channel) {
		return []wire.RecipientReceipt{}, len(audience), nil
	}
	lives := make([]wire.Lifecycle, 0, len(audience))
	for l, a := range audience {
		if a.seen {
			lives = append(lives, l)
		}
	}
	slices.SortFunc(lives, func(a, b wire.Lifecycle) int { return strings.Compare(a.String(), b.String()) })
	lives = lives[:min(len(lives), maxAudience)]
	out = make([]wire.RecipientReceipt, 0, len(lives))
	err = d.standings(ctx, slices.Values(lives), func(l wire.Lifecycle, s standing) { out = append(out, audience[l].receipt(s, d.open)) })
	if err != nil {
		return nil, 0, err
	}
	return out, len(audience) - len(out), d.channelAnswers(ctx, v, f, out)
}

// receipt is how far a channel message is with one of its audience. Nobody says when it was handed over. Where lives are
// granted, one that ended is given nothing any more, and its position is gone.
func (a *attendee) receipt(s standing, open bool) wire.RecipientReceipt {
	out := wire.RecipientReceipt{Principal: a.life.Principal.String(), Stage: wire.StageHandled}
	if a.handled {
		return out
	}
	out.Stage, out.Reason = wire.StageStored, s.waits()
	switch other := s.life.UID != "" && s.life.UID != a.life.UID; {
	case other && !open:
		out.Stage, out.Reason = wire.StageGone, reasonEarlier
	case other:
		out.Reason = reasonUnknown
	case s.ended == reasonRevoked:
		out.Stage, out.Reason = wire.StageGone, reasonEnded
	case a.left && s.ended == "":
		out.Reason = reasonLeft
	}
	return out
}

// audience finds the durable members for whom the message with a sequence is kept. On a live channel there are none. seen
// decides which memberships who asks may know of.
func (d *Service) audience(ctx context.Context, channel string, sequence uint64, seen func(space.Membership) bool) (map[wire.Lifecycle]*attendee, error) {
	out := map[wire.Lifecycle]*attendee{}
	settings, err := d.resolve(ctx, channel)
	if err != nil || settings.Class != wire.ClassDurable {
		return out, err
	}
	err = d.member.registry.each(ctx, func(m space.Membership, at space.Cursor) {
		if !wire.PatternMatches(m.Pattern, channel) || !m.Contains(sequence) {
			return
		}
		a := out[m.Lifecycle]
		if a == nil {
			a = &attendee{life: m.Lifecycle, left: true}
			out[m.Lifecycle] = a
		}
		if _, open := m.Open(); open {
			a.left = false
		}
		a.handled = a.handled || at.Has(sequence)
		a.seen = a.seen || seen(m)
	})
	return out, err
}

// each calls fn with every membership and its position. fn must not keep them, nor ask the broker.
func (r *registry) each(ctx context.Context, fn func(space.Membership, space.Cursor)) error {
	unlock, err := r.shared.look(func() error {
		changed, err := r.records.sync(ctx)
		moved := false
		if err == nil {
			moved, err = r.positions.sync(ctx)
		}
		if changed || moved {
			r.at = time.Time{} // the listing is of before
		}
		return err
	})
	if err != nil {
		return err
	}
	defer unlock()
	for key, m := range r.records.by {
		if m == nil {
			continue
		}
		var at space.Cursor
		if c := r.positions.by[key]; c != nil {
			at = *c
		}
		fn(*m, at)
	}
	return nil
}

// mentioned adds who has a pointer to a message.
func (d *Service) mentioned(ctx context.Context, f *found, audience map[wire.Lifecycle]*attendee) error {
	want := len(f.msg.Mentions)
	if want == 0 {
		return nil
	}
	prefix := wire.MentionRecords(d.space)
	pointers := map[wire.Lifecycle]uint64{}
	q := space.Query{Filter: prefix + "*.*.*", Since: f.at.Add(-clockSlack)}
	_, err := d.walk(ctx, wire.MentionStream(d.space), q, &budget{pointerMessages, pointerBytes}, func(m *space.Stored) bool {
		p, err := wire.DecodeMentionPointer(m.Data)
		if err != nil || !p.To(f.sub.Channel, f.sequence) {
			return true
		}
		l, ok := lifeOf(strings.TrimPrefix(m.Subject, prefix))
		if _, twice := pointers[l]; ok && !twice {
			pointers[l] = m.Sequence
		}
		return len(pointers) < want
	})
	if err != nil {
		return err
	}
	for l, sequence := range pointers {
		cursor, _, err := d.member.cursors.Mentions(ctx, l)
		if err != nil {
			return err
		}
		a := audience[l]
		if a == nil {
			a = &attendee{life: l}
			audience[l] = a
		}
		a.handled = a.handled || cursor.Has(sequence)
		a.left, a.seen = false, true // the message names it
	}
	return nil
}

// lifeOf reads the key of a pointer: owner, actor and uid.
func lifeOf(key string) (l wire.Lifecycle, ok bool) {
	t := strings.Split(key, ".")
	if len(t) != 3 {
		return l, false
	}
	l = wire.Lifecycle{Principal: wire.Principal{Owner: t[0], Actor: t[1]}, UID: wire.UID(t[2])}
	return l, l.Validate() == nil
}

// channelAnswers notes who of the audience answered, in the channel, or to the sender alone when it is the sender who asks.
func (d *Service) channelAnswers(ctx context.Context, v viewer, f *found, audience []wire.RecipientReceipt) error {
	waiting := make(map[string]*wire.RecipientReceipt, len(audience))
	for i := range audience {
		waiting[audience[i].Principal] = &audience[i]
	}
	note := func(a *found) (bool, error) {
		if r := waiting[a.sub.Sender.String()]; r != nil {
			answered(r, a)
			delete(waiting, a.sub.Sender.String())
		}
		return len(waiting) > 0, nil
	}
	if len(waiting) == 0 {
		return nil
	}
	filter, err := wire.ChannelFilter(d.space, f.sub.Channel)
	if err != nil {
		return err
	}
	err = d.answers(ctx, wire.KindChannel, f.msg.ID, space.Query{Filter: filter, From: f.sequence + 1}, note)
	if err != nil || len(waiting) == 0 || !v.all && v.who != f.sub.Sender {
		return err
	}
	if filter, err = wire.DirectFilter(d.space, f.sub.Sender); err != nil {
		return err
	}
	return d.answers(ctx, wire.KindDirect, f.msg.ID, space.Query{Filter: filter, Since: f.at.Add(-clockSlack)}, note)
}

// reachChannel counts who is there, as durable member or listening, and the durable members that are away; not the caller.
// Who only listens is known where delivery is told of the broker's connections.
//
// What it asks of the broker does not grow with the members.
func (d *Service) reachChannel(ctx context.Context, caller wire.Lifecycle, a access, channel string, r *wire.ReachReply) error {
	if err := wire.ValidateChannel(channel); err != nil {
		return err
	}
	if !a.reads(channel) && !a.writes(channel) {
		return d.denied(caller, channel, a)
	}
	audience, err := d.audience(ctx, channel, math.MaxUint64, func(space.Membership) bool { return true })
	if err != nil {
		return err
	}
	delete(audience, caller)
	listening, known := d.listening(channel)
	delete(listening, caller)
	r.Live = len(listening)
	unsure := false
	err = d.standings(ctx, maps.Keys(audience), func(l wire.Lifecycle, s standing) {
		switch {
		case listening[l], s.ended != "", s.life.UID != l.UID:
		case s.here:
			r.Live++
		default:
			r.Stored++
			unsure = unsure || !s.away
		}
	})
	if err != nil {
		return err
	}
	switch {
	case r.Live > 0:
		r.Tier = wire.ReachLive
	case r.Stored > 0 && unsure:
		r.Tier, r.Reason = wire.ReachStored, "whether a member is there is not known at the moment"
	case r.Stored > 0:
		r.Tier, r.Reason = wire.ReachStored, "no member is there"
	case known:
		r.Reason = "nobody else is a durable member of it or listens"
	default:
		r.Reason = "nobody else is a durable member of it; who only listens is not known here"
	}
	return nil
}

// listening tells who subscribes to a channel at the moment, if that is known.
func (d *Service) listening(channel string) (out map[wire.Lifecycle]bool, known bool) {
	out = map[wire.Lifecycle]bool{}
	if d.live == nil {
		return out, false
	}
	patterns, at := d.live.live()
	for l, all := range patterns {
		if matches(all, channel) {
			out[l] = true
		}
	}
	return out, !at.IsZero()
}
