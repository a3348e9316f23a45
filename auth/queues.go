package auth

import (
	"context"
	"sync"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// maxMade bounds the lives whose queues are known to be there.
const maxMade = 1 << 16

// queueCache makes the queues of people when they first connect through this authority: most of those who are granted something
// are not there at any time, and a queue costs the broker memory. Until then what is sent to them waits in the stream, and the
// queue begins at the cut of the life.
type queueCache struct {
	mu   sync.Mutex // guards made
	made map[wire.Space]map[queueKey]struct{}
}

type queueKey struct {
	uid  wire.UID
	role string
}

func (c *queueCache) ensure(ctx context.Context, ses *session, s wire.Space, g trust.Grant) error {
	key := queueKey{g.UID, g.Role}
	c.mu.Lock()
	_, ok := c.made[s][key]
	c.mu.Unlock()
	if ok {
		return nil
	}
	if err := makeQueues(ctx, ses, s, g); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made = map[wire.Space]map[queueKey]struct{}{}
	}
	if len(c.made[s]) >= maxMade || c.made[s] == nil {
		c.made[s] = map[queueKey]struct{}{}
	}
	c.made[s][key] = struct{}{}
	return nil
}

// forget looks at every queue of a space again: the broker may have lost some.
func (c *queueCache) forget(s wire.Space) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, s)
}
