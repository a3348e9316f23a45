package bearer

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/wire"
)

// RotateEvery is how long a key signs before [Maintain] replaces it.
const RotateEvery = 30 * 24 * time.Hour

// Maintain rotates the keys of a space when the one that signs has done so for [RotateEvery], and drops retired ones past their
// time. It is for whoever looks after a space to call now and then; usually it writes nothing. It reports whether it rotated.
//
// Errors: as of [Rotate].
func Maintain(ctx context.Context, store secret.Store, s wire.Space) (rotated bool, err error) {
	if err := s.Validate(); err != nil {
		return false, err
	}
	raw, err := store.Get(ctx, KeysKey(s))
	if err != nil {
		return false, storeFailed(ctx, "read", s, err)
	}
	rec, _, err := decodeRing(raw, s)
	if err != nil {
		return false, err
	}
	// The key that follows was made when the one that signs began to.
	if time.Since(rec.Keys[1].Created) >= RotateEvery {
		_, err := Rotate(ctx, store, s)
		return err == nil, err
	}
	_, err = Prune(ctx, store, s)
	return false, err
}
