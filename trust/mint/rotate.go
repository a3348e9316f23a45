package mint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// maxKeys bounds the keys of one profile or kind that are valid side by side: retire before the next rotation.
const maxKeys = 8

// RotateSigningKey gives a profile a new signing key. The account lists it beside the old ones, publish brings the account to
// the brokers (nil for a broker that does not run), and only then new credentials are signed with it. What the old keys
// signed stays valid until [Authority.RetireSigningKey].
//
// If publish fails the new key is taken out of the record again and the error says so. A key that is kept elsewhere
// (Options.Signer) is changed there first; RotateSigningKey then lists it.
//
// Errors: resource-exhausted when eight keys of the profile are valid already; failed-precondition when a key kept
// elsewhere has not changed; not-found for an unknown space.
func (a *Authority) RotateSigningKey(ctx context.Context, s wire.Space, p trust.Profile, publish func(context.Context, trust.AccountRecord) error) (trust.AccountRecord, error) {
	rec, err := a.rotateSigningKey(ctx, s, p, publish)
	if err != nil {
		return trust.AccountRecord{}, fmt.Errorf("rotate key of profile %q in space %q: %w", p, s, err)
	}
	return rec, nil
}

func (a *Authority) rotateSigningKey(ctx context.Context, s wire.Space, p trust.Profile, publish func(context.Context, trust.AccountRecord) error) (trust.AccountRecord, error) {
	if _, err := trust.ParseProfile(string(p)); err != nil {
		return trust.AccountRecord{}, err
	}
	_, before, _, err := a.account(ctx, s)
	if err != nil {
		return trust.AccountRecord{}, err
	}
	turn, err := a.prepare(ctx, trust.SigningKey(s, p), before.KeysOf(p))
	if err != nil {
		return trust.AccountRecord{}, err
	}
	rec, err := a.updateAccount(ctx, s, func(_ context.Context, rec *trust.AccountRecord) error {
		if slices.Contains(rec.KeysOf(p), turn.public) {
			return nil
		}
		if n := len(rec.KeysOf(p)); n >= maxKeys {
			return wire.Errorf(wire.CodeResourceExhausted, "%d keys are valid, limit %d; retire one first", n, maxKeys)
		}
		rec.Keys = append(rec.Keys, trust.KeyRecord{Profile: p, Public: turn.public, Created: turn.created})
		return nil
	})
	if err != nil {
		return trust.AccountRecord{}, err
	}
	if publish != nil {
		err = publish(ctx, rec)
	}
	if err == nil {
		err = turn.take(ctx, a.store)
	}
	if err == nil {
		a.recent.forget()
		return rec, nil
	}
	if turn.fresh == nil {
		return trust.AccountRecord{}, fmt.Errorf("new key listed, not published: %w", err)
	}
	if _, back := a.retire(context.WithoutCancel(ctx), s, turn.public); back != nil {
		return trust.AccountRecord{}, fmt.Errorf("old key kept, new key listed and not in use: %w", err)
	}
	return trust.AccountRecord{}, fmt.Errorf("old key kept: %w", err)
}

// RetireSigningKey takes a signing key out of the account of s: after the push every credential that it signed is refused and
// its connections end. It returns the record, to be pushed, and is idempotent.
//
// Errors: failed-precondition for the key that signs now, which must be rotated first; not-found for an unknown space.
func (a *Authority) RetireSigningKey(ctx context.Context, s wire.Space, public string) (trust.AccountRecord, error) {
	_, rec, _, err := a.account(ctx, s)
	if err != nil {
		return trust.AccountRecord{}, fmt.Errorf("retire key %q: %w", public, err)
	}
	for _, k := range rec.Keys {
		if k.Public != public {
			continue
		}
		now, err := a.signerOf(ctx, trust.SigningKey(s, k.Profile))
		if err != nil && !errors.Is(err, secret.ErrNotFound) {
			return trust.AccountRecord{}, fmt.Errorf("retire key %q: %w", public, err)
		}
		if now != nil && now.Public() == public {
			return trust.AccountRecord{}, wire.Errorf(wire.CodeFailedPrecondition, "retire key %q: it is the one that signs for profile %q; rotate it first", public, k.Profile)
		}
	}
	rec, err = a.retire(ctx, s, public)
	if err != nil {
		return trust.AccountRecord{}, fmt.Errorf("retire key %q: %w", public, err)
	}
	return rec, nil
}

func (a *Authority) retire(ctx context.Context, s wire.Space, public string) (trust.AccountRecord, error) {
	return a.updateAccount(ctx, s, func(_ context.Context, rec *trust.AccountRecord) error {
		rec.Keys = slices.DeleteFunc(rec.Keys, func(k trust.KeyRecord) bool { return k.Public == public })
		return nil
	})
}

