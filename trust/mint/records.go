package mint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// decoded remembers records that were read and checked, by their bytes: minting reads the same ones over and over, and
// checking one costs several signatures. What it holds is never changed and never lent to callers.
type decoded struct {
	mu        sync.Mutex // guards the fields below
	brokerRaw []byte
	broker    trust.BrokerRecord
	accounts  map[wire.Space]decodedAccount
}

type decodedAccount struct {
	raw      []byte
	operator string            // the operator JWT under which it was checked
	entry    trust.SpaceRecord // and the space's entry
	rec      trust.AccountRecord
}

// maxDecoded bounds the accounts that are remembered.
const maxDecoded = 64

func (d *decoded) brokerRecord(raw []byte) (trust.BrokerRecord, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.brokerRaw != nil && bytes.Equal(d.brokerRaw, raw) {
		return d.broker, nil
	}
	rec, err := trust.DecodeBrokerRecord(raw)
	if err == nil && rec.Generation >= d.broker.Generation {
		d.brokerRaw, d.broker = raw, rec
	}
	return rec, err
}

func (d *decoded) accountRecord(raw []byte, s wire.Space, broker trust.BrokerRecord) (trust.AccountRecord, error) {
	entry, _ := broker.Space(s)
	d.mu.Lock()
	have, ok := d.accounts[s]
	d.mu.Unlock()
	if ok && have.operator == broker.OperatorJWT && have.entry == entry && bytes.Equal(have.raw, raw) {
		return have.rec, nil
	}
	rec, err := trust.DecodeAccountRecord(raw, s, broker)
	if err != nil {
		return rec, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.accounts == nil || len(d.accounts) >= maxDecoded {
		d.accounts = map[wire.Space]decodedAccount{}
	}
	d.accounts[s] = decodedAccount{raw: raw, operator: broker.OperatorJWT, entry: entry, rec: rec}
	return rec, nil
}

// newest is the newest broker record that was read.
func (d *decoded) newest() trust.BrokerRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broker
}

func (a *Authority) loadBroker(ctx context.Context) (trust.BrokerRecord, []byte, error) {
	raw, err := a.store.Get(ctx, trust.BrokerKey)
	if err != nil {
		return trust.BrokerRecord{}, nil, storeError("read record", trust.BrokerKey, err)
	}
	rec, err := a.known.brokerRecord(raw)
	if err != nil {
		return trust.BrokerRecord{}, nil, err
	}
	return rec, raw, nil
}

// updateBroker applies change to the broker record until the swap wins. A change that leaves the record as it is
// writes nothing. change may be called several times and must not keep what it is given.
func (a *Authority) updateBroker(ctx context.Context, change func(ctx context.Context, rec *trust.BrokerRecord) error) (trust.BrokerRecord, error) {
	for try := 0; ; try++ {
		old, raw, err := a.loadBroker(ctx)
		if err != nil {
			return trust.BrokerRecord{}, err
		}
		rec := old
		rec.Signing, rec.Spaces = slices.Clone(old.Signing), slices.Clone(old.Spaces)
		rec.System.Keys = slices.Clone(old.System.Keys)
		if err := change(ctx, &rec); errors.Is(err, errMoved) {
			continue
		} else if err != nil {
			return trust.BrokerRecord{}, err
		}
		if reflect.DeepEqual(rec, old) {
			return old, nil
		}
		rec.Generation = old.Generation + 1
		data, err := rec.Encode()
		if err != nil {
			return trust.BrokerRecord{}, err
		}
		done, err := a.swap(ctx, trust.BrokerKey, raw, data, try)
		if err != nil {
			return trust.BrokerRecord{}, err
		}
		if done {
			rec, _, err = a.loadBroker(ctx)
			return rec, err
		}
	}
}

// swap replaces a record, or waits a moment and reports false when somebody else did first.
func (a *Authority) swap(ctx context.Context, key string, old, new []byte, try int) (bool, error) {
	err := a.store.CompareAndSwap(ctx, key, old, new)
	switch {
	case err == nil:
		a.recent.forget()
		return true, nil
	case !errors.Is(err, secret.ErrConflict):
		return false, storeError("write record", key, err)
	}
	t := time.NewTimer(rand.N(time.Millisecond * time.Duration(min(try+1, 50))))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false, fmt.Errorf("write record %q: nothing written: %w", key, ctx.Err())
	case <-t.C:
		return false, nil
	}
}

func (a *Authority) loadAccount(ctx context.Context, s wire.Space, broker trust.BrokerRecord) (trust.AccountRecord, []byte, error) {
	entry, ok := broker.Space(s)
	if !ok || entry.State == trust.SpaceRemoving {
		return trust.AccountRecord{}, nil, wire.Errorf(wire.CodeNotFound, "read account: no space %q", s)
	}
	data, err := a.store.Get(ctx, trust.AccountKey(s))
	if errors.Is(err, secret.ErrNotFound) && entry.State == trust.SpaceActive {
		return trust.AccountRecord{}, nil, wire.Errorf(wire.CodeFailedPrecondition, "record %q is missing; restore it from a backup", trust.AccountKey(s))
	}
	if err != nil {
		return trust.AccountRecord{}, nil, storeError("read record", trust.AccountKey(s), err)
	}
	rec, err := a.known.accountRecord(data, s, broker)
	return rec, data, err
}

// account reads both records. Between the two reads a rotation may move the account to a newer operator key, so an account
// that does not fit is looked at once more under the newest broker record.
func (a *Authority) account(ctx context.Context, s wire.Space) (trust.BrokerRecord, trust.AccountRecord, []byte, error) {
	broker, _, err := a.loadBroker(ctx)
	if err != nil {
		return broker, trust.AccountRecord{}, nil, err
	}
	for {
		rec, raw, err := a.loadAccount(ctx, s, broker)
		if err == nil {
			return broker, rec, raw, nil
		}
		again, _, berr := a.loadBroker(ctx)
		if berr != nil || again.Generation == broker.Generation {
			return broker, trust.AccountRecord{}, nil, err
		}
		broker = again
	}
}

// updateAccount applies change to the account of s, prunes its revocations, signs it anew if anything differs, and tries until
// the swap wins. change may be called several times.
func (a *Authority) updateAccount(ctx context.Context, s wire.Space, change func(ctx context.Context, rec *trust.AccountRecord) error) (trust.AccountRecord, error) {
	for try := 0; ; try++ {
		broker, old, raw, err := a.account(ctx, s)
		if err != nil {
			return trust.AccountRecord{}, err
		}
		rec := old.Clone()
		if err := change(ctx, &rec); err != nil {
			return trust.AccountRecord{}, err
		}
		if rec.Revocations = prune(rec.Revocations, time.Now()); len(rec.Revocations) == 0 {
			rec.Revocations = nil
		}
		if reflect.DeepEqual(rec, old) && current(rec, broker) {
			return rec, nil
		}
		rec.Version = old.Version + 1
		if err := a.signAccount(ctx, &rec, broker); errors.Is(err, errMoved) {
			continue
		} else if err != nil {
			return trust.AccountRecord{}, err
		}
		data, err := rec.Encode()
		if err != nil {
			return trust.AccountRecord{}, err
		}
		if _, err := a.swap(ctx, trust.AccountKey(s), raw, data, try); err != nil {
			return trust.AccountRecord{}, err
		}
		// Once more from the top, won or lost: what is there must be current under the operator key of now, also when a
		// rotation ran meanwhile. After a win change finds its work done.
	}
}
