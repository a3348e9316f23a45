//go:build linux || darwin

package seat_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal/supervisor/seat"
)

// TestWrittenIsWhatTheTerminalTook types more than a terminal holds at an agent that reads nothing until it gets a signal: what was
// typed is told to be written when it was, by who typed it and by who opened the seat later.
func TestWrittenIsWhatTheTerminalTook(t *testing.T) {
	o := options(t, "sh", "-c", `stty raw -echo; trap 'head -c 600003 | wc -c; read x' WINCH; echo ready; while :; do sleep 0.01; done`)
	c := start(t, o)
	shows(t, c, "ready")
	if !c.Record().Counts {
		t.Fatal("the record does not say that the seat counts")
	}
	end, err := c.Type(within(t), []byte("abc"))
	if err != nil || end != 3 {
		t.Fatalf("Type(abc) = %d, %v; want 3", end, err)
	}
	if n, err := c.Written(within(t), end); err != nil || n != 3 {
		t.Errorf("Written(3) = %d, %v", n, err)
	}
	for range 3 {
		if end, err = c.Type(within(t), bytes.Repeat([]byte("x"), 200_000)); err != nil {
			t.Fatal(err)
		}
	}
	if end != 600_003 {
		t.Errorf("the end of all input = %d, want 600003", end)
	}
	d, err := seat.Open(within(t), o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if n, err := d.Written(within(t), 3); err != nil || n < 3 || n >= end {
		t.Errorf("Written(3) of another client = %d, %v", n, err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n, err := c.Written(soon, end); !errors.Is(err, context.DeadlineExceeded) || n >= end {
		t.Errorf("Written() before the agent reads = %d, %v; want deadline-exceeded", n, err)
	}
	if err := c.Resize(within(t), 90, 20); err != nil {
		t.Fatal(err)
	}
	for _, cl := range []*seat.Client{c, d} {
		if n, err := cl.Written(within(t), end); err != nil || n != end {
			t.Errorf("Written(%d) = %d, %v", end, n, err)
		}
	}
	shows(t, c, "600003")
	gone := make(chan error, 1)
	go func() {
		_, err := c.Written(context.Background(), end+1)
		gone <- err
	}()
	if _, err := c.Stop(within(t), 100*time.Millisecond); err != nil {
		t.Error(err)
	}
	if err := c.Release(within(t)); err != nil {
		t.Error(err)
	}
	if err := <-gone; !errors.Is(err, seat.ErrGone) {
		t.Errorf("Written() of a seat that has ended = %v, want ErrGone", err)
	}
}
