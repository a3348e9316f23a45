// Package signer is the seam through which everything is signed: a private key is used where it lives and
// its bytes need not be here.
//
// A [Signer] knows one public nkey and signs with its private half. [Local] is the body for a seed in this
// process; a body that asks another process, another user or a vault implements the same two methods and
// passes package signertest. [Refuse] is the null body.
//
// Signatures are Ed25519 over the payload as given, which is what NATS means by signing with an nkey.
// Signers are safe for concurrent use, and printing one never shows a seed.
package signer

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/nats-io/nkeys"
)

// ErrRefused is what the null body [Refuse] returns.
var ErrRefused = errors.New("no signer configured")

// Signer signs for one public key.
type Signer interface {
	// Public returns the public nkey, such as "OB…" or "AD…". It never changes and needs no waiting.
	Public() string
	// Sign returns the Ed25519 signature of payload by the private half of Public. It neither keeps nor
	// changes payload. An error means nothing was signed.
	Sign(ctx context.Context, payload []byte) ([]byte, error)
}

// Refuse is the null body: it has no public key and signs nothing.
type Refuse struct{}

var _ Signer = Refuse{}

// Public returns the empty string.
func (Refuse) Public() string { return "" }

// Sign returns [ErrRefused].
func (Refuse) Sign(context.Context, []byte) ([]byte, error) { return nil, ErrRefused }

// Seed is a private key as NATS writes it. It prints, logs and encodes as a fixed word, also deep inside other
// values; [Seed.Reveal] is the one way to its bytes. The zero Seed holds nothing.
type Seed struct{ reveal func() []byte }

// NewSeed keeps a copy of the text of a seed, such as "SU…". It does not check it; [FromSeed] does.
func NewSeed(text []byte) Seed {
	kept := string(text)
	return Seed{reveal: func() []byte { return []byte(kept) }}
}

// Reveal returns a fresh copy of the seed's text. Every call is a place where a secret leaves: keep them few.
func (s Seed) Reveal() []byte {
	if s.reveal == nil {
		return nil
	}
	return s.reveal()
}

// Format writes a fixed word whatever the verb.
func (Seed) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[seed]") }

// LogValue returns a fixed word.
func (Seed) LogValue() slog.Value { return slog.StringValue("[seed]") }

// MarshalText returns a fixed word, so that an encoder that walks into a Seed writes nothing of use.
func (Seed) MarshalText() ([]byte, error) { return []byte("[seed]"), nil }

// Kind is what a key is for; it decides the first letter of the public key.
type Kind byte

// The kinds of key in a NATS trust chain.
const (
	Operator = Kind(nkeys.PrefixByteOperator)
	Account  = Kind(nkeys.PrefixByteAccount)
	User     = Kind(nkeys.PrefixByteUser)
)

// Local is a [Signer] whose seed is in this process.
type Local struct {
	public string
	kind   Kind
	sign   func(payload []byte) []byte
	seed   Seed
}

var _ Signer = (*Local)(nil)

// Generate makes a new key of the given kind from the system's random source.
func Generate(kind Kind) (*Local, error) {
	raw := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(raw); err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	text, err := nkeys.EncodeSeed(nkeys.PrefixByte(kind), raw)
	if err != nil {
		return nil, fmt.Errorf("generate key: unknown kind %d", kind)
	}
	return FromSeed(NewSeed(text))
}

// FromSeed returns the signer of a seed. The error never quotes it.
func FromSeed(seed Seed) (*Local, error) {
	prefix, raw, err := nkeys.DecodeSeed(seed.Reveal())
	if err != nil {
		return nil, errors.New("read seed: not an nkey seed")
	}
	if len(raw) != ed25519.SeedSize {
		return nil, fmt.Errorf("read seed: %d bytes, want %d", len(raw), ed25519.SeedSize)
	}
	private := ed25519.NewKeyFromSeed(raw)
	public, err := nkeys.Encode(prefix, private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, errors.New("read seed: not a key of a kind that signs")
	}
	sign := func(payload []byte) []byte { return ed25519.Sign(private, payload) }
	return &Local{public: string(public), kind: Kind(prefix), sign: sign, seed: seed}, nil
}

// Public implements [Signer].
func (l *Local) Public() string { return l.public }

// Kind returns what the key is for.
func (l *Local) Kind() Kind { return l.kind }

// Sign implements [Signer].
func (l *Local) Sign(ctx context.Context, payload []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sign as %q: %w", l.public, err)
	}
	return l.sign(payload), nil
}

// Seed returns the seed, for the store that keeps it.
func (l *Local) Seed() Seed { return l.seed }

// Format writes the public key whatever the verb.
func (l Local) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "[signer %s]", l.public) }

// LogValue returns the public key.
func (l Local) LogValue() slog.Value { return slog.StringValue("[signer " + l.public + "]") }
