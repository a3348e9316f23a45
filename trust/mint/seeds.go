package mint

import (
	"context"
	"errors"
	"slices"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// CheckSeeds reads every seed that is there and compares it with the records, so that a damaged one is found when a node
// starts, not when somebody needs it. A seed that is absent is no error here: the operator's identity may be kept
// elsewhere, and a key that is needed and missing is refused when it is used.
//
// Errors: failed-precondition naming the seed, never what is in it; those of [Authority.Account].
func (a *Authority) CheckSeeds(ctx context.Context) error {
	broker, _, err := a.loadBroker(ctx)
	if err != nil {
		return err
	}
	check := func(key, record string, keys ...string) error {
		s, err := a.signerOf(ctx, key)
		if errors.Is(err, secret.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return listed(s, key, record, keys)
	}
	if err := check(trust.OperatorKey, trust.BrokerKey, broker.Operator); err != nil {
		return err
	}
	for _, k := range broker.Signing {
		if err := check(trust.OperatorSigningKey(k.Public), trust.BrokerKey, k.Public); err != nil {
			return err
		}
	}
	for _, k := range broker.System.Keys {
		if err := check(trust.SystemSigningKey(k.Kind), trust.BrokerKey, broker.System.KeysOf(k.Kind)...); err != nil {
			return err
		}
	}
	for _, s := range broker.Spaces {
		if s.State == trust.SpaceRemoving {
			continue
		}
		rec, err := a.Account(ctx, s.Name)
		if errors.Is(err, wire.ErrNotFound) {
			continue // its creation was interrupted and is completed when it is added again
		}
		if err != nil {
			return err
		}
		for _, k := range rec.Keys {
			if err := check(trust.SigningKey(s.Name, k.Profile), trust.AccountKey(s.Name), rec.KeysOf(k.Profile)...); err != nil {
				return err
			}
		}
		if err := a.checkCallout(ctx, rec, check); err != nil {
			return err
		}
	}
	return nil
}

// MissingCalloutSeeds names the seeds of the callout account of a space that are neither in the store nor with Options.Signer, in a
// fixed order; none for a space without such an account. Without one of them nobody can be signed in, and no other can take its place.
//
// Errors: failed-precondition naming a seed that is damaged, never what is in it; those of [Authority.Account].
func (a *Authority) MissingCalloutSeeds(ctx context.Context, s wire.Space) ([]string, error) {
	rec, err := a.Account(ctx, s)
	if err != nil || rec.Callout == nil {
		return nil, err
	}
	var missing []string
	note := func(key string, err error) error {
		if errors.Is(err, secret.ErrNotFound) {
			missing = append(missing, key)
			return nil
		}
		return err
	}
	_, err = a.local(ctx, trust.CalloutUserKey(s))
	if err := note(trust.CalloutUserKey(s), err); err != nil {
		return nil, err
	}
	_, err = a.curve(ctx, trust.CalloutXKey(s))
	if err := note(trust.CalloutXKey(s), err); err != nil {
		return nil, err
	}
	for _, k := range rec.Callout.Keys {
		key := trust.CalloutSigningKey(s, k.Kind)
		_, err := a.signerOf(ctx, key)
		if err := note(key, err); err != nil {
			return nil, err
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing), nil
}
