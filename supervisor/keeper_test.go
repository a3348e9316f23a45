package supervisor_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// TestC12LostAnswer loses every answer: of the authority, of the keeper, and the keeper itself. One process comes of it, and the model
// that is used is said.
func TestC12LostAnswer(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.led.set(func() { s.led.lose = 2 })
		s.th.set(func() { s.th.slow = 90 * time.Second })
		req := request("process")
		req.Model = "large"
		gaveUp, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Spawn(gaveUp, operator, req)
		codeIs(t, err, wire.CodeDeadlineExceeded, "spawn whose answer takes longer than its caller waits")
		first := s.spawn(t, operator, req)
		second := s.spawn(t, operator, req)
		if !first.Repeated || first.Agent.UID != second.Agent.UID || first.Agent.Model != "large" {
			t.Errorf("the same request made %+v and %+v", first, second)
		}
		s.again(t)
		third := s.spawn(t, operator, req)
		if third.Agent.UID != first.Agent.UID || !third.Repeated {
			t.Errorf("after a restart the same request made %+v", third)
		}
		time.Sleep(5 * time.Minute)
		s.want(t, first.Agent.UID, wire.AgentReady, wire.ProcessRunning)
		if n := s.th.alive(); n != 1 || s.led.count() != 1 {
			t.Errorf("%d processes and %d grants, want one", n, s.led.count())
		}
		other := req
		other.Model = "small"
		_, err = s.Spawn(t.Context(), operator, other)
		codeIs(t, err, wire.CodeConflict, "the same id for another agent")
	})
}

// TestC12Refused refuses what the host cannot take before anything is made.
func TestC12Refused(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		req := request("process")
		req.Variant = "wild"
		_, err := s.Spawn(t.Context(), operator, req)
		codeIs(t, err, wire.CodeUnimplemented, "a variant that there is not")
		if s.led.count() != 0 {
			t.Error("it was granted all the same")
		}
		req.Variant = "" // a refused request may be corrected under the same id
		s.spawn(t, operator, req)
	})
}

// TestC13SlowStarter joins after 90 s and is starting until then, whatever is seen of its life before.
func TestC13SlowStarter(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, request("joins")).Agent
		for range 9 {
			time.Sleep(10 * time.Second)
			if got := s.want(t, a.UID, wire.AgentStarting, wire.ProcessRunning); got.Reason != "" || got.Mesh.Status != wire.StatusOffline {
				t.Errorf("a slow starter is told as %+v", got)
			}
		}
		s.RosterHas(present(a, wire.StatusIdle))
		if got := s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning); got.Mesh.Status != wire.StatusIdle {
			t.Errorf("mesh is %+v", got.Mesh)
		}
	})
}

// TestIsSeenToGo tells that an agent left the space also when delivery says so after its name was given back.
func TestIsSeenToGo(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, request("joins")).Agent
		synctest.Wait()
		s.RosterHas(present(a, wire.StatusIdle))
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: a.UID}); err != nil {
			t.Fatal(err)
		}
		s.want(t, a.UID, wire.AgentExited, wire.ProcessExited)
		gone := present(a, wire.StatusOffline)
		gone.Gone = wire.GoneLeft
		s.RosterHas(gone)
		want := wire.AgentMesh{Status: wire.StatusOffline, Gone: wire.GoneLeft, Since: gone.Presence.TS}
		if got := s.see(t, a.UID).Mesh; got != want {
			t.Errorf("mesh is %+v, want %+v", got, want)
		}
	})
}

// TestReadyIsOfThisRun does not take the record of a run that was killed for the one that follows.
func TestReadyIsOfThisRun(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, request("joins")).Agent
		synctest.Wait()
		old := present(a, wire.StatusWorking)
		s.RosterHas(old)
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		time.Sleep(time.Second)
		s.th.of(a.Principal).end(supervisor.Ending{Signal: "SIGKILL"})
		time.Sleep(1500 * time.Millisecond)
		s.RosterHas(old) // told again, late
		s.want(t, a.UID, wire.AgentStarting, wire.ProcessRunning)
		s.RosterHas(present(a, wire.StatusIdle))
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
	})
}

// TestP7Cycles spawns and finishes fifty times: nothing piles up.
func TestP7Cycles(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *supervisor.Options) { o.MaxEnded = 10 })
		for range 50 {
			a := s.spawn(t, operator, request("process")).Agent
			synctest.Wait()
			s.th.of(a.Principal).end(supervisor.Ending{})
			if got := s.want(t, a.UID, wire.AgentExited, wire.ProcessExited); got.Name != "process" {
				t.Fatalf("the name is %q: the one before keeps it", got.Name)
			}
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if n := s.th.alive(); n != 0 || s.led.count() != 0 {
			t.Errorf("%d processes and %d grants are left", n, s.led.count())
		}
		if n := len(s.Agents(operator, wire.AgentsRequest{Ended: true}).Agents); n > 10 {
			t.Errorf("%d ended agents are kept, at most 10", n)
		}
	})
}