// RotateSystem gives every kind of system credential a new signing key, in the order of [Authority.RotateSigningKey]: listed,
// published, used. publish gets the public key and the new JWT of the system account. Open the connection that publishes
// before, since its credential is signed by an old key. The old keys stay valid until [Authority.RetireSystem]. The
// account itself is never replaced: nobody has its seed.
func (a *Authority) RotateSystem(ctx context.Context, publish func(ctx context.Context, public, jwt string) error) error {
	broker, _, err := a.loadBroker(ctx)
	if err != nil {
		return fmt.Errorf("rotate system keys: %w", err)
	}
	turns := map[trust.SystemKind]turn{}
	for _, kind := range trust.SystemKinds() {
		if turns[kind], err = a.prepare(ctx, trust.SystemSigningKey(kind), broker.System.KeysOf(kind)); err != nil {
			return fmt.Errorf("rotate system keys: %w", err)
		}
	}
	rec, err := a.updateSystem(ctx, func(rec *trust.SystemRecord) error {
		for _, kind := range trust.SystemKinds() {
			if slices.Contains(rec.KeysOf(kind), turns[kind].public) {
				continue
			}
			if n := len(rec.KeysOf(kind)); n >= maxKeys {
				return wire.Errorf(wire.CodeResourceExhausted, "%d keys are valid, limit %d; retire the old ones first", n, maxKeys)
			}
			rec.Keys = append(rec.Keys, trust.SystemKeyRecord{Kind: kind, Public: turns[kind].public, Created: turns[kind].created})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rotate system keys: %w", err)
	}
	if publish != nil {
		if err := publish(ctx, rec.Public, rec.JWT); err != nil {
			return fmt.Errorf("rotate system keys: new keys listed and not in use, run RetireSystem: %w", err)
		}
	}
	for _, kind := range trust.SystemKinds() {
		if err := turns[kind].take(ctx, a.store); err != nil {
			return fmt.Errorf("rotate system keys: key of %q kept, run it again: %w", kind, err)
		}
	}
	return nil
}

// RetireSystem takes every system signing key out of the system account but those that sign now, and returns the account's
// public key and JWT, to be pushed. What the others signed is refused after the push.
func (a *Authority) RetireSystem(ctx context.Context) (public, jwt string, err error) {
	keep := map[string]bool{}
	for _, kind := range trust.SystemKinds() {
		s, err := a.signerOf(ctx, trust.SystemSigningKey(kind))
		if err != nil {
			return "", "", fmt.Errorf("retire system keys: %w", err)
		}
		keep[s.Public()] = true
	}
	rec, err := a.updateSystem(ctx, func(rec *trust.SystemRecord) error {
		rec.Keys = slices.DeleteFunc(rec.Keys, func(k trust.SystemKeyRecord) bool { return !keep[k.Public] })
		for _, kind := range trust.SystemKinds() {
			if len(rec.KeysOf(kind)) == 0 {
				return wire.Errorf(wire.CodeFailedPrecondition, "the key that signs for %q is not listed; rotate first", kind)
			}
		}
		return nil
	})
	if err != nil {
		return "", "", fmt.Errorf("retire system keys: %w", err)
	}
	return rec.Public, rec.JWT, nil
}

func (a *Authority) updateSystem(ctx context.Context, change func(rec *trust.SystemRecord) error) (trust.SystemRecord, error) {
	rec, err := a.updateBroker(ctx, func(ctx context.Context, rec *trust.BrokerRecord) error {
		before := slices.Clone(rec.System.Keys)
		if err := change(&rec.System); err != nil {
			return err
		}
		if slices.Equal(before, rec.System.Keys) {
			return nil
		}
		rec.System.Version++
		return a.signSystem(ctx, rec)
	})
	return rec.System, err
}

// turn is a key that is about to replace another under the same name.
type turn struct {
	name    string
	public  string
	created time.Time
	old     []byte        // seed that is replaced; nil when there was none
	fresh   *signer.Local // nil for a key that is kept elsewhere
}

// prepare makes the key that will replace the one called name; it is nowhere yet but in memory.
func (a *Authority) prepare(ctx context.Context, name string, listed []string) (turn, error) {
	ext, err := a.externalSigner(ctx, name)
	if err != nil {
		return turn{}, err
	}
	if ext != nil {
		if slices.Contains(listed, ext.Public()) {
			return turn{}, wire.Errorf(wire.CodeFailedPrecondition, "key %q is kept elsewhere and has not changed there", name)
		}
		return turn{name: name, public: ext.Public(), created: now()}, nil
	}
	old, err := a.store.Get(ctx, name)
	if err != nil && !errors.Is(err, secret.ErrNotFound) {
		return turn{}, storeError("read seed", name, err)
	}
	fresh, err := signer.Generate(signer.Account)
	if err != nil {
		return turn{}, wire.Errorf(wire.CodeInternal, "%w", err)
	}
	return turn{name: name, public: fresh.Public(), created: now(), old: bytes.Clone(old), fresh: fresh}, nil
}

// take makes the key the one that signs. A rotation by somebody else meanwhile is a conflict.
func (t turn) take(ctx context.Context, store secret.Store) error {
	if t.fresh == nil {
		return nil
	}
	var err error
	if t.old == nil {
		err = store.Create(ctx, t.name, t.fresh.Seed().Reveal())
	} else {
		err = store.CompareAndSwap(ctx, t.name, t.old, t.fresh.Seed().Reveal())
	}
	if errors.Is(err, secret.ErrConflict) || errors.Is(err, secret.ErrExists) {
		return wire.Errorf(wire.CodeConflict, "key %q was rotated by somebody else", t.name)
	}
	if err != nil {
		return storeError("write seed", t.name, err)
	}
	return nil
}

// RotateOperatorKey replaces the operator signing key. Brokers trust the next key already, so nothing restarts: the next key
// becomes current, every account is signed anew, a fresh next key is made, and the old one leaves the operator JWT.
// Afterwards push every account and the system account, then give brokers the new [Authority.OperatorJWT] at their next
// restart; until then they trust the old key too. An interrupted rotation is completed by calling it again.
//
// The operator's identity key stays. It signs the operator JWT alone and brokers pin it.
func (a *Authority) RotateOperatorKey(ctx context.Context) error {
	rec, err := a.beginOperatorRotation(ctx)
	if err != nil {
		return fmt.Errorf("rotate operator key: %w", err)
	}
	for _, s := range rec.Spaces {
		if s.State != trust.SpaceActive {
			continue
		}
		_, err := a.updateAccount(ctx, s.Name, func(context.Context, *trust.AccountRecord) error { return nil })
		if err != nil && !errors.Is(err, wire.ErrNotFound) {
			return fmt.Errorf("rotate operator key: begun, run it again: %w", err)
		}
	}
	if err := a.endOperatorRotation(ctx); err != nil {
		return fmt.Errorf("rotate operator key: accounts are signed anew, run it again: %w", err)
	}
	return nil
}

// beginOperatorRotation moves every key one state on, unless a rotation is under way.
func (a *Authority) beginOperatorRotation(ctx context.Context) (trust.BrokerRecord, error) {
	fresh, err := a.newOperatorKey(ctx, trust.KeyNext)
	if err != nil {
		return trust.BrokerRecord{}, err
	}
	rec, err := a.updateBroker(ctx, func(ctx context.Context, rec *trust.BrokerRecord) error {
		if rec.Signs(trust.KeyRetiring) != "" {
			return nil
		}
		for i := range rec.Signing {
			switch rec.Signing[i].State {
			case trust.KeyCurrent:
				rec.Signing[i].State = trust.KeyRetiring
			case trust.KeyNext:
				rec.Signing[i].State = trust.KeyCurrent
			}
		}
		rec.Signing = append(rec.Signing, fresh)
		rec.System.Version++
		if err := a.signSystem(ctx, rec); err != nil {
			return err
		}
		return a.signOperator(ctx, rec)
	})
	if err != nil || !slices.ContainsFunc(rec.Signing, func(k trust.OperatorKeyRecord) bool { return k.Public == fresh.Public }) {
		a.forgetOperatorKeys(ctx, []trust.OperatorKeyRecord{fresh})
	}
	return rec, err
}

// endOperatorRotation takes the retiring key out of the operator JWT and deletes its seed.
func (a *Authority) endOperatorRotation(ctx context.Context) error {
	var gone []trust.OperatorKeyRecord
	_, err := a.updateBroker(ctx, func(ctx context.Context, rec *trust.BrokerRecord) error {
		gone = nil
		rec.Signing = slices.DeleteFunc(rec.Signing, func(k trust.OperatorKeyRecord) bool {
			retiring := k.State == trust.KeyRetiring
			if retiring {
				gone = append(gone, k)
			}
			return retiring
		})
		if len(gone) == 0 {
			return nil
		}
		return a.signOperator(ctx, rec)
	})
	if err == nil {
		a.forgetOperatorKeys(ctx, gone)
	}
	return err
}
