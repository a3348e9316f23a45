package target

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Peer is one participant as commands show it. Principal is vouched for by the broker, the rest is its own claim.
type Peer struct {
	Principal string    `json:"principal"`
	Name      string    `json:"name,omitempty"`
	Kind      string    `json:"kind,omitempty"`
	Role      string    `json:"role,omitempty"`
	Status    string    `json:"status"`
	Activity  string    `json:"activity,omitempty"`
	Seen      time.Time `json:"seen,omitzero"`
	// Gone is how a peer that is offline went, left, silent or disconnected, and GoneAt when.
	Gone   string    `json:"gone,omitempty"`
	GoneAt time.Time `json:"goneAt,omitzero"`
}

// Since is when a peer that is offline went or, when nobody says, was last heard of.
func (p Peer) Since() time.Time {
	if !p.GoneAt.IsZero() {
		return p.GoneAt
	}
	return p.Seen
}

// Statuses besides those that a peer gives itself.
const (
	// StatusAbsent: the roster does not list the peer.
	StatusAbsent = "not present"
	// StatusUnknown: nobody could be asked.
	StatusUnknown = "not known"
)

// PeerOf describes an entry of the roster.
func PeerOf(en wire.RosterEntry) Peer {
	p := en.Presence
	var gone time.Time
	if en.GoneMS != 0 {
		gone = time.UnixMilli(en.GoneMS).UTC()
	}
	return Peer{
		Principal: en.Principal, Name: p.Card.Name, Kind: p.Card.Kind, Role: p.Card.Role, Status: string(p.Status),
		Activity: p.Activity, Seen: time.UnixMilli(en.SeenMS).UTC(), Gone: en.Gone, GoneAt: gone,
	}
}

// ID is the principal of the peer. Peers are made from principals that parse.
func (p Peer) ID() wire.Principal {
	id, err := wire.ParsePrincipal(p.Principal)
	if err != nil {
		return wire.Principal{}
	}
	return id
}

// Here reports whether the peer was there when the roster was read.
func (p Peer) Here() bool {
	return p.Status != string(wire.StatusOffline) && p.Status != StatusAbsent && p.Status != StatusUnknown
}

// Roster lists who is there, with all also who is gone and remembered. Since is set when delivery has lost sight of the
// space since then.
func Roster(ctx context.Context, ep *endpoint.Endpoint, all bool) (peers []Peer, since time.Time, err error) {
	r, err := ep.Roster(ctx)
	if err != nil {
		return []Peer{}, time.Time{}, err
	}
	peers = make([]Peer, 0, len(r.Entries))
	for _, en := range r.Entries {
		if p := PeerOf(en); all || p.Here() {
			peers = append(peers, p)
		}
	}
	return peers, r.StaleSince, nil
}

// FindPeer says whom a name means. A name with a dot is a principal; any other means an actor of the owner local. What a
// peer calls itself never decides where a message goes.
//
// In a space of people a name without a dot is an actor of anybody who was there or, with the records of the project at hand, was
// granted something, as long as one fits; else one of the person's own.
//
// With the records of the project at hand only who holds a grant is found, whatever the case of the name as long as one
// grant fits. Without them the name is taken at its word, so that a message waits for its principal alone. When delivery
// gives no answer the status of the peer is not known.
//
// Errors: bad-request for what is neither; not-found when nobody is called so or holds that grant any more; conflict when
// several are, or when only display names say so.
func (t *Target) FindPeer(ctx context.Context, ep *endpoint.Endpoint, name string) (Peer, error) {
	known, status, err := t.seen(ctx, ep)
	if err != nil {
		return Peer{}, err
	}
	if t.as != nil && !strings.Contains(name, ".") {
		return personOf(append(known, t.granted(ctx, known)...), status, t.as.Owner, name)
	}
	var grants []trust.Grant // nil: nobody can be asked
	if t.node != nil {
		if grants, err = t.node.Authority().List(ctx, t.Space()); err != nil {
			return Peer{}, t.Explain(err)
		}
		grants = append([]trust.Grant{}, grants...)
	}
	p, err := find(known, grants, name)
	if e, ok := errors.AsType[*agentEnded](err); ok {
		return Peer{}, e.explain(ctx, manager.New(ep))
	}
	if p.Status == StatusAbsent {
		p.Status = status
	}
	return p, err
}

// seen is who the roster lists, and the status of everybody else.
func (t *Target) seen(ctx context.Context, ep *endpoint.Endpoint) (known []Peer, status string, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	r, err := ep.Roster(ctx)
	switch {
	case Silent(err):
		return nil, StatusUnknown, nil
	case err != nil:
		return nil, "", t.Explain(err)
	}
	known = make([]Peer, len(r.Entries))
	for i, en := range r.Entries {
		known[i] = PeerOf(en)
	}
	return known, StatusAbsent, nil
}

