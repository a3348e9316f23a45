package auth

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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
	// Below are those that were held under it and are revoked with it.
	Below []wire.Principal `json:"below,omitempty"`
}

// Revoke ends a principal and everything held under it: its grant first, so that nothing new is handed out, then the grants below
// it, then every credential of their issuance logs, then their live connections with proof, then their queues, memberships and
// positions. The name is free last. Each step can be repeated; Revoke of a principal whose retirement was interrupted finishes it.
//
// Errors: not-found for a name that is not granted or already retired; unavailable when the broker does not
// answer, in which case the error says which steps are done.
func (a *Authority) Revoke(ctx context.Context, s wire.Space, p wire.Principal) (Revocation, error) {
	ses, err := a.session(ctx, s)
	if err != nil {
		return Revocation{Principal: p}, fmt.Errorf("revoke %q: nothing done: %w", p, err)
	}
	return a.revoke(ctx, ses, s, wire.Lifecycle{Principal: p}, ses.grants.Update)
}

// update replaces a grant that has a revision.
type update func(ctx context.Context, g trust.Grant, rev uint64) (uint64, error)

// revoke ends the life that l names, or with an empty uid whichever there is. That another has begun is not-found.
func (a *Authority) revoke(ctx context.Context, ses *session, s wire.Space, l wire.Lifecycle, write update) (out Revocation, err error) {
	p := l.Principal
	out.Principal = p
	grant, rev, err := begin(ctx, ses, s, l, write)
	if err != nil {
		return out, err
	}
	defer func() {
		if err != nil {
			a.audit(ctx, s, change{action: space.ActionRevoke, target: grant.Lifecycle(), err: err})
		}
	}()
	ending := []retiring{{grant, rev}}
	below, unmarked := beginBelow(ctx, ses, s, grant, write)
	if err := a.endAccess(ctx, ses, s, append(ending, below...), &out); err != nil {
		return out, err
	}
	if unmarked != nil {
		return out, fmt.Errorf("revoke %q: access ended, what is held under it not all yet; run it again: %w", p, unmarked)
	}
	for _, l := range slices.Backward(below) {
		if err := a.retire(ctx, ses, s, l, write, &out); err != nil {
			return out, fmt.Errorf("revoke %q: access ended, %q under it not yet retired; run it again: %w", p, l.grant.Principal(), err)
		}
		out.Below = append(out.Below, l.grant.Principal())
	}
	if err := a.retire(ctx, ses, s, ending[0], write, &out); err != nil {
		return out, err
	}
	a.log.InfoContext(ctx, "principal revoked", logkey.Space, s, logkey.Principal, p.String(), logkey.Count, out.Keys)
	return out, nil
}

// retiring is a grant that is marked as being retired, and its revision.
type retiring struct {
	grant trust.Grant
	rev   uint64
}

// begin marks a grant as being retired, so that nothing is handed out under it from then on. A change that somebody makes at the
// same time does not keep it from that.
func begin(ctx context.Context, ses *session, s wire.Space, l wire.Lifecycle, write update) (trust.Grant, uint64, error) {
	p := l.Principal
	for try := 1; ; try++ {
		grant, rev, err := ses.grants.Get(ctx, p)
		if err == nil && l.UID != "" && grant.UID != l.UID {
			err = wire.Errorf(wire.CodeNotFound, "it has begun another life")
		}
		if err == nil {
			grant, rev, err = mark(ctx, s, grant, rev, write)
		}
		switch {
		case err == nil:
			return grant, rev, nil
		case try < markTries && errors.Is(err, wire.ErrConflict) && !errors.Is(err, space.ErrLeaseLost):
			// Somebody changed it in between: what is there now is revoked.
		default:
			return grant, 0, fmt.Errorf("revoke %q: nothing done: %w", p, err)
		}
	}
}

func mark(ctx context.Context, s wire.Space, grant trust.Grant, rev uint64, write update) (_ trust.Grant, _ uint64, err error) {
	switch grant.State {
	case trust.GrantRetired:
		return grant, 0, wire.Errorf(wire.CodeNotFound, "already revoked in space %q", s)
	case trust.GrantActive:
		grant.State, grant.Epoch, grant.Refusing = trust.GrantRetiring, grant.Epoch+1, 0
		rev, err = write(ctx, grant, rev)
	}
	return grant, rev, err
}

