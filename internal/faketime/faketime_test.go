package faketime_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
)

// TestDueTimers has goroutines meet timers that are due at the same time. In synctest.Test it ends the process under the race
// detector; when it no longer does, this package can go.
func TestDueTimers(t *testing.T) {
	for range 50 {
		faketime.Test(t, func(*testing.T) {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					timer := time.NewTimer(time.Hour)
					for range 2000 {
						timer.Reset(0)
						<-timer.C
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestProcessorsComeBack opens bubbles beside each other: the process has all its processors again after the last.
func TestProcessorsComeBack(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Run("bubbles", func(t *testing.T) {
		for range 8 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				faketime.Test(t, func(*testing.T) { time.Sleep(time.Hour) })
			})
		}
	})
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("%d processors after the bubbles, %d before", after, before)
	}
}
