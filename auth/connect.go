package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// Connect decides about one connection under a bearer, and returns the user JWT that the broker gives it. The connection is
// written to the issuance log before the grant is read: whoever changes the grant after that finds it there, waits until the
// broker cannot admit it any more, and ends it. So no connection outlives a change that it was decided before.
//
// Errors, with their reason: those of [Authority.AdmitPerson]; permission-denied with grant-changed for a bearer of an earlier
// life or epoch; conflict with replayed for a key that is in the log already; expired; resource-exhausted with too-many-requests
// for a life that connects more often than 600 times at once and 5 times a second.
func (a *Authority) Connect(ctx context.Context, s wire.Space, req ConnectRequest) (string, Admission, error) {
	if wait := a.pace.take(req.UID, time.Now()); wait > 0 {
		return "", Admission{}, trust.Deny(wire.CodeResourceExhausted, trust.ReasonTooMany, "%q connects too often; connect again in %s",
			req.Principal, wait.Round(time.Millisecond))
	}
	ses, err := a.session(ctx, s)
	if err != nil {
		return "", Admission{}, fmt.Errorf("decide about connection of %q: %w", req.Principal, err)
	}
	err = ses.grants.LogMint(ctx, req.UID, space.Mint{UserKey: req.UserKey, Epoch: req.Epoch, Expires: req.Expires, Connection: true})
	switch {
	case errors.Is(err, wire.ErrExists):
		return "", Admission{}, trust.Deny(wire.CodeConflict, trust.ReasonReplayed, "the key of this connection was used before; connect again")
	case errors.Is(err, wire.ErrExpired):
		return "", Admission{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonExpired, "the token expired; ask the exchange for another")
	case err != nil:
		return "", Admission{}, fmt.Errorf("decide about connection of %q: %w", req.Principal, err)
	}
	g, err := granted(ctx, ses, req.Principal)
	if err != nil {
		return "", Admission{}, err
	}
	if g.UID != req.UID || g.Epoch != req.Epoch {
		if err := standing(g, time.Now()); err != nil && g.UID == req.UID {
			return "", Admission{Grant: g}, err
		}
		return "", Admission{Grant: g}, trust.Deny(wire.CodePermissionDenied, trust.ReasonSuperseded,
			"the grant of %q changed after this token was made; ask the exchange for another", req.Principal)
	}
	adm, err := admit(ctx, ses, g, req.View, nonNil(req.Scope))
	if err != nil {
		return "", Admission{Grant: g}, err
	}
	if adm.Profile == trust.Agent {
		if err := a.queues.ensure(ctx, ses, s, adm.Grant); err != nil {
			return "", adm, err
		}
	}
	expires := req.Expires
	if !adm.Until.IsZero() && adm.Until.Before(expires) {
		expires = adm.Until
	}
	token, err := a.mint.ConnectionJWT(ctx, s, mint.ConnectionRequest{UserRequest: userOf(s, adm), UserKey: req.UserKey, Expires: expires})
	if err != nil {
		return "", adm, fmt.Errorf("sign connection of %q: %w", req.Principal, err)
	}
	return token, adm, nil
}

// userOf is what a connection is made of. A view brings its profile's rights and none of the grant's lists, but for those
// that profiles with lists have.
func userOf(s wire.Space, adm Admission) mint.UserRequest {
	g := adm.Grant
	out := mint.UserRequest{Space: s, Profile: adm.Profile, Principal: g.Principal(), UID: g.UID}
	if adm.Profile == trust.Agent {
		out.Role, out.Subscribe, out.Publish, out.Commands = g.Role, g.AllowSubscribe, g.AllowPublish, trust.ScopeCommands(adm.Scope)
		out.Spawns = trust.Spawns(adm.Scope)
	}
	return out
}

// nonNil keeps the scope of a token that has none from meaning "all of the grant's".
func nonNil(scope []string) []string {
	if scope == nil {
		return []string{}
	}
	return scope
}