// markTries is how often a grant below one that is being retired is marked anew because it changed meanwhile. Only what was begun
// before the one above it was marked can still change it.
const markTries = 5

// beginBelow marks everything held under a life that is being retired, parents before children. A name that has begun another life
// meanwhile is left alone. With an error it returns what it marked before.
func beginBelow(ctx context.Context, ses *session, s wire.Space, grant trust.Grant, write update) ([]retiring, error) {
	below, err := descendants(ctx, ses, grant)
	if err != nil {
		return nil, err
	}
	var out []retiring
	for _, child := range below {
		p := child.Principal()
		for try := 1; ; try++ {
			now, rev, err := ses.grants.Get(ctx, p)
			if err != nil {
				return out, fmt.Errorf("read grant of %q: %w", p, err)
			}
			if now.UID != child.UID || now.State == trust.GrantRetired {
				break // somebody else did
			}
			if now, rev, err = mark(ctx, s, now, rev, write); err == nil {
				out = append(out, retiring{now, rev})
				break
			}
			if try == markTries || !errors.Is(err, wire.ErrConflict) || errors.Is(err, space.ErrLeaseLost) {
				return out, fmt.Errorf("mark grant of %q: %w", p, err)
			}
		}
	}
	return out, nil
}

// endAccess refuses every credential of lives whose grants are ended, the first of them that of the principal who is revoked, and
// ends their connections, all together. Connections are ended also where credentials could not be refused, as when the account has no
// room for more revocations; who holds one can come back then, and the error says until when.
func (a *Authority) endAccess(ctx context.Context, ses *session, s wire.Space, ending []retiring, out *Revocation) error {
	p := ending[0].grant.Principal()
	lives := make([]closing, len(ending))
	var open error // why credentials are not refused
	for i, l := range ending {
		lives[i] = closing{Lifecycle: l.grant.Lifecycle()}
		keys, err := a.refuseKeys(ctx, ses, s, l.grant.Lifecycle(), math.MaxUint64)
		out.Keys += len(keys)
		if err != nil && open == nil {
			open = err
		}
	}
	kicked, err := a.closeLives(ctx, ses, s, lives)
	out.Kicked += kicked
	switch {
	case open != nil && err != nil:
		return fmt.Errorf("revoke %q: grant ended, keys not yet refused and live connections unproven; run it again: %w", p, errors.Join(open, err))
	case open != nil:
		return fmt.Errorf("revoke %q: grant ended and %s ended, but whoever holds its credentials can come back%s, until they are "+
			"refused; run it again: %w", p, counted(kicked, "connection"), lastEnd(ctx, ses, lives), open)
	case err != nil:
		return fmt.Errorf("revoke %q: grant ended and keys refused, live connections unproven; run it again: %w", p, err)
	}
	return nil
}

// lastEnd says when the last credential of some lives ends, if that can be read.
func lastEnd(ctx context.Context, ses *session, lives []closing) string {
	var end time.Time
	for _, l := range lives {
		mints, err := ses.grants.Mints(ctx, l.UID)
		if err != nil {
			return ""
		}
		for _, m := range mints {
			if !m.Connection && m.Expires.After(end) {
				end = m.Expires
			}
		}
	}
	if end.IsZero() {
		return ""
	}
	return " before " + end.UTC().Format(time.RFC3339)
}

