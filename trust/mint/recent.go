package mint

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// freshFor is how long the answers to a callout use what was read from the store. Reading costs several signatures and a
	// storm of connects asks for the same things over and over. It is small beside the time that a connection may stay
	// undecided, so nothing gets in by it that could not have got in anyway.
	freshFor = 25 * time.Millisecond
	// maxRecent bounds the signers that are kept: every profile of a good number of spaces.
	maxRecent = 1024
)

// recent is what was read lately. Signers outlive freshFor for as long as their seed in the store is the same: reading
// the text of a seed costs little, making a key of it as much as a signature.
type recent struct {
	mu       sync.Mutex // guards the fields below
	changes  uint64     // grows with what this authority writes
	accounts map[wire.Space]recentAccount
	signers  map[string]recentSigner
}

type recentAccount struct {
	rec   trust.AccountRecord
	until time.Time
}

type recentSigner struct {
	signer signer.Signer
	until  time.Time
}

// forget makes the next reader read again.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	clear(r.accounts)
	for key, s := range r.signers {
		s.until = time.Time{}
		r.signers[key] = s
	}
}

func (r *recent) account(s wire.Space, now time.Time) (rec trust.AccountRecord, changes uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have, ok := r.accounts[s]
	return have.rec, r.changes, ok && now.Before(have.until)
}

// keepAccount keeps what was read unless it was changed since.
func (r *recent) keepAccount(s wire.Space, changes uint64, have recentAccount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes != changes {
		return
	}
	if r.accounts == nil || len(r.accounts) >= maxDecoded {
		r.accounts = map[wire.Space]recentAccount{}
	}
	r.accounts[s] = have
}

func (r *recent) signer(key string, now time.Time) (s signer.Signer, changes uint64, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.signers[key]
	return have.signer, r.changes, have.signer != nil && now.Before(have.until)
}

func (r *recent) keepSigner(key string, changes uint64, have recentSigner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes != changes {
		return
	}
	if r.signers == nil || len(r.signers) >= maxRecent {
		r.signers = map[string]recentSigner{}
	}
	r.signers[key] = have
}

// recentSigner returns the signer called key and the record of the space. keys says which public keys may sign, or why none may.
// What does not fit together may have been read at two moments, so it is read once more.
func (a *Authority) recentSigner(ctx context.Context, s wire.Space, key string, keys func(trust.AccountRecord) ([]string, error)) (signer.Signer, trust.AccountRecord, error) {
	for try := 0; ; try++ {
		rec, err := a.recentAccount(ctx, s)
		if err != nil {
			return nil, rec, err
		}
		public, err := keys(rec)
		if err != nil {
			return nil, rec, err
		}
		found, err := a.recentKey(ctx, key)
		if err != nil {
			return nil, rec, needed(key, err)
		}
		err = listed(found, key, trust.AccountKey(s), public)
		if err == nil {
			return found, rec, nil
		}
		if try > 0 {
			return nil, rec, err
		}
		a.recent.forget()
	}
}

func (a *Authority) recentAccount(ctx context.Context, s wire.Space) (trust.AccountRecord, error) {
	now := time.Now()
	rec, changes, ok := a.recent.account(s, now)
	if ok {
		return rec, nil
	}
	_, rec, _, err := a.account(ctx, s)
	if err == nil {
		a.recent.keepAccount(s, changes, recentAccount{rec: rec, until: now.Add(freshFor)})
	}
	return rec, err
}

func (a *Authority) recentKey(ctx context.Context, key string) (signer.Signer, error) {
	now := time.Now()
	had, changes, fresh := a.recent.signer(key, now)
	if fresh {
		return had, nil
	}
	s, err := a.externalSigner(ctx, key)
	if err != nil {
		return nil, err
	}
	if s == nil {
		if s, err = a.reparse(ctx, key, had); err != nil {
			return nil, err
		}
	}
	a.recent.keepSigner(key, changes, recentSigner{signer: s, until: now.Add(freshFor)})
	return s, nil
}

// reparse reads a seed and returns the signer that was made of it before, if it is the same.
func (a *Authority) reparse(ctx context.Context, key string, had signer.Signer) (signer.Signer, error) {
	seed, err := a.store.Get(ctx, key)
	if err != nil {
		return nil, storeError("read seed", key, err)
	}
	if l, ok := had.(*signer.Local); ok && bytes.Equal(l.Seed().Reveal(), seed) {
		return l, nil
	}
	local, err := parseSeed(key, seed)
	if err != nil {
		return nil, err
	}
	return local, nil
}
