package supervisor_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// once is a request for an agent that is not started again by itself.
func once(name string) wire.SpawnRequest {
	r := named(name)
	r.Restart = supervisor.RestartNever
	return r
}

// finished spawns an agent that ends by itself.
func (s *stand) finished(t *testing.T, by supervisor.Caller, name string) wire.AgentStatus {
	t.Helper()
	a := s.spawn(t, by, once(name)).Agent
	synctest.Wait()
	s.th.of(a.Principal).end(supervisor.Ending{})
	return s.want(t, a.UID, wire.AgentExited, wire.ProcessExited)
}

// TestRestartKeepsTheCeilings refuses to start again what would be too much, and only that.
func TestRestartKeepsTheCeilings(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *supervisor.Options) { o.MaxAgents, o.MaxChildren = 3, 1 })
		restart := func(by supervisor.Caller, a wire.AgentStatus) error {
			_, err := s.Restart(t.Context(), by, wire.RestartRequest{UID: a.UID})
			synctest.Wait()
			return err
		}
		lead := s.spawn(t, operator, named("lead")).Agent
		a := s.finished(t, operator, "a")
		kid := s.finished(t, as(lead), "kid")
		other := s.spawn(t, as(lead), named("other")).Agent
		wantLimit(t, restart(as(lead), kid), 1, 1, "one more than a parent may have")
		if err := restart(operator, a); err != nil {
			t.Errorf("restart below the ceiling: %v", err)
		}
		if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: other.UID}); err != nil {
			t.Fatal(err)
		}
		b := s.spawn(t, operator, named("b")).Agent
		err := restart(as(lead), kid)
		wantLimit(t, err, 3, 3, "one more than the supervisor has")
		if err == nil || !strings.HasPrefix(err.Error(), `restart agent "local.kid": `) {
			t.Errorf("it is told %v", err)
		}
		for _, x := range []wire.AgentStatus{lead, a, b} {
			if err := restart(operator, x); err != nil {
				t.Errorf("restart of one that runs: %v", err)
			}
		}
		if n := s.th.alive(); n != 3 {
			t.Errorf("%d run, want 3", n)
		}
	})
}

// TestRestartsAtOnceKeepTheCeilings asks for all of those that have ended at the same time, and twice for each.
func TestRestartsAtOnceKeepTheCeilings(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *supervisor.Options) { o.MaxAgents = 2 })
		var all []wire.AgentStatus
		for _, name := range []string{"a", "b", "c", "d"} {
			all = append(all, s.finished(t, operator, name))
		}
		var wg sync.WaitGroup
		for _, a := range append(all, all...) {
			wg.Go(func() {
				if _, err := s.Restart(t.Context(), operator, wire.RestartRequest{UID: a.UID}); err != nil {
					codeIs(t, err, wire.CodeResourceExhausted, "restart")
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if n := s.th.alive(); n != 2 {
			t.Errorf("%d run, want 2", n)
		}
		for _, a := range all { // no place is held for ever
			if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: a.UID}); err != nil {
				t.Fatal(err)
			}
		}
		s.spawn(t, operator, named("e"))
		s.spawn(t, operator, named("f"))
	})
}

// TestFewLinger keeps the names of those that ended last, four times as many as may run.
func TestFewLinger(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *supervisor.Options) { o.MaxAgents, o.MaxChildren = 3, 1 })
		lead := s.spawn(t, operator, named("lead")).Agent
		var kids, others []wire.AgentStatus
		for i := range 10 {
			time.Sleep(time.Second)
			kids = append(kids, s.finished(t, as(lead), "kid_"+string(rune('a'+i))))
		}
		for i := range 10 {
			time.Sleep(time.Second)
			others = append(others, s.finished(t, operator, "other_"+string(rune('a'+i))))
		}
		if n := s.led.count(); n != 1+12 {
			t.Errorf("%d grants stand, want that of the parent and 12", n)
		}
		for _, c := range []struct {
			all  []wire.AgentStatus
			gone int
		}{{kids, 8}, {others, 0}} { // of the parent's first to four, then to two of all
			for i, a := range c.all {
				if stands := s.led.has(a.Principal); stands != (i >= c.gone) {
					t.Errorf("the grant of %s stands: %v", a.Name, stands)
				}
			}
		}
	})
}

func (l *ledger) has(principal string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants[principal] != nil
}

// TestARestartHoldsItsPlace starts an agent again for a caller that waits no longer, before the agent knows: its place is taken.
func TestARestartHoldsItsPlace(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *supervisor.Options) { o.MaxAgents = 1 })
		a, b := s.finished(t, operator, "a"), s.finished(t, operator, "b")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		release := s.HoldRecord(a.UID)
		_, err := s.Restart(gone, operator, wire.RestartRequest{UID: a.UID})
		_, other := s.Restart(t.Context(), operator, wire.RestartRequest{UID: b.UID})
		release()
		if err != nil {
			t.Errorf("restart: %v", err)
		}
		wantLimit(t, other, 1, 1, "one more than the supervisor has")
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
	})
}
