package mint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// signerOf returns the signer of a key: the external one, or the one of the seed in the store.
func (a *Authority) signerOf(ctx context.Context, key string) (signer.Signer, error) {
	s, err := a.externalSigner(ctx, key)
	if err != nil || s != nil {
		return s, err
	}
	local, err := a.local(ctx, key)
	if err != nil {
		return nil, err
	}
	return local, nil
}

// local returns the signer of the seed in the store.
func (a *Authority) local(ctx context.Context, key string) (*signer.Local, error) {
	seed, err := a.store.Get(ctx, key)
	if err != nil {
		return nil, storeError("read seed", key, err)
	}
	return parseSeed(key, seed)
}

func parseSeed(key string, seed []byte) (*signer.Local, error) {
	local, err := signer.FromSeed(signer.NewSeed(seed))
	if err != nil {
		return nil, unreadableSeed(key)
	}
	return local, nil
}

func unreadableSeed(key string) error {
	return wire.Errorf(wire.CodeFailedPrecondition, "read seed %q: it is not a seed; restore it from a backup or rotate the key", key)
}

func (a *Authority) externalSigner(ctx context.Context, key string) (signer.Signer, error) {
	if a.external == nil {
		return nil, nil
	}
	s, err := a.external(ctx, key)
	if err != nil {
		return nil, wire.Errorf(wire.CodeUnavailable, "find signer of %q: %w", key, err)
	}
	return s, nil
}

// ensureSigner is signerOf that makes the key when nobody has it.
func (a *Authority) ensureSigner(ctx context.Context, key string, kind signer.Kind) (signer.Signer, error) {
	s, err := a.externalSigner(ctx, key)
	if err != nil || s != nil {
		return s, err
	}
	local, err := a.ensureLocal(ctx, key, kind)
	if err != nil {
		return nil, err
	}
	return local, nil
}

// ensureLocal is local that makes the key when there is none.
func (a *Authority) ensureLocal(ctx context.Context, key string, kind signer.Kind) (*signer.Local, error) {
	s, err := a.local(ctx, key)
	if !errors.Is(err, secret.ErrNotFound) {
		return s, err
	}
	fresh, err := signer.Generate(kind)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "%w", err)
	}
	err = a.store.Create(ctx, key, fresh.Seed().Reveal())
	if errors.Is(err, secret.ErrExists) {
		return a.local(ctx, key)
	}
	if err != nil {
		return nil, storeError("create seed", key, err)
	}
	return fresh, nil
}

// newOperatorKey makes an operator signing key. Its seed is in the store before a record names it.
func (a *Authority) newOperatorKey(ctx context.Context, state trust.OperatorKeyState) (trust.OperatorKeyRecord, error) {
	fresh, err := signer.Generate(signer.Operator)
	if err != nil {
		return trust.OperatorKeyRecord{}, wire.Errorf(wire.CodeInternal, "%w", err)
	}
	key := trust.OperatorSigningKey(fresh.Public())
	if err := a.store.Create(ctx, key, fresh.Seed().Reveal()); err != nil {
		return trust.OperatorKeyRecord{}, storeError("create seed", key, err)
	}
	return trust.OperatorKeyRecord{Public: fresh.Public(), State: state, Created: now()}, nil
}

// forgetOperatorKeys removes seeds that no record names. What cannot be removed now stays unused.
func (a *Authority) forgetOperatorKeys(ctx context.Context, keys []trust.OperatorKeyRecord) {
	for _, k := range keys {
		_ = a.store.Delete(context.WithoutCancel(ctx), trust.OperatorSigningKey(k.Public))
	}
}

// profileSigner returns the signer that makes credentials under one of the listed public keys.
func (a *Authority) profileSigner(ctx context.Context, key, record string, keys []string) (signer.Signer, error) {
	s, err := a.signerOf(ctx, key)
	if err != nil {
		return nil, needed(key, err)
	}
	return s, listed(s, key, record, keys)
}

// listed refuses a signer of which a record knows nothing.
func listed(s signer.Signer, key, record string, keys []string) error {
	if !slices.Contains(keys, s.Public()) {
		return foreignSeed(key, record)
	}
	return nil
}

// foreignSeed says that a seed is there and belongs to nothing that a record lists.
func foreignSeed(key, record string) error {
	return wire.Errorf(wire.CodeFailedPrecondition, "seed %q is not of a key that record %q lists; restore it from a backup or rotate the key", key, record)
}

// needed says that a seed which is absent cannot be done without; other errors stay what they are.
func needed(key string, err error) error {
	if errors.Is(err, secret.ErrNotFound) {
		return wire.Errorf(wire.CodeFailedPrecondition, "seed %q is missing; restore it from a backup or rotate the key", key)
	}
	return err
}

// checkKind refuses a signer of another kind before anything is signed with it.
func checkKind(s signer.Signer, prefix nkeys.PrefixByte) error {
	if nkeys.Prefix(s.Public()) != prefix {
		return wire.Errorf(wire.CodeFailedPrecondition, "signer %.8s… is not of the kind that is needed", s.Public())
	}
	return nil
}

// storeError says what a store refused. Absence keeps its sentinel, the end of the context too; anything else means the
// store did not answer.
func storeError(verb, key string, err error) error {
	switch {
	case errors.Is(err, secret.ErrNotFound):
		return wire.Errorf(wire.CodeNotFound, "%s %q: %w", verb, key, secret.ErrNotFound)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s %q: %w", verb, key, err)
	}
	return wire.Errorf(wire.CodeUnavailable, "%s %q: %w", verb, key, err)
}
