package auth

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// Revocation says what a revoke did.
type Revocation struct {
	Principal wire.Principal `json:"principal"`
	Keys      int            `json:"keys"`   // credentials that the broker now refuses
	Kicked    int            `json:"kicked"` // live connections ended beyond those that the push itself ended
	// Waiting is how many direct messages waited for it, or were handed over and not handled: nobody gets them any more. It is 0
	// when an earlier Revoke that was interrupted had removed the queue.
	Waiting uint64 `json:"waiting,omitempty"`
}

// Revoke ends a principal: its grant first, so that nothing new is handed out, then every credential of the
// issuance log, then its live connections with proof, then its queues, memberships and positions. Each step can be repeated; Revoke of a
// principal whose retirement was interrupted finishes it.
//
// Errors: not-found for a name that is not granted or already retired; unavailable when the broker does not
// answer, in which case the error says which steps are done.
func (a *Authority) Revoke(ctx context.Context, s wire.Space, p wire.Principal) (Revocation, error) {
	out := Revocation{Principal: p}
	ses, err := a.session(ctx, s)
	if err != nil {
		return out, fmt.Errorf("revoke %q: nothing done: %w", p, err)
	}
	grant, rev, err := ses.grants.Get(ctx, p)
	if err != nil {
		return out, fmt.Errorf("revoke %q: nothing done: %w", p, err)
	}
	switch grant.State {
	case trust.GrantRetired:
		return out, wire.Errorf(wire.CodeNotFound, "revoke %q: already revoked in space %q", p, s)
	case trust.GrantActive:
		grant.State, grant.Epoch = trust.GrantRetiring, grant.Epoch+1
		if rev, err = ses.grants.Update(ctx, grant, rev); err != nil {
			return out, fmt.Errorf("revoke %q: nothing done: %w", p, err)
		}
	}
	refused, err := a.refuseKeys(ctx, ses, s, grant.UID, math.MaxUint64)
	if out.Keys = len(refused); err != nil {
		return out, fmt.Errorf("revoke %q: grant ended, keys not yet refused; run it again: %w", p, err)
	}
	if out.Kicked, err = a.evict(ctx, s, grant.Lifecycle()); err != nil {
		return out, fmt.Errorf("revoke %q: grant ended and keys refused, live connections unproven; run it again: %w", p, err)
	}
	if out.Waiting, err = removeLife(ctx, ses, s, grant.Lifecycle()); err != nil {
		return out, fmt.Errorf("revoke %q: access ended, queues or memberships left; run it again: %w", p, err)
	}
	grant.State = trust.GrantRetired
	if _, err = ses.grants.Update(ctx, grant, rev); err != nil {
		return out, fmt.Errorf("revoke %q: access ended, record still retiring; run it again: %w", p, err)
	}
	a.log.InfoContext(ctx, "principal revoked", logkey.Space, s, logkey.Principal, p.String(), logkey.Count, out.Keys)
	return out, nil
}

// removeLife removes what is kept for a life that ended, and returns how many direct messages waited for it. What is gone
// already is not an error.
func removeLife(ctx context.Context, ses *session, s wire.Space, l wire.Lifecycle) (waiting uint64, err error) {
	queue, err := space.InspectQueue(ctx, ses.js, wire.DirectStream(s), wire.DirectDurable(l))
	if err != nil && !errors.Is(err, wire.ErrNotFound) {
		return 0, err
	}
	waiting = queue.Held + queue.Waiting
	if err := space.RemoveDurables(ctx, ses.js, s, l); err != nil {
		return waiting, err
	}
	if err := space.NewMembers(ses.js, s).RemoveAll(ctx, l); err != nil {
		return waiting, err
	}
	return waiting, space.NewCursors(ses.js, s).RemoveAll(ctx, l)
}

// refuseKeys revokes every credential in the issuance log of uid that was made before an epoch of its grant, pushes the
// account, and returns the keys.
func (a *Authority) refuseKeys(ctx context.Context, ses *session, s wire.Space, uid wire.UID, before uint64) ([]string, error) {
	mints, err := ses.grants.Mints(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("read issuance log: %w", err)
	}
	now := time.Now()
	var keys []string
	var revs []mint.Revocation
	for _, m := range mints {
		if m.Expires.After(now) && m.Epoch < before {
			keys, revs = append(keys, m.UserKey), append(revs, mint.Revocation{UserKey: m.UserKey, Expires: m.Expires})
		}
	}
	if len(revs) > 0 {
		if _, err := a.mint.Revoke(ctx, s, revs...); err != nil {
			return nil, err
		}
	}
	return keys, a.Push(ctx, s)
}

