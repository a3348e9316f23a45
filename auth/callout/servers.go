package callout

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/internal/logkey"
)

const (
	// askEvery is how often the list of our brokers is asked for at most.
	askEvery = time.Second
	// askTimeout bounds one asking.
	askTimeout = time.Second
)

// standing says what is known of the server behind a question.
type standing int

const (
	unknown standing = iota // not one of ours, as far as we know
	pinned                  // one of ours by its id; the curve key is not proved to be its
	bound                   // one of ours, and a signature of its showed that the curve key is its
)

// servers knows the brokers that we answer. A broker has a new id in each life, so one that is unknown may be ours: what it
// asks waits until the list has been read again.
type servers struct {
	ask func(context.Context) ([]string, error)
	log *slog.Logger

	wake  chan struct{} // something waits; capacity 1
	asked time.Time     // when read began last; of whoever reads

	mu     sync.Mutex // guards the rest
	ours   map[string]string
	parked []*job
	room   int
	ended  bool
}

func newServers(ask func(context.Context) ([]string, error), room int, log *slog.Logger) *servers {
	return &servers{ask: ask, log: log, wake: make(chan struct{}, 1), ours: map[string]string{}, room: room}
}

func (s *servers) standing(id, xkey string) standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch have, ok := s.ours[id]; {
	case !ok:
		return unknown
	case have == xkey:
		return bound
	}
	return pinned
}

// bind records that a question of server id, signed by it, was sealed with the key. A server has one at a time.
func (s *servers) bind(id, xkey string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.ours[id]; ok {
		s.ours[id] = xkey
	}
}

// park keeps a job until the list has been read again; false when there is no room, or nobody will read it.
func (s *servers) park(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.parked) >= s.room {
		return false
	}
	s.parked = append(s.parked, j)
	s.signal()
	return true
}

func (s *servers) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run reads the list when something waits, and hands out again what has waited. It ends when wake is closed and nothing waits
// any more.
func (s *servers) run(ctx context.Context, again func(*job)) {
	for range s.wake {
		s.mu.Lock()
		waits, ended := len(s.parked) > 0, s.ended
		s.mu.Unlock()
		if !waits {
			continue
		}
		if pause := askEvery - time.Since(s.asked); pause > 0 && !ended {
			t := time.NewTimer(pause)
			<-t.C
		}
		s.round(ctx, again)
	}
}

// round reads the list once. What was parked before the reading began is handed out whatever comes of it; what was parked
// meanwhile only if its server is on the list, since the list may be from before that server began.
func (s *servers) round(ctx context.Context, again func(*job)) {
	s.mu.Lock()
	before := s.parked
	s.parked = nil
	s.mu.Unlock()
	s.read(ctx)
	s.mu.Lock()
	ready := before
	s.parked = slices.DeleteFunc(s.parked, func(j *job) bool {
		_, ours := s.ours[j.req.NATS.Server.ID]
		if ours || s.ended {
			ready = append(ready, j)
			return true
		}
		return false
	})
	if len(s.parked) > 0 && !s.ended {
		s.signal()
	}
	s.mu.Unlock()
	for _, j := range ready {
		j.waited = true
		again(j)
	}
}

// read replaces the list. When it cannot be had, the one before it stays.
func (s *servers) read(ctx context.Context) {
	s.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	list, err := s.ask(ctx)
	if err != nil {
		s.log.WarnContext(ctx, "list of brokers not read", logkey.Error, err)
		return
	}
	ours := make(map[string]string, len(list))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range list {
		if nkeys.IsValidPublicServerKey(id) {
			ours[id] = s.ours[id]
		}
	}
	if !maps.Equal(ours, s.ours) {
		s.log.InfoContext(ctx, "list of brokers changed", logkey.Count, len(ours))
	}
	s.ours = ours
}

// end lets run finish. Nothing is parked after it.
func (s *servers) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.signal()
	close(s.wake)
}
