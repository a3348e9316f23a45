// Package secret is the seam behind which trust records, seeds and credential files are kept.
//
// A [Store] keeps whole values under slash-separated keys. It promises three things and nothing else: a
// value is read back as it was written or not at all; an absent value is an error of its own, never
// mistaken for a store that failed; and [Store.CompareAndSwap] and [Store.Create] decide one winner among
// all processes that share the store. It does not promise listing ([Lister] is a second, optional
// interface), order, or expiry.
//
// Start with the file store:
//
//	store, err := filestore.New(".cotal")
//
// Package memstore keeps values in memory for tests and throw-away nodes. Package secrettest is the suite
// every body passes. [Refuse] is the null body. Errors name the key, never the value.
//
// All bodies are safe for concurrent use.
package secret

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Limits of a store, the same for every body so that a value can move from one to another.
const (
	// MaxKey is the longest key in bytes.
	MaxKey = 512
	// MaxSegment is the longest part of a key between two slashes, in bytes.
	MaxSegment = 200
	// MaxValue is the largest value in bytes. The largest record we keep is an account with a full
	// revocation list, a little over 1 MiB.
	MaxValue = 4 << 20
)

// The outcomes a caller branches on. Anything else a [Store] returns means the store did not answer, and
// whether a write took place is unknown.
var (
	// ErrNotFound says that the store answered and holds nothing under the key.
	ErrNotFound = errors.New("not found")
	// ErrExists says that [Store.Create] found a value already there; nothing was written.
	ErrExists = errors.New("already exists")
	// ErrConflict says that [Store.CompareAndSwap] found another value than the expected one; nothing was
	// written.
	ErrConflict = errors.New("changed meanwhile")
	// ErrRefused is what the null body [Refuse] returns from every method.
	ErrRefused = errors.New("no secret store configured")
)

// Store keeps secret values under keys that pass [CheckKey].
//
// Every method checks ctx before it starts and returns its error unchanged in the chain. Values are copied
// both ways: the store keeps nothing the caller lent and lends nothing it keeps. Of two keys a store may
// refuse the second if one is the folder of the other ("a" and "a/b").
type Store interface {
	// Get returns the value under key, or [ErrNotFound].
	Get(ctx context.Context, key string) ([]byte, error)
	// Put writes value under key whatever was there.
	Put(ctx context.Context, key string, value []byte) error
	// Create writes value under key if nothing is there, or returns [ErrExists].
	Create(ctx context.Context, key string, value []byte) error
	// CompareAndSwap replaces the value under key if it equals old byte for byte. It returns
	// [ErrConflict] if the value differs and [ErrNotFound] if there is none.
	CompareAndSwap(ctx context.Context, key string, old, new []byte) error
	// Delete removes the value under key, or returns [ErrNotFound].
	Delete(ctx context.Context, key string) error
}

// Lister is what a store offers beyond [Store] if it can enumerate its keys.
type Lister interface {
	// List returns, sorted, every key that begins with prefix. The prefix is compared as text and may end
	// inside a segment; the empty prefix lists all.
	List(ctx context.Context, prefix string) ([]string, error)
}

// CheckKey says why key cannot name a value: it must be 1 to [MaxKey] bytes of segments joined by single
// slashes, each 1 to [MaxSegment] of the characters A-Z a-z 0-9 '.' '_' '-', not beginning with a dot.
// The grammar leaves no way to spell a parent folder, an absolute path, a device or a hidden file.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("check key %q: must be 1 to %d bytes, is %d", key, MaxKey, len(key))
	}
	for segment := range strings.SplitSeq(key, "/") {
		if err := checkSegment(segment); err != nil {
			return fmt.Errorf("check key %q: %w", key, err)
		}
	}
	return nil
}

func checkSegment(segment string) error {
	switch {
	case segment == "":
		return errors.New("empty segment")
	case len(segment) > MaxSegment:
		return fmt.Errorf("segment of %d bytes, at most %d", len(segment), MaxSegment)
	case segment[0] == '.':
		return errors.New("segment begins with a dot")
	}
	for _, c := range []byte(segment) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("character %q", rune(c))
		}
	}
	return nil
}

// CheckValue says whether a value is small enough to keep.
func CheckValue(key string, value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("check value of key %q: %d bytes, at most %d", key, len(value), MaxValue)
	}
	return nil
}

// Refuse is the null body: every method returns [ErrRefused]. It stands where a store is not configured, so
// that a forgotten store keeps nothing and mints nothing.
type Refuse struct{}

var (
	_ Store  = Refuse{}
	_ Lister = Refuse{}
)

// Get returns [ErrRefused].
func (Refuse) Get(context.Context, string) ([]byte, error) { return nil, ErrRefused }

// Put returns [ErrRefused].
func (Refuse) Put(context.Context, string, []byte) error { return ErrRefused }

// Create returns [ErrRefused].
func (Refuse) Create(context.Context, string, []byte) error { return ErrRefused }

// CompareAndSwap returns [ErrRefused].
func (Refuse) CompareAndSwap(context.Context, string, []byte, []byte) error { return ErrRefused }

// Delete returns [ErrRefused].
func (Refuse) Delete(context.Context, string) error { return ErrRefused }

// List returns [ErrRefused].
func (Refuse) List(context.Context, string) ([]string, error) { return nil, ErrRefused }
