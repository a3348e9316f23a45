package bearer_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/internal/faketime"
)

// TestMaintainRotatesOnceAMonth looks after a ring every hour for four months.
func TestMaintainRotatesOnceAMonth(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		d := newDesk(t)
		start, rotations, most := time.Now(), 0, 0
		for ; time.Since(start) < 4*bearer.RotateEvery+time.Hour; time.Sleep(time.Hour) {
			rotated, err := bearer.Maintain(t.Context(), d.store, space)
			if err != nil {
				t.Fatal(err)
			}
			if rotated {
				rotations++
			}
			most = max(most, len(d.record(t).Keys))
		}
		if rotations != 4 || most != 3 || len(d.record(t).Keys) != 3 && len(d.record(t).Keys) != 2 {
			t.Errorf("%d rotations in four months, at most %d keys at a time; want 4 and 3", rotations, most)
		}
	})
}
