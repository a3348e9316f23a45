package pause_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/internal/pause"
)

func TestFor(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := pause.For(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("For() = %v after %s, want nil after an hour", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if err := pause.For(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("For() = %v after %s, want the end of its context after a minute", err, time.Since(began))
		}
	})
}
