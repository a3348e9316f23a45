package faketime

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test is [synctest.Test], with one processor for the whole process until the bubble ends where the race detector is on.
//
// All timers of a bubble run under one context of the race detector, which the runtime does not guard (Go 1.26,
// golang/go#78156): two goroutines that find a due timer at once, or one beside the clock of the bubble, use it from two
// threads, and the process dies of "ThreadSanitizer: CHECK failed: tsan_rtl.cpp". One processor takes turns. The detector
// finds a race by what is ordered before what, whether or not it runs at once.
func Test(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	if raceEnabled {
		enter()
		defer leave()
	}
	synctest.Test(t, fn)
}

// open are the bubbles of this process.
var open struct {
	sync.Mutex     // guards the two below
	bubbles    int // that have not ended
	processors int // the process had before the first of them
}

func enter() {
	open.Lock()
	defer open.Unlock()
	if open.bubbles == 0 {
		open.processors = runtime.GOMAXPROCS(1)
	}
	open.bubbles++
}

func leave() {
	open.Lock()
	defer open.Unlock()
	if open.bubbles--; open.bubbles == 0 {
		runtime.GOMAXPROCS(open.processors)
	}
}