// TestC27EndsByItself is an agent that ends after 5 s, as one that nobody watches: it is kept alive where that is wanted, and else what
// it ended with is told exactly.
func TestC27EndsByItself(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		script := func(p *playSeat) {
			time.AfterFunc(5*time.Second, func() { p.end(supervisor.Ending{}, "nobody is watching: good bye") })
		}
		s.th.set(func() { s.th.script = script })
		once := s.spawn(t, operator, request("process")).Agent
		time.Sleep(6 * time.Second)
		got := s.want(t, once.UID, wire.AgentExited, wire.ProcessExited)
		if got.Reason != "exit code 0" || len(got.Process.LastLines) != 1 || got.Process.LastLines[0] != "nobody is watching: good bye" {
			t.Errorf("told as %+v", got)
		}
		req := request("process")
		req.Name, req.Restart = "kept", supervisor.RestartAlways
		kept := s.spawn(t, operator, req).Agent
		time.Sleep(7 * time.Second)
		if got := s.want(t, kept.UID, wire.AgentReady, wire.ProcessRunning); got.Process.Restarts != 1 {
			t.Errorf("restarted %s, want once", times(got.Process.Restarts))
		}
		time.Sleep(time.Minute)
		got = s.want(t, kept.UID, wire.AgentFailed, wire.ProcessExited)
		if got.Reason != "exit code 0; 5 ends within 2m0s, not started again" {
			t.Errorf("given up because %q", got.Reason)
		}
	})
}

// TestOutageIsNoFailure starts agents while the authority is away: they wait for it, however long.
func TestOutageIsNoFailure(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, request("process")).Agent
		synctest.Wait()
		s.led.set(func() { s.led.down = wire.Errorf(wire.CodeUnavailable, "no authority") })
		s.th.of(a.Principal).end(supervisor.Ending{Code: 1})
		time.Sleep(20 * time.Minute)
		if got := s.want(t, a.UID, wire.AgentStarting, wire.ProcessNone); got.Reason == "" {
			t.Error("it does not say what it waits for")
		}
		s.led.mu.Lock()
		s.led.down = nil
		s.led.mu.Unlock()
		time.Sleep(time.Minute)
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
	})
}

// TestLateRequestsHarmNoStart: what a keeper asked of the authority for earlier starts, those of the keeper before among them, comes again
// while a later one runs. It is known as late.
func TestLateRequestsHarmNoStart(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, request("process")).Agent
		var late []any
		for range 3 {
			time.Sleep(10 * time.Minute) // restarts do not add up
			s.th.of(a.Principal).end(supervisor.Ending{Code: 1})
			synctest.Wait()
			s.led.set(func() {
				if s.led.grants[a.Principal].Started {
					t.Errorf("its end is not told: %+v", s.led.asked)
				}
			})
			time.Sleep(time.Minute)
			s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
			s.led.set(func() {
				for _, r := range late {
					_, _ = s.led.do(r)
				}
				if g := s.led.grants[a.Principal]; g == nil || !g.Started {
					t.Errorf("what came late took the proof of the start that runs: %+v of %+v", g, s.led.asked)
				}
				late = s.led.asked
			})
			s.again(t)
		}
		if len(late) < 6 {
			t.Errorf("it asked for %+v, want three starts and their stops", late)
		}
	})
}

