package supervisor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

var (
	t0    = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	fresh = supervisor.State{Goal: supervisor.GoalRun, Process: wire.ProcessNone, Grant: supervisor.GrantHeld}
	rules = supervisor.Rules{Policy: supervisor.DefaultPolicy(supervisor.RestartOnFailure), Joins: true, Linger: 10 * time.Minute}
)

// TestNext walks through lives of agents: each step is an event, and what it leads to.
func TestNext(t *testing.T) {
	type step struct {
		after   time.Duration // since the step before
		event   supervisor.Event
		phase   string
		actions []supervisor.Action
	}
	begin := step{0, supervisor.Event{Kind: supervisor.EventBegin}, wire.AgentStarting, acts(supervisor.ActStart)}
	started := step{0, supervisor.Event{Kind: supervisor.EventStarted, PID: 7, Began: t0}, wire.AgentStarting, nil}
	seen := step{0, supervisor.Event{Kind: supervisor.EventSeen}, wire.AgentReady, nil}
	ended := func(after time.Duration, code int, phase string, a ...supervisor.Action) step {
		return step{after, supervisor.Event{Kind: supervisor.EventEnded, Ending: supervisor.Ending{Code: code}}, phase, a}
	}
	stop := func(phase string, a ...supervisor.Action) step {
		return step{0, supervisor.Event{Kind: supervisor.EventStop}, phase, a}
	}
	due := func(after time.Duration, phase string, a ...supervisor.Action) step {
		return step{after, supervisor.Event{Kind: supervisor.EventDue}, phase, a}
	}
	stopIn := func(grace time.Duration, a ...supervisor.Action) step {
		return step{0, supervisor.Event{Kind: supervisor.EventStop, Grace: grace}, wire.AgentStopping, a}
	}
	just := func(kind supervisor.EventKind, phase string, a ...supervisor.Action) step {
		return step{0, supervisor.Event{Kind: kind, Reason: "why"}, phase, a}
	}
	exited, stopping, backoff := wire.AgentExited, wire.AgentStopping, wire.AgentBackoff
	undone := step{0, supervisor.Event{Kind: supervisor.EventBegin, Run: 1}, exited, acts(supervisor.ActRetire)}
	for name, steps := range map[string][]step{
		"works_and_is_stopped": {begin, started, seen, stop(stopping, supervisor.ActStop), ended(0, 0, exited, supervisor.ActRetire), just(supervisor.EventRetired, exited)},
		"finishes":             {begin, started, seen, ended(time.Hour, 0, exited, supervisor.ActSuspend), due(10*time.Minute, exited, supervisor.ActRetire), just(supervisor.EventRetired, exited)},
		"finishes_and_begins_anew": {
			begin, started, seen, ended(time.Hour, 0, exited, supervisor.ActSuspend),
			just(supervisor.EventRestart, wire.AgentStarting, supervisor.ActStart), started, seen,
		},
		"finishes_and_begins_anew_as_the_next_keeper_begins": {
			begin, started, seen, ended(time.Hour, 0, exited, supervisor.ActSuspend),
			just(supervisor.EventRestart, wire.AgentStarting, supervisor.ActStart), just(supervisor.EventBegin, wire.AgentStarting), started, seen,
		},
		"finishes_and_begins_anew_and_is_stopped_as_the_next_keeper_begins": {
			begin, started, seen, ended(time.Hour, 0, exited, supervisor.ActSuspend),
			just(supervisor.EventRestart, wire.AgentStarting, supervisor.ActStart), stop(stopping), just(supervisor.EventBegin, stopping),
			{0, started.event, stopping, acts(supervisor.ActStop)},
		},
		"fails_and_comes_back": {
			begin, started, seen, ended(time.Hour, 3, backoff, supervisor.ActSuspend), due(time.Second-1, backoff),
			due(1, wire.AgentStarting, supervisor.ActStart), started, seen,
		},
		"is_stopped_while_it_waits":                      {begin, started, ended(time.Second, 3, backoff, supervisor.ActSuspend), stop(exited, supervisor.ActRetire)},
		"is_stopped_while_it_starts":                     {begin, stop(stopping), {0, started.event, stopping, acts(supervisor.ActStop)}, ended(0, 0, exited, supervisor.ActRetire)},
		"is_stopped_and_never_began":                     {begin, stop(stopping), just(supervisor.EventNotStarted, exited, supervisor.ActRetire)},
		"is_stopped_and_never_began_for_the_next_keeper": {begin, stop(stopping), undone},
		"is_lost_and_stopped_and_not_there": {
			begin, started, just(supervisor.EventLost, stopping), stop(stopping), undone,
		},
		"is_restarted":             {begin, started, seen, just(supervisor.EventRestart, stopping, supervisor.ActStop), ended(0, 143, wire.AgentStarting, supervisor.ActStart)},
		"is_restarted_and_stopped": {begin, started, just(supervisor.EventRestart, stopping, supervisor.ActStop), stop(stopping), ended(0, 0, exited, supervisor.ActRetire)},
		"cannot_be_started":        {begin, {0, supervisor.Event{Kind: supervisor.EventNotStarted, Final: true}, wire.AgentFailed, acts(supervisor.ActSuspend)}},
		"does_not_start_at_once":   {begin, just(supervisor.EventNotStarted, backoff, supervisor.ActSuspend), due(time.Second, wire.AgentStarting, supervisor.ActStart)},
		"is_stopped_with_less_grace": {
			begin, started, stop(stopping, supervisor.ActStop), stopIn(time.Minute), stopIn(10 * time.Second), stopIn(time.Second, supervisor.ActStop),
			stopIn(2 * time.Second), ended(0, 0, exited, supervisor.ActRetire),
		},
		"is_stopped_with_less_grace_before_it_runs": {begin, stop(stopping), stopIn(time.Second), {0, started.event, stopping, acts(supervisor.ActStop)}},
		"is_stopped_with_less_grace_between_tries": {
			begin, started, stop(stopping, supervisor.ActStop), just(supervisor.EventNotStopped, stopping), stopIn(time.Second, supervisor.ActStop), due(time.Second, stopping),
		},
		"does_not_stop_at_once":        {begin, started, stop(stopping, supervisor.ActStop), just(supervisor.EventNotStopped, stopping), due(time.Second, stopping, supervisor.ActStop)},
		"is_not_retired_at_once":       {begin, started, stop(stopping, supervisor.ActStop), ended(0, 0, exited, supervisor.ActRetire), just(supervisor.EventNotRetired, exited), due(time.Second, exited, supervisor.ActRetire)},
		"is_retired_when_others_ended": {begin, started, stop(stopping, supervisor.ActStop), ended(0, 0, exited, supervisor.ActRetire), just(supervisor.EventNotRetired, exited), just(supervisor.EventNudge, exited, supervisor.ActRetire)},
		"is_lost_and_ended": {
			begin, started, seen, just(supervisor.EventLost, stopping), due(time.Second, stopping), just(supervisor.EventLost, stopping),
			ended(0, -1, backoff, supervisor.ActSuspend),
		},
		"is_lost_and_found": {begin, started, seen, just(supervisor.EventLost, stopping), {0, started.event, wire.AgentStarting, nil}, seen},
		"is_lost_and_stopped_and_found": {
			begin, started, seen, just(supervisor.EventLost, stopping), stop(stopping), {0, started.event, stopping, acts(supervisor.ActStop)}, ended(0, 0, exited, supervisor.ActRetire),
		},
		"is_lost_and_stopped_and_ended": {begin, started, seen, just(supervisor.EventLost, stopping), stop(stopping), ended(0, -1, exited, supervisor.ActRetire)},
		"late_words_change_nothing": {
			begin, started, seen, {0, supervisor.Event{Kind: supervisor.EventEnded, Run: 9}, wire.AgentReady, nil},
			{0, supervisor.Event{Kind: supervisor.EventLost, Run: 9}, wire.AgentReady, nil}, just(supervisor.EventNotStopped, wire.AgentReady), just(supervisor.EventRetired, wire.AgentReady), just(supervisor.EventBegin, wire.AgentReady),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := fresh, t0
			for i, st := range steps {
				now = now.Add(st.after)
				st.event.At = now
				var got []supervisor.Action
				s, got = supervisor.Next(s, rules, st.event)
				if s.Phase != st.phase || !slices.Equal(got, st.actions) {
					t.Fatalf("step %d, %s: %s %v, want %s %v", i, st.event.Kind, s.Phase, got, st.phase, st.actions)
				}
			}
		})
	}
}

