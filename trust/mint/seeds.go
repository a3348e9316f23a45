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
	check := func(key, record string, listed ...string) error {
		switch s, err := a.signerOf(ctx, key); {
		case errors.Is(err, secret.ErrNotFound):
			return nil
		case err != nil:
			return err
		case !slices.Contains(listed, s.Public()):
			return wire.Errorf(wire.CodeFailedPrecondition, "seed %q is not of a key that record %q lists; restore it from a backup or rotate the key", key, record)
		}
		return nil
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
	}
	return nil
}
