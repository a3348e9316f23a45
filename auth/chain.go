package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// maxChain bounds how deep grants are held under one another.
const maxChain = 16

// standing says whether a grant permits anything now, whatever is above it.
func standing(g trust.Grant, now time.Time) error {
	p := g.Principal()
	switch {
	case g.State == trust.GrantRetiring:
		return trust.Deny(wire.CodeFailedPrecondition, trust.ReasonRetiring,
			"%q is being taken down; try again in a moment, or finish it with: %s", p, RevokeCommand(g))
	case g.State != trust.GrantActive:
		return trust.Deny(wire.CodePermissionDenied, trust.ReasonRevoked,
			"the grant of %q was revoked; %s", p, anew(g, "--full"))
	case !g.Allows(now):
		return trust.Deny(wire.CodePermissionDenied, trust.ReasonGrantExpired,
			"the grant of %q ended at %s; %s", p, g.ExpiresAt.Format(time.RFC3339), anew(g, "--expires 30d"))
	}
	return nil
}

// chain walks from a grant to the one that is held under nobody, and says why it does not hold: a grant above is missing,
// revoked, expired or of a later life, holds less than the one below it, or has an agent below it and may not start any. It
// returns the earliest end of all of them, zero when none has one.
//
// Errors: permission-denied with reason parent-gone or exceeds-parent, which names the command that widens the parent; those
// of the store.
func chain(ctx context.Context, ses *session, g trust.Grant, now time.Time) (until time.Time, err error) {
	until = earlier(until, g.ExpiresAt)
	seen := []wire.Principal{g.Principal()}
	for child := g; child.Parent != ""; {
		name, err := wire.ParsePrincipal(child.Parent)
		if err != nil {
			return until, gone(child, "has no name")
		}
		switch {
		case slices.Contains(seen, name) || len(seen) > maxChain:
			return until, gone(child, "is below it as well")
		case name.Owner != child.Owner:
			return until, gone(child, "belongs to another owner")
		}
		parent, _, err := ses.grants.Get(ctx, name)
		switch {
		case errors.Is(err, wire.ErrNotFound):
			return until, gone(child, "has no grant")
		case err != nil:
			return until, fmt.Errorf("read grant of %q: %w", name, err)
		case parent.UID != child.ParentUID:
			return until, gone(child, "has begun a new life")
		case standing(parent, now) != nil:
			return until, gone(child, "is revoked or has ended")
		case child.Kind == trust.KindManaged && !starts(parent):
			return until, trust.Deny(wire.CodePermissionDenied, trust.ReasonExceedsParent, "%q is an agent under %q, which may have none%s; ask the operator to run: %s",
				child.Principal(), name, withProfile(parent), enabling(parent))
		}
		if e := trust.Within(child, parent); !e.Empty() {
			return until, exceeds(child, parent, e)
		}
		until = earlier(until, parent.ExpiresAt)
		seen, child = append(seen, name), parent
	}
	return until, nil
}

// starts reports whether the holder of a grant may have agents started under it. A profile that may start none has none below, whatever
// the scope says, or they would do what their holder may not.
func starts(g trust.Grant) bool {
	return !barred(g) && (trust.Spawns(g.Scope) || slices.Contains(g.Scope, trust.ScopeAdmin))
}

// barred reports whether the profile of a grant keeps its holder from starting agents.
func barred(g trust.Grant) bool { return g.Profile != "" && !g.Profile.Starts() }

// withProfile names the profile that keeps a holder from starting agents, for a sentence; empty for none.
func withProfile(g trust.Grant) string {
	if !barred(g) {
		return ""
	}
	return fmt.Sprintf(" with profile %q", string(g.Profile))
}

// enabling is the command that lets the holder of a grant have agents.
func enabling(g trust.Grant) string {
	var e trust.Excess
	if !trust.Spawns(g.Scope) {
		e.Scope = []string{trust.ScopeSpawn}
	}
	return widening(g, e)
}

func gone(child trust.Grant, why string) error {
	what := "it must be started again by somebody who holds a grant"
	if child.Kind == trust.KindManaged { // its own supervisor would start it under the same parent
		what = "somebody who holds a grant begins it anew with: " + respawning(child.Actor)
	}
	return trust.Deny(wire.CodePermissionDenied, trust.ReasonParent, "%q acts under %q, which %s; %s", child.Principal(), child.Parent, why, what)
}

func exceeds(child, parent trust.Grant, e trust.Excess) error {
	return trust.Deny(wire.CodePermissionDenied, trust.ReasonExceedsParent, "%q may not hold more than %q (%s); ask the operator to run: %s",
		child.Principal(), parent.Principal(), e, widening(parent, e))
}

