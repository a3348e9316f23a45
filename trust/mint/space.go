package mint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Limits bound the account of a space. See [trust.Limits].
type Limits = trust.Limits

// AddSpace makes the account of a space, with one scoped signing key per profile, and returns its record, to be pushed.
// It is idempotent: an account that is there keeps its keys and revocations, takes the limits when they are given (nil
// keeps those it has), and is signed anew when its templates are older than this build, with its callout account if it has
// one. It completes what an interrupted AddSpace began.
//
// Errors: bad-request for a name or limit outside the grammar; failed-precondition for a record that cannot be trusted.
func (a *Authority) AddSpace(ctx context.Context, s wire.Space, limits *Limits) (trust.AccountRecord, error) {
	rec, err := a.addSpace(ctx, s, limits)
	if err != nil {
		return trust.AccountRecord{}, fmt.Errorf("add space %q: %w", s, err)
	}
	return rec, nil
}

func (a *Authority) addSpace(ctx context.Context, s wire.Space, limits *Limits) (trust.AccountRecord, error) {
	resolved := limits.WithDefaults()
	if err := errors.Join(s.Validate(), resolved.Validate()); err != nil {
		return trust.AccountRecord{}, err
	}
	entry, err := a.enlist(ctx, s)
	if err != nil {
		return trust.AccountRecord{}, err
	}
	for entry.State == trust.SpaceAdding {
		if entry, err = a.createAccount(ctx, entry, resolved); err != nil {
			return trust.AccountRecord{}, err
		}
	}
	return a.updateAccount(ctx, s, func(ctx context.Context, rec *trust.AccountRecord) error {
		if limits != nil {
			rec.Limits = resolved
		}
		if err := a.addMissingKeys(ctx, rec); err != nil {
			return err
		}
		return a.addMissingCalloutKeys(ctx, rec)
	})
}

// enlist makes sure that the broker record has an entry for s, and chooses the account of a new one. Everyone who adds
// the same space at the same time sees the same choice.
func (a *Authority) enlist(ctx context.Context, s wire.Space) (trust.SpaceRecord, error) {
	public, err := discardedAccount()
	if err != nil {
		return trust.SpaceRecord{}, err
	}
	for {
		rec, err := a.updateBroker(ctx, func(_ context.Context, rec *trust.BrokerRecord) error {
			if _, ok := rec.Space(s); !ok {
				rec.Spaces = append(rec.Spaces, trust.SpaceRecord{Name: s, Public: public, State: trust.SpaceAdding})
			}
			return nil
		})
		if err != nil {
			return trust.SpaceRecord{}, err
		}
		entry, ok := rec.Space(s)
		if ok && entry.State != trust.SpaceRemoving {
			return entry, nil
		}
		if err := a.finishRemoval(ctx, s); err != nil {
			return trust.SpaceRecord{}, err
		}
	}
}

// createAccount writes seeds and record of a listed space and makes the space active, in one step with the check that the
// operator key that signed the account is still the current one. It returns the entry as it is then; one that is still
// being added calls for another try.
func (a *Authority) createAccount(ctx context.Context, entry trust.SpaceRecord, limits Limits) (trust.SpaceRecord, error) {
	// The record is read before the entry: what was there while the space was being added may be written over.
	left, err := a.store.Get(ctx, trust.AccountKey(entry.Name))
	if err != nil && !errors.Is(err, secret.ErrNotFound) {
		return entry, storeError("read record", trust.AccountKey(entry.Name), err)
	}
	broker, _, err := a.loadBroker(ctx)
	if err != nil {
		return entry, err
	}
	if now, ok := broker.Space(entry.Name); !ok || now != entry {
		return stillThere(now, entry)
	}
	if won, err := a.writeAccount(ctx, entry, limits, broker, left); err != nil || !won {
		return entry, err
	}
	broker, err = a.updateBroker(ctx, func(_ context.Context, rec *trust.BrokerRecord) error {
		i := slices.Index(rec.Spaces, entry)
		if i >= 0 && rec.Signs(trust.KeyCurrent) == broker.Signs(trust.KeyCurrent) {
			rec.Spaces[i].State = trust.SpaceActive
		}
		return nil
	})
	if err != nil {
		return entry, err
	}
	now, _ := broker.Space(entry.Name)
	return stillThere(now, entry)
}

// stillThere returns the entry as it is now unless it went away or became another one.
func stillThere(now, entry trust.SpaceRecord) (trust.SpaceRecord, error) {
	if now.Public != entry.Public || now.State == trust.SpaceRemoving {
		return entry, wire.Errorf(wire.CodeConflict, "space %q was removed by somebody else", entry.Name)
	}
	return now, nil
}

// writeAccount writes the first record of a space in place of what an interrupted try left, and reports false when
// somebody else wrote first.
func (a *Authority) writeAccount(ctx context.Context, entry trust.SpaceRecord, limits Limits, broker trust.BrokerRecord, left []byte) (bool, error) {
	rec := trust.AccountRecord{Ver: trust.RecordVersion, Space: entry.Name, Public: entry.Public, Version: 1, Limits: limits}
	if err := a.addMissingKeys(ctx, &rec); err != nil {
		return false, err
	}
	if err := a.signAccount(ctx, &rec, broker); errors.Is(err, errMoved) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	data, err := rec.Encode()
	if err != nil {
		return false, err
	}
	if left == nil {
		err = a.store.Create(ctx, trust.AccountKey(entry.Name), data)
	} else {
		err = a.store.CompareAndSwap(ctx, trust.AccountKey(entry.Name), left, data)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, secret.ErrExists), errors.Is(err, secret.ErrConflict), errors.Is(err, secret.ErrNotFound):
		return false, nil
	}
	return false, storeError("write record", trust.AccountKey(entry.Name), err)
}

