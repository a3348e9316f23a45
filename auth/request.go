package auth

import (
	"slices"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Request asks for a credential.
type Request struct {
	// Space is required.
	Space wire.Space
	// Actor is the name under owner "local"; required, [A-Za-z0-9_]{1,64}.
	Actor string
	// Profile defaults to agent.
	Profile trust.Profile
	// Role is the anycast role that the principal serves; empty for none.
	Role string
	// Subscribe and Publish are channel patterns. Empty means none.
	Subscribe, Publish []string
	// Commands are further control commands, "<endpoint>.<command>". Empty means none.
	Commands []string
	// Label is free text kept in the grant, at most 128 characters.
	Label string
	// TTL is the lifetime; 0 means the default of the profile.
	TTL time.Duration
	// Renew asks for a later credential of a principal that exists; see [Authority.Renew].
	Renew bool

	reuse bool            // take an active grant of the same kind as it is
	kind  trust.GrantKind // default static
}

func (r Request) principal() wire.Principal {
	return wire.Principal{Owner: wire.LocalOwner, Actor: r.Actor}
}

func (r Request) withDefaults() (Request, error) {
	if _, err := wire.ParseSpace(string(r.Space)); err != nil {
		return r, err
	}
	if err := r.principal().Validate(); err != nil {
		return r, err
	}
	if r.Profile == "" {
		r.Profile = trust.Agent
	}
	if r.kind == "" {
		r.kind = trust.KindStatic
	}
	if r.Role != "" {
		if err := wire.ValidateRole(r.Role); err != nil {
			return r, err
		}
	}
	for _, p := range slices.Concat(r.Subscribe, r.Publish) {
		if err := wire.ValidatePattern(p); err != nil {
			return r, err
		}
	}
	if len(r.Label) > wire.MaxName {
		return r, wire.Errorf(wire.CodeBadRequest, "label has %d characters, limit %d", len(r.Label), wire.MaxName)
	}
	return r, nil
}

func (r Request) newGrant(by string) trust.Grant {
	p := r.principal()
	return trust.Grant{
		Ver: trust.GrantVersion, Owner: p.Owner, Actor: p.Actor, UID: wire.NewUID(), Epoch: 1, Kind: r.kind,
		State: trust.GrantActive, Scope: slices.Clone(r.Commands), AllowSubscribe: slices.Clone(r.Subscribe),
		AllowPublish: slices.Clone(r.Publish), Role: r.Role, Label: r.Label, CreatedAt: time.Now().UTC(), By: by,
	}
}

// merge applies the request to an active grant and says whether anything changed. A change begins a new epoch, so that a
// credential that is being made under the lists before it is not handed out after it. One that takes rights away is marked
// until the credentials before it are refused.
func (r Request) merge(g trust.Grant) (trust.Grant, bool, error) {
	if g.Kind != r.kind {
		return g, false, wire.Errorf(wire.CodeAlreadyExists, "issue credential for %q: the name is granted as %s, not %s", g.Principal(), g.Kind, r.kind)
	}
	before, changed := g, false
	set := func(have *[]string, want []string) {
		if len(want) > 0 && !slices.Equal(*have, want) {
			*have, changed = slices.Clone(want), true
		}
	}
	set(&g.AllowSubscribe, r.Subscribe)
	set(&g.AllowPublish, r.Publish)
	set(&g.Scope, r.Commands)
	if r.Role != "" && r.Role != g.Role {
		g.Role, changed = r.Role, true
	}
	if r.Label != "" && r.Label != g.Label {
		g.Label, changed = r.Label, true
	}
	if changed {
		g.Epoch++
		if narrows(before, g) {
			g.Refusing = g.Epoch
		}
	}
	return g, changed, nil
}
