package delivery

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// sighting is what the roster says about a principal at a moment.
type sighting struct {
	known bool
	here  bool
	uid   wire.UID // of the life that was seen, its own claim
	at    time.Time
}

// sight looks a principal up.
func (f *feed) sight(p wire.Principal) sighting {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.roster.members[p]
	if m == nil {
		return sighting{}
	}
	s := sighting{known: true, here: m.gone == "", uid: m.now.LifecycleUID, at: m.seen}
	if !s.here {
		s.at = m.goneAt
	}
	return s
}

// claiming lists who is there and says that it serves a role.
func (f *feed) claiming(role string) []wire.Lifecycle {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []wire.Lifecycle
	for p, m := range f.roster.members {
		if m.gone == "" && m.now.Card.Role == role {
			out = append(out, wire.Lifecycle{Principal: p, UID: m.now.LifecycleUID})
		}
	}
	return out
}

// standing is what the authority and the roster say about a principal.
type standing struct {
	life  wire.Lifecycle // with a zero UID when there is none
	cut   uint64         // its direct messages begin after this one
	ended string         // why nothing reaches it any more, "" while it does
	here  bool
	away  bool // the roster is fresh and does not list it as being there
	since time.Time
}

// waits says why a message to it that is not handled waits, if that is known.
func (s standing) waits() string {
	switch {
	case s.ended != "":
		return s.ended
	case s.away:
		return reasonOffline
	}
	return ""
}

// standingOf reads the grant of a principal, and where nobody has one what the roster knows.
func (d *Service) standingOf(ctx context.Context, p wire.Principal) (standing, error) {
	if d.open {
		return d.stand(p, nil, time.Now()), nil
	}
	grant, _, err := d.grants.Get(ctx, p)
	switch {
	case errors.Is(err, wire.ErrNotFound):
		return d.stand(p, nil, time.Now()), nil
	case err != nil:
		return standing{life: wire.Lifecycle{Principal: p}}, err
	}
	g := grantedOf(&grant)
	return d.stand(p, &g, time.Now()), nil
}

// standings is standingOf for any number of lives: fn is called for each and must not ask the broker.
func (d *Service) standings(ctx context.Context, lives iter.Seq[wire.Lifecycle], fn func(wire.Lifecycle, standing)) error {
	now := time.Now()
	each := func(of map[wire.Principal]granted) {
		for l := range lives {
			if g, ok := of[l.Principal]; ok {
				fn(l, d.stand(l.Principal, &g, now))
			} else {
				fn(l, d.stand(l.Principal, nil, now))
			}
		}
	}
	if d.open {
		each(nil)
		return nil
	}
	return d.grantees.view(ctx, each)
}

// stand puts together what the grant, nil for none, and the roster say.
func (d *Service) stand(p wire.Principal, g *granted, now time.Time) standing {
	seen := d.feed.sight(p)
	s := standing{life: wire.Lifecycle{Principal: p}, since: seen.at}
	stale := d.feed.staleSince(now) != 0
	switch {
	case d.open:
		s.life.UID, s.here = seen.uid, seen.here
		if !seen.known && !stale {
			s.ended = reasonUnknown
		}
	case g == nil:
		s.ended = reasonUnknown
		return s
	default:
		s.life.UID, s.cut, s.ended = g.uid, g.cut, g.ended(now)
		s.here = seen.here && seen.uid == g.uid
		if seen.uid != g.uid {
			s.since = time.Time{}
		}
	}
	s.away = !s.here && !stale
	return s
}

// holding is who serves a role.
type holding struct {
	here   int  // are there
	queue  bool // the queue exists: somebody was given the role once
	any    bool // somebody has a grant of it
	stale  bool // the roster is
	places space.QueueState
}

// waits says why work waits in the queue, if that is known.
func (h holding) waits() string {
	switch {
	case !h.any:
		return reasonNoHolder
	case h.here == 0 && !h.stale:
		return reasonOffline
	}
	return ""
}

