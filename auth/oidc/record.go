package oidc

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/wire"
)

// PinKey names the record of the identity provider of a space.
func PinKey(s wire.Space) string {
	return "auth/space." + hex.EncodeToString([]byte(s)) + "/idp.json"
}

// EnsurePin keeps the pin of a space, which is chosen once, and returns what is kept. Endpoints, keys and algorithms stay what
// they were chosen to be, whatever p says; see [Repin].
//
// Errors: bad-request for an invalid pin; failed-precondition when another provider, client or audience is kept, or what is kept cannot be read;
// unavailable when the store does not answer.
func EnsurePin(ctx context.Context, store secret.Store, s wire.Space, p Pin) (Pin, error) {
	data, err := p.Encode()
	if err != nil {
		return Pin{}, err
	}
	if err := s.Validate(); err != nil {
		return Pin{}, err
	}
	err = store.Create(ctx, PinKey(s), data)
	if err != nil && !errors.Is(err, secret.ErrExists) {
		return Pin{}, failed(ctx, "write", s, err)
	}
	have, err := LoadPin(ctx, store, s)
	if err != nil {
		return Pin{}, err
	}
	if have.Issuer != p.Issuer || have.ClientID != p.ClientID || have.Audience != p.Audience || have.Shape != p.Shape {
		return have, wire.Errorf(wire.CodeFailedPrecondition,
			"space %q signs people in at issuer %q as client %q for audience %q, and that cannot be changed to issuer %q, client %q, audience %q: everybody would become somebody else",
			s, have.Issuer, have.ClientID, have.Audience, p.Issuer, p.ClientID, p.Audience)
	}
	return have, nil
}

// LoadPin returns the pin of a space.
//
// Errors: not-found when none is kept; failed-precondition for one that cannot be read; unavailable when the store does not
// answer.
func LoadPin(ctx context.Context, store secret.Store, s wire.Space) (Pin, error) {
	if err := s.Validate(); err != nil {
		return Pin{}, err
	}
	data, err := store.Get(ctx, PinKey(s))
	if err != nil {
		return Pin{}, failed(ctx, "read", s, err)
	}
	p, err := DecodePin(data)
	if err != nil {
		return Pin{}, wire.Errorf(wire.CodeFailedPrecondition, "read record %q: %v; restore it from a backup", PinKey(s), err)
	}
	return p, nil
}

// Repin replaces the pin of a space by another one of the same issuer, client and audience: the provider moved its endpoints
// or changed its algorithms.
//
// Errors: those of EnsurePin; conflict when somebody else replaced it meanwhile.
func Repin(ctx context.Context, store secret.Store, s wire.Space, p Pin) error {
	data, err := p.Encode()
	if err != nil {
		return err
	}
	old, err := store.Get(ctx, PinKey(s))
	if err != nil {
		return failed(ctx, "read", s, err)
	}
	have, err := DecodePin(old)
	if err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "read record %q: %v; restore it from a backup", PinKey(s), err)
	}
	if have.Issuer != p.Issuer || have.ClientID != p.ClientID || have.Audience != p.Audience {
		return wire.Errorf(wire.CodeFailedPrecondition, "space %q signs people in at issuer %q for audience %q, which cannot be changed", s, have.Issuer, have.Audience)
	}
	err = store.CompareAndSwap(ctx, PinKey(s), old, data)
	if errors.Is(err, secret.ErrConflict) {
		return wire.Errorf(wire.CodeConflict, "record %q was changed by somebody else", PinKey(s))
	}
	if err != nil {
		return failed(ctx, "write", s, err)
	}
	return nil
}

// failed says what the store refused. Absence and the end of the context keep their own error.
func failed(ctx context.Context, verb string, s wire.Space, err error) error {
	switch {
	case errors.Is(err, secret.ErrNotFound):
		return wire.Errorf(wire.CodeNotFound, "%s record %q: %w", verb, PinKey(s), err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s record %q: %w", verb, PinKey(s), err)
	}
	return wire.Errorf(wire.CodeUnavailable, "%s record %q: %w", verb, PinKey(s), err)
}
