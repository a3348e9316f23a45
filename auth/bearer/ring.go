package bearer

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	ringVersion = 1
	maxKeys     = 16 // rotations drop what is past its time, so six are the most in practice
	maxRing     = 16 << 10
)

// ringRecord is the form of the record. It is closed.
type ringRecord struct {
	Ver    int         `json:"ver"`
	Issuer string      `json:"issuer"`
	Active string      `json:"activeKid"`
	Keys   []keyRecord `json:"keys"` // the active one, the one that follows it, then the retired ones, the last first
}

type keyRecord struct {
	ID      string     `json:"kid"`
	Seed    string     `json:"seed"` // base64url of 32 bytes
	Created time.Time  `json:"created"`
	Retired *time.Time `json:"retired,omitempty"`
}

func newRing(s wire.Space) (*ringRecord, error) {
	now := time.Now()
	active, err := newKey(now)
	if err != nil {
		return nil, err
	}
	next, err := newKey(now)
	if err != nil {
		return nil, err
	}
	return &ringRecord{Ver: ringVersion, Issuer: issuerOf(s), Active: active.ID, Keys: []keyRecord{active, next}}, nil
}

func newKey(now time.Time) (keyRecord, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return keyRecord{}, fmt.Errorf("generate key: %w", err)
	}
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	return keyRecord{
		ID: Thumbprint(public), Seed: base64.RawURLEncoding.EncodeToString(seed), Created: now.UTC().Truncate(time.Second),
	}, nil
}

func (rec *ringRecord) encode(s wire.Space) ([]byte, error) {
	data, err := json.Marshal(rec)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "encode record %q", KeysKey(s))
	}
	return data, nil
}

// decodeRing reads the record of a space. Its errors have code failed-precondition and quote nothing of it.
func decodeRing(data []byte, s wire.Space) (*ringRecord, *ring, error) {
	var rec ringRecord
	if !decodeClosed(data, &rec, maxRing) {
		return nil, nil, damaged(s, "it is not the JSON that this build writes")
	}
	if rec.Ver != ringVersion {
		return nil, nil, wire.Errorf(wire.CodeFailedPrecondition, "record %q has version %d, this build reads %d", KeysKey(s), rec.Ver, ringVersion)
	}
	switch {
	case rec.Issuer != issuerOf(s):
		return nil, nil, damaged(s, "it is of another space")
	case len(rec.Keys) < 2 || len(rec.Keys) > maxKeys || rec.Active != rec.Keys[0].ID:
		return nil, nil, damaged(s, "its list of keys is damaged")
	}
	r := &ring{byID: make(map[string]*key, len(rec.Keys))}
	for i, entry := range rec.Keys {
		k, ok := entry.key()
		if retired := entry.Retired != nil; !ok || retired != (i >= 2) || retired && entry.Retired.Before(entry.Created) {
			return nil, nil, damaged(s, "a key of it is damaged")
		}
		if r.byID[k.id] != nil {
			return nil, nil, damaged(s, "a key is there twice")
		}
		r.keys, r.byID[k.id] = append(r.keys, k), k
	}
	return &rec, r, nil
}

// key returns the key of an entry, if its seed is whole and the name is the seed's.
func (rec keyRecord) key() (*key, bool) {
	seed, ok := decodeText(rec.Seed)
	if !ok || len(seed) != ed25519.SeedSize || rec.Created.IsZero() {
		return nil, false
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	k := &key{
		id: rec.ID, public: public, protected: protectedOf(rec.ID),
		sign: func(signed []byte) ([]byte, error) { return ed25519.Sign(private, signed), nil },
	}
	return k, rec.ID == Thumbprint(public)
}

func damaged(s wire.Space, why string) error {
	return wire.Errorf(wire.CodeFailedPrecondition, "read record %q: %s; restore it from a backup", KeysKey(s), why)
}

func storeFailed(ctx context.Context, verb string, s wire.Space, err error) error {
	switch {
	case errors.Is(err, secret.ErrNotFound):
		return wire.Errorf(wire.CodeNotFound, "%s record %q: %w; start the space with an identity provider first", verb, KeysKey(s), secret.ErrNotFound)
	case ctx.Err() != nil:
		return fmt.Errorf("%s record %q: %w", verb, KeysKey(s), err)
	}
	return trust.Deny(wire.CodeUnavailable, trust.ReasonUnavailable, "%s record %q: %w", verb, KeysKey(s), err)
}
