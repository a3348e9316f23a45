package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// online looks at what only the broker can tell.
func (d *diagnosis) online(ctx context.Context, rec trust.AccountRecord) {
	ses, err := d.a.session(ctx, d.space)
	if err != nil {
		d.unasked(err)
		return
	}
	d.ok(CheckBroker, "the broker lets the authority in")
	d.grants(ctx, ses)
	if rec.Callout != nil {
		d.lease(ctx, ses)
	}
}

// grants finishes or tells changes that are half done, and tells who holds more than who is above.
func (d *diagnosis) grants(ctx context.Context, ses *session) {
	all, err := ses.grants.List(ctx)
	if err != nil {
		d.bad(FindingFail, CheckGrants, "restore the authority bucket of the space from a backup", "the grants cannot be read: %v", err)
		return
	}
	sweep := d.a.NewSweeper(d.space)
	half := 0
	for _, g := range all {
		f := Finding{Check: CheckGrants, Subject: g.Principal().String(), Status: FindingWarn}
		switch {
		case g.State == trust.GrantRetiring:
			f.Text = "its revocation was begun and not finished"
		case g.State == trust.GrantActive && g.Refusing != 0:
			f.Text = "rights were taken from it, and what was open before may still be"
		default:
			continue
		}
		half++
		d.mend(f, func() error {
			_, err := sweep.finish(ctx, ses, g.Principal(), ses.grants.Update)
			return err
		})
	}
	if lasting, err := ses.grants.Lasting(ctx); err == nil && len(lasting) > 0 {
		f := Finding{Check: CheckGrants, Status: FindingWarn, Text: fmt.Sprintf("the records of %d agents that ended are kept for ever, and fill the bucket of grants", len(lasting))}
		d.mend(f, func() error { return lapse(ctx, ses) })
	}
	if half == 0 {
		d.ok(CheckGrants, "%d grants, and no change of one is half done", len(all))
	}
	d.delegation(ctx, ses, all)
}

func (d *diagnosis) delegation(ctx context.Context, ses *session, all []trust.Grant) {
	below, wrong := 0, 0
	for _, g := range all {
		if g.State != trust.GrantActive || g.Parent == "" {
			continue
		}
		below++
		_, err := chain(ctx, ses, g, time.Now())
		if err == nil {
			continue
		}
		wrong++
		repair := ""
		switch trust.ReasonOf(err) {
		case trust.ReasonExceedsParent:
			repair = "widen who is above as the sentence says, or narrow it with " + granting(g)
			if g.Owner == wire.LocalOwner {
				repair = "widen who is above as the sentence says, or begin it anew with less: " + respawning(g.Actor)
			}
		case trust.ReasonParent:
			repair = RevokeCommand(g)
		}
		d.add(Finding{Check: CheckDelegation, Subject: g.Principal().String(), Status: FindingWarn, Text: err.Error(), Repair: repair})
	}
	if wrong == 0 {
		d.ok(CheckDelegation, "%d grants are held under others, none beyond what those hold", below)
	}
}

func (d *diagnosis) lease(ctx context.Context, ses *session) {
	l, err := space.NewLeases(ses.js, d.space).Get(ctx, primaryLease)
	switch {
	case err != nil && !errors.Is(err, wire.ErrNotFound):
		d.bad(FindingFail, CheckLease, "", "%v", err)
	case err != nil, !l.Held(time.Now()):
		d.bad(FindingWarn, CheckLease, "start the mesh: cotal up --detach, or cotal serve authority", "no process does what one does for all, such as finishing revocations that were interrupted")
	default:
		d.ok(CheckLease, "%s does what one does for all, since %s", l.Holder, l.Since.UTC().Format(time.RFC3339))
	}
}

// Level is one grant of a chain and what it lets pass of the one that was asked about.
type Level struct {
	Grant trust.Grant
	// Excess is what the one below holds beyond this one; empty for the one that was asked about, and when it is within.
	Excess trust.Excess
}