func acts(a ...supervisor.Action) []supervisor.Action { return a }

// TestProcessOnly checks an agent that is not expected in the space: it is ready when its process runs.
func TestProcessOnly(t *testing.T) {
	r := rules
	r.Joins = false
	s, _ := supervisor.Next(fresh, r, supervisor.Event{Kind: supervisor.EventBegin, At: t0})
	s, _ = supervisor.Next(s, r, supervisor.Event{Kind: supervisor.EventStarted, At: t0, PID: 3, Began: t0})
	if s.Phase != wire.AgentReady {
		t.Errorf("phase is %q, want ready", s.Phase)
	}
}

func TestPolicy(t *testing.T) {
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	failure, success := supervisor.Ending{Code: 1}, supervisor.Ending{}
	short := t0.Add(-time.Second)
	for name, c := range map[string]struct {
		mode   string
		before []time.Time
		began  time.Time
		how    supervisor.Ending
		want   supervisor.Decision
	}{
		"never":               {supervisor.RestartNever, nil, short, success, supervisor.Decision{State: wire.AgentExited}},
		"never_after_failure": {supervisor.RestartNever, nil, short, failure, supervisor.Decision{State: wire.AgentFailed}},
		"done":                {supervisor.RestartOnFailure, nil, short, success, supervisor.Decision{State: wire.AgentExited}},
		"failure":             {supervisor.RestartOnFailure, nil, short, failure, supervisor.Decision{Again: true, Wait: time.Second}},
		"signal":              {supervisor.RestartOnFailure, nil, short, supervisor.Ending{Signal: "SIGKILL"}, supervisor.Decision{Again: true, Wait: time.Second}},
		"lost":                {supervisor.RestartOnFailure, nil, short, supervisor.Ending{Lost: true}, supervisor.Decision{Again: true, Wait: time.Second}},
		"always":              {supervisor.RestartAlways, nil, short, success, supervisor.Decision{Again: true, Wait: time.Second}},
		"third":               {supervisor.RestartAlways, []time.Time{at(-9 * time.Second), at(-5 * time.Second)}, short, failure, supervisor.Decision{Again: true, Wait: 4 * time.Second}},
		"too_often": {supervisor.RestartAlways, []time.Time{at(-9 * time.Second), at(-8 * time.Second), at(-7 * time.Second), at(-6 * time.Second)},
			short, failure, supervisor.Decision{State: wire.AgentFailed}},
		"old_ones_forgotten": {supervisor.RestartAlways, []time.Time{at(-200 * time.Second), at(-180 * time.Second), at(-130 * time.Second), at(-121 * time.Second)},
			short, failure, supervisor.Decision{Again: true, Wait: time.Second}},
		"good_run": {supervisor.RestartAlways, []time.Time{at(-90 * time.Second), at(-89 * time.Second), at(-88 * time.Second), at(-87 * time.Second)},
			at(-time.Minute), failure, supervisor.Decision{Again: true, Wait: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			got := supervisor.DefaultPolicy(c.mode).Decide(c.before, c.began, c.how, t0)
			if got.Again != c.want.Again || got.Wait != c.want.Wait || got.State != c.want.State || got.Reason == "" {
				t.Errorf("decided %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestPolicyWaits checks that waits grow from a second to a minute.
func TestPolicyWaits(t *testing.T) {
	p := supervisor.DefaultPolicy(supervisor.RestartAlways)
	p.Ends, p.Window = 100, time.Hour
	var ends []time.Time
	var got []time.Duration
	now := t0
	for range 8 {
		d := p.Decide(ends, now, supervisor.Ending{Code: 1}, now)
		ends, now = d.Ends, now.Add(d.Wait)
		got = append(got, d.Wait/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}; !slices.Equal(got, want) {
		t.Errorf("waits in seconds: %v, want %v", got, want)
	}
}

// host is what really happens to one agent while a model test drives its state.
type host struct {
	state   supervisor.State
	now     time.Time
	process int // run that is alive, 0 for none
	started int // run that is being started, 0 for none
	retired bool
	wanted  bool // nobody asked for the end yet
}

func (h *host) next(t *rapid.T, e supervisor.Event) {
	e.At = h.now
	before := h.state
	var actions []supervisor.Action
	h.state, actions = supervisor.Next(h.state, rules, e)
	for _, a := range actions {
		switch a {
		case supervisor.ActStart:
			if h.process != 0 || h.started != 0 {
				t.Fatalf("%s: run %d is started while run %d exists", e.Kind, h.state.Runs, max(h.process, h.started))
			}
			if h.retired || !h.wanted {
				t.Fatalf("%s: started although it is to end", e.Kind)
			}
			h.started = h.state.Runs
		case supervisor.ActRetire:
			if h.process != 0 || h.started != 0 {
				t.Fatalf("%s: retired while run %d exists", e.Kind, max(h.process, h.started))
			}
		case supervisor.ActStop:
			if h.process == 0 && e.Kind != supervisor.EventStarted && e.Kind != supervisor.EventDue {
				t.Fatalf("%s: nothing to stop", e.Kind)
			}
		}
	}
	if before.Runs > h.state.Runs || before.Restarts > h.state.Restarts {
		t.Fatalf("%s: counts went back: %+v", e.Kind, h.state)
	}
	h.check(t, e)
}

func (h *host) check(t *rapid.T, e supervisor.Event) {
	s := h.state
	switch {
	case s.Phase == wire.AgentReady && h.process == 0:
		t.Fatalf("%s: ready without a process", e.Kind)
	case (s.Phase == wire.AgentExited || s.Phase == wire.AgentFailed || s.Phase == wire.AgentBackoff) && (h.process != 0 || h.started != 0):
		t.Fatalf("%s: %s, and run %d exists", e.Kind, s.Phase, max(h.process, h.started))
	case s.Phase == wire.AgentBackoff && s.Due.IsZero():
		t.Fatalf("%s: waits for nothing", e.Kind)
	case s.Grant == supervisor.GrantRetired && !h.retired:
		t.Fatalf("%s: retired without the authority", e.Kind)
	}
}

// TestModel drives a state with everything that can happen, in any order that the world allows and some that it does not, and checks
// that no run is started beside another, that nothing is retired that lives, and that whatever is asked to end does.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &host{state: fresh, now: t0, wanted: true}
		h.next(t, supervisor.Event{Kind: supervisor.EventBegin})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h.now = h.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "s")) * time.Second)
			h.random(t)
		}
		h.wanted = false
		h.next(t, supervisor.Event{Kind: supervisor.EventStop})
		for range 8 { // whatever was under way comes to its end
			h.now = h.now.Add(2 * time.Minute)
			h.settle(t)
		}
		if h.state.Grant != supervisor.GrantRetired {
			t.Fatalf("asked to end, and it is %+v", h.state)
		}
		if s, a := supervisor.Next(h.state, rules, supervisor.Event{Kind: supervisor.EventRestart, At: h.now}); len(a) > 0 || s.Phase != h.state.Phase {
			t.Fatalf("a retired one does %v", a)
		}
	})
}

