package bearer

import (
	"crypto/ed25519"
	"time"
)

// Memory is what a [ProofChecker] remembers, for a test in which the clock goes back.
type Memory struct{ m *memory }

// NewMemory returns one with room for four.
func NewMemory() Memory { return Memory{newMemory(4)} }

// Take reports whether a proof is fresh.
func (m Memory) Take(id string, iat int64, now time.Time) bool {
	return m.m.take(make(ed25519.PublicKey, ed25519.PublicKeySize), id, iat, now) == outcomeFresh
}
