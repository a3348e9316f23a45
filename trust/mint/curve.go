package mint

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/nats-io/nkeys"
	"golang.org/x/crypto/nacl/box"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/wire"
)

const (
	curveKey   = 32
	curveNonce = 24
	// maxPeers bounds the servers whose shared keys are kept. There are as many as brokers, and each restart of one is another.
	maxPeers = 256
)

// curve seals and opens what is sent between a callout and the brokers, as nkeys does it: the version, a random nonce and a NaCl
// box. It keeps the key that it shares with each broker, since making one costs more than everything else in a connect.
// It is safe for concurrent use, and to print: the keys are inside functions.
type curve struct {
	public string
	shared func(peer string) (key *[curveKey]byte, keep func(), err error)
}

// curveFromSeed reads the curve seed (SX…). Its error quotes nothing.
func curveFromSeed(seed signer.Seed) (*curve, error) {
	prefix, raw, err := nkeys.DecodeSeed(seed.Reveal())
	if err != nil || prefix != nkeys.PrefixByteCurve || len(raw) != curveKey {
		return nil, errors.New("not the seed of a curve key")
	}
	pair, err := nkeys.FromCurveSeed(seed.Reveal())
	if err != nil {
		return nil, errors.New("not the seed of a curve key")
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, errors.New("not the seed of a curve key")
	}
	return &curve{public: public, shared: sharer([curveKey]byte(raw))}, nil
}

// sharer returns what finds the key shared with a peer, and keeps it once keep is called: that of a stranger is not worth it.
func sharer(private [curveKey]byte) func(string) (*[curveKey]byte, func(), error) {
	var mu sync.Mutex
	known := map[string]*[curveKey]byte{}
	return func(peer string) (*[curveKey]byte, func(), error) {
		mu.Lock()
		key := known[peer]
		mu.Unlock()
		if key != nil {
			return key, func() {}, nil
		}
		raw, err := nkeys.Decode(nkeys.PrefixByteCurve, []byte(peer))
		if err != nil || len(raw) != curveKey {
			return nil, nil, wire.Errorf(wire.CodeBadRequest, "%.64q is not the public curve key of a server", peer)
		}
		key = new([curveKey]byte)
		box.Precompute(key, (*[curveKey]byte)(raw), &private)
		return key, func() {
			mu.Lock()
			defer mu.Unlock()
			if len(known) >= maxPeers {
				clear(known)
			}
			known[peer] = key
		}, nil
	}
}

func (c *curve) seal(plain []byte, peer string) ([]byte, error) {
	key, _, err := c.shared(peer)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(nkeys.XKeyVersionV1)+curveNonce, len(nkeys.XKeyVersionV1)+curveNonce+len(plain)+box.Overhead)
	nonce := (*[curveNonce]byte)(out[copy(out, nkeys.XKeyVersionV1):])
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "read random bytes: %w", err)
	}
	return box.SealAfterPrecomputation(out, plain, nonce, key), nil
}

func (c *curve) open(sealed []byte, peer string) ([]byte, error) {
	const head = len(nkeys.XKeyVersionV1) + curveNonce
	if len(sealed) <= head || string(sealed[:len(nkeys.XKeyVersionV1)]) != nkeys.XKeyVersionV1 {
		return nil, wire.Errorf(wire.CodeBadRequest, "it is not sealed")
	}
	key, keep, err := c.shared(peer)
	if err != nil {
		return nil, err
	}
	plain, ok := box.OpenAfterPrecomputation(nil, sealed[head:], (*[curveNonce]byte)(sealed[len(nkeys.XKeyVersionV1):head]), key)
	if !ok {
		return nil, wire.Errorf(wire.CodeBadRequest, "it was sealed to another key, by another server, or changed")
	}
	keep()
	return plain, nil
}

// curve reads the curve seed under a name.
func (a *Authority) curve(ctx context.Context, key string) (*curve, error) {
	seed, err := a.store.Get(ctx, key)
	if err != nil {
		return nil, storeError("read seed", key, err)
	}
	c, err := curveFromSeed(signer.NewSeed(seed))
	if err != nil {
		return nil, unreadableSeed(key)
	}
	return c, nil
}

// ensureCurve is curve that makes the key when there is none.
func (a *Authority) ensureCurve(ctx context.Context, key string) (*curve, error) {
	c, err := a.curve(ctx, key)
	if !errors.Is(err, secret.ErrNotFound) {
		return c, err
	}
	pair, err := nkeys.CreateCurveKeys()
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "generate curve key: %w", err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "generate curve key: %w", err)
	}
	if err := a.store.Create(ctx, key, seed); err != nil && !errors.Is(err, secret.ErrExists) {
		return nil, storeError("create seed", key, err)
	}
	return a.curve(ctx, key)
}
