package delivery_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/delivery"
)

// TestNothingIsSkipped lets live copies be lost, repeated and come in bursts while somebody reads and serves as the window
// says: every message with a mention is served, once and in order, whatever the interleaving.
func TestNothingIsSkipped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var w delivery.Window
		var stored []bool // by sequence - 1: it mentions somebody
		var done uint64
		var served []uint64
		serve := func(upTo uint64) {
			for ; done < upTo; done++ {
				if stored[done] {
					served = append(served, done+1)
				}
			}
		}
		work := func() (idle bool) {
			readTo, waiting, through := w.Next(done)
			switch {
			case readTo > 0:
				serve(max(done, min(readTo, done+uint64(rapid.IntRange(1, 50).Draw(t, "batch")))))
			case len(waiting) > 0:
				if first := waiting[0]; slices.Contains(stored[done:first-1], true) {
					t.Fatalf("serves %d after %d and skips a mention between", first, done)
				}
				done = waiting[0]
				served = append(served, done)
			default:
				if through > uint64(len(stored)) || slices.Contains(stored[min(done, through):through], true) {
					t.Fatalf("nothing waits up to %d, after %d, of %d", through, done, len(stored))
				}
				done = through
				return true
			}
			return false
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0: // copies are lost
				for range rapid.IntRange(1, 5).Draw(t, "lost") {
					stored = append(stored, rapid.Bool().Draw(t, "mentions"))
				}
			case 1: // a copy comes again
				if n := len(stored); n > 0 {
					seq := rapid.IntRange(1, n).Draw(t, "again")
					if uint64(seq) <= done {
						w.Hear(uint64(seq), stored[seq-1])
					}
				}
			case 2:
				w.Anchor(uint64(len(stored)), false)
			case 3, 4, 5:
				work()
			default:
				stored = append(stored, rapid.Bool().Draw(t, "mentions"))
				w.Hear(uint64(len(stored)), stored[len(stored)-1])
			}
		}
		w.Anchor(uint64(len(stored)), false)
		for !work() {
		}
		var want []uint64
		for i, mentions := range stored {
			if mentions {
				want = append(want, uint64(i+1))
			}
		}
		if !slices.Equal(served, want) {
			t.Fatalf("served %v, want %v", served, want)
		}
		if w.Bytes() != 0 {
			t.Fatalf("%d bytes wait after all was served", w.Bytes())
		}
	})
}

// TestTooMuchIsReadLater lets more messages with mentions come than memory is for: they are dropped and read.
func TestTooMuchIsReadLater(t *testing.T) {
	t.Parallel()
	var w delivery.Window
	w.Anchor(0, false)
	for seq := uint64(1); seq <= delivery.MaxWaiting; seq++ {
		w.Hear(seq, true)
	}
	if readTo, waiting, _ := w.Next(0); readTo != 0 || len(waiting) != delivery.MaxWaiting {
		t.Errorf("next = read to %d, %d wait, want all to wait", readTo, len(waiting))
	}
	w.Hear(delivery.MaxWaiting+1, true)
	if readTo, _, _ := w.Next(0); readTo != delivery.MaxWaiting+1 || w.Bytes() != 0 {
		t.Errorf("next = read to %d, %d bytes, want to read up to %d", readTo, w.Bytes(), delivery.MaxWaiting+1)
	}
	if readTo, waiting, served := w.Next(delivery.MaxWaiting + 1); readTo != 0 || len(waiting) != 0 || served != delivery.MaxWaiting+1 {
		t.Errorf("next after reading = %d, %v, %d", readTo, waiting, served)
	}
	w.Anchor(3, true)
	if readTo, _, _ := w.Next(0); readTo != 3 {
		t.Errorf("a stream made anew is read to %d, want 3", readTo)
	}
}