func (h *host) random(t *rapid.T) {
	ending := supervisor.Ending{Code: rapid.IntRange(0, 2).Draw(t, "code"), Lost: rapid.IntRange(0, 9).Draw(t, "lost") == 0}
	stale := rapid.IntRange(1, max(1, h.state.Runs)).Draw(t, "run")
	switch rapid.IntRange(0, 13).Draw(t, "event") {
	case 0, 1:
		h.settle(t)
	case 2:
		if h.started != 0 {
			h.process, h.started = h.started, 0
			h.next(t, supervisor.Event{Kind: supervisor.EventStarted, Run: h.process, PID: 1, Began: h.now})
		}
	case 3:
		if run := h.started; run != 0 {
			h.started = 0
			h.next(t, supervisor.Event{Kind: supervisor.EventNotStarted, Run: run, Final: ending.Lost, Reason: "no"})
		}
	case 4:
		if run := h.process; run != 0 {
			h.process = 0
			h.next(t, supervisor.Event{Kind: supervisor.EventEnded, Run: run, Ending: ending})
		}
	case 5:
		h.next(t, supervisor.Event{Kind: supervisor.EventSeen, Run: stale})
	case 6:
		h.next(t, supervisor.Event{Kind: supervisor.EventRestart})
	case 7:
		h.next(t, supervisor.Event{Kind: supervisor.EventDue})
	case 8:
		if stale != h.process && stale != h.started { // told again, late
			h.next(t, supervisor.Event{Kind: supervisor.EventEnded, Run: stale, Ending: ending})
		}
	case 9:
		h.next(t, supervisor.Event{Kind: supervisor.EventNotStopped, Run: stale, Reason: "no"})
	case 10:
		h.next(t, supervisor.Event{Kind: supervisor.EventNotRetired, Reason: "no"})
	case 11:
		h.away(t)
	case 12:
		h.next(t, supervisor.Event{Kind: supervisor.EventLost, Run: stale, Reason: "no"})
	case 13:
		if h.process != 0 { // only the connection was lost
			h.next(t, supervisor.Event{Kind: supervisor.EventStarted, Run: h.process, PID: 1, Began: h.now})
		}
	}
	if h.state.Grant == supervisor.GrantRetiring && !h.wanted {
		h.retired = true
	}
}

