package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// AdmitPerson decides whether a person may act as one of the actors granted to them, by the records as they are now: the
// grant, and every grant that it is held under.
//
// Errors, with their reason: permission-denied for not-granted, grant-revoked, grant-expired, parent-gone, exceeds-parent,
// scope-missing; failed-precondition for grant-retiring; bad-request for a name or view outside the grammar; unavailable when
// the records cannot be read.
func (a *Authority) AdmitPerson(ctx context.Context, s wire.Space, req PersonRequest) (Admission, error) {
	ses, err := a.session(ctx, s)
	if err != nil {
		return Admission{}, fmt.Errorf("admit person: %w", err)
	}
	if req.Actor == "" {
		if req.Actor, err = onlyActor(ctx, ses, req.Owner); err != nil {
			return Admission{}, err
		}
	}
	p := wire.Principal{Owner: req.Owner, Actor: req.Actor}
	g, err := granted(ctx, ses, p)
	if trust.ReasonOf(err) == trust.ReasonNotGranted {
		return Admission{}, otherName(ctx, ses, p, err)
	}
	if err != nil {
		return Admission{}, err
	}
	if g.Kind == trust.KindManaged {
		return Admission{}, trust.Deny(wire.CodePermissionDenied, trust.ReasonNotGranted,
			"%q is an agent that a supervisor runs, and nobody signs in as it; act under a name of your own", p)
	}
	return admit(ctx, ses, g, req.View, req.Scope)
}

// AdmitAgent decides the same for a managed agent, which proves the secret of its last start. Whatever is wrong before that
// proof is one error, so that nobody learns which agents exist.
//
// Errors: unauthenticated with reason actor-token-refused; then those of [Authority.AdmitPerson].
func (a *Authority) AdmitAgent(ctx context.Context, s wire.Space, req AgentRequest) (Admission, error) {
	ses, err := a.session(ctx, s)
	if err != nil {
		return Admission{}, fmt.Errorf("admit agent: %w", err)
	}
	g, _, err := ses.grants.Get(ctx, wire.Principal{Owner: req.Owner, Actor: req.Actor})
	if err != nil && !errors.Is(err, wire.ErrNotFound) && !errors.Is(err, wire.ErrBadRequest) {
		return Admission{}, fmt.Errorf("admit agent: %w", err)
	}
	want := g.TokenHash
	if want == "" {
		want = strings.Repeat("0", 2*sha256.Size)
	}
	same := subtle.ConstantTimeCompare([]byte(tokenHash(req.Token)), []byte(want)) == 1
	if err != nil || !same || g.TokenHash == "" || g.Kind != trust.KindManaged {
		return Admission{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonActorToken,
			"no such agent, or not the secret of its last start; its supervisor starts it again with a new one")
	}
	if g.Owner == wire.LocalOwner {
		return Admission{}, ofFiles(g.Principal(), trust.ReasonRevoked)
	}
	return admit(ctx, ses, g, trust.ViewNone, req.Scope)
}

func tokenHash(token []byte) string {
	sum := sha256.Sum256(token)
	return hex.EncodeToString(sum[:])
}

// onlyActor returns the one actor that a person can sign in as, or could until the grant was taken away.
func onlyActor(ctx context.Context, ses *session, owner string) (string, error) {
	all, err := ses.grants.OfOwner(ctx, owner)
	if err != nil {
		return "", fmt.Errorf("look for the actors of %q: %w", owner, err)
	}
	var names, ended []string
	for _, g := range all {
		switch {
		case g.Kind == trust.KindManaged:
		case g.State == trust.GrantActive:
			names = append(names, g.Actor)
		default:
			ended = append(ended, g.Actor)
		}
	}
	slices.Sort(names)
	if len(names) == 0 && len(ended) == 1 {
		names = ended // why it is over says more than that there is nothing
	}
	switch len(names) {
	case 0:
		return "", trust.Deny(wire.CodePermissionDenied, trust.ReasonNotGranted,
			"nobody granted %s anything in this space; ask the operator to run, with your name here in place of NAME: cotal actor grant NAME --owner %s --full",
			owner, owner)
	case 1:
		return names[0], nil
	}
	return "", trust.Deny(wire.CodeBadRequest, trust.ReasonMalformed, "you can act as %s; name one of them", strings.Join(names, ", "))
}

// otherName is the refusal of a name, with those that the person has.
func otherName(ctx context.Context, ses *session, p wire.Principal, refusal error) error {
	all, err := ses.grants.OfOwner(ctx, p.Owner)
	if err != nil {
		return refusal
	}
	var names []string
	for _, g := range all {
		if g.Kind != trust.KindManaged && g.State == trust.GrantActive {
			names = append(names, g.Actor)
		}
	}
	if len(names) == 0 {
		return refusal
	}
	slices.Sort(names)
	return trust.Deny(wire.CodePermissionDenied, trust.ReasonNotGranted,
		"nobody granted %q anything in this space; you can act as %s, or ask the operator to run: cotal actor grant %s --owner %s --full",
		p, strings.Join(names, ", "), p.Actor, p.Owner)
}

func notGranted(p wire.Principal) error {
	return trust.Deny(wire.CodePermissionDenied, trust.ReasonNotGranted,
		"nobody granted %q anything in this space; ask the operator to run: cotal actor grant %s --owner %s --full", p, p.Actor, p.Owner)
}

// granted reads a grant; that there is none is a denial.
func granted(ctx context.Context, ses *session, p wire.Principal) (trust.Grant, error) {
	g, _, err := ses.grants.Get(ctx, p)
	switch {
	case errors.Is(err, wire.ErrNotFound):
		return g, notGranted(p)
	case err != nil:
		return g, fmt.Errorf("read grant of %q: %w", p, err)
	}
	return g, nil
}

// admit checks what everybody is checked for.
func admit(ctx context.Context, ses *session, g trust.Grant, view trust.View, scope []string) (Admission, error) {
	now := time.Now()
	if err := standing(g, now); err != nil {
		return Admission{}, err
	}
	if _, err := trust.ParseView(string(view)); err != nil {
		return Admission{}, err
	}
	if scope == nil {
		scope = g.Scope
	}
	for _, e := range scope {
		if !slices.Contains(g.Scope, e) {
			return Admission{}, lacks(g, e)
		}
	}
	if needs := view.Needs(); needs != "" {
		switch {
		case g.Kind == trust.KindManaged:
			return Admission{}, trust.Deny(wire.CodePermissionDenied, trust.ReasonView, "%q is an agent, and an agent never gets the view %q", g.Principal(), view)
		case !slices.Contains(scope, needs):
			return Admission{}, lacks(g, needs)
		}
	}
	until, err := chain(ctx, ses, g, now)
	if err != nil {
		return Admission{}, err
	}
	return Admission{Grant: g, Profile: view.Profile(), View: view, Scope: slices.Clone(scope), Until: until}, nil
}

func lacks(g trust.Grant, entry string) error {
	return trust.Deny(wire.CodePermissionDenied, trust.ReasonScope, "the grant of %q does not hold the scope %.96q; ask the operator to run: %s",
		g.Principal(), entry, widening(g, trust.Excess{Scope: []string{entry}}))
}