// retire removes what is kept for a life that has no access any more, and frees its name.
func (a *Authority) retire(ctx context.Context, ses *session, s wire.Space, l retiring, write update, out *Revocation) error {
	grant := l.grant
	p := grant.Principal()
	waiting, err := removeLife(ctx, ses, s, grant.Lifecycle())
	out.Waiting += waiting
	if err != nil {
		return fmt.Errorf("revoke %q: access ended, queues or memberships left; run it again: %w", p, err)
	}
	detail := counted(out.Keys, "credential") + " refused, " + counted(out.Kicked, "connection") + " ended"
	if p != out.Principal {
		detail = fmt.Sprintf("it was held under %q, which is revoked", out.Principal)
	}
	// Before the last step: whoever finishes what was interrupted after it finds nothing that is left to do, and nothing to note.
	a.audit(ctx, s, change{action: space.ActionRevoke, target: grant.Lifecycle(), detail: detail})
	grant.State, grant.TokenHash = trust.GrantRetired, ""
	if _, err = write(ctx, grant, l.rev); errors.Is(err, wire.ErrConflict) {
		if now, _, gerr := ses.grants.Get(ctx, p); gerr == nil && (now.UID != grant.UID || now.State == trust.GrantRetired) {
			return nil // somebody else finished the same
		}
	}
	if err != nil {
		return fmt.Errorf("revoke %q: access ended, record still retiring; run it again: %w", p, err)
	}
	return nil
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

// refuseKeys revokes every credential in the issuance log of a life that was made before an epoch of its grant, pushes the
// account, and returns the keys.
func (a *Authority) refuseKeys(ctx context.Context, ses *session, s wire.Space, l wire.Lifecycle, before uint64) ([]string, error) {
	people, err := a.People(ctx, s)
	if err != nil || people && l.Owner != wire.LocalOwner {
		return nil, err // a person's log has connections alone, and may be long
	}
	mints, err := ses.grants.Mints(ctx, l.UID)
	if err != nil {
		return nil, fmt.Errorf("read issuance log: %w", err)
	}
	now := time.Now()
	var keys []string
	var revs []mint.Revocation
	for _, m := range mints {
		if m.Expires.After(now) && m.Epoch < before && !m.Connection {
			keys, revs = append(keys, m.UserKey), append(revs, mint.Revocation{UserKey: m.UserKey, Expires: m.Expires})
		}
	}
	if len(revs) == 0 && people {
		return nil, nil // nobody holds a credential that the account would have to refuse
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
	// The push ends the connection of a credential file. One that the callout let in has no JWT that the broker would look at again.
	rec, err := a.mint.Account(ctx, s)
	if err == nil {
		_, err = a.ctl.EvictKeys(ctx, rec.Public, userKey)
	}
	if err != nil {
		return fmt.Errorf("revoke key %q: refused, its connection unproven; run it again: %w", userKey, err)
	}
	a.audit(ctx, s, change{action: space.ActionRevoke, detail: "the credential with key " + userKey})
	a.log.InfoContext(ctx, "key revoked", logkey.Space, s, logkey.UserKey, userKey)
	return nil
}

// Push brings the broker to the account record of s: its account, then the one that lets people into it. Several processes may
// push at once: each pushes until what it pushed is what the record says, so the last record wins whatever the order of
// the pushes.
func (a *Authority) Push(ctx context.Context, s wire.Space) error {
	for {
		rec, err := a.mint.Account(ctx, s)
		if err != nil {
			return fmt.Errorf("push account of space %q: %w", s, err)
		}
		for _, account := range rec.Accounts() {
			if err := a.ctl.PutAccount(ctx, account.Public, account.JWT); err != nil {
				return fmt.Errorf("push account of space %q: %w", s, err)
			}
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

// AddSpace creates a space: its account, pushed live, then its streams and buckets. It is idempotent, and
// completes a creation that was interrupted.
func (a *Authority) AddSpace(ctx context.Context, s wire.Space, limits *trust.Limits) error {
	if _, err := a.mint.AddSpace(ctx, s, limits); err != nil {
		return fmt.Errorf("add space %q: %w", s, err)
	}
	if err := a.Push(ctx, s); err != nil {
		return fmt.Errorf("add space %q: %w", s, err)
	}
	if err := a.Provision(ctx, s); err != nil {
		return err
	}
	a.audit(ctx, s, change{action: space.ActionSpaceAdd})
	return nil
}

// Provision creates what is missing of the streams and buckets of s and verifies the rest.
func (a *Authority) Provision(ctx context.Context, s wire.Space) error {
	a.queues.forget(s)
	err := a.oneShot(ctx, s, trust.Provisioner, func(ses *session) error {
		return space.Ensure(ctx, ses.js, s, a.opts.Space)
	})
	if err != nil {
		return fmt.Errorf("provision space %q: %w", s, err)
	}
	return nil
}

// RemoveSpace removes everything of a space: streams and buckets, the accounts with their connections, the
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
	for _, account := range slices.Backward(rec.Accounts()) { // nobody is let in any more, then nobody is in
		if err := a.ctl.RemoveAccount(ctx, account.Public, token); err != nil {
			return fmt.Errorf("remove space %q: streams removed, account kept: %w", s, err)
		}
	}
	if err := a.mint.RemoveSpace(ctx, s); err != nil {
		return fmt.Errorf("remove space %q: streams and account removed, records kept: %w", s, err)
	}
	a.log.InfoContext(ctx, "space removed", logkey.Space, s)
	return nil
}

// counted writes a count with its noun, for people.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}