// Inspection is everything about one grant.
type Inspection struct {
	Grant trust.Grant
	// Above are the grants that it is held under, nearest first, as far as they are there. Refused says why the chain does
	// not hold; nil when it does.
	Above   []Level
	Refused error
	// Below are those held under it, directly or not, parents before children.
	Below []trust.Grant
	// Live is what the issuance log holds of it and has not expired.
	Live []space.Mint
}

// Inspect returns everything about the grant of a principal.
//
// Errors: not-found for a name that was never granted; those of the store.
func (a *Authority) Inspect(ctx context.Context, s wire.Space, p wire.Principal) (Inspection, error) {
	var out Inspection
	ses, err := a.session(ctx, s)
	if err == nil {
		out.Grant, _, err = ses.grants.Get(ctx, p)
	}
	if err != nil {
		return out, fmt.Errorf("look at grant of %q: %w", p, err)
	}
	if out.Above, err = above(ctx, ses, out.Grant); err != nil {
		return out, fmt.Errorf("look at what %q is held under: %w", p, err)
	}
	if out.Grant.State == trust.GrantActive {
		if _, out.Refused = chain(ctx, ses, out.Grant, time.Now()); out.Refused == nil {
			out.Refused = standing(out.Grant, time.Now())
		}
	}
	if out.Below, err = descendants(ctx, ses, out.Grant); err != nil {
		return out, fmt.Errorf("look at what is held under %q: %w", p, err)
	}
	mints, err := ses.grants.Mints(ctx, out.Grant.UID)
	if err != nil {
		return out, fmt.Errorf("look at credentials of %q: %w", p, err)
	}
	for _, m := range mints {
		if m.Expires.After(time.Now()) {
			out.Live = append(out.Live, m)
		}
	}
	return out, nil
}

// above walks up as chain does, and stops where there is nobody.
func above(ctx context.Context, ses *session, g trust.Grant) ([]Level, error) {
	var out []Level
	for child := g; child.Parent != "" && len(out) < maxChain; {
		name, err := wire.ParsePrincipal(child.Parent)
		if err != nil || name.Owner != child.Owner {
			return out, nil
		}
		parent, _, err := ses.grants.Get(ctx, name)
		switch {
		case errors.Is(err, wire.ErrNotFound):
			return out, nil
		case err != nil:
			return out, err
		case parent.UID != child.ParentUID:
			return out, nil
		}
		out = append(out, Level{Grant: parent, Excess: trust.Within(child, parent)})
		child = parent
	}
	return out, nil
}

// Fitting returns the command that narrows a grant to what everybody above it holds, or the empty string when it is within.
func (in Inspection) Fitting() string {
	g, over := in.Grant, trust.Excess{}
	for _, l := range in.Above {
		e := trust.Within(g, l.Grant)
		over.Scope, over.Role = append(over.Scope, e.Scope...), over.Role+e.Role
		over.Subscribe, over.Publish = append(over.Subscribe, e.Subscribe...), append(over.Publish, e.Publish...)
	}
	if over.Empty() {
		return ""
	}
	cmd, scope := granting(g), "scope"
	if g.Owner == wire.LocalOwner {
		cmd, scope = respawning(g.Actor), "capability"
	}
	for _, f := range []struct {
		flag      string
		have, off []string
	}{{scope, g.Scope, over.Scope}, {"allow-subscribe", g.AllowSubscribe, over.Subscribe}, {"allow-publish", g.AllowPublish, over.Publish}} {
		if len(f.off) > 0 {
			keep := slices.DeleteFunc(slices.Clone(f.have), func(e string) bool { return slices.Contains(f.off, e) })
			cmd += fmt.Sprintf(" --%s '%s'", f.flag, strings.Join(keep, ","))
		}
	}
	if over.Role != "" {
		cmd += " --role ''"
	}
	return cmd
}
