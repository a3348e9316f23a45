package bearer

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// KeySource knows the public keys of the issuer of one space. [Keys] does from its record, [KeySet] from what was published.
type KeySource interface {
	// Cached answers from memory, at once: the key published as kid, or nil. With nil, final says whether there is no such
	// key; if not, Key may find it.
	Cached(kid string) (public ed25519.PublicKey, final bool)
	// Key returns the key published as kid, or nil when there is none. It may wait for a store. An error says that the keys
	// are not to be had.
	Key(ctx context.Context, kid string) (ed25519.PublicKey, error)
}

// Cached implements [KeySource].
func (s *KeySet) Cached(kid string) (public ed25519.PublicKey, final bool) { return s.keys[kid], true }

// Key implements [KeySource].
func (s *KeySet) Key(_ context.Context, kid string) (ed25519.PublicKey, error) {
	return s.keys[kid], nil
}

// Options of a [Validator].
type Options struct {
	// MaxLife is the longest life of a bearer that is accepted: at most [MaxHumanLife], which is the default.
	MaxLife time.Duration
}

// Validator checks the bearers of one space. It is safe for concurrent use.
type Validator struct {
	space wire.Space
	keys  KeySource
	life  time.Duration
}

// NewValidator returns the validator of a space. It panics without a source of keys, and for options outside their limits.
func NewValidator(s wire.Space, keys KeySource, o *Options) *Validator {
	v := &Validator{space: s, keys: keys, life: MaxHumanLife}
	if o != nil && o.MaxLife != 0 {
		v.life = o.MaxLife
	}
	if keys == nil || s.Validate() != nil || v.life < time.Second || v.life > MaxHumanLife {
		panic("bearer: a validator needs a space, a source of keys and a longest life of 1s to 15m")
	}
	return v
}

// Peek makes the checks that need no signature: size, form, algorithm, a kid that is known, not expired. It waits for
// nothing and costs an eighth of [Validator.Validate], so that a server under a storm of dead bearers can say no early. What it
// returns is nobody's word; a bearer that it lets pass is still to be validated.
//
// Errors: as of Validate.
func (v *Validator) Peek(token string) (kid string, exp time.Time, err error) {
	t, kid, err := open(token)
	if err != nil {
		return "", time.Time{}, err
	}
	if public, final := v.keys.Cached(kid); public == nil && final {
		return "", time.Time{}, unknownKey(kid)
	}
	var p struct {
		Expires int64 `json:"exp"`
	}
	if wire.Decode(t.payload, &p, MaxToken) != nil {
		return "", time.Time{}, malformedClaims()
	}
	if err := checkEnd(p.Expires, time.Now()); err != nil {
		return "", time.Time{}, err
	}
	return kid, time.Unix(p.Expires, 0).UTC(), nil
}

// Validate checks a bearer: signed by a key of the space's issuer with EdDSA and by nothing the token brought itself; issued
// by this space for this space alone; begun, not ended, and of no longer life than allowed; of closed claims in which the
// subject acts for itself, for one life at one epoch, with an inbox that is its own.
//
// Errors: unauthenticated or expired with a reason of package trust; unavailable when the keys cannot be read.
func (v *Validator) Validate(ctx context.Context, token string) (Claims, error) {
	t, kid, err := open(token)
	if err != nil {
		return Claims{}, err
	}
	key, err := v.keys.Key(ctx, kid)
	if err != nil {
		return Claims{}, err
	}
	if key == nil {
		return Claims{}, unknownKey(kid)
	}
	var p payload
	if !decodeClosed(t.payload, &p, MaxToken) {
		return Claims{}, malformedClaims()
	}
	if err := p.checkTime(time.Now(), v.life); err != nil { // before the costly part
		return Claims{}, err
	}
	if !t.verify(key) {
		return Claims{}, deny(trust.ReasonSignature, "check bearer: its signature is not of key %q", kid)
	}
	return p.claims(v.space)
}

// open takes a bearer apart and reads its header.
func open(token string) (compact, string, error) {
	t, ok := parse(token, MaxToken)
	if !ok {
		return compact{}, "", deny(trust.ReasonMalformed, "check bearer: not a signed token of at most %d bytes", MaxToken)
	}
	kid, err := kidOf(t.header)
	return t, kid, err
}

func unknownKey(kid string) error {
	return deny(trust.ReasonSignature, "check bearer: key %q is none of this space's issuer; get a new bearer from the exchange", kid)
}

func malformedClaims() error {
	return deny(trust.ReasonMalformed, "check bearer: its claims are not those of a bearer; get one from the exchange of this space")
}
