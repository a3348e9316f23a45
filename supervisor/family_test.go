package supervisor_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// TestAFinishedChildHoldsNoName gives the name of an agent that is stopped to the next one at once, though one that it started has ended
// and could have been started again; what that one has started must have ended as well.
func TestAFinishedChildHoldsNoName(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		lead := s.spawn(t, operator, named("lead")).Agent
		mid := s.spawn(t, as(lead), once("mid")).Agent
		leaf := s.spawn(t, as(mid), once("leaf")).Agent
		s.finished(t, as(mid), "early")
		s.th.of(mid.Principal).end(supervisor.Ending{})
		s.want(t, mid.UID, wire.AgentExited, wire.ProcessExited)
		if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: lead.UID}); err != nil {
			t.Fatal(err)
		}
		s.want(t, leaf.UID, wire.AgentReady, wire.ProcessRunning)
		_, err := s.Restart(t.Context(), operator, wire.RestartRequest{UID: mid.UID})
		codeIs(t, err, wire.CodeFailedPrecondition, "restart below one that is over")
		began := time.Now()
		_, err = s.Spawn(t.Context(), operator, named("lead"))
		codeIs(t, err, wire.CodeAlreadyExists, "a name whose grant is held")
		if err == nil || !strings.Contains(err.Error(), "those that it started have not; to end them: cotal stop lead --children") {
			t.Errorf("it is told %v", err)
		}
		s.th.of(leaf.Principal).end(supervisor.Ending{})
		s.want(t, leaf.UID, wire.AgentExited, wire.ProcessExited)
		next := s.spawn(t, operator, named("lead")).Agent
		if took := time.Since(began); took > 0 {
			t.Errorf("the name was free after %v, want at once", took)
		}
		s.want(t, next.UID, wire.AgentReady, wire.ProcessRunning)
		if n := s.led.count(); n != 1 {
			t.Errorf("%d grants stand, want 1", n)
		}
	})
}

// TestAChildThatWasToEndIsNotStartedAgain stops a parent that takes its time: from then on nothing brings back who was to end with it.
func TestAChildThatWasToEndIsNotStartedAgain(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		lead := s.spawn(t, operator, named("lead")).Agent
		req := once("kid")
		req.WithParent = true
		kid := s.spawn(t, as(lead), req).Agent
		synctest.Wait()
		s.th.of(kid.Principal).end(supervisor.Ending{})
		s.want(t, kid.UID, wire.AgentExited, wire.ProcessExited)
		seat := s.th.of(lead.Principal)
		s.th.set(func() { seat.stuck = true })
		ctx, cancel := contextFor(t, time.Second)
		defer cancel()
		_, err := s.Stop(ctx, operator, wire.StopRequest{UID: lead.UID})
		codeIs(t, err, wire.CodeDeadlineExceeded, "a stop that takes its time")
		s.want(t, lead.UID, wire.AgentStopping, wire.ProcessRunning)
		_, err = s.Restart(t.Context(), operator, wire.RestartRequest{UID: kid.UID})
		codeIs(t, err, wire.CodeFailedPrecondition, "restart of one that was to end with it")
		s.want(t, kid.UID, wire.AgentExited, wire.ProcessExited)
	})
}

// TestStopMeetsASpawnUnderWay stops an agent while one that it, or a child of it, starts is being granted: nothing of it is left.
func TestStopMeetsASpawnUnderWay(t *testing.T) {
	for _, deep := range []bool{false, true} {
		faketime.Test(t, func(t *testing.T) {
			s := newStand(t, nil)
			lead := s.spawn(t, operator, named("lead")).Agent
			by := lead
			if deep {
				by = s.spawn(t, as(lead), named("mid")).Agent
			}
			gate := make(chan struct{})
			defer s.Speak(func(ctx context.Context, command string, args, out any) error {
				if command == wire.CommandAgentGrant {
					<-gate
				}
				return s.led.ask(ctx, command, args, out)
			}, func(wire.AgentStatus) {})()
			spawned := make(chan error, 1)
			go func() {
				_, err := s.Spawn(t.Context(), as(by), named("kid"))
				spawned <- err
			}()
			synctest.Wait()
			if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: lead.UID, Children: true}); err != nil {
				t.Fatal(err)
			}
			close(gate)
			codeIs(t, <-spawned, wire.CodeFailedPrecondition, "a spawn of one that was stopped meanwhile")
			time.Sleep(time.Minute)
			synctest.Wait()
			if s.th.alive() != 0 || s.led.count() != 0 {
				t.Errorf("%d processes and %d grants are left", s.th.alive(), s.led.count())
			}
		})
	}
}
