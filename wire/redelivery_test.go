package wire_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/wire"
)

func TestRedelivery(t *testing.T) {
	t.Parallel()
	waits := wire.RedeliveryWaits()
	waits[0] = 0 // the caller's copy
	for attempt, want := range map[int]time.Duration{-1: time.Minute, 1: time.Minute, 2: time.Minute, 3: 2 * time.Minute, 7: 30 * time.Minute, wire.MaxDeliveries: 30 * time.Minute} {
		if got := wire.RedeliveryWait(attempt); got != want {
			t.Errorf("RedeliveryWait(%d) = %s, want %s", attempt, got, want)
		}
	}
	for _, tc := range []struct {
		d       time.Duration
		attempt int
		want    time.Duration
	}{
		{0, 1, 0}, {-time.Second, 9, 0}, {5 * time.Second, 1, 5 * time.Second}, {5 * time.Second, 3, 5*time.Second - time.Minute},
		{29 * time.Minute, 9, 1}, // not 0, which would be granted at once
	} {
		if got := wire.NakDelay(tc.d, tc.attempt); got != tc.want {
			t.Errorf("NakDelay(%s, %d) = %s, want %s", tc.d, tc.attempt, got, tc.want)
		}
	}
}
