package manager

import (
	"context"
	"slices"
	"time"

	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/wire"
)

const (
	// settleStep bounds one question of Settle, so that its caller can say that it goes on; settleSlack is for the answer.
	settleStep  = 5 * time.Second
	settleSlack = time.Second
)

// Settle follows an agent until it has left the states, or ctx ends, and returns it as it was last known. Progress is told, from the
// same goroutine, about each look at it that brought nothing new; the error is why there was no answer, or nil. A supervisor that is
// away for a while, such as one that starts again, is asked again.
//
// Errors: the code of ctx when that ended; those of the supervisor, not-found among them, when it refuses.
func (c *Client) Settle(ctx context.Context, a wire.AgentStatus, from []string, progress func(wire.AgentStatus, error)) (wire.AgentStatus, error) {
	for {
		begun := time.Now()
		step, cancel := context.WithTimeout(ctx, settleStep+settleSlack)
		now, err := c.Await(step, a, from...)
		cancel()
		code := wire.CodeOf(err)
		switch {
		case err == nil:
			a = now
			if !slices.Contains(from, a.State) {
				return a, nil
			}
		case ctx.Err() != nil:
			return a, wire.Errorf(wire.CodeOf(ctx.Err()), "wait for agent %q: %v", a.Principal, ctx.Err())
		case code != wire.CodeUnavailable && code != wire.CodeDeadlineExceeded:
			return a, err
		}
		progress(a, err)
		if time.Since(begun) < spawnPause && pause.For(ctx, spawnPause) != nil {
			return a, wire.Errorf(wire.CodeOf(ctx.Err()), "wait for agent %q: %v", a.Principal, ctx.Err())
		}
	}
}
