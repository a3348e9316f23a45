package supervisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

// person is somebody with the right to spawn who is no agent.
func person(actor string) supervisor.Caller {
	return supervisor.Caller{Life: wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: actor}, UID: wire.NewUID()}}
}

// TestC17WhoMayStop lets whoever started an agent, and those above it, end it, and nobody else.
func TestC17WhoMayStop(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		ada, carl := person("ada"), person("carl")
		a := s.spawn(t, ada, named("a")).Agent
		b := s.spawn(t, as(a), named("b")).Agent
		c := s.spawn(t, as(b), named("c")).Agent
		other := s.spawn(t, carl, named("other")).Agent
		if b.Parent != a.Principal || b.ParentUID != a.UID {
			t.Errorf("the parent of what an agent started is %q", b.Parent)
		}
		deployer := supervisor.Caller{Life: wire.Lifecycle{Principal: wire.Principal{Owner: "u_other", Actor: "d"}, UID: wire.NewUID()}, Mode: wire.ModeOwner}
		for name, by := range map[string]supervisor.Caller{"carl": carl, "another agent": as(other), "the child": as(c), "another owner": deployer} {
			_, err := s.Stop(t.Context(), by, wire.StopRequest{UID: b.UID})
			codeIs(t, err, wire.CodePermissionDenied, name+" stops b")
			if got := names(s.Agents(by, wire.AgentsRequest{})); slices.Contains(got, "b") {
				t.Errorf("%s is told of b: %v", name, got)
			}
		}
		if got := names(s.Agents(as(a), wire.AgentsRequest{})); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("a is told of %v", got)
		}
		if _, err := s.Stop(t.Context(), as(a), wire.StopRequest{UID: c.UID}); err != nil {
			t.Errorf("a stops what its child started: %v", err)
		}
		if _, err := s.Stop(t.Context(), as(a), wire.StopRequest{UID: b.UID}); err != nil {
			t.Errorf("a stops what it started: %v", err)
		}
		self := as(a)
		self.Mode = wire.ModeSelf
		if _, err := s.Stop(t.Context(), self, wire.StopRequest{}); err != nil {
			t.Errorf("a stops itself: %v", err)
		}
		successor := as(a)
		successor.Life.UID = wire.NewUID()
		_, err := s.Stop(t.Context(), successor, wire.StopRequest{UID: other.UID})
		codeIs(t, err, wire.CodePermissionDenied, "a later life of the name")
		if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: other.UID}); err != nil {
			t.Errorf("an operator stops anything: %v", err)
		}
	})
}

// TestAnAgentDoesNotTypeAtItself refuses an agent that would say yes to itself where its host asks a person.
func TestAnAgentDoesNotTypeAtItself(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, named("a")).Agent
		_, err := s.Attach(t.Context(), as(a), wire.AttachRequest{UID: a.UID, Drive: true})
		codeIs(t, err, wire.CodePermissionDenied, "it drives itself")
	})
}

func names(r wire.AgentsReply) []string {
	var out []string
	for _, a := range r.Agents {
		out = append(out, a.Name)
	}
	slices.Sort(out)
	return out
}

// TestParentWaitsForItsChildren keeps the grant that others hang on until they have ended, and ends those that were to end with it.
func TestParentWaitsForItsChildren(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, named("a")).Agent
		stays := s.spawn(t, as(a), named("stays")).Agent
		req := named("goes")
		req.WithParent = true
		goes := s.spawn(t, as(a), req).Agent
		synctest.Wait()
		out, err := s.Stop(t.Context(), as(a), wire.StopRequest{})
		if err != nil || len(out.Children) != 1 || out.Children[0].UID != goes.UID {
			t.Fatalf("stop: %+v, %v", out, err)
		}
		time.Sleep(time.Hour)
		got := s.want(t, a.UID, wire.AgentExited, wire.ProcessExited)
		if !strings.Contains(got.Reason, "its grant stays until those that it started have ended") || s.led.count() != 2 {
			t.Errorf("%d grants stand, and it says %q", s.led.count(), got.Reason)
		}
		s.want(t, stays.UID, wire.AgentReady, wire.ProcessRunning)
		_, err = s.Spawn(t.Context(), operator, named("a"))
		codeIs(t, err, wire.CodeAlreadyExists, "a name whose grant is held")
		if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: stays.UID}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s.led.count() != 0 {
			t.Errorf("%d grants stand", s.led.count())
		}
	})
}

// TestChildrenEndWhenAsked stops a whole tree.
func TestChildrenEndWhenAsked(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, named("a")).Agent
		b := s.spawn(t, as(a), named("b")).Agent
		s.spawn(t, as(b), named("c"))
		synctest.Wait()
		out, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: a.UID, Children: true})
		if err != nil || len(out.Children) != 2 || s.th.alive() != 0 {
			t.Errorf("stop: %+v, %v; %d live", out, err, s.th.alive())
		}
	})
}

