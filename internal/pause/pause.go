// Package pause waits for a while, or until a context ends.
package pause

import (
	"context"
	"time"
)

// For returns nil after d, or the error of ctx when that ends first.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