// holders tells who serves a role: those that say so in the roster and whose grant says the same.
func (d *Service) holders(ctx context.Context, role string) (holding, error) {
	h := holding{queue: true, stale: d.feed.staleSince(time.Now()) != 0}
	var err error
	if h.places, err = space.InspectQueue(ctx, d.js, wire.RoleStream(d.space), wire.RoleDurable(role)); err != nil {
		if !errors.Is(err, wire.ErrNotFound) {
			return h, err
		}
		h.queue = false
		return h, nil
	}
	claims := d.feed.claiming(role)
	if d.open {
		h.here, h.any = len(claims), true
		return h, nil
	}
	now := time.Now()
	err = d.grantees.view(ctx, func(of map[wire.Principal]granted) {
		for _, l := range claims {
			if g := of[l.Principal]; g.uid == l.UID && g.role == role && g.ended(now) == "" {
				h.here++
			}
		}
		for _, g := range of {
			h.any = h.any || g.role == role && g.ended(now) == ""
		}
	})
	return h, err
}

// reach says what would become of a message sent now.
func (d *Service) reach(ctx context.Context, caller wire.Lifecycle, in wire.ReachRequest) (*wire.ReachReply, error) {
	chosen := 0
	for _, name := range []string{in.To, in.Role, in.Channel} {
		if name != "" {
			chosen++
		}
	}
	if chosen != 1 {
		return nil, wire.Errorf(wire.CodeBadRequest, "ask for reach: want exactly one of to, role and channel")
	}
	if err := checkMentions(in); err != nil {
		return nil, err
	}
	a, err := d.accessOf(ctx, caller)
	switch {
	case err != nil:
		return nil, err
	case a.why != "" && in.Channel == "":
		return nil, d.groundless(caller, a)
	}
	d.feed.catchUp(ctx)
	r := &wire.ReachReply{Tier: wire.ReachNobody, StaleSince: d.feed.staleSince(time.Now())}
	switch {
	case in.To != "":
		err = d.reachPrincipal(ctx, in.To, r)
	case in.Role != "":
		err = d.reachRole(ctx, in.Role, r)
	default:
		err = d.reachChannel(ctx, caller, a, in.Channel, r)
		if err == nil && len(in.Mentions) > 0 { // of the names it tells only who may read or post there
			r.Mentions, err = d.reachMentions(ctx, caller, in.Channel, in.Mentions)
		}
	}
	if err != nil {
		return nil, d.refuse(ctx, "ask for reach", caller, err)
	}
	return r, nil
}

// reachPrincipal counts as waiting what is not handled, handed over or not: a recipient that is stuck holds it.
func (d *Service) reachPrincipal(ctx context.Context, to string, r *wire.ReachReply) error {
	p, err := wire.ParsePrincipal(to)
	if err != nil {
		return err
	}
	if !p.OwnerKnown() {
		r.Reason = "no participant can have that owner"
		return nil
	}
	s, err := d.standingOf(ctx, p)
	if err != nil {
		return err
	}
	if s.ended != "" {
		r.Reason = d.nobody(s.ended)
		return nil
	}
	if s.life.UID != "" {
		queue, err := space.InspectQueue(ctx, d.js, wire.DirectStream(d.space), wire.DirectDurable(s.life))
		if err != nil && !errors.Is(err, wire.ErrNotFound) {
			return err
		}
		r.Waiting = queue.Held + queue.Waiting
	}
	r.Tier = wire.ReachStored
	switch {
	case s.here:
		r.Tier, r.Live = wire.ReachLive, 1
	case !s.away:
		r.Reason = "whether it is there is not known at the moment"
	case s.since.IsZero():
		r.Reason = "it was not seen lately"
	default:
		r.Reason = "it is away since " + s.since.UTC().Format(time.RFC3339)
	}
	return nil
}

// nobody says for people why a principal is not reached at all.
func (d *Service) nobody(ended string) string {
	switch {
	case ended == reasonRevoked:
		return "its grant has ended" // revoked, or that of an agent that was stopped
	case ended == reasonExpired:
		return "its grant has expired"
	case d.open: // nobody keeps who was there once
		return "nobody of that name was seen lately"
	}
	return "nobody of that name was ever here"
}

func (d *Service) reachRole(ctx context.Context, role string, r *wire.ReachReply) error {
	if err := wire.ValidateRole(role); err != nil {
		return err
	}
	h, err := d.holders(ctx, role)
	if err != nil {
		return err
	}
	r.Live, r.Waiting = h.here, h.places.Held+h.places.Waiting
	switch {
	case h.here > 0:
		r.Tier = wire.ReachLive
	case !h.any:
		r.Reason = reasonNoHolder
	default:
		r.Tier, r.Reason = wire.ReachStored, "no holder of the role is there"
		if h.stale {
			r.Reason = "whether a holder of the role is there is not known at the moment"
		}
	}
	return nil
}