// away is a keeper that ends and another that finds what is there. Until it has found that, somebody may want something of the agent.
func (h *host) away(t *rapid.T) {
	h.state = supervisor.Recover(h.state, h.now)
	run, began := h.state.Runs, h.state.Begun
	switch rapid.IntRange(0, 5).Draw(t, "meanwhile") {
	case 0:
		h.wanted = false
		h.next(t, supervisor.Event{Kind: supervisor.EventStop})
	case 1:
		h.next(t, supervisor.Event{Kind: supervisor.EventRestart})
	}
	switch {
	case !began:
		h.next(t, supervisor.Event{Kind: supervisor.EventBegin})
	case h.started != 0 && rapid.Bool().Draw(t, "came"), h.process != 0:
		h.process, h.started = run, 0
		h.next(t, supervisor.Event{Kind: supervisor.EventStarted, Run: run, PID: 1, Began: h.now})
	default:
		h.started = 0
		h.next(t, supervisor.Event{Kind: supervisor.EventBegin, Run: run})
	}
}

// settle lets what was asked for come true.
func (h *host) settle(t *rapid.T) {
	switch {
	case h.started != 0:
		h.process, h.started = h.started, 0
		h.next(t, supervisor.Event{Kind: supervisor.EventStarted, Run: h.process, PID: 1, Began: h.now})
	case h.state.Phase == wire.AgentStopping && h.process != 0:
		run := h.process
		h.process = 0
		h.next(t, supervisor.Event{Kind: supervisor.EventEnded, Run: run})
	case h.state.Grant == supervisor.GrantRetiring:
		h.retired = true
		h.next(t, supervisor.Event{Kind: supervisor.EventRetired})
	default:
		h.next(t, supervisor.Event{Kind: supervisor.EventDue})
	}
}