// RevokeKey ends one credential by the public key of its user nkey (U…), whoever holds it. The grant stays.
func (a *Authority) RevokeKey(ctx context.Context, s wire.Space, userKey string) error {
	exp := time.Now().Add(trust.MaxLifetime)
	if _, err := a.mint.Revoke(ctx, s, mint.Revocation{UserKey: userKey, Expires: exp}); err != nil {
		return fmt.Errorf("revoke key %q: nothing done: %w", userKey, err)
	}
	if err := a.Push(ctx, s); err != nil {
		return fmt.Errorf("revoke key %q: recorded, not yet pushed to the broker: %w", userKey, err)
	}
	a.log.InfoContext(ctx, "key revoked", logkey.Space, s, logkey.UserKey, userKey)
	return nil
}

// Push brings the broker to the account record of s. Several processes may push at once: each pushes until what
// it pushed is what the record says, so the last record wins whatever the order of the pushes.
func (a *Authority) Push(ctx context.Context, s wire.Space) error {
	for {
		rec, err := a.mint.Account(ctx, s)
		if err != nil {
			return fmt.Errorf("push account of space %q: %w", s, err)
		}
		if err := a.ctl.PutAccount(ctx, rec.Public, rec.JWT); err != nil {
			return fmt.Errorf("push account of space %q: %w", s, err)
		}
		again, err := a.mint.Account(ctx, s)
		if err != nil {
			return fmt.Errorf("push account of space %q: %w", s, err)
		}
		if again.Version == rec.Version {
			return nil
		}
	}
}

func (a *Authority) evict(ctx context.Context, s wire.Space, l wire.Lifecycle) (int, error) {
	rec, err := a.mint.Account(ctx, s)
	if err != nil {
		return 0, err
	}
	return a.ctl.EvictTagged(ctx, rec.Public, "uid:"+string(l.UID))
}

// AddSpace creates a space: its account, pushed live, then its streams and buckets. It is idempotent, and
// completes a creation that was interrupted.
func (a *Authority) AddSpace(ctx context.Context, s wire.Space, limits *trust.Limits) error {
	if _, err := a.mint.AddSpace(ctx, s, limits); err != nil {
		return fmt.Errorf("add space %q: %w", s, err)
	}
	if err := a.Push(ctx, s); err != nil {
		return fmt.Errorf("add space %q: %w", s, err)
	}
	return a.Provision(ctx, s)
}

// Provision creates what is missing of the streams and buckets of s and verifies the rest.
func (a *Authority) Provision(ctx context.Context, s wire.Space) error {
	err := a.oneShot(ctx, s, trust.Provisioner, func(ses *session) error {
		return space.Ensure(ctx, ses.js, s, a.opts.Space)
	})
	if err != nil {
		return fmt.Errorf("provision space %q: %w", s, err)
	}
	return nil
}

// RemoveSpace removes everything of a space: streams and buckets, the account with its connections, the
// records and their seeds. It is idempotent and completes a removal that was interrupted.
func (a *Authority) RemoveSpace(ctx context.Context, s wire.Space) error {
	rec, err := a.mint.Account(ctx, s)
	if err != nil {
		return fmt.Errorf("remove space %q: %w", s, err)
	}
	a.forget(s)
	err = a.oneShot(ctx, s, trust.Teardown, func(ses *session) error { return space.Remove(ctx, ses.js, s) })
	if err != nil && !errors.Is(err, wire.ErrUnauthenticated) {
		return fmt.Errorf("remove space %q: account and records kept: %w", s, err)
	}
	token, err := a.mint.DeleteToken(ctx, s)
	if err != nil {
		return fmt.Errorf("remove space %q: streams removed, account kept: %w", s, err)
	}
	if err := a.ctl.RemoveAccount(ctx, rec.Public, token); err != nil {
		return fmt.Errorf("remove space %q: streams removed, account kept: %w", s, err)
	}
	if err := a.mint.RemoveSpace(ctx, s); err != nil {
		return fmt.Errorf("remove space %q: streams and account removed, records kept: %w", s, err)
	}
	a.log.InfoContext(ctx, "space removed", logkey.Space, s)
	return nil
}
