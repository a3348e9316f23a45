package supervisor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// hold is what a drain asks for whose agents are ended then.
var hold = wire.DrainRequest{Hold: 30_000}

// gate lets grants wait until it is opened.
func (s *stand) gate() (open func()) {
	gate := make(chan struct{})
	detach := s.Speak(func(ctx context.Context, command string, args, out any) error {
		if command == wire.CommandAgentGrant {
			<-gate
		}
		return s.led.ask(ctx, command, args, out)
	}, func(wire.AgentStatus) {})
	return sync.OnceFunc(func() { close(gate); detach() })
}

// TestDrainMeetsWhatIsUnderWay ends all agents while one is being granted, and drains while one that has ended is started again: what is
// accepted is told, and all else is refused until the hold is over.
func TestDrainMeetsWhatIsUnderWay(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, s *stand) error{
		"drain": func(ctx context.Context, s *stand) error { _, err := s.Drain(ctx, operator, hold); return err },
		"stop":  func(ctx context.Context, s *stand) error { _, err := s.StopAll(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				s := newStand(t, nil)
				done := s.finished(t, operator, "done")
				open := s.gate()
				defer open()
				spawned := make(chan error, 1)
				go func() {
					_, err := s.Spawn(t.Context(), operator, named("late"))
					spawned <- err
				}()
				synctest.Wait()
				if err := end(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				open()
				codeIs(t, <-spawned, wire.CodeUnavailable, "a spawn that was under way")
				_, err := s.Spawn(t.Context(), operator, named("next"))
				codeIs(t, err, wire.CodeUnavailable, "a spawn while no agents are taken")
				if name == "drain" {
					_, err = s.Restart(t.Context(), operator, wire.RestartRequest{UID: done.UID})
					codeIs(t, err, wire.CodeUnavailable, "a restart while no agents are taken")
				}
				synctest.Wait()
				if n := s.th.alive(); n != 0 {
					t.Errorf("%d processes live, want none", n)
				}
				time.Sleep(31 * time.Second)
				s.spawn(t, operator, named("next"))
				if n := s.led.count(); name == "stop" && n != 1 {
					t.Errorf("%d grants stand, want the one that was taken after the hold", n)
				}
			})
		})
	}
}

// TestDrainTellsOfARestart: an agent that has ended and is told to begin anew before the drain is one that runs.
func TestDrainTellsOfARestart(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.finished(t, operator, "a")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		release := s.HoldRecord(a.UID) // the agent does not get to read what it is told
		if _, err := s.Restart(ended, operator, wire.RestartRequest{UID: a.UID}); err != nil {
			t.Fatal(err)
		}
		_, err := s.Drain(ended, operator, hold)
		codeIs(t, err, wire.CodeDeadlineExceeded, "a drain while it is not known what runs")
		release()
		if out, err := s.Drain(t.Context(), operator, hold); err != nil || len(out.Agents) != 1 || out.Agents[0].UID != a.UID {
			t.Errorf("a drain tells of %+v, %v, want the agent that starts again", out.Agents, err)
		}
	})
}

// TestDrainIsTakenBack: a hold of nothing takes agents again, and one that is too long is refused.
func TestDrainIsTakenBack(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		for _, h := range []int64{-1, wire.MaxHold + 1} {
			_, err := s.Drain(t.Context(), operator, wire.DrainRequest{Hold: h})
			codeIs(t, err, wire.CodeBadRequest, "a hold that cannot be")
		}
		if _, err := s.Drain(t.Context(), operator, hold); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Drain(t.Context(), operator, wire.DrainRequest{}); err != nil {
			t.Fatal(err)
		}
		s.spawn(t, operator, named("a"))
	})
}
