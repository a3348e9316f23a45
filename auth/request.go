package auth

import (
	"cmp"
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
	// Profile defaults to agent, and with Renew to that of the grant.
	Profile trust.Profile
	// Role is the anycast role that the principal serves; empty for none.
	Role string
	// Subscribe and Publish are channel patterns. Empty means none.
	Subscribe, Publish []string
	// Commands are further control commands, "<endpoint>.<command>". Empty means none.
	Commands []string
	// Capabilities are the other entries of a scope: trust.ScopeSpawn, and trust.ScopeRole of a role that agents below may have. Empty
	// means none. Only an agent has them.
	Capabilities []string
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
	if err := grantable(r.principal()); err != nil {
		return r, err
	}
	if r.Profile == "" && !r.Renew {
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
	for _, c := range r.Capabilities {
		if c != trust.ScopeSpawn && !trust.IsScopeRole(c) {
			return r, wire.Errorf(wire.CodeBadRequest, "check capability %.96q: not %q or role:<role>", c, trust.ScopeSpawn)
		}
		if err := trust.ValidateScope(c); err != nil {
			return r, err
		}
	}
	if len(r.Label) > wire.MaxName {
		return r, wire.Errorf(wire.CodeBadRequest, "label has %d characters, limit %d", len(r.Label), wire.MaxName)
	}
	return r, nil
}

// minted is the profile of the credential under a grant. Grants of older versions do not say theirs.
func (r Request) minted(g trust.Grant) (trust.Profile, error) {
	p := cmp.Or(r.Profile, g.Profile)
	switch {
	case p == "":
		return "", wire.Errorf(wire.CodeBadRequest, "renew credential for %q: its grant is of an earlier version, which did not keep the profile; name it", r.Actor)
	case len(r.Capabilities) > 0 && p != trust.Agent:
		return "", wire.Errorf(wire.CodeBadRequest, "issue credential for %q: profile %q has no capabilities", r.Actor, p)
	}
	return p, nil
}

// held is the profile that the grant keeps: what a person's own commands mint for themselves is of several.
func (r Request) held() trust.Profile {
	if r.kind != trust.KindStatic {
		return ""
	}
	return r.Profile
}

func (r Request) newGrant(by string) trust.Grant {
	p := r.principal()
	return trust.Grant{
		Ver: trust.GrantVersion, Owner: p.Owner, Actor: p.Actor, UID: wire.NewUID(), Epoch: 1, Kind: r.kind, Profile: r.held(),
		State: trust.GrantActive, Scope: slices.Concat(r.Commands, r.Capabilities), AllowSubscribe: slices.Clone(r.Subscribe),
		AllowPublish: slices.Clone(r.Publish), Role: r.Role, Label: r.Label, CreatedAt: time.Now().UTC(), By: by,
	}
}

// scope is what becomes of the scope of a grant: commands and capabilities that are named replace those that it has.
func (r Request) scope(have []string) []string {
	commands := trust.ScopeCommands(have)
	capabilities := slices.DeleteFunc(slices.Clone(have), func(e string) bool { return slices.Contains(commands, e) })
	if len(r.Commands) > 0 {
		commands = r.Commands
	}
	if len(r.Capabilities) > 0 {
		capabilities = r.Capabilities
	}
	return slices.Concat(commands, capabilities)
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
	set(&g.Scope, r.scope(g.Scope))
	if r.Role != "" && r.Role != g.Role {
		g.Role, changed = r.Role, true
	}
	if p := r.held(); p != "" && p != g.Profile {
		g.Profile, changed = p, true
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