// widening is the command that gives a grant what is missing. A flag replaces its list, so each names the whole of it.
func widening(g trust.Grant, e trust.Excess) string {
	switch {
	case g.Owner != wire.LocalOwner:
		return granting(g) + widened(g, e, "scope")
	case g.Kind == trust.KindStatic:
		return renewing(g, e)
	case g.Kind == trust.KindManaged:
		return respawning(g.Actor) + widened(g, e, "capability") // what an agent holds is said when it is started
	}
	return "cotal mint NAME" + widened(g, e, "capability") // the name of a person's own commands stays with them
}

// respawning is the command that begins an agent anew, in either kind of space. What it holds comes after it.
func respawning(actor string) string {
	return fmt.Sprintf("cotal stop %s --force; cotal spawn … --name %s", actor, actor)
}

// granting is the command that changes a grant in a space of people.
func granting(g trust.Grant) string {
	return fmt.Sprintf("cotal actor grant %s --owner %s", g.Actor, g.Owner)
}

// RevokeCommand is the command that ends a grant, or finishes ending it, and frees its name.
func RevokeCommand(g trust.Grant) string {
	if g.Owner == wire.LocalOwner {
		return "cotal revoke " + g.Actor
	}
	return fmt.Sprintf("cotal actor revoke %s --owner %s", g.Actor, g.Owner)
}

// anew says who gives a name whose grant is over another life, and how; flags are those for a person.
func anew(g trust.Grant, flags string) string {
	switch {
	case g.Kind == trust.KindManaged:
		return "begin it anew with: " + respawning(g.Actor)
	case g.Owner != wire.LocalOwner:
		return "ask the operator to run: " + granting(g) + " " + flags
	case g.State == trust.GrantActive:
		return "ask the operator to run: " + RevokeCommand(g) + "; cotal mint " + g.Actor
	}
	return "ask the operator to run: cotal mint " + g.Actor
}

// widened are the flags for what is missing; that of the scope has the name that is given.
func widened(g trust.Grant, e trust.Excess, scopeFlag string) string {
	cmd := ""
	scope := slices.Clone(e.Scope)
	if e.Role != "" && !slices.Contains(scope, trust.ScopeRole(e.Role)) {
		scope = append(scope, trust.ScopeRole(e.Role))
	}
	for _, f := range []struct {
		flag      string
		have, add []string
	}{{scopeFlag, g.Scope, scope}, {"allow-subscribe", g.AllowSubscribe, e.Subscribe}, {"allow-publish", g.AllowPublish, e.Publish}} {
		if len(f.add) > 0 {
			cmd += fmt.Sprintf(" --%s '%s'", f.flag, strings.Join(slices.Concat(f.have, f.add), ","))
		}
	}
	return cmd
}

// renewing is the same for the holder of a credential file. A profile that cannot have what is missing, or that the grant does not say,
// is replaced by an agent's.
func renewing(g trust.Grant, e trust.Excess) string {
	cmd := "cotal mint " + g.Actor + " --renew"
	commands := trust.ScopeCommands(e.Scope)
	able := slices.DeleteFunc(slices.Clone(e.Scope), func(s string) bool { return slices.Contains(commands, s) })
	if e.Role != "" && !slices.Contains(able, trust.ScopeRole(e.Role)) {
		able = append(able, trust.ScopeRole(e.Role))
	}
	if g.Profile != trust.Agent && (len(able) > 0 || g.Profile == "" || barred(g)) {
		cmd += " --profile " + string(trust.Agent)
	}
	had := trust.ScopeCommands(g.Scope)
	could := slices.DeleteFunc(slices.Clone(g.Scope), func(s string) bool { return slices.Contains(had, s) })
	for _, f := range []struct {
		flag      string
		have, add []string
	}{
		{"capability", could, able}, {"allow-command", had, commands}, {"allow-subscribe", g.AllowSubscribe, e.Subscribe},
		{"allow-publish", g.AllowPublish, e.Publish},
	} {
		if len(f.add) > 0 {
			cmd += fmt.Sprintf(" --%s '%s'", f.flag, strings.Join(slices.Concat(f.have, f.add), ","))
		}
	}
	return cmd
}

// earlier returns the earlier of a time, zero for none, and an end, nil for none.
func earlier(t time.Time, end *time.Time) time.Time {
	if end != nil && (t.IsZero() || end.Before(t)) {
		return *end
	}
	return t
}