func find(known []Peer, grants []trust.Grant, name string) (Peer, error) {
	id, err := principalOf(name)
	dotted := strings.Contains(name, ".")
	switch {
	case err != nil && dotted:
		return Peer{}, err
	case err == nil && grants == nil:
		return pick(known, id), nil
	}
	var fits []string
	var over *trust.Grant // of the name, and no longer active
	for _, g := range grants {
		switch p := g.Principal(); {
		case g.State != trust.GrantActive:
			if err == nil && p == id {
				over = &g
			}
		case err == nil && p == id:
			return pick(known, p), nil
		case !dotted && p.Owner == wire.LocalOwner && strings.EqualFold(p.Actor, name):
			fits = append(fits, p.String())
		}
	}
	switch {
	case len(fits) == 1:
		p, err := wire.ParsePrincipal(fits[0])
		if err != nil {
			return Peer{}, err
		}
		return pick(known, p), nil
	case len(fits) > 1:
		return Peer{}, ambiguous(name, fits)
	case over != nil && over.Kind == trust.KindManaged:
		return Peer{}, overAgent(*over)
	case over != nil:
		return Peer{}, command.Hint(wire.Errorf(wire.CodeNotFound, "%q was revoked", id), "grant the name anew: cotal mint "+id.Actor)
	}
	return Peer{}, Nobody(known, grants, name)
}

// granted are the holders of grants whom the roster does not list; nobody without the records of the project.
func (t *Target) granted(ctx context.Context, known []Peer) []Peer {
	if t.Foreign() || !t.trusted() {
		return nil
	}
	node, err := t.Node(ctx)
	if err != nil {
		return nil
	}
	grants, err := node.Authority().List(ctx, t.Space())
	if err != nil {
		return nil
	}
	var out []Peer
	for _, g := range grants {
		id := g.Principal().String()
		if g.State == trust.GrantActive && !slices.ContainsFunc(known, func(p Peer) bool { return p.Principal == id }) {
			out = append(out, Peer{Principal: id, Name: g.Actor, Status: StatusAbsent})
		}
	}
	return out
}

// personOf says whom an actor's name means in a space of people. Actors are granted, so the name is no claim of who bears it; but
// two people may have one of the same name, and then it means nobody.
func personOf(known []Peer, status, owner, name string) (Peer, error) {
	var fits []Peer
	for _, p := range known {
		if p.ID().Actor == name {
			fits = append(fits, p)
		}
	}
	for _, p := range known {
		if len(fits) == 0 && strings.EqualFold(p.ID().Actor, name) {
			fits = append(fits, p)
		}
	}
	switch {
	case len(fits) == 1:
		return fits[0], nil
	case len(fits) > 1:
		ids := make([]string, len(fits))
		for i, p := range fits {
			ids[i] = p.Principal
		}
		return Peer{}, ambiguous(name, ids)
	case status == StatusUnknown:
		return Peer{}, command.Hint(wire.Errorf(wire.CodeUnavailable, "whom %q means cannot be looked up: delivery does not answer; nothing was sent", name),
			"name somebody in full: <owner>."+name)
	}
	id := wire.Principal{Owner: owner, Actor: name}
	if err := id.Validate(); err != nil {
		return Peer{}, err
	}
	return Peer{Principal: id.String(), Name: name, Status: status}, nil
}

// principalOf is the principal that a name spells out.
func principalOf(name string) (wire.Principal, error) {
	if strings.Contains(name, ".") {
		return wire.ParsePrincipal(name)
	}
	p := wire.Principal{Owner: wire.LocalOwner, Actor: name}
	return p, p.Validate()
}

func pick(known []Peer, id wire.Principal) Peer {
	for _, p := range known {
		if p.Principal == id.String() {
			return p
		}
	}
	return Peer{Principal: id.String(), Name: id.Actor, Status: StatusAbsent}
}

// Nobody is the refusal of a name that no principal bears. Anybody may call itself so; those who do are listed, and the
// names that are near it.
func Nobody(known []Peer, grants []trust.Grant, name string) error {
	var claim, near []string
	for _, p := range known {
		if p.Principal != name && (strings.EqualFold(p.Name, name) || strings.EqualFold(p.ID().Actor, name)) {
			claim = append(claim, p.Principal)
		}
		if grants == nil {
			near = appendNear(near, name, p.ID())
		}
	}
	if len(claim) > 0 {
		return command.Hint(wire.Errorf(wire.CodeConflict, "%q is no principal, only what %s calls itself", name, strings.Join(claim, ", ")),
			"a name of one's own choice proves nothing; if that is whom you mean, name it by its principal: "+claim[0])
	}
	for _, g := range grants {
		if g.State == trust.GrantActive {
			near = appendNear(near, name, g.Principal())
		}
	}
	err := command.Hint(wire.Errorf(wire.CodeNotFound, "nobody in the space is called %q", name), "who is there: cotal roster --all", "who may be: cotal grants")
	if len(near) > 0 {
		err = command.Hint(err, "did you mean: "+strings.Join(near, ", "))
	}
	return err
}

// appendNear adds the principal when its name is near the one that was typed.
func appendNear(near []string, name string, id wire.Principal) []string {
	_, actor, dotted := strings.Cut(name, ".")
	if !dotted {
		actor = name
	}
	if command.Near(strings.ToLower(actor), strings.ToLower(id.Actor)) && !slices.Contains(near, id.String()) {
		return append(near, id.String())
	}
	return near
}

func ambiguous(name string, ids []string) error {
	return command.Hint(wire.Errorf(wire.CodeConflict, "%q means several peers: %s", name, strings.Join(ids, ", ")), "name one by its principal")
}
