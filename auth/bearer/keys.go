package bearer

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Times of the key ring. Together they see to it that whoever reads the published set at least every [JWKSMaxAge] knows every
// key before it signs, and until the last bearer that it signed has ended.
const (
	// JWKSMaxAge is how long a published key set may be cached, and how old what [Keys] holds may become while its store
	// does not answer.
	JWKSMaxAge = 300 * time.Second
	// KeepRetired is how long a key stays published after it signed last.
	KeepRetired = MaxHumanLife + JWKSMaxAge + 60*time.Second
	// MinPublished is how long a key is published before it signs.
	MinPublished = JWKSMaxAge + 60*time.Second

	refreshEvery = 30 * time.Second // as often is the record read again when keys are asked for
	refreshPause = 5 * time.Second  // and as often at most for a kid that is not known, or a store that fails
	readTimeout  = 2 * time.Second  // for one such reading
)

// KeysKey names the record of the keys that sign the bearers of a space.
func KeysKey(s wire.Space) string {
	return "auth/space." + hex.EncodeToString([]byte(s)) + "/issuer.json"
}

// key is one key of a ring; its private half is in a closure.
type key struct {
	id        string
	public    ed25519.PublicKey
	protected string // the header of what it signs
	sign      func(signed []byte) ([]byte, error)
}

// ring is the record of one moment, checked.
type ring struct {
	keys []*key // the first one signs
	byID map[string]*key
	read time.Time
}

// Keys are the keys that sign the bearers of one space. They follow the record: what is asked of them rests on a record that
// was read within the last 30 s, or within [JWKSMaxAge] while the store does not answer. Printing them shows no key.
type Keys struct {
	store secret.Store
	space wire.Space
	now   atomic.Pointer[ring]

	reading chan struct{} // holds one value while the record is read; guards tried
	tried   time.Time     // when the store failed last
}

var _ KeySource = (*Keys)(nil)

// EnsureKeys returns the keys of a space and makes them if there is no record yet: one that signs, and one to follow it. Of
// several callers at once all get those that were written. What is there is never replaced.
//
// Errors: as of [LoadKeys], but for not-found.
func EnsureKeys(ctx context.Context, store secret.Store, s wire.Space) (*Keys, error) {
	keys, err := LoadKeys(ctx, store, s)
	if !errors.Is(err, secret.ErrNotFound) {
		return keys, err
	}
	rec, err := newRing(s)
	if err != nil {
		return nil, err
	}
	data, err := rec.encode(s)
	if err != nil {
		return nil, err
	}
	if err := store.Create(ctx, KeysKey(s), data); err != nil && !errors.Is(err, secret.ErrExists) {
		return nil, storeFailed(ctx, "write", s, err)
	}
	return LoadKeys(ctx, store, s)
}

// LoadKeys returns the keys of a space.
//
// Errors: bad-request for what is no space; not-found when there is no record; unavailable when the store does not answer;
// failed-precondition for a record that is damaged, of another space or not of this build, naming the record and nothing of
// its content.
func LoadKeys(ctx context.Context, store secret.Store, s wire.Space) (*Keys, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	k := &Keys{store: store, space: s, reading: make(chan struct{}, 1)}
	r, err := k.load(ctx)
	if err != nil {
		return nil, err
	}
	k.now.Store(r)
	return k, nil
}

func (k *Keys) load(ctx context.Context) (*ring, error) {
	read := time.Now() // before the read: what it finds is at least this new
	data, err := k.store.Get(ctx, KeysKey(k.space))
	if err != nil {
		return nil, storeFailed(ctx, "read", k.space, err)
	}
	_, r, err := decodeRing(data, k.space)
	if err != nil {
		return nil, err
	}
	r.read = read
	return r, nil
}

// current returns a ring of at most the given age if one can be had without hammering the store, else one that is still
// usable.
func (k *Keys) current(ctx context.Context, age time.Duration) (*ring, error) {
	r := k.now.Load()
	if time.Since(r.read) < age {
		return r, nil
	}
	select {
	case k.reading <- struct{}{}:
	default: // somebody reads it already: do not wait if what is here will do
		if time.Since(r.read) < JWKSMaxAge {
			return r, nil
		}
		select {
		case k.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("read record %q: %w", KeysKey(k.space), ctx.Err())
		}
	}
	defer func() { <-k.reading }()
	return k.refresh(ctx, age)
}

// refresh is called by one goroutine at a time.
func (k *Keys) refresh(ctx context.Context, age time.Duration) (*ring, error) {
	r, now := k.now.Load(), time.Now()
	usable, paused := now.Sub(r.read) < JWKSMaxAge, now.Sub(k.tried) < refreshPause
	switch {
	case now.Sub(r.read) < age, usable && paused:
		return r, nil
	case paused:
		return nil, k.away(errors.New("the store did not answer a moment ago"))
	}
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	fresh, err := k.load(limited)
	if err == nil {
		k.now.Store(fresh)
		return fresh, nil
	}
	if ctx.Err() == nil { // a caller that gave up says nothing about the store
		k.tried = now
	}
	if usable {
		return r, nil
	}
	return nil, k.away(err)
}

// away is the refusal while there are no keys. The cause, which is about the store, stands in the text of the whole error and not in the
// sentence that clients are told.
func (k *Keys) away(cause error) error {
	return fmt.Errorf("%w: %w", trust.Deny(wire.CodeUnavailable, trust.ReasonUnavailable, "the keys of space %q cannot be had; try again", k.space), cause)
}

// Cached implements [KeySource].
func (k *Keys) Cached(kid string) (public ed25519.PublicKey, final bool) {
	r := k.now.Load()
	age := time.Since(r.read)
	if age >= JWKSMaxAge {
		return nil, false
	}
	if have := r.byID[kid]; have != nil {
		return have.public, true
	}
	return nil, age < refreshEvery
}

// Key implements [KeySource]. An unknown kid makes it read the record, at most every few seconds.
func (k *Keys) Key(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	r, err := k.current(ctx, refreshEvery)
	if err == nil && r.byID[kid] == nil {
		r, err = k.current(ctx, refreshPause)
	}
	if err != nil {
		return nil, err
	}
	if have := r.byID[kid]; have != nil {
		return have.public, nil
	}
	return nil, nil
}

// JWKS returns the public keys as a JWK set (RFC 7517 section 5), the active one first. It may be cached for [JWKSMaxAge].
//
// Errors: unavailable when the record could not be read for that long.
func (k *Keys) JWKS(ctx context.Context) ([]byte, error) {
	r, err := k.current(ctx, refreshEvery)
	if err != nil {
		return nil, err
	}
	return encodeSet(r.keys)
}

// Format writes the space whatever the verb.
func (k *Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[keys of "+string(k.space)+"]") }

// LogValue returns the space.
func (k *Keys) LogValue() slog.Value { return slog.StringValue("[keys of " + string(k.space) + "]") }

// MarshalText returns the space.
func (k *Keys) MarshalText() ([]byte, error) { return []byte("[keys of " + string(k.space) + "]"), nil }
