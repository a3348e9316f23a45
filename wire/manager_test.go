package wire_test

import (
	"testing"

	"github.com/cotal-go/cotal/wire"
)

func TestAgentStatusEnded(t *testing.T) {
	for state, want := range map[string]bool{
		wire.AgentStarting: false, wire.AgentReady: false, wire.AgentStopping: false, wire.AgentBackoff: false,
		wire.AgentExited: true, wire.AgentFailed: true,
	} {
		if got := (wire.AgentStatus{State: state}).Ended(); got != want {
			t.Errorf("Ended of one that is %s = %t, want %t", state, got, want)
		}
	}
}
