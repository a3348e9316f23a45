package mint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Options adjusts an [Authority]. Nil and the zero value work: every seed is in the store.
type Options struct {
	// Signer returns the signer of a key that is kept elsewhere: in another process, another store, a vault. It is
	// asked by the name that the seed would have in the store (trust.OperatorKey, trust.SigningKey and so on)
	// and returns nil, nil for a key it does not keep. Keys that it keeps are never generated and never deleted.
	Signer func(ctx context.Context, key string) (signer.Signer, error)
}

// Authority makes trust. Get one from [Init] or [Open].
type Authority struct {
	store    secret.Store
	external func(ctx context.Context, key string) (signer.Signer, error)
	known    decoded
	recent   recent
}

// Open returns the authority over existing records.
//
// Errors: not-found when the store holds no broker record; failed-precondition when it holds one that cannot be
// trusted; unavailable when the store does not answer. It panics when store is nil.
func Open(ctx context.Context, store secret.Store, opts *Options) (*Authority, error) {
	a := newAuthority(store, opts)
	if _, _, err := a.loadBroker(ctx); err != nil {
		return nil, fmt.Errorf("open trust records: %w", err)
	}
	return a, nil
}

// Init returns the authority over the records of store and makes the operator and the system account if there are
// none. It completes what an interrupted Init, and an interrupted [Authority.RemoveSpace], left behind, and renews the
// system account when it is older than the kinds and templates of this build: give the broker [Authority.SystemJWT] then.
//
// Errors are those of [Open], but for not-found; failed-precondition also when accounts are there without their broker
// record, because a new operator would cut them all off.
func Init(ctx context.Context, store secret.Store, opts *Options) (*Authority, error) {
	a := newAuthority(store, opts)
	broker, _, err := a.loadBroker(ctx)
	if errors.Is(err, wire.ErrNotFound) {
		broker, err = a.create(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("initialise trust records: %w", err)
	}
	if err := a.completeSystem(ctx); err != nil {
		return nil, fmt.Errorf("initialise trust records: %w", err)
	}
	for _, s := range broker.Spaces {
		if s.State != trust.SpaceRemoving {
			continue
		}
		if err := a.finishRemoval(ctx, s.Name); err != nil {
			return nil, fmt.Errorf("initialise trust records: %w", err)
		}
	}
	return a, nil
}

func newAuthority(store secret.Store, opts *Options) *Authority {
	if store == nil {
		panic("mint: a secret store is required")
	}
	a := &Authority{store: store}
	if opts != nil {
		a.external = opts.Signer
	}
	return a
}

// create makes the operator with two signing keys and the system account. Of two processes that do so at the same
// time one wins; the other removes what only it would have used.
func (a *Authority) create(ctx context.Context) (trust.BrokerRecord, error) {
	if err := a.refuseOrphans(ctx); err != nil {
		return trust.BrokerRecord{}, err
	}
	identity, err := a.ensureSigner(ctx, trust.OperatorKey, signer.Operator)
	if err != nil {
		return trust.BrokerRecord{}, err
	}
	rec := trust.BrokerRecord{Ver: trust.RecordVersion, Generation: 1, Operator: identity.Public()}
	for _, state := range []trust.OperatorKeyState{trust.KeyCurrent, trust.KeyNext} {
		key, err := a.newOperatorKey(ctx, state)
		if err != nil {
			return trust.BrokerRecord{}, err
		}
		rec.Signing = append(rec.Signing, key)
	}
	if err := a.createSystem(ctx, &rec); err != nil {
		return trust.BrokerRecord{}, err
	}
	if err := a.signOperator(ctx, &rec); err != nil {
		return trust.BrokerRecord{}, err
	}
	data, err := rec.Encode()
	if err != nil {
		return trust.BrokerRecord{}, err
	}
	err = a.store.Create(ctx, trust.BrokerKey, data)
	if errors.Is(err, secret.ErrExists) {
		a.forgetOperatorKeys(ctx, rec.Signing)
		err = nil
	}
	if err != nil {
		return trust.BrokerRecord{}, storeError("create record", trust.BrokerKey, err)
	}
	rec, _, err = a.loadBroker(ctx)
	return rec, err
}

// refuseOrphans looks for accounts without a broker record, as far as the store can list.
func (a *Authority) refuseOrphans(ctx context.Context) error {
	lister, ok := a.store.(secret.Lister)
	if !ok {
		return nil
	}
	keys, err := lister.List(ctx, trust.AccountPrefix)
	if err != nil {
		return storeError("list records", trust.AccountPrefix, err)
	}
	if len(keys) > 0 {
		return wire.Errorf(wire.CodeFailedPrecondition, "record %q is missing while record %q and %d others are there; restore it from a backup",
			trust.BrokerKey, keys[0], len(keys)-1)
	}
	return nil
}

func (a *Authority) createSystem(ctx context.Context, rec *trust.BrokerRecord) error {
	public, err := discardedAccount()
	if err != nil {
		return err
	}
	rec.System = trust.SystemRecord{Public: public, Version: 1}
	if err := a.addMissingSystemKeys(ctx, rec); err != nil {
		return err
	}
	return a.signSystem(ctx, rec)
}

// addMissingSystemKeys lists a key for every kind that has none.
func (a *Authority) addMissingSystemKeys(ctx context.Context, rec *trust.BrokerRecord) error {
	for _, kind := range trust.SystemKinds() {
		if len(rec.System.KeysOf(kind)) > 0 {
			continue
		}
		key, err := a.ensureSigner(ctx, trust.SystemSigningKey(kind), signer.Account)
		if err != nil {
			return err
		}
		rec.System.Keys = append(rec.System.Keys, trust.SystemKeyRecord{Kind: kind, Public: key.Public(), Created: now()})
	}
	return nil
}

// completeSystem brings the system account up to this build. One that is current is left as it is.
func (a *Authority) completeSystem(ctx context.Context) error {
	_, err := a.updateBroker(ctx, func(ctx context.Context, rec *trust.BrokerRecord) error {
		if err := a.addMissingSystemKeys(ctx, rec); err != nil {
			return err
		}
		if systemCurrent(rec.System) {
			return nil
		}
		rec.System.Version++
		return a.signSystem(ctx, rec)
	})
	return err
}

// discardedAccount returns the public key of an account whose seed nobody has.
func discardedAccount() (string, error) {
	key, err := signer.Generate(signer.Account)
	if err != nil {
		return "", wire.Errorf(wire.CodeInternal, "%w", err)
	}
	return key.Public(), nil
}

// OperatorJWT returns the operator JWT as last read. A broker configured with it trusts the current and the next
// operator signing key.
func (a *Authority) OperatorJWT() string { return a.known.newest().OperatorJWT }

// SystemPublic returns the public key of the system account.
func (a *Authority) SystemPublic() string { return a.known.newest().System.Public }

// SystemJWT returns the JWT of the system account as last read.
func (a *Authority) SystemJWT() string { return a.known.newest().System.JWT }

// Broker returns the broker record as it is now.
func (a *Authority) Broker(ctx context.Context) (trust.BrokerRecord, error) {
	rec, _, err := a.loadBroker(ctx)
	rec.Signing, rec.Spaces, rec.System.Keys = slices.Clone(rec.Signing), slices.Clone(rec.Spaces), slices.Clone(rec.System.Keys)
	return rec, err
}

// now is the time as records keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// userKey makes the key of a new credential.
func userKey() (*signer.Local, error) {
	key, err := signer.Generate(signer.User)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "%w", err)
	}
	return key, nil
}

func validUserKey(key string) bool { return key == trust.AllUsers || nkeys.IsValidPublicUserKey(key) }
