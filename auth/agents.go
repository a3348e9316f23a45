package auth

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// hexHash is a SHA-256 as lower-case hex.
var hexHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

func checkProof(p wire.AgentProof) error {
	switch {
	case !nkeys.IsValidPublicUserKey(p.UserKey):
		return wire.Errorf(wire.CodeBadRequest, "check proof: %.64q is not the public key of a user", p.UserKey)
	case !hexHash.MatchString(p.TokenHash):
		return wire.Errorf(wire.CodeBadRequest, "check proof: the token hash is not 64 lower-case hex digits")
	}
	return nil
}

// lifeOf reads the life that a request of a supervisor names.
func lifeOf(principal string, uid wire.UID) (wire.Lifecycle, error) {
	p, err := wire.ParsePrincipal(principal)
	if err != nil {
		return wire.Lifecycle{}, err
	}
	l := wire.Lifecycle{Principal: p, UID: uid}
	return l, l.Validate()
}

// GrantAgent grants a managed agent and returns what it starts with. While its grant stands with the same parent, lists and proof it
// is the same again.
//
// Errors: those of [Authority.Grant]; permission-denied with reason scope-missing when the parent may not start agents, and for
// a scope that no agent has, and with user-mode for an agent of owner local in a space of people; already-exists for a name that is
// active otherwise.
func (a *Authority) GrantAgent(ctx context.Context, s wire.Space, by string, req wire.AgentGrantRequest) (wire.AgentCredential, error) {
	if err := checkProof(req.Proof); err != nil {
		return wire.AgentCredential{}, err
	}
	for _, e := range req.Scope {
		if e == trust.ScopeAdmin || e == trust.ScopeSupervise {
			return wire.AgentCredential{}, trust.Deny(wire.CodePermissionDenied, trust.ReasonScope, "grant agent %q: an agent never holds the scope %q", req.Actor, e)
		}
	}
	gr := GrantRequest{
		Space: s, Owner: req.Owner, Actor: req.Actor, Kind: trust.KindManaged, Scope: nonNil(req.Scope), Subscribe: nonNil(req.Subscribe),
		Publish: nonNil(req.Publish), Role: &req.Role, Label: &req.Label, By: by, tokenHash: &req.Proof.TokenHash, fresh: true, asked: req.By,
	}
	switch {
	case req.Parent != "" || req.ParentUID != "":
		parent, err := lifeOf(req.Parent, req.ParentUID)
		if err != nil {
			return wire.AgentCredential{}, fmt.Errorf("read parent: %w", err)
		}
		if req.Owner != "" && req.Owner != parent.Owner {
			return wire.AgentCredential{}, wire.Errorf(wire.CodeBadRequest, "grant agent %q: owner %.64q is not that of its parent %q", req.Actor, req.Owner, parent.Principal)
		}
		if err := a.mayStart(ctx, s, parent); err != nil {
			return wire.AgentCredential{}, err
		}
		gr.Parent, gr.Owner = &parent, parent.Owner
	case req.Owner == "":
		gr.Owner = wire.LocalOwner
	}
	return a.agentCredential(ctx, gr, req.Proof)
}

