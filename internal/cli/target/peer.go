package target

import (
	"context"
	"strings"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
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
}

// StatusAbsent is the status of a peer that the roster does not list.
const StatusAbsent = "not present"

// PeerOf describes an entry of the roster.
func PeerOf(en wire.RosterEntry) Peer {
	p := en.Presence
	return Peer{
		Principal: en.Principal, Name: p.Card.Name, Kind: p.Card.Kind, Role: p.Card.Role, Status: string(p.Status),
		Activity: p.Activity, Seen: time.UnixMilli(en.SeenMS).UTC(),
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
func (p Peer) Here() bool { return p.Status != string(wire.StatusOffline) && p.Status != StatusAbsent }

// Roster lists who is there. Since is set when delivery has lost sight of the space since then.
func Roster(ctx context.Context, ep *endpoint.Endpoint) (peers []Peer, since time.Time, err error) {
	r, err := ep.Roster(ctx)
	if err != nil {
		return []Peer{}, time.Time{}, err
	}
	peers = make([]Peer, 0, len(r.Entries))
	for _, en := range r.Entries {
		if p := PeerOf(en); p.Here() {
			peers = append(peers, p)
		}
	}
	return peers, r.StaleSince, nil
}

// FindPeer says whom a name means: a principal as it stands; else the actor local.<name>, present or granted; else the
// only peer whose actor or display name it is, whatever the case, those that are there before those that are not.
//
// Errors: not-found when nobody is called so, conflict when several are.
func (t *Target) FindPeer(ctx context.Context, ep *endpoint.Endpoint, name string) (Peer, error) {
	r, err := ep.Roster(ctx)
	if err != nil {
		return Peer{}, t.Explain(err)
	}
	known := make([]Peer, len(r.Entries))
	for i, en := range r.Entries {
		known[i] = PeerOf(en)
	}
	if strings.Contains(name, ".") {
		id, err := wire.ParsePrincipal(name)
		if err != nil {
			return Peer{}, err
		}
		return pick(known, id), nil
	}
	local := wire.Principal{Owner: wire.LocalOwner, Actor: name}
	if local.Validate() == nil {
		if p := pick(known, local); p.Status != StatusAbsent {
			return p, nil
		}
		if granted, err := t.granted(ctx, local); err != nil {
			return Peer{}, err
		} else if granted {
			return pick(known, local), nil
		}
	}
	return byName(known, name)
}

// granted reports whether the authority knows the principal. Without the records of the project nobody can be asked:
// then a peer that the roster does not list is named by its principal, so that a slip of the pen goes nowhere.
func (t *Target) granted(ctx context.Context, p wire.Principal) (bool, error) {
	if t.node == nil {
		return false, nil
	}
	grants, err := t.node.Authority().List(ctx, t.Space())
	if err != nil {
		return false, t.Explain(err)
	}
	for _, g := range grants {
		if g.Principal() == p && g.State == trust.GrantActive {
			return true, nil
		}
	}
	return false, nil
}

func pick(known []Peer, id wire.Principal) Peer {
	for _, p := range known {
		if p.Principal == id.String() {
			return p
		}
	}
	return Peer{Principal: id.String(), Name: id.Actor, Status: StatusAbsent}
}

func byName(known []Peer, name string) (Peer, error) {
	var here, away []Peer
	for _, p := range known {
		if !strings.EqualFold(p.Name, name) && !strings.EqualFold(p.ID().Actor, name) {
			continue
		}
		if p.Here() {
			here = append(here, p)
		} else {
			away = append(away, p)
		}
	}
	hits := here
	if len(hits) == 0 {
		hits = away
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return Peer{}, command.Hint(wire.Errorf(wire.CodeNotFound, "nobody in the space is called %q", name),
			"who is there: cotal status", "name a peer that is away by its principal, such as local.nova")
	}
	ids := make([]string, len(hits))
	for i, p := range hits {
		ids[i] = p.Principal
	}
	return Peer{}, command.Hint(wire.Errorf(wire.CodeConflict, "%q means several peers: %s", name, strings.Join(ids, ", ")), "name one by its principal")
}
