package auth

import (
	"sync"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	// connectBurst is how many connections of one life are decided at once, and connectEvery how long each one more takes.
	connectBurst = 600
	connectEvery = 200 * time.Millisecond
	// maxPaced bounds the lives that are told apart. Only lives that a bearer of ours names are counted.
	maxPaced = 1 << 16
)

// pace bounds how often one life is let in by this process. Each connection is a record of the issuance log for as long as the
// bearer behind it lives: without a bound one holder of a bearer fills the bucket that also holds the grants, so that nobody
// could be let in, or kept out, any more.
type pace struct {
	mu    sync.Mutex // guards lives
	lives map[wire.UID]time.Time
}

// take counts one connection of a life and returns 0, or returns how long to wait and counts nothing. It keeps the moment at
// which all that was counted is forgotten.
func (p *pace) take(uid wire.UID, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	free, known := p.lives[uid]
	if free.Before(now) {
		free = now
	}
	if wait := free.Add(connectEvery).Sub(now) - connectBurst*connectEvery; wait > 0 {
		return wait
	}
	if !known && len(p.lives) >= maxPaced {
		p.prune(now)
	}
	if p.lives == nil {
		p.lives = map[wire.UID]time.Time{}
	}
	p.lives[uid] = free.Add(connectEvery)
	return 0
}

// prune drops the lives of which nothing counts any more, and all of them when that is none.
func (p *pace) prune(now time.Time) {
	for uid, free := range p.lives {
		if !free.After(now) {
			delete(p.lives, uid)
		}
	}
	if len(p.lives) >= maxPaced {
		clear(p.lives)
	}
}