// mayStart refuses a parent whose grant does not let it start agents, in words for whoever asks for one. Whether it stands at all is for
// the chain, which also refuses the agents of one that may not start any more.
func (a *Authority) mayStart(ctx context.Context, s wire.Space, l wire.Lifecycle) error {
	ses, err := a.session(ctx, s)
	if err != nil {
		return fmt.Errorf("look at %q: %w", l.Principal, err)
	}
	g, _, err := ses.grants.Get(ctx, l.Principal)
	switch {
	case errors.Is(err, wire.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read grant of %q: %w", l.Principal, err)
	case g.UID == l.UID && barred(g):
		return trust.Deny(wire.CodePermissionDenied, trust.ReasonScope, "%q may start no agents%s; ask the operator to run: %s",
			l.Principal, withProfile(g), enabling(g))
	case g.UID == l.UID && !starts(g):
		return lacks(g, trust.ScopeSpawn)
	}
	return nil
}

// StartAgent gives a life another proof, and ends what was open under the one before.
//
// Errors: not-found; conflict when the life is another, and with reason grant-changed when a later start was made or this one stopped;
// permission-denied with reason grant-revoked for one that has ended, and user-mode for one of before the space signed people in; those
// of [Authority.Grant].
func (a *Authority) StartAgent(ctx context.Context, s wire.Space, by string, req wire.AgentStartRequest) (wire.AgentCredential, error) {
	l, err := lifeOf(req.Principal, req.UID)
	if err == nil {
		err = checkProof(req.Proof)
	}
	if err != nil {
		return wire.AgentCredential{}, err
	}
	return a.agentCredential(ctx, GrantRequest{
		Space: s, Owner: l.Owner, Actor: l.Actor, Kind: trust.KindManaged, tokenHash: &req.Proof.TokenHash, life: l.UID, start: req.Start,
		By: by, did: space.ActionStart,
	}, req.Proof)
}

// agentCredential writes a grant and returns what its holder starts with, by the mode of the space.
func (a *Authority) agentCredential(ctx context.Context, req GrantRequest, proof wire.AgentProof) (wire.AgentCredential, error) {
	people, err := a.People(ctx, req.Space)
	if err != nil {
		return wire.AgentCredential{}, err
	}
	if !people {
		return a.fileAgent(ctx, req, proof.UserKey)
	}
	change, err := a.Grant(ctx, req)
	if err != nil {
		return wire.AgentCredential{}, err
	}
	return exchanges(change.Grant), nil
}

// ofFiles refuses an agent of no person in a space of people, such as one of before the space became that: the subject of a bearer is a
// person's.
func ofFiles(p wire.Principal, r trust.Reason) error {
	return trust.Deny(wire.CodePermissionDenied, r, "%q gets no token in a space that signs people in, since it is nobody's agent; sign in with cotal login and begin it anew with: %s",
		p, respawning(p.Actor))
}

func exchanges(g trust.Grant) wire.AgentCredential {
	return wire.AgentCredential{Principal: g.Principal().String(), UID: g.UID, Exchange: true}
}

// agentRenew returns a later credential of a life that was started, and ends nothing.
//
// Errors: not-found; conflict with reason grant-changed when the life, or its start, is another; failed-precondition when it
// was stopped; permission-denied with the reason why its grant, or one above, does not stand, or user-mode as of [Authority.StartAgent].
func (a *Authority) agentRenew(ctx context.Context, s wire.Space, req wire.AgentStartRequest) (wire.AgentCredential, error) {
	none := wire.AgentCredential{}
	l, err := lifeOf(req.Principal, req.UID)
	if err == nil {
		err = checkProof(req.Proof)
	}
	if err != nil {
		return none, err
	}
	ses, err := a.session(ctx, s)
	if err != nil {
		return none, fmt.Errorf("renew agent %q: %w", l.Principal, err)
	}
	g, rev, err := ses.grants.Get(ctx, l.Principal)
	if err != nil {
		return none, fmt.Errorf("renew agent %q: %w", l.Principal, err)
	}
	now := time.Now()
	if err := managed(g, l); err != nil {
		return none, err
	}
	if err := standing(g, now); err != nil {
		return none, err
	}
	switch {
	case g.TokenHash == "":
		return none, wire.Errorf(wire.CodeFailedPrecondition, "renew agent %q: it was stopped; start it again", l.Principal)
	case g.TokenHash != req.Proof.TokenHash:
		return none, trust.Deny(wire.CodeConflict, trust.ReasonSuperseded, "renew agent %q: it was started anew since", l.Principal)
	}
	until, err := chain(ctx, ses, g, now)
	if err != nil {
		return none, err
	}
	people, err := a.People(ctx, s)
	switch {
	case err != nil:
		return none, err
	case people && g.Owner == wire.LocalOwner:
		return none, ofFiles(l.Principal, trust.ReasonUserMode)
	case people:
		return exchanges(g), nil
	}
	return a.renewFile(ctx, ses, s, plan{grant: g, rev: rev}, req.Proof.UserKey, until)
}

// managed refuses a grant that is not of the life that is meant, or that no supervisor runs.
func managed(g trust.Grant, l wire.Lifecycle) error {
	switch {
	case g.Kind != trust.KindManaged:
		return wire.Errorf(wire.CodePermissionDenied, "%q is granted as %s, and no supervisor runs it", g.Principal(), g.Kind)
	case g.UID != l.UID:
		return trust.Deny(wire.CodeConflict, trust.ReasonSuperseded, "%q has begun another life", g.Principal())
	}
	return nil
}

// StopAgent takes the proof of a start of a life away and ends what is open, unless a later one has done so. Name and queues stay.
//
// Errors: as of [Authority.StartAgent], but for a later start.
func (a *Authority) StopAgent(ctx context.Context, s wire.Space, by string, req wire.AgentStopRequest) error {
	l, err := lifeOf(req.Principal, req.UID)
	if err != nil {
		return err
	}
	none := ""
	gr := GrantRequest{
		Space: s, Owner: l.Owner, Actor: l.Actor, Kind: trust.KindManaged, tokenHash: &none, life: l.UID, start: req.Start, By: by,
		did: space.ActionStop,
	}
	people, err := a.People(ctx, s)
	switch {
	case err != nil:
		return err
	case people:
		_, err = a.Grant(ctx, gr)
	default:
		_, err = a.fileAgent(ctx, gr, "")
	}
	return err
}

// agentRetire ends a life and everything held under it. One that is over already is no error.
//
// Errors: not-found for a name that was never granted; permission-denied for what is no managed agent; those of [Authority.Revoke].
func (a *Authority) agentRetire(ctx context.Context, s wire.Space, req wire.AgentRequest) error {
	l, err := lifeOf(req.Principal, req.UID)
	if err != nil {
		return err
	}
	ses, err := a.session(ctx, s)
	if err != nil {
		return fmt.Errorf("retire agent %q: nothing done: %w", l.Principal, err)
	}
	g, _, err := ses.grants.Get(ctx, l.Principal)
	switch {
	case err != nil:
		return fmt.Errorf("retire agent %q: nothing done: %w", l.Principal, err)
	case g.UID != l.UID || g.State == trust.GrantRetired:
		return nil
	}
	if err := managed(g, l); err != nil {
		return err
	}
	_, err = a.revoke(ctx, ses, s, l, ses.grants.Update)
	if errors.Is(err, wire.ErrNotFound) {
		return nil // somebody else did
	}
	return err
}

// agentPage bounds a page of grants in bytes of its lists, agentPageLen in entries.
const (
	agentPage    = 64 << 10
	agentPageLen = 500
)

// agentGrants lists the managed grants that stand, by principal.
func (a *Authority) agentGrants(ctx context.Context, s wire.Space, after string) (wire.AgentGrantsReply, error) {
	all, err := a.List(ctx, s)
	if err != nil {
		return wire.AgentGrantsReply{}, err
	}
	all = slices.DeleteFunc(all, func(g trust.Grant) bool {
		return g.Kind != trust.KindManaged || g.State != trust.GrantActive || g.Principal().String() <= after
	})
	slices.SortFunc(all, func(x, y trust.Grant) int { return strings.Compare(x.Principal().String(), y.Principal().String()) })
	out := wire.AgentGrantsReply{Agents: []wire.ManagedGrant{}}
	size := 0
	for _, g := range all {
		m := wire.ManagedGrant{
			Principal: g.Principal().String(), UID: g.UID, Parent: g.Parent, ParentUID: g.ParentUID, Label: g.Label, Started: g.TokenHash != "",
			Subscribe: nonNil(g.AllowSubscribe), Publish: nonNil(g.AllowPublish), Scope: nonNil(g.Scope),
		}
		for _, e := range slices.Concat(m.Subscribe, m.Publish, m.Scope) {
			size += len(e) + 8
		}
		if size += 400; len(out.Agents) > 0 && size > agentPage || len(out.Agents) == agentPageLen {
			out.More = true
			break
		}
		out.Agents = append(out.Agents, m)
	}
	return out, nil
}
