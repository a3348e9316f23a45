package bearer

import (
	"crypto/ed25519"
	"crypto/sha256"
	"sync"
	"time"
)

// outcome is what a memory says of a proof.
type outcome int

const (
	outcomeFresh outcome = iota
	outcomeUsed
	outcomeFull
)

// memory remembers which proofs were taken, for as long as they could be taken again. A proof is known by its key and its
// id, so nobody can use up the ids of somebody else. It forgets by whole buckets, each of proofs issued in one minute.
type memory struct {
	limit int

	mu      sync.Mutex // guards the fields below
	buckets map[int64]map[[sha256.Size]byte]struct{}
	count   int
	floor   int64 // nothing issued before is taken: it may have been taken and forgotten, should the clock go back
}

const bucketSeconds = 60

func newMemory(limit int) *memory {
	return &memory{limit: limit, buckets: map[int64]map[[sha256.Size]byte]struct{}{}}
}

// take remembers a proof issued at iat, which is within [ProofWindow] of now.
func (m *memory) take(key ed25519.PublicKey, id string, iat int64, now time.Time) outcome {
	name := sha256.Sum256(append([]byte(key), id...)) // the key has a fixed length
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	at := iat / bucketSeconds
	switch _, used := m.buckets[at][name]; {
	case used || iat < m.floor:
		return outcomeUsed
	case m.count >= m.limit:
		return outcomeFull
	}
	if m.buckets[at] == nil {
		m.buckets[at] = map[[sha256.Size]byte]struct{}{}
	}
	m.buckets[at][name] = struct{}{}
	m.count++
	return outcomeFresh
}

// forget drops the buckets all of whose proofs are too old to be taken.
func (m *memory) forget(now time.Time) {
	for at, names := range m.buckets {
		end := (at + 1) * bucketSeconds
		if now.Unix() > end+int64(ProofWindow/time.Second) {
			m.count -= len(names)
			m.floor = max(m.floor, end)
			delete(m.buckets, at)
		}
	}
}