// TestRecoverKeepsWhatIsKnown checks that a state survives being away when nothing happened.
func TestRecoverKeepsWhatIsKnown(t *testing.T) {
	s, _ := supervisor.Next(fresh, rules, supervisor.Event{Kind: supervisor.EventBegin, At: t0})
	s, _ = supervisor.Next(s, rules, supervisor.Event{Kind: supervisor.EventStarted, Run: 1, At: t0, PID: 7, Began: t0})
	s, _ = supervisor.Next(s, rules, supervisor.Event{Kind: supervisor.EventSeen, At: t0.Add(time.Second)})
	again, actions := supervisor.Next(supervisor.Recover(s, t0.Add(time.Hour)), rules, supervisor.Event{Kind: supervisor.EventStarted, Run: 1, At: t0.Add(time.Hour), PID: 7, Began: t0})
	if diff := cmp.Diff(s, again); diff != "" || len(actions) > 0 {
		t.Errorf("adopted: %v\n%s", actions, diff)
	}
}

func ExamplePolicy_Decide() {
	p := supervisor.DefaultPolicy(supervisor.RestartOnFailure)
	began := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	d := p.Decide(nil, began, supervisor.Ending{Code: 1}, began.Add(3*time.Second))
	fmt.Println(d.Again, d.Wait, d.Reason)
	// Output: true 1s exit code 1
}
