package control

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// Health is one instance's answer to the health command: made when asked, by the process that serves.
type Health struct {
	Endpoint string    `json:"endpoint"`
	Instance string    `json:"instance"`
	Epoch    string    `json:"epoch"`
	Version  string    `json:"version,omitempty"`
	Since    time.Time `json:"since"` // when it began to serve
	// Ready says that the instance takes requests and that every check passes.
	Ready  bool    `json:"ready"`
	State  State   `json:"state"`
	Stats  Stats   `json:"stats"`
	Checks []Check `json:"checks,omitempty"` // in the order they were added
}

// State is what an instance does with requests.
type State string

// The states of an instance.
const (
	StateServing  State = "serving"  // takes requests
	StateDegraded State = "degraded" // takes requests, but a check fails
	StateDraining State = "draining" // finishes what it accepted and takes no more
)

// Check is the result of one check.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Reason is the text of a wire.Error, or a fixed sentence: what else a check returns goes to the log only.
	Reason string `json:"reason,omitempty"`
	Millis int64  `json:"ms"`
}

// Stats counts what an instance did since it began.
type Stats struct {
	Served  uint64 `json:"served"`  // answered with data
	Failed  uint64 `json:"failed"`  // answered with an error by a handler
	Refused uint64 `json:"refused"` // answered with an error before any handler ran
	Dropped uint64 `json:"dropped"` // not answered: no request of this contract
	Panics  uint64 `json:"panics"`  // handlers that panicked, counted under Failed too
	Running int    `json:"running"`
	Queued  int    `json:"queued"`
}

// checkTimeout bounds one run of the checks, checkReuse how long its result is given out: everyone may ask for
// health, and must not be able to load what the checks touch.
const (
	checkTimeout = 2 * time.Second
	checkReuse   = time.Second
)

// checker runs the checks of a service, at most one run at a time.
type checker struct {
	log    *slog.Logger
	checks []*check // fixed once the service runs

	mu     sync.Mutex // guards the two below; held during a run
	last   []Check
	lastAt time.Time

	wg sync.WaitGroup
}

type check struct {
	name string
	fn   func(context.Context) error
	busy chan struct{} // capacity 1: holds a token while fn runs
}

func (c *checker) add(name string, fn func(context.Context) error) {
	c.checks = append(c.checks, &check{name: name, fn: fn, busy: make(chan struct{}, 1)})
}

// run returns the results, fresh or at most checkReuse old.
func (c *checker) run(ctx context.Context) []Check {
	if len(c.checks) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && time.Since(c.lastAt) < checkReuse {
		return c.last
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	results := make([]Check, len(c.checks))
	var wg sync.WaitGroup
	for i, ch := range c.checks {
		wg.Go(func() { results[i] = c.one(ctx, ch) })
	}
	wg.Wait()
	c.last, c.lastAt = results, time.Now()
	return results
}

// one runs a check but does not wait for it beyond ctx: a check that hangs is reported, not joined, and is not
// started again before it has returned.
func (c *checker) one(ctx context.Context, ch *check) Check {
	start := time.Now()
	select {
	case ch.busy <- struct{}{}:
	default:
		return Check{Name: ch.name, Reason: "an earlier run has not returned"}
	}
	done := make(chan error, 1)
	c.wg.Go(func() {
		defer func() { <-ch.busy }()
		done <- c.guard(ctx, ch)
	})
	res := Check{Name: ch.name}
	select {
	case err := <-done:
		res.OK = err == nil
		res.Reason = c.reason(ctx, ch.name, err)
	case <-ctx.Done():
		res.Reason = "no result in time"
	}
	res.Millis = time.Since(start).Milliseconds()
	return res
}

func (c *checker) guard(ctx context.Context, ch *check) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.ErrorContext(ctx, "health check panicked", logkey.Name, ch.name, logkey.Error, r, logkey.Stack, string(debug.Stack()))
			err = wire.Errorf(wire.CodeInternal, "the check panicked; see the log")
		}
	}()
	return ch.fn(ctx)
}

func (c *checker) reason(ctx context.Context, name string, err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Error()
	}
	c.log.WarnContext(ctx, "health check failed", logkey.Name, name, logkey.Error, err)
	return "failed; the reason is in the log"
}

// wait returns when no check runs any more.
func (c *checker) wait() { c.wg.Wait() }