// TestCeilings refuses what is too much, and says how much is used.
func TestCeilings(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *supervisor.Options) { o.MaxAgents, o.MaxChildren, o.MaxDepth = 4, 2, 2 })
		ada := person("ada")
		a := s.spawn(t, ada, named("a")).Agent
		b := s.spawn(t, as(a), named("b")).Agent
		c := s.spawn(t, as(b), named("c")).Agent
		_, err := s.Spawn(t.Context(), as(c), named("d"))
		wantLimit(t, err, 3, 2, "deeper than allowed")
		s.spawn(t, ada, named("e"))
		_, err = s.Spawn(t.Context(), ada, named("f"))
		wantLimit(t, err, 4, 4, "one more than the supervisor has")
		if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: c.UID}); err != nil {
			t.Fatal(err)
		}
		_, err = s.Spawn(t.Context(), ada, named("f"))
		wantLimit(t, err, 2, 2, "one more than a parent may have")
		s.spawn(t, operator, named("f"))
	})
}

func wantLimit(t *testing.T, err error, used, allowed int, what string) {
	t.Helper()
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Code != wire.CodeResourceExhausted || e.Details["used"] != used || e.Details["allowed"] != allowed || e.Outcome != wire.OutcomeNotExecuted {
		t.Errorf("%s: %v, want resource-exhausted with %d of %d", what, err, used, allowed)
	}
}

// TestMinimumLifetime refuses a stop in the first seconds, unless it is forced or the agent's own.
func TestMinimumLifetime(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *supervisor.Options) { o.MinLife = 0 })
		ada := person("ada")
		a := s.spawn(t, ada, named("a")).Agent
		time.Sleep(4 * time.Second)
		_, err := s.Stop(t.Context(), ada, wire.StopRequest{UID: a.UID})
		codeIs(t, err, wire.CodeFailedPrecondition, "stop after 4 s")
		time.Sleep(time.Second)
		if _, err := s.Stop(t.Context(), ada, wire.StopRequest{UID: a.UID}); err != nil {
			t.Errorf("stop after 5 s: %v", err)
		}
		b := s.spawn(t, ada, named("b")).Agent
		if _, err := s.Stop(t.Context(), ada, wire.StopRequest{UID: b.UID, Force: true}); err != nil {
			t.Errorf("forced: %v", err)
		}
		c := s.spawn(t, ada, named("c")).Agent
		if _, err := s.Stop(t.Context(), as(c), wire.StopRequest{}); err != nil {
			t.Errorf("its own: %v", err)
		}
	})
}

// TestNames numbers the names of personas, refuses explicit ones, and gives the name of one that ended to the next.
func TestNames(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		file := func() wire.SpawnRequest { return wire.SpawnRequest{RequestID: wire.NewID(), Persona: "reviewer"} }
		first, second := s.spawn(t, operator, file()), s.spawn(t, operator, file())
		if first.Agent.Name != "reviewer" || first.Renamed || second.Agent.Name != "reviewer_2" || !second.Renamed {
			t.Errorf("names are %q and %q", first.Agent.Name, second.Agent.Name)
		}
		_, err := s.Spawn(t.Context(), operator, named("reviewer"))
		codeIs(t, err, wire.CodeAlreadyExists, "an explicit name in use")
		synctest.Wait()
		s.th.of(first.Agent.Principal).end(supervisor.Ending{})
		s.want(t, first.Agent.UID, wire.AgentExited, wire.ProcessExited)
		third := s.spawn(t, operator, file())
		if third.Agent.Name != "reviewer" || third.Agent.UID == first.Agent.UID {
			t.Errorf("the next one is %q", third.Agent.Name)
		}
		if _, err := s.Restart(t.Context(), operator, wire.RestartRequest{UID: first.Agent.UID}); wire.CodeOf(err) != wire.CodeFailedPrecondition {
			t.Errorf("restart of a life that is over: %v", err)
		}
	})
}

// TestRestartKeepsTheLife starts an agent again that has ended, and one that runs.
func TestRestartKeepsTheLife(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, named("a")).Agent
		synctest.Wait()
		s.th.of(a.Principal).end(supervisor.Ending{})
		s.want(t, a.UID, wire.AgentExited, wire.ProcessExited)
		for range 2 {
			if _, err := s.Restart(t.Context(), operator, wire.RestartRequest{UID: a.UID}); err != nil {
				t.Fatal(err)
			}
			s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		}
		if starts, _, twins := s.th.counts(); starts != 3 || len(twins) > 0 || s.th.alive() != 1 {
			t.Errorf("started %s, %d live", times(starts), s.th.alive())
		}
	})
}

