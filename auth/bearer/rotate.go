package bearer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/wire"
)

// Rotate makes the key that was published to follow sign from now on, publishes one to follow it, and retires the one that
// signed, which stays published for [KeepRetired]. It returns the kid that signs. Retired keys past their time go.
//
// Nobody who reads the published set every [JWKSMaxAge] meets a kid that they do not know. For that the follower must
// have been published for [MinPublished]; of several rotations at once one takes place, and the others are refused.
//
// Errors: failed-precondition when the follower is too new, saying how long to wait; else as of [LoadKeys].
func Rotate(ctx context.Context, store secret.Store, s wire.Space) (kid string, err error) {
	err = update(ctx, store, s, func(rec *ringRecord, now time.Time) error {
		active, next := rec.Keys[0], rec.Keys[1]
		// Made by one write and nothing retired: whoever knows the one that signs knows the other.
		together := len(rec.Keys) == 2 && next.Created.Equal(active.Created)
		if wait := next.Created.Add(MinPublished).Sub(now); wait > 0 && !together {
			return wire.Errorf(wire.CodeFailedPrecondition,
				"rotate the issuer of space %q: the key that follows is not known everywhere yet; rotate again in %s, or replace the keys if one was stolen",
				s, (wait + time.Second - 1).Truncate(time.Second))
		}
		fresh, err := newKey(now)
		if err != nil {
			return err
		}
		retired := now
		if retired.Before(active.Created) { // by a machine whose clock was ahead
			retired = active.Created
		}
		active.Retired = &retired
		rec.Keys = slices.Concat([]keyRecord{next, fresh, active}, rec.Keys[2:])
		rec.prune(now)
		rec.Active, kid = next.ID, next.ID
		return nil
	})
	return kid, err
}

// Replace forgets every key of a space and makes new ones, for when one was stolen: bearers of the old ones are refused
// within 30 s where the record is read, and within [JWKSMaxAge] wherever a cached set is. Who holds a bearer gets a new one from
// the exchange. It returns the kid that signs.
//
// Errors: as of [LoadKeys].
func Replace(ctx context.Context, store secret.Store, s wire.Space) (kid string, err error) {
	err = update(ctx, store, s, func(rec *ringRecord, _ time.Time) error {
		fresh, err := newRing(s)
		if err != nil {
			return err
		}
		*rec, kid = *fresh, fresh.Active
		return nil
	})
	return kid, err
}

// Prune drops the retired keys that no living bearer can be of, and returns how many. [Rotate] does it too.
//
// Errors: as of [LoadKeys].
func Prune(ctx context.Context, store secret.Store, s wire.Space) (int, error) {
	gone := 0
	err := update(ctx, store, s, func(rec *ringRecord, now time.Time) error {
		gone = rec.prune(now)
		return nil
	})
	return gone, err
}

func (rec *ringRecord) prune(now time.Time) int {
	before := len(rec.Keys)
	rec.Keys = slices.DeleteFunc(rec.Keys, func(k keyRecord) bool {
		return k.Retired != nil && !now.Before(k.Retired.Add(KeepRetired))
	})
	return before - len(rec.Keys)
}

// update applies change to the record until the swap wins. A change that leaves it as it is writes nothing. change may be
// called several times; its now is a whole second.
func update(ctx context.Context, store secret.Store, s wire.Space, change func(rec *ringRecord, now time.Time) error) error {
	if err := s.Validate(); err != nil {
		return err
	}
	for try := 1; ; try++ {
		raw, err := store.Get(ctx, KeysKey(s))
		if err != nil {
			return storeFailed(ctx, "read", s, err)
		}
		rec, _, err := decodeRing(raw, s)
		if err != nil {
			return err
		}
		if err := change(rec, time.Now().UTC().Truncate(time.Second)); err != nil {
			return err
		}
		data, err := rec.encode(s)
		if err != nil {
			return err
		}
		if string(data) == string(raw) {
			return nil
		}
		if err := store.CompareAndSwap(ctx, KeysKey(s), raw, data); err == nil {
			return nil
		} else if !errors.Is(err, secret.ErrConflict) {
			return storeFailed(ctx, "write", s, err)
		}
		if err := pause.For(ctx, rand.N(time.Millisecond*time.Duration(min(try, 50)))); err != nil {
			return fmt.Errorf("write record %q: nothing written: %w", KeysKey(s), err)
		}
	}
}
