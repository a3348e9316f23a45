//go:build linux

package seat_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/cotal-go/cotal/supervisor/seat"
)

// TestUnreadInputKeepsNoSeat stops an agent that reads nothing of what was typed: its seat ends all the same when it is released.
func TestUnreadInputKeepsNoSeat(t *testing.T) {
	o := options(t, "sh", "-c", "stty raw -echo; echo ready; sleep 1000")
	c := start(t, o)
	shows(t, c, "ready")
	for range 4 {
		if err := c.Input(within(t), bytes.Repeat([]byte("x"), seat.MaxInput)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Resize(within(t), 90, 20); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stop(within(t), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := c.Release(within(t)); err != nil {
		t.Fatal(err)
	}
	pid := c.Record().Seat.PID
	until(t, "the seat's process is gone", func() bool { return !runs(pid) })
}
