package config_test

import (
	"testing"

	"github.com/cotal-go/cotal/internal/config"
)

// TestHeld has a run count as held as long as its process holds the lock, and not another run by it.
func TestHeld(t *testing.T) {
	p := config.NewProject(t.TempDir())
	run := config.Run{PID: 7, Start: "then", URL: "nats://127.0.0.1:4222"}
	held := func(want bool) {
		t.Helper()
		if got := p.Held(run); got != want {
			t.Errorf("held: %v, want %v", got, want)
		}
	}
	held(false)
	release, err := p.Lock()
	if err != nil || release == nil {
		t.Fatalf("lock: %v", err)
	}
	held(false) // it is only starting
	if err := p.SaveRun(run); err != nil {
		t.Fatal(err)
	}
	held(true)
	other := run
	other.Start = "later"
	if p.Held(other) {
		t.Error("a run is held by the process of another one")
	}
	release()
	held(false)
}
