package cli_test

import (
	"testing"
	"time"
)

// TestStopWithNoGrace stops an agent that does not hear, and then with --grace 0: it is killed at once, which ends both commands.
func TestStopWithNoGrace(t *testing.T) {
	w := newWorld(t)
	w.up()
	w.must("spawn", "--agent", "command", "--restart", "never", "--name", "deaf", "--", "/bin/sh", "-c",
		"trap '' TERM HUP; echo de''af; while :; do sleep 1; done")
	g, wait := attachOn(t, w, 80, 24, "deaf", "--view")
	g.shows("deaf\n")
	first := make(chan int, 1)
	go func() {
		code, _, _ := w.run("", "stop", "deaf", "--grace", "1h")
		first <- code
	}()
	w.until(" stopping ", "ps")
	began := time.Now()
	w.must("stop", "deaf", "--grace", "0")
	if took := time.Since(began); took >= 10*time.Second { // the default
		t.Errorf("killed after %v", took)
	}
	if code := <-first; code != 0 {
		t.Errorf("the first stop ended with %d", code)
	}
	if code := wait(); code != 0 {
		t.Errorf("attach ended with %d", code)
	}
}
