package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Refusal says what a renewal that took rights away did to the credentials before it.
type Refusal struct {
	// Narrowed says that it took something away, as another profile does but for admin after observer. All earlier credentials of the life
	// are refused then.
	Narrowed bool `json:"narrowed"`
	Keys     int  `json:"keys"`   // earlier credentials that the broker now refuses
	Kicked   int  `json:"kicked"` // live connections ended beyond those that the push itself ended
	// Exceeding are agents held under the grant who now hold more than it does, or all when it may start none any more: their
	// credentials are refused as well.
	Exceeding []wire.Principal `json:"exceeding,omitempty"`
}

// Renew is [Authority.Issue] with Request.Renew, and says what became of the earlier credentials.
//
// When nothing is taken away they stay good until they expire. When the new lists leave out something that the old ones
// allowed, or are of another profile, they are refused and their connections ended before the new one is handed out, with the
// proof of Revoke: the grant first, then every earlier credential of the issuance log, then the live connections. A pattern is left
// out when no single one of the new list covers it. An endpoint whose source hands out the new credential comes back with it, unless that is of
// another profile: then it has to be started again.
//
// Errors: those of Issue. The error says when the grant is narrowed and the earlier credentials are not all refused yet:
// no credential was handed out, those before it may still be in use, and any further Renew of the name finishes it.
func (a *Authority) Renew(ctx context.Context, req Request) (*trust.Credentials, Refusal, error) {
	req.Renew = true
	return a.issue(ctx, req)
}

// narrows reports whether next leaves out anything that g allows.
func narrows(g, next trust.Grant) bool {
	left := func(have, want []string) bool {
		return slices.ContainsFunc(have, func(p string) bool {
			return !wire.PatternsCover(want, p)
		})
	}
	return left(g.AllowSubscribe, next.AllowSubscribe) || left(g.AllowPublish, next.AllowPublish) ||
		slices.ContainsFunc(g.Scope, func(c string) bool { return !slices.Contains(next.Scope, c) }) ||
		g.Role != "" && g.Role != next.Role || g.Profile != next.Profile && !(g.Profile == trust.Observer && next.Profile == trust.Admin)
}

// refuseEarlier ends the credentials that were issued before the epoch g.Refusing. The log tells them apart, so that one
// that is being issued at the same time under the narrower grant is not among them; a credential that is being made under
// the wider one is either in the log or not handed out, see release.
func (a *Authority) refuseEarlier(ctx context.Context, ses *session, s wire.Space, g trust.Grant, write update) (Refusal, error) {
	out, p := Refusal{Narrowed: true}, g.Principal()
	keys, err := a.refuseKeys(ctx, ses, s, g.Lifecycle(), g.Refusing)
	if out.Keys = len(keys); err != nil {
		return out, fmt.Errorf("renew credential for %q: grant narrowed, earlier credentials not yet refused; renew it again: %w", p, err)
	}
	if len(keys) > 0 {
		rec, err := a.mint.Account(ctx, s)
		if err == nil {
			out.Kicked, err = a.ctl.EvictKeys(ctx, rec.Public, keys...)
		}
		if err != nil {
			return out, fmt.Errorf("renew credential for %q: grant narrowed and earlier credentials refused, live connections unproven; renew it again: %w", p, err)
		}
	}
	if err := a.refuseExceeding(ctx, ses, s, g, &out); err != nil {
		return out, fmt.Errorf("renew credential for %q: grant narrowed and earlier credentials refused, those of agents under it not yet; renew it again: %w", p, err)
	}
	if err := refused(ctx, ses, g, write); err != nil {
		return out, fmt.Errorf("renew credential for %q: grant narrowed and earlier credentials refused, record still says otherwise; renew it again: %w", p, err)
	}
	a.log.InfoContext(ctx, "grant narrowed, earlier credentials refused", logkey.Space, s, logkey.Principal, p.String(), logkey.Count, len(keys))
	return out, nil
}

// refused takes the mark off the grant, unless a later change has put its own there.
func refused(ctx context.Context, ses *session, g trust.Grant, write update) error {
	for {
		now, rev, err := ses.grants.Get(ctx, g.Principal())
		if err != nil || now.UID != g.UID || now.Refusing != g.Refusing {
			return err
		}
		now.Refusing = 0
		if _, err = write(ctx, now, rev); !errors.Is(err, wire.ErrConflict) || errors.Is(err, space.ErrLeaseLost) {
			return err
		}
	}
}
