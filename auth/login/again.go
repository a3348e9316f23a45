package login

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/wire"
)

// defaultPatience is how long is tried again altogether.
const defaultPatience = 20 * time.Second

// passing is an error that may pass: the same question may be asked again, not before a pause of after.
type passing struct {
	err   error
	after time.Duration
}

func (p passing) Error() string { return p.err.Error() }
func (p passing) Unwrap() error { return p.err }

// again asks until there is an answer, an error that does not pass, or none of patience left for the next try. It returns the last error
// as it was before it was marked as passing.
func again[T any](ctx context.Context, patience time.Duration, try func(ctx context.Context) (T, error)) (T, error) {
	b := backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 2 * time.Second}
	b.Reset()
	ends := time.Now().Add(patience)
	bounded, cancel := context.WithDeadline(ctx, ends)
	defer cancel()
	var last error
	for {
		v, err := try(bounded)
		var p passing
		switch {
		case err == nil:
			return v, nil
		case bounded.Err() != nil && ctx.Err() == nil:
			if last == nil { // what was wrong before says more than that the patience ended
				last = wire.Errorf(wire.CodeUnavailable, "no answer within %s: %v", patience, err)
			}
			return v, last
		case !errors.As(err, &p):
			return v, err
		}
		last = p.err
		wait := max(b.NextBackOff(), p.after)
		if !time.Now().Add(wait).Before(ends) || pause.For(ctx, wait) != nil {
			return v, last
		}
	}
}
