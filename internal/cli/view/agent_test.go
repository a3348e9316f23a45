package view_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

// TestFacts pins how the two facts about an agent read.
func TestFacts(t *testing.T) {
	for want, p := range map[string]wire.AgentProcess{
		"not begun":                            {State: wire.ProcessNone},
		"running, pid 12":                      {State: wire.ProcessRunning, PID: 12},
		"running":                              {State: wire.ProcessRunning},
		"exited with code 0":                   {State: wire.ProcessExited},
		"exited with code 3, started again 1×": {State: wire.ProcessExited, Code: 3, Restarts: 1},
		`ended by SIG\x1bX`:                    {State: wire.ProcessExited, Signal: "SIG\x1bX"},
		"lost with its seat":                   {State: wire.ProcessLost},
	} {
		if got := view.Process(p); got != want {
			t.Errorf("Process(%+v) = %q, want %q", p, got, want)
		}
	}
	gone := wire.AgentMesh{Status: wire.StatusOffline, Since: 1}
	for _, tt := range []struct {
		state string
		mesh  wire.AgentMesh
		want  string
	}{
		{wire.AgentReady, wire.AgentMesh{}, "unknown"},
		{wire.AgentReady, wire.AgentMesh{Status: wire.StatusIdle}, "idle"},
		{wire.AgentReady, wire.AgentMesh{Status: wire.StatusWorking, Activity: "te\nst", Condition: "rate-limit"}, `working: te\x0ast (rate-limit)`},
		{wire.AgentReady, gone, "offline"},
		{wire.AgentExited, wire.AgentMesh{Status: wire.StatusOffline, Gone: wire.GoneLeft, Since: 1}, "offline (left)"},
		{wire.AgentReady, wire.AgentMesh{Status: wire.StatusOffline}, "none"}, // it runs, and the space never heard of it
		{wire.AgentStarting, wire.AgentMesh{Status: wire.StatusOffline}, "offline"},
		{wire.AgentExited, wire.AgentMesh{Status: wire.StatusOffline}, "offline"},
	} {
		if got := view.Mesh(wire.AgentStatus{State: tt.state, Mesh: tt.mesh}); got != tt.want {
			t.Errorf("Mesh of one that is %s, %+v = %q, want %q", tt.state, tt.mesh, got, tt.want)
		}
	}
}

func TestAge(t *testing.T) {
	now := time.Now()
	for want, d := range map[string]time.Duration{"0s": -time.Hour, "59s": 59 * time.Second, "1m": 119 * time.Second, "47h": 47 * time.Hour, "2d": 50 * time.Hour} {
		if got := view.Age(now.Add(-d), now); got != want {
			t.Errorf("Age of %v = %q, want %q", d, got, want)
		}
	}
	if got := view.Age(time.Time{}, now); got != "-" {
		t.Errorf("Age of nothing = %q, want -", got)
	}
}