// TestAdoption ends keepers at all times: agents go on, nothing runs twice, and what was begun is finished.
func TestAdoption(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		running := s.spawn(t, operator, request("process")).Agent
		lost := s.spawn(t, operator, named("lost")).Agent
		done := s.spawn(t, operator, named("done")).Agent
		stopped := s.spawn(t, operator, named("stopped")).Agent
		synctest.Wait()
		slow := s.th.of(stopped.Principal)
		s.th.set(func() { slow.stuck = true })
		told := make(chan error, 1)
		go func() {
			_, err := s.Stop(context.WithoutCancel(t.Context()), operator, wire.StopRequest{UID: stopped.UID})
			told <- err
		}()
		synctest.Wait()
		s.want(t, stopped.UID, wire.AgentStopping, wire.ProcessRunning)
		s.stop()
		if e, ok := errors.AsType[*wire.Error](<-told); !ok || e.Code != wire.CodeUnavailable || e.Outcome != wire.OutcomeUnknown {
			t.Errorf("who asked for an end that the keeper did not see is told %+v, want unavailable with outcome unknown", e)
		}
		s.th.set(func() { slow.stuck = false })
		s.th.of(lost.Principal).lose()
		s.th.of(done.Principal).end(supervisor.Ending{Code: 0}, "done while nobody looked")
		if n := s.th.alive(); n != 3 {
			t.Fatalf("%d processes live after the supervisor ended, want 3", n)
		}
		s.begin(t)
		if got := s.want(t, running.UID, wire.AgentReady, wire.ProcessRunning); got.Process.PID != 4242 {
			t.Errorf("adopted as %+v", got.Process)
		}
		s.want(t, lost.UID, wire.AgentBackoff, wire.ProcessLost)
		if got := s.want(t, done.UID, wire.AgentExited, wire.ProcessExited); len(got.Process.LastLines) != 1 {
			t.Errorf("its last words are lost: %+v", got.Process)
		}
		s.want(t, stopped.UID, wire.AgentExited, wire.ProcessExited)
		time.Sleep(2 * time.Second)
		s.want(t, lost.UID, wire.AgentReady, wire.ProcessRunning)
		if _, _, twins := s.th.counts(); len(twins) > 0 {
			t.Errorf("ran twice: %v", twins)
		}
	})
}

func named(name string) wire.SpawnRequest {
	req := request("process")
	req.Name = name
	return req
}

// TestEndsAtAnyMoment ends the keeper at every moment of the lives of agents, many times, and at the end everything is accounted for.
func TestEndsAtAnyMoment(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.th.set(func() { s.th.slow = 30 * time.Millisecond })
		script := func(p *playSeat) {
			switch len(s.th.seats) % 3 {
			case 0:
				time.AfterFunc(70*time.Millisecond, func() { p.end(supervisor.Ending{Code: 1}) })
			case 1:
				time.AfterFunc(50*time.Millisecond, func() { p.end(supervisor.Ending{}) })
			}
		}
		s.th.set(func() { s.th.script = script })
		for round := range 40 {
			k := s.Keeper // of this round, also for a request that comes late
			for range 3 {
				req := request("process")
				go func() {
					ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
					defer cancel()
					_, _ = k.Spawn(ctx, operator, req)
				}()
			}
			time.Sleep(time.Duration(round) * 3 * time.Millisecond)
			s.again(t)
		}
		time.Sleep(2 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.StopAll(ctx); err != nil {
			t.Errorf("stop all: %v", err)
		}
		if err := s.SweepGrants(ctx); err != nil {
			t.Error(err)
		}
		_, _, twins := s.th.counts()
		if n := s.th.alive(); n != 0 || s.led.count() != 0 || len(twins) > 0 {
			t.Errorf("%d processes and %d grants are left, %d ran twice", n, s.led.count(), len(twins))
		}
	})
}

// TestManyStarts spawns a thousand at once: none fails, and few start at a time.
func TestManyStarts(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *supervisor.Options) { o.MaxStarts = 8 })
		s.th.set(func() { s.th.slow = 100 * time.Millisecond })
		var wg sync.WaitGroup
		var mu sync.Mutex
		var failed []error
		for range 1000 {
			wg.Go(func() {
				if _, err := s.Spawn(t.Context(), operator, request("process")); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, busiest, twins := s.th.counts(); s.th.alive() != 1000 || len(failed) > 0 || busiest != 8 || len(twins) > 0 {
			t.Errorf("%d run, %d started at a time, %d twins, failed: %v", s.th.alive(), busiest, len(twins), errors.Join(failed...))
		}
	})
}

// TestUncertainStart does not think that nothing runs when a seat was started and did not say so.
func TestUncertainStart(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.th.set(func() { s.th.deaf = 3 })
		a := s.spawn(t, operator, named("a")).Agent
		if got := s.want(t, a.UID, wire.AgentStarting, wire.ProcessNone); !strings.Contains(got.Reason, "uncertain") {
			t.Errorf("it says %q", got.Reason)
		}
		time.Sleep(time.Minute)
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		if starts, _, twins := s.th.counts(); starts != 1 || len(twins) > 0 {
			t.Errorf("started %s", times(starts))
		}
	})
}

// TestStopWhileItWaits ends one that waits for the authority at once.
func TestStopWhileItWaits(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.th.set(func() { s.th.refuse = wire.Errorf(wire.CodeUnavailable, "not now") })
		a := s.spawn(t, operator, named("a")).Agent
		time.Sleep(10 * time.Minute)
		began := time.Now()
		if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: a.UID}); err != nil || time.Since(began) > time.Second {
			t.Errorf("stopped after %v: %v", time.Since(began), err)
		}
	})
}
