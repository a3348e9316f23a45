// Package memstore keeps secrets in memory: for tests, and for nodes whose trust may die with them.
package memstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cotal-go/cotal/secret"
)

// Store is a [secret.Store] and [secret.Lister] in memory. Printing it shows nothing that it holds.
type Store struct {
	mu     sync.Mutex // guards values
	values func() map[string][]byte
}

var (
	_ secret.Store  = (*Store)(nil)
	_ secret.Lister = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	values := make(map[string][]byte)
	return &Store{values: func() map[string][]byte { return values }}
}

// Format writes a fixed word whatever the verb.
func (*Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[memory secret store]") }

// LogValue returns a fixed word.
func (*Store) LogValue() slog.Value { return slog.StringValue("[memory secret store]") }

// Get implements [secret.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	defer s.mu.Unlock()
	value, err := s.load(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get secret %q: %w", key, err)
	}
	return bytes.Clone(value), nil
}

// Put implements [secret.Store].
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	if err := secret.CheckValue(key, value); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, err := s.load(ctx, key); err != nil && err != secret.ErrNotFound {
		return fmt.Errorf("put secret %q: %w", key, err)
	}
	s.values()[key] = clone(value)
	return nil
}

// Create implements [secret.Store].
func (s *Store) Create(ctx context.Context, key string, value []byte) error {
	if err := secret.CheckValue(key, value); err != nil {
		return err
	}
	defer s.mu.Unlock()
	switch _, err := s.load(ctx, key); err {
	case nil:
		return fmt.Errorf("create secret %q: %w", key, secret.ErrExists)
	case secret.ErrNotFound:
		s.values()[key] = clone(value)
		return nil
	default:
		return fmt.Errorf("create secret %q: %w", key, err)
	}
}

// CompareAndSwap implements [secret.Store].
func (s *Store) CompareAndSwap(ctx context.Context, key string, old, new []byte) error {
	if err := secret.CheckValue(key, new); err != nil {
		return err
	}
	defer s.mu.Unlock()
	current, err := s.load(ctx, key)
	if err == nil && !bytes.Equal(current, old) {
		err = secret.ErrConflict
	}
	if err != nil {
		return fmt.Errorf("swap secret %q: %w", key, err)
	}
	s.values()[key] = clone(new)
	return nil
}

// Delete implements [secret.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	defer s.mu.Unlock()
	if _, err := s.load(ctx, key); err != nil {
		return fmt.Errorf("delete secret %q: %w", key, err)
	}
	delete(s.values(), key)
	return nil
}

// List implements [secret.Lister].
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list secrets %q: %w", prefix, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Sorted(maps.Keys(s.values()))
	return slices.DeleteFunc(keys, func(k string) bool { return !strings.HasPrefix(k, prefix) }), nil
}

// load takes the mutex, which the caller releases, and returns the kept slice itself.
func (s *Store) load(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	if err := secret.CheckKey(key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	value, ok := s.values()[key]
	if !ok {
		return nil, secret.ErrNotFound
	}
	return value, nil
}

// clone keeps an empty value apart from an absent one.
func clone(value []byte) []byte { return append(make([]byte, 0, len(value)), value...) }
