package manager_test

import (
	"errors"
	"testing"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/wire"
)

// TestSpawnAgainAsksAll repeats a request while the supervisor that it may have reached is silent: nobody else makes the agent, since
// there may be one.
func TestSpawnAgainAsksAll(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		both := []string{"one", "two"}
		one := (&desk{name: "one", peers: both}).open(t, m)
		req := wire.SpawnRequest{Persona: "scribe", Name: "nova", RequestID: "again"}
		_, err := c.SpawnAgain(t.Context(), req, "")
		e, ok := errors.AsType[*wire.Error](err)
		if !ok || e.Code != wire.CodeUnavailable || e.Outcome != wire.OutcomeNotExecuted || e.Details["requestId"] != "again" || e.Details["expected"] != 2 {
			t.Fatalf("SpawnAgain = %#v; want unavailable, 1 of 2 answered, not executed", err)
		}
		if len(one.agents) > 0 {
			t.Errorf("agents = %v, want none", one.agents)
		}
		there := named("nova", "two", wire.AgentReady)
		there.RequestID = "again"
		(&desk{name: "two", peers: both, agents: []wire.AgentStatus{there}}).open(t, m)
		if got, err := c.SpawnAgain(t.Context(), req, ""); err != nil || got.Agent.UID != there.UID || !got.Repeated {
			t.Errorf("once it answers: %+v, %v; want its agent", got, err)
		}
		req.RequestID = "unheard"
		if got, err := c.SpawnAgain(t.Context(), req, "one"); err != nil || got.Repeated || got.Agent.Instance != "one" {
			t.Errorf("when all answer and none knows it: %+v, %v; want a new agent", got, err)
		}
		req.RequestID = ""
		if _, err := c.SpawnAgain(t.Context(), req, ""); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("without an id: %v, want bad-request", err)
		}
	})
}
