package mcp

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/supervisor/seat"
)

// wakeQuiet is how long a terminal must have been silent before a line is typed into it.
const wakeQuiet = 2 * time.Second

// waker types a line at the prompt of the agent whose seat is in a folder.
func waker(dir string) func(context.Context, string) (bool, error) {
	return func(ctx context.Context, line string) (bool, error) {
		c, err := seat.Open(ctx, dir)
		if err != nil {
			return false, err
		}
		defer func() { _ = c.Close() }() // the seat goes on
		return c.Wake(ctx, line, wakeQuiet)
	}
}