// addMissingKeys lists a key for every profile that has none.
func (a *Authority) addMissingKeys(ctx context.Context, rec *trust.AccountRecord) error {
	for _, p := range trust.Profiles() {
		if len(rec.KeysOf(p)) > 0 {
			continue
		}
		key, err := a.ensureSigner(ctx, trust.SigningKey(rec.Space, p), signer.Account)
		if err != nil {
			return err
		}
		rec.Keys = append(rec.Keys, trust.KeyRecord{Profile: p, Public: key.Public(), Created: now()})
	}
	return nil
}

func (a *Authority) setState(ctx context.Context, s wire.Space, public string, state trust.SpaceState) error {
	_, err := a.updateBroker(ctx, func(_ context.Context, rec *trust.BrokerRecord) error {
		i := slices.IndexFunc(rec.Spaces, func(r trust.SpaceRecord) bool { return r.Name == s && r.Public == public })
		if i < 0 || rec.Spaces[i].State == trust.SpaceRemoving && state != trust.SpaceRemoving {
			return wire.Errorf(wire.CodeConflict, "space %q is being removed", s)
		}
		rec.Spaces[i].State = state
		return nil
	})
	return err
}

// Spaces returns the spaces that are there, sorted by name. Spaces half added or half removed are left out.
func (a *Authority) Spaces(ctx context.Context) ([]wire.Space, error) {
	rec, _, err := a.loadBroker(ctx)
	if err != nil {
		return nil, fmt.Errorf("list spaces: %w", err)
	}
	var out []wire.Space
	for _, s := range rec.Spaces {
		if s.State == trust.SpaceActive {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Account returns the record of a space, checked against the operator.
//
// Errors: not-found for an unknown space; failed-precondition for a record that cannot be trusted.
func (a *Authority) Account(ctx context.Context, s wire.Space) (trust.AccountRecord, error) {
	_, rec, _, err := a.account(ctx, s)
	return rec.Clone(), err
}

// RemoveSpace removes the records and seeds of a space. Remove its streams and its accounts at the broker first: without
// the records nobody can. An interrupted removal is completed by RemoveSpace, [Authority.AddSpace] and [Init].
//
// Errors: not-found for an unknown space.
func (a *Authority) RemoveSpace(ctx context.Context, s wire.Space) error {
	broker, _, err := a.loadBroker(ctx)
	if err != nil {
		return fmt.Errorf("remove space %q: %w", s, err)
	}
	entry, ok := broker.Space(s)
	if !ok {
		return wire.Errorf(wire.CodeNotFound, "remove space %q: no such space", s)
	}
	if err := a.setState(ctx, s, entry.Public, trust.SpaceRemoving); err != nil {
		return fmt.Errorf("remove space %q: %w", s, err)
	}
	if err := a.finishRemoval(ctx, s); err != nil {
		return fmt.Errorf("remove space %q: begun, run it again: %w", s, err)
	}
	return nil
}

// finishRemoval deletes what a space marked as removing has left, the mark last: so no seed outlives its entry, and a new
// space of the same name starts with new keys.
func (a *Authority) finishRemoval(ctx context.Context, s wire.Space) error {
	defer a.recent.forget()
	keys := append([]string{trust.AccountKey(s)}, calloutSeeds(s)...)
	for _, p := range trust.Profiles() {
		keys = append(keys, trust.SigningKey(s, p))
	}
	if lister, ok := a.store.(secret.Lister); ok {
		daemons, err := lister.List(ctx, trust.DaemonPrefix(s))
		if err != nil {
			return storeError("list records", trust.DaemonPrefix(s), err)
		}
		keys = append(keys, daemons...)
	}
	for _, key := range keys {
		if err := a.store.Delete(ctx, key); err != nil && !errors.Is(err, secret.ErrNotFound) {
			return storeError("delete record", key, err)
		}
	}
	_, err := a.updateBroker(ctx, func(_ context.Context, rec *trust.BrokerRecord) error {
		rec.Spaces = slices.DeleteFunc(rec.Spaces, func(r trust.SpaceRecord) bool { return r.Name == s && r.State == trust.SpaceRemoving })
		return nil
	})
	return err
}

// DeleteToken returns the claim that makes a broker forget the accounts of a space, the callout account first.
func (a *Authority) DeleteToken(ctx context.Context, s wire.Space) (string, error) {
	token, err := a.deleteToken(ctx, s)
	if err != nil {
		return "", fmt.Errorf("make delete token of space %q: %w", s, err)
	}
	return token, nil
}

func (a *Authority) deleteToken(ctx context.Context, s wire.Space) (string, error) {
	for {
		broker, rec, _, err := a.account(ctx, s)
		if err != nil {
			return "", err
		}
		key, err := a.operatorSigner(ctx, broker)
		if errors.Is(err, errMoved) {
			continue
		}
		if err != nil {
			return "", err
		}
		claims := jwt.NewGenericClaims(key.Public())
		accounts := []string{rec.Public}
		if rec.Callout != nil {
			accounts = []string{rec.Callout.Public, rec.Public}
		}
		claims.Data["accounts"] = accounts
		return sign(ctx, claims, key)
	}
}
