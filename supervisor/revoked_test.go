package supervisor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// TestRevokedAgentEnds: an agent whose grant somebody else has retired ends, and no other does, also not while the authority does not say
// what stands.
func TestRevokedAgentEnds(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		gone, stays := s.spawn(t, operator, named("gone")).Agent, s.spawn(t, operator, named("stays")).Agent
		s.want(t, gone.UID, wire.AgentReady, wire.ProcessRunning)
		s.led.mu.Lock()
		delete(s.led.grants, gone.Principal)
		s.led.down = wire.Errorf(wire.CodeUnavailable, "nobody there")
		s.led.mu.Unlock()
		time.Sleep(5 * time.Minute)
		s.want(t, gone.UID, wire.AgentReady, wire.ProcessRunning)
		s.led.mu.Lock()
		s.led.down = nil
		s.led.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if a := s.want(t, gone.UID, wire.AgentExited, wire.ProcessExited); a.Reason != "its grant was revoked" {
			t.Errorf("it ended since %q", a.Reason)
		}
		s.want(t, stays.UID, wire.AgentReady, wire.ProcessRunning)
	})
}

// TestRevokedAgentEndsSoon: an agent that has just gone from the space while its process runs is looked up within seconds, since a revocation
// takes connections away.
func TestRevokedAgentEndsSoon(t *testing.T) {
	for _, c := range []struct {
		name  string
		goes  bool
		state string
	}{{"gone", true, wire.AgentExited}, {"there", false, wire.AgentReady}} {
		t.Run(c.name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				s := newStand(t, nil)
				a := s.spawn(t, operator, named("scribe")).Agent
				s.RosterHas(present(a, wire.StatusIdle))
				time.Sleep(time.Minute + time.Second) // the last look at all grants was a moment ago
				synctest.Wait()
				s.led.mu.Lock()
				delete(s.led.grants, a.Principal)
				s.led.mu.Unlock()
				if c.goes {
					gone := present(a, wire.StatusOffline)
					gone.GoneMS = time.Now().UnixMilli()
					s.RosterHas(gone)
				}
				time.Sleep(20 * time.Second)
				if got := s.see(t, a.UID); got.State != c.state {
					t.Errorf("20 s later it is %s, want %s", got.State, c.state)
				}
			})
		})
	}
}
