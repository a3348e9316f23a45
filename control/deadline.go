package control

import (
	"context"
	"sync"
	"time"
)

// lazyContext is context.WithDeadline, made when somebody first waits on it. A handler that only computes never does, and
// need not pay for a timer and for its entry in the list of the base context's children.
type lazyContext struct {
	base context.Context
	at   time.Time

	mu     sync.Mutex // guards what follows
	real   context.Context
	cancel context.CancelFunc
	ended  bool
}

func newLazyContext(base context.Context, at time.Time) *lazyContext {
	return &lazyContext{base: base, at: at}
}

// end cancels the context; its holder must call it.
func (c *lazyContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}

// force makes the real context. It is never nil.
func (c *lazyContext) force() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		c.real, c.cancel = context.WithDeadline(c.base, c.at)
		if c.ended {
			c.cancel()
		}
	}
	return c.real
}

// Deadline is that of the request.
func (c *lazyContext) Deadline() (time.Time, bool) { return c.at, true }

// Done is closed at the deadline, when the service gives up draining, and when the handler has returned.
func (c *lazyContext) Done() <-chan struct{} { return c.force().Done() }

// Value also lets package context find the real context behind this one.
func (c *lazyContext) Value(key any) any { return c.force().Value(key) }

// Err says why Done is closed, or would be if somebody had asked for it.
func (c *lazyContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.real != nil:
		return c.real.Err()
	case c.ended:
		return context.Canceled
	case c.base.Err() != nil:
		return c.base.Err()
	case !time.Now().Before(c.at):
		return context.DeadlineExceeded
	}
	return nil
}