// TestUnknownLife says "not found" only when nobody else could know.
func TestUnknownLife(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		_, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: wire.NewUID()})
		codeIs(t, err, wire.CodeNotFound, "the only supervisor")
		s.HeardPeer(wire.ManagerPeer{Instance: "elsewhere", Host: "far"})
		_, err = s.Stop(t.Context(), operator, wire.StopRequest{UID: wire.NewUID()})
		codeIs(t, err, wire.CodeUnavailable, "one of two")
		s.HeardPeer(wire.ManagerPeer{Instance: "elsewhere", Host: "far", Left: true})
		_, err = s.Stop(t.Context(), operator, wire.StopRequest{UID: wire.NewUID()})
		codeIs(t, err, wire.CodeNotFound, "the other one has left")
	})
}

// TestStopIsHonest says that it is not known when a process has not ended, and goes on.
func TestStopIsHonest(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, named("a")).Agent
		synctest.Wait()
		p := s.th.of(a.Principal)
		s.th.set(func() { p.stuck = true })
		ctx, cancel := contextFor(t, 5*time.Second)
		defer cancel()
		_, err := s.Stop(ctx, operator, wire.StopRequest{UID: a.UID})
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeDeadlineExceeded || e.Outcome != wire.OutcomeUnknown {
			t.Errorf("stop of one that does not end: %v", err)
		}
		if got := s.want(t, a.UID, wire.AgentStopping, wire.ProcessRunning); !strings.Contains(got.Reason, "not known to have ended") {
			t.Errorf("it says %q", got.Reason)
		}
		p.th.mu.Lock()
		p.stuck = false
		p.th.mu.Unlock()
		time.Sleep(time.Minute)
		s.want(t, a.UID, wire.AgentExited, wire.ProcessExited)
	})
}

// TestOrphanGrants retires what was granted for a keeper that did not live to hear it.
func TestOrphanGrants(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.led.mu.Lock()
		s.led.grants["local.lost"] = &wire.ManagedGrant{Principal: "local.lost", UID: wire.NewUID(), Label: s.Instance() + ":" + wire.NewID()}
		s.led.grants["local.other"] = &wire.ManagedGrant{Principal: "local.other", UID: wire.NewUID(), Label: "elsewhere:" + wire.NewID()}
		s.led.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s.led.grants["local.lost"] != nil || s.led.grants["local.other"] == nil {
			t.Errorf("grants that stand: %v", s.led.grants)
		}
	})
}

// TestUnreadableAgentKeepsItsGrant: what its folder does not tell may run, and is not taken the rights of behind its back.
func TestUnreadableAgentKeepsItsGrant(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		a := s.spawn(t, operator, named("a")).Agent
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		s.stop()
		if err := os.WriteFile(filepath.Join(s.opts.Dir, string(a.UID), "agent.json"), []byte("{garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.begin(t)
		if err := s.SweepGrants(t.Context()); err != nil {
			t.Error(err)
		}
		if s.led.count() != 1 {
			t.Errorf("%d grants stand, want that of the agent that cannot be read", s.led.count())
		}
		if err := s.CheckAgents(t.Context()); wire.CodeOf(err) != wire.CodeFailedPrecondition {
			t.Errorf("health says %v", err)
		}
		told := func(by supervisor.Caller) []wire.UID { return s.Agents(by, wire.AgentsRequest{}).Unreadable }
		if got := told(operator); !slices.Equal(got, []wire.UID{a.UID}) {
			t.Errorf("an operator is told of %q, want %q", got, a.UID)
		}
		if got := told(person("ada")); len(got) != 0 {
			t.Errorf("somebody else is told of %q", got)
		}
		if err := os.RemoveAll(filepath.Join(s.opts.Dir, string(a.UID))); err != nil {
			t.Fatal(err)
		}
		if got := told(operator); len(got) != 0 || s.CheckAgents(t.Context()) != nil {
			t.Errorf("a folder that was taken away is told of: %q", got)
		}
	})
}

