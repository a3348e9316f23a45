package auth

import (
	"context"
	"fmt"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// RotateKey gives a profile of a space a new signing key, live: the broker knows it before anything is signed with it,
// and what the old keys signed goes on until [Authority.RetireKeys].
//
// Errors: resource-exhausted when eight keys are valid already; not-found for an unknown space; unavailable when the
// broker does not take the account, in which case the old key stays in use.
func (a *Authority) RotateKey(ctx context.Context, s wire.Space, p trust.Profile) error {
	_, err := a.mint.RotateSigningKey(ctx, s, p, func(ctx context.Context, _ trust.AccountRecord) error { return a.Push(ctx, s) })
	if err != nil {
		return err
	}
	a.audit(ctx, s, change{action: space.ActionRotate, detail: fmt.Sprintf("signing key of profile %s", p)})
	a.log.InfoContext(ctx, "signing key rotated", logkey.Space, s, logkey.Profile, string(p))
	return nil
}

// RetireKeys takes the old signing keys of a profile out of the account. Every credential that they signed is refused from
// then on and its connections end. It returns how many keys went.
func (a *Authority) RetireKeys(ctx context.Context, s wire.Space, p trust.Profile) (int, error) {
	rec, err := a.mint.Account(ctx, s)
	if err != nil {
		return 0, fmt.Errorf("retire keys of profile %q: %w", p, err)
	}
	keys := rec.KeysOf(p)
	gone := 0
	for _, old := range keys[:max(0, len(keys)-1)] { // the last one listed is the one that signs
		if _, err := a.mint.RetireSigningKey(ctx, s, old); err != nil {
			return gone, err
		}
		gone++
	}
	if gone > 0 {
		a.audit(ctx, s, change{action: space.ActionRotate, detail: fmt.Sprintf("%d old signing keys of profile %s retired", gone, p)})
		a.log.InfoContext(ctx, "signing keys retired", logkey.Space, s, logkey.Profile, string(p), logkey.Count, gone)
	}
	return gone, a.Push(ctx, s)
}

// renewer is a Control whose credential can be replaced on demand; *broker.Control is one.
type renewer interface {
	Renew(ctx context.Context) error
}

// RotateSystem gives the kinds of system credentials new signing keys, live. RetireSystem ends what the old ones signed.
func (a *Authority) RotateSystem(ctx context.Context) error {
	return a.mint.RotateSystem(ctx, a.ctl.PutAccount)
}

// RetireSystem takes the old signing keys of the system account out of it. The connections of running roles end and come
// back with credentials of the new keys.
func (a *Authority) RetireSystem(ctx context.Context) error {
	if r, ok := a.ctl.(renewer); ok { // else the push would cut the connection that it is made on
		if err := r.Renew(ctx); err != nil {
			return fmt.Errorf("retire keys of the system account: nothing done: %w", err)
		}
	}
	public, jwt, err := a.mint.RetireSystem(ctx)
	if err != nil {
		return err
	}
	if err := a.ctl.PutAccount(ctx, public, jwt); err != nil {
		return fmt.Errorf("retire keys of the system account: recorded, not yet pushed: %w", err)
	}
	return nil
}

// RotateOperatorKey signs every account with the operator's next signing key, which brokers trust already, and pushes
// them. The operator JWT of the records then names the key after it; a broker learns that at its next start.
func (a *Authority) RotateOperatorKey(ctx context.Context) error {
	if err := a.mint.RotateOperatorKey(ctx); err != nil {
		return err
	}
	spaces, err := a.mint.Spaces(ctx)
	if err != nil {
		return fmt.Errorf("rotate operator key: rotated, accounts not yet pushed: %w", err)
	}
	for _, s := range spaces {
		if err := a.Push(ctx, s); err != nil {
			return fmt.Errorf("rotate operator key: rotated, accounts not all pushed: %w", err)
		}
		a.audit(ctx, s, change{action: space.ActionRotate, detail: "operator signing key"})
	}
	if err := a.ctl.PutAccount(ctx, a.mint.SystemPublic(), a.mint.SystemJWT()); err != nil {
		return fmt.Errorf("rotate operator key: rotated, system account not yet pushed: %w", err)
	}
	return nil
}