// TestAPersonaAllowsNoMoreThanItsMaker: what a peer defines, an operator who spawns it grants.
func TestAPersonaAllowsNoMoreThanItsMaker(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		store := persona.Open(t.TempDir())
		s := newStand(t, func(o *supervisor.Options) { o.Personas = store })
		life := func(actor string, subscribe, publish []string) supervisor.Caller {
			by := person(actor)
			p := by.Life.Principal.String()
			s.led.mu.Lock()
			defer s.led.mu.Unlock()
			s.led.grants[p] = &wire.ManagedGrant{Principal: p, UID: by.Life.UID, Subscribe: subscribe, Publish: publish, Label: "elsewhere:" + wire.NewID()}
			return by
		}
		later := life("later", []string{">"}, []string{">"})
		later.Life.UID = wire.NewUID()
		for name, tt := range map[string]struct {
			by             supervisor.Caller
			hears, postsTo string
		}{
			"all":       {life("all", []string{">"}, []string{">"}), "general", "general"},
			"reads":     {life("reads", []string{"general"}, []string{"team"}), "general", ""},
			"elsewhere": {life("elsewhere", []string{"team"}, []string{"team", "general.x"}), "", ""},
			"unknown":   {person("unknown"), "general", ""},
			"later":     {later, "general", ""},
			"operator":  {operator, "general", "general"},
		} {
			time.Sleep(2 * time.Second) // the list of grants that is kept is older than these
			out, err := s.DefinePersona(t.Context(), tt.by, wire.PersonaRequest{Name: name, Text: "You help."})
			if err != nil || !out.Created {
				t.Fatalf("%s: %+v, %v", name, out, err)
			}
			p, err := store.Load(name)
			hears, may, posts := strings.Join(p.Subscribe, " "), strings.Join(p.AllowSubscribe, " "), strings.Join(p.AllowPublish, " ")
			if err != nil || hears != tt.hears || may != tt.hears || posts != tt.postsTo || p.Role != "" || p.Capabilities != nil {
				t.Errorf("%s: hears %q, may read %q, posts to %q, role %q, may %v, %v", name, hears, may, posts, p.Role, p.Capabilities, err)
			}
			role := wire.PersonaRequest{Name: name + "_role", Text: "You help.", Role: "ops"}
			out, err = s.DefinePersona(t.Context(), tt.by, role)
			if tt.by.Mode == wire.ModeAny {
				if err != nil || out.Persona.Role != "ops" {
					t.Errorf("%s: a role: %+v, %v", name, out, err)
				}
				continue
			}
			codeIs(t, err, wire.CodePermissionDenied, name+" names a role")
			if !strings.Contains(err.Error(), "role is an operator's to set") {
				t.Errorf("it says %v", err)
			}
			if _, err := store.Load(role.Name); !errors.Is(err, wire.ErrNotFound) {
				t.Errorf("%s: a file all the same: %v", name, err)
			}
		}
		s.led.mu.Lock()
		s.led.down = wire.Errorf(wire.CodeUnavailable, "no authority")
		s.led.mu.Unlock()
		time.Sleep(time.Minute)
		_, err := s.DefinePersona(t.Context(), person("ada"), wire.PersonaRequest{Name: "blind", Text: "You help."})
		codeIs(t, err, wire.CodeUnavailable, "nobody tells what the peer holds")
	})
}

func TestEnvironmentIsAllowListed(t *testing.T) {
	ours := []string{
		"PATH=/bin", "HOME=/home/ada", "LC_ALL=C", "XDG_RUNTIME_DIR=/run", "TERM=dumb", "SSH_AUTH_SOCK=/tmp/agent", "AWS_SECRET_ACCESS_KEY=x",
		"CLAUDECODE=1", "KEY=secret", "COTAL_LAUNCH=/old", "=strange", "LCX=1",
	}
	got := supervisor.Environment(ours, []string{"KEY", "ABSENT"}, map[string]string{"A": "1", "COTAL_LAUNCH": "/mine"}, map[string]string{"A": "2"})
	want := []string{"A=2", "COTAL_LAUNCH=/mine", "HOME=/home/ada", "KEY=secret", "LC_ALL=C", "PATH=/bin", "TERM=xterm-256color", "XDG_RUNTIME_DIR=/run"}
	if !slices.Equal(got, want) {
		t.Errorf("environment is %q, want %q", got, want)
	}
}

// TestAnAgentFindsTheProgram puts the folder of cotal last in the path of an agent, once.
func TestAnAgentFindsTheProgram(t *testing.T) {
	dir := t.TempDir()
	program, sep := filepath.Join(dir, "cotal"), string(filepath.ListSeparator)
	for _, c := range []struct{ env, want []string }{
		{[]string{"A=1", "PATH=/usr/bin" + sep + "/bin", "Z=2"}, []string{"A=1", "PATH=/usr/bin" + sep + "/bin" + sep + dir, "Z=2"}},
		{[]string{"PATH=/usr/bin" + sep + dir + sep + "/bin"}, []string{"PATH=/usr/bin" + sep + dir + sep + "/bin"}},
		{[]string{"A=1"}, []string{"A=1", "PATH=" + dir}},
	} {
		if got := supervisor.Reaching(slices.Clone(c.env), program); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.env, got, c.want)
		}
	}
	if got := supervisor.Reaching([]string{"A=1"}, "cotal"); !slices.Equal(got, []string{"A=1"}) {
		t.Errorf("a program without a folder: %q", got)
	}
}
