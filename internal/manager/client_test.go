package manager_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk answers for a supervisor in a space with real permissions: what it says is the test's, so that it can lose a reply or be silent.
type desk struct {
	name  string
	conn  *nats.Conn
	peers []string // that it has heard of, itself included
	lose  int      // replies to spawn that are lost before one is given
	left  []wire.ManagerPeer
	hangs bool          // it does not come to stopping
	deny  bool          // it tells of no agents
	slow  time.Duration // before it tells of agents

	mu     sync.Mutex
	agents []wire.AgentStatus
	asked  int // how often spawn was asked
}

func (d *desk) list(req wire.AgentsRequest) wire.AgentsReply {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := wire.AgentsReply{Instance: d.name, Host: "host-" + d.name, Agents: []wire.AgentStatus{}, Peers: []wire.ManagerPeer{}}
	for _, p := range d.peers {
		out.Peers = append(out.Peers, wire.ManagerPeer{Instance: p, Host: "host-" + p, Agents: len(d.agents), Heard: time.Now().UnixMilli()})
	}
	out.Peers = append(out.Peers, d.left...)
	for _, a := range d.agents {
		if req.Name == "" || req.Name == a.Name || req.Name == a.Principal {
			out.Agents = append(out.Agents, a)
		}
	}
	return out
}

func (d *desk) spawn(ctx context.Context, req wire.SpawnRequest) (wire.SpawnReply, error) {
	d.mu.Lock()
	d.asked++
	lost := d.asked <= d.lose
	for _, a := range d.agents {
		if a.RequestID == req.RequestID {
			d.mu.Unlock()
			if lost {
				<-ctx.Done()
				return wire.SpawnReply{}, ctx.Err()
			}
			return wire.SpawnReply{Agent: a, Repeated: true}, nil
		}
	}
	if req.Persona != "scribe" {
		d.mu.Unlock()
		return wire.SpawnReply{}, wire.Errorf(wire.CodeNotFound, "no agent file %q", req.Persona)
	}
	a := wire.AgentStatus{Principal: "local." + req.Name, Name: req.Name, UID: wire.NewUID(), Instance: d.name, RequestID: req.RequestID, State: wire.AgentStarting}
	d.agents = append(d.agents, a)
	d.mu.Unlock()
	if lost {
		<-ctx.Done()
		return wire.SpawnReply{}, ctx.Err()
	}
	return wire.SpawnReply{Agent: a}, nil
}

// open serves the desk until the test ends.
func (d *desk) open(t *testing.T, m *cotaltest.Mesh) *desk {
	t.Helper()
	creds, err := m.Node().Authority().SupervisorCredential(t.Context(), m.Space(), d.name, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d.conn, err = dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds, Name: d.name}); err != nil {
		t.Fatal(err)
	}
	s := control.New(wire.ManagerEndpoint, &control.Options{Instance: d.name})
	modes := []wire.Mode{wire.ModeNone, wire.ModeAny}
	control.Handle(s, control.Command{Name: wire.CommandAgents, Effect: control.Read, Modes: modes}, func(_ context.Context, _ *control.Request, in wire.AgentsRequest) (wire.AgentsReply, error) {
		time.Sleep(d.slow)
		d.mu.Lock()
		deny := d.deny
		d.mu.Unlock()
		if deny {
			return wire.AgentsReply{}, wire.Errorf(wire.CodePermissionDenied, "not for you")
		}
		return d.list(in), nil
	})
	control.Handle(s, control.Command{Name: wire.CommandSpawn, Effect: control.Write, Modes: modes}, func(ctx context.Context, _ *control.Request, in wire.SpawnRequest) (wire.SpawnReply, error) {
		return d.spawn(ctx, in)
	})
	control.Handle(s, control.Command{Name: wire.CommandStop, Effect: control.Write, Modes: modes}, func(ctx context.Context, _ *control.Request, in wire.StopRequest) (wire.StopReply, error) {
		if d.hangs {
			<-ctx.Done()
			return wire.StopReply{}, ctx.Err()
		}
		return wire.StopReply{Agent: wire.AgentStatus{UID: in.UID, State: wire.AgentExited}}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx, d.conn, m.Space()); err != nil && !d.conn.IsClosed() {
			t.Errorf("serve %s: %v", d.name, err)
		}
	})
	<-s.Ready()
	t.Cleanup(func() { cancel(); wg.Wait(); d.conn.Close() })
	return d
}

func operator(t *testing.T, m *cotaltest.Mesh) *manager.Client {
	t.Helper()
	return manager.New(m.Endpoint(t, "ada", &cotaltest.Peer{Request: &auth.Request{Profile: trust.Operator}}))
}

func named(name, instance, state string) wire.AgentStatus {
	return wire.AgentStatus{Principal: "local." + name, Name: name, UID: wire.NewUID(), Instance: instance, State: state}
}

// TestNotFoundIsSaidByAll has one supervisor that is known and does not answer: what it keeps is unknown, not absent.
func TestNotFoundIsSaidByAll(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		if _, err := c.Find(t.Context(), "nova"); wire.CodeOf(err) != wire.CodeUnavailable || !strings.Contains(err.Error(), "no supervisor runs") {
			t.Errorf("without a supervisor: %v, want unavailable", err)
		}
		one := (&desk{name: "one", peers: []string{"one"}, agents: []wire.AgentStatus{named("nova", "one", wire.AgentReady)}}).open(t, m)
		if _, err := c.Find(t.Context(), "luna"); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("all answered: %v, want not-found", err)
		}
		one.mu.Lock()
		one.peers = []string{"one", "two"}
		one.mu.Unlock()
		if a, err := c.Find(t.Context(), "nova"); err != nil || a.Instance != "one" {
			t.Errorf("found where it is: %v, %v", a, err)
		}
		if a, err := c.Find(t.Context(), ""); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("no name means %v, %v; want bad-request", a, err)
		}
		_, err := c.Find(t.Context(), "luna")
		if wire.CodeOf(err) != wire.CodeUnavailable || !strings.Contains(err.Error(), "1 of 2 supervisors answered; silent: two on host-two (last heard") {
			t.Errorf("one is silent: %v, want unavailable with its name", err)
		}
		(&desk{name: "two", peers: []string{"one", "two"}, agents: []wire.AgentStatus{named("luna", "two", wire.AgentReady), named("nova", "two", wire.AgentExited)}}).open(t, m)
		if a, err := c.Find(t.Context(), "luna"); err != nil || a.Instance != "two" {
			t.Errorf("the other keeps it: %v, %v", a, err)
		}
		if a, err := c.Find(t.Context(), "nova"); err != nil || a.Instance != "one" {
			t.Errorf("the life that has not ended is meant: %v, %v", a, err)
		}
		if _, err := c.Find(t.Context(), "ghost"); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("both answered: %v, want not-found", err)
		}
	})
}

// TestOneThatLeftItsAgents has a supervisor that said goodbye: what it kept is unknown, and nothing when it kept none.
func TestOneThatLeftItsAgents(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		gone := wire.ManagerPeer{Instance: "two", Host: "far", Heard: time.Now().UnixMilli(), Left: true}
		one := (&desk{name: "one", peers: []string{"one"}, left: []wire.ManagerPeer{gone}}).open(t, m)
		if _, err := c.Find(t.Context(), "luna"); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("it left with no agents: %v, want not-found", err)
		}
		one.mu.Lock()
		one.left[0].Agents = 3
		one.mu.Unlock()
		_, err := c.Find(t.Context(), "luna")
		if wire.CodeOf(err) != wire.CodeUnavailable || !strings.Contains(err.Error(), "1 of 2 supervisors answered; silent: two on far (left 2s ago, its agents go on: 3)") {
			t.Errorf("it left three: %v, want unavailable with its name", err)
		}
	})
}

// TestRefusalIsNoSilence has one supervisor that answers and says nothing: it is told from one that is not there.
func TestRefusalIsNoSilence(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		one := (&desk{name: "one", peers: []string{"one", "two"}, agents: []wire.AgentStatus{named("nova", "one", wire.AgentReady)}}).open(t, m)
		(&desk{name: "two", deny: true}).open(t, m)
		begun := time.Now()
		census, err := c.Census(t.Context(), wire.AgentsRequest{})
		if err != nil || len(census.Replies) != 1 || len(census.Refused) != 1 || len(census.Silent) != 0 || time.Since(begun) >= 2*time.Second {
			t.Fatalf("Census = %+v, %v after %v; want one that told and one that refused, at once", census, err, time.Since(begun))
		}
		err = census.Complete("agents")
		e, ok := errors.AsType[*wire.Error](err)
		if want := "agents: unknown, 2 of 2 supervisors answered; refused: two on host-two (not for you)"; !ok || e.Message != want {
			t.Errorf("Complete = %v, want %q", err, want)
		}
		if ok && (e.Details["silent"] != nil || e.Details["refused"] == nil) {
			t.Errorf("details %v: want refused alone", e.Details)
		}
		if _, err := c.Find(t.Context(), "luna"); wire.CodeOf(err) != wire.CodeUnavailable {
			t.Errorf("what the one that refused may keep: %v, want unavailable", err)
		}
		one.mu.Lock()
		one.deny = true
		one.mu.Unlock()
		if _, err := c.Census(t.Context(), wire.AgentsRequest{}); !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("all refuse: %v, want what they say", err)
		}
	})
}

// TestTheFirstAnswerMayBeLate has one supervisor on a host that is slow: it is waited for, and after that not for ever.
func TestTheFirstAnswerMayBeLate(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		(&desk{name: "one", peers: []string{"one"}, slow: 14 * time.Second}).open(t, m)
		if census, err := c.Census(t.Context(), wire.AgentsRequest{}); err != nil || len(census.Replies) != 1 {
			t.Errorf("Census = %+v, %v, want the answer", census, err)
		}
	})
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		(&desk{name: "one", peers: []string{"one"}, slow: 16 * time.Second}).open(t, m)
		_, err := c.Census(t.Context(), wire.AgentsRequest{})
		if want := "no supervisor answers (waited 15s)"; wire.CodeOf(err) != wire.CodeUnavailable || err.Error() != want {
			t.Errorf("Census = %v, want unavailable, %s", err, want)
		}
	})
}

// TestC12LostReply loses the reply to a spawn: the same supervisor is asked again under the same request id, and there is one agent.
func TestC12LostReply(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		both := []string{"one", "two"}
		one := (&desk{name: "one", peers: both, lose: 1, agents: []wire.AgentStatus{}}).open(t, m)
		two := (&desk{name: "two", peers: both, lose: 1}).open(t, m)
		got, err := c.Spawn(t.Context(), wire.SpawnRequest{Persona: "scribe", Name: "nova"}, "")
		if err != nil || got.Agent.Name != "nova" || !got.Repeated {
			t.Fatalf("Spawn = %+v, %v; want the agent of the first request", got, err)
		}
		if n := len(one.agents) + len(two.agents); n != 1 {
			t.Errorf("%d agents were made, want 1", n)
		}
		// Another process asks with the id that it was told: whoever has the fewest agents now, the one that knows the request answers.
		again, err := c.SpawnAgain(t.Context(), wire.SpawnRequest{Persona: "scribe", Name: "nova", RequestID: got.Agent.RequestID}, "")
		if err != nil || again.Agent.UID != got.Agent.UID {
			t.Errorf("asked again: %+v, %v; want the same agent", again, err)
		}
	})
}

func TestSpawnChooses(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		both := []string{"one", "two"}
		(&desk{name: "one", peers: both, agents: []wire.AgentStatus{named("x", "one", wire.AgentReady)}}).open(t, m)
		(&desk{name: "two", peers: both}).open(t, m)
		for on, want := range map[string]string{"": "two", "one": "one", "host-one": "one", "tw": "two"} {
			got, err := c.Spawn(t.Context(), wire.SpawnRequest{Persona: "scribe", Name: "a" + on[:min(1, len(on))]}, on)
			if err != nil || on != "" && got.Agent.Instance != want {
				t.Errorf("on %q: %s, %v; want %s", on, got.Agent.Instance, err, want)
			}
		}
		if _, err := c.Spawn(t.Context(), wire.SpawnRequest{Persona: "scribe"}, "three"); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("on one that is not there: %v, want not-found", err)
		}
		if _, err := c.Spawn(t.Context(), wire.SpawnRequest{Persona: "nobody"}, ""); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("a file that no host has: %v, want not-found", err)
		}
	})
}

// TestAgentsMayNotAsk is an agent that was not granted spawn.
func TestAgentsMayNotAsk(t *testing.T) {
	m := cotaltest.New(t, nil)
	(&desk{name: "one", peers: []string{"one"}}).open(t, m)
	c := manager.New(m.Endpoint(t, "nova", nil))
	if _, err := c.Census(t.Context(), wire.AgentsRequest{}); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("census: %v, want permission-denied", err)
	}
	able := manager.New(m.Endpoint(t, "lead", &cotaltest.Peer{Request: &auth.Request{Profile: trust.Agent, Capabilities: []string{trust.ScopeSpawn}}}))
	if _, err := able.Spawn(t.Context(), wire.SpawnRequest{Persona: "scribe", Name: "child"}, ""); err != nil {
		t.Errorf("with spawn: %v", err)
	}
}

// TestErrorsAreSentences looks at what a person reads: what the supervisor said, or that it said nothing, and no name of a command.
func TestErrorsAreSentences(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		one := (&desk{name: "one", peers: []string{"one"}}).open(t, m)
		spawn := func(persona string) error {
			_, err := c.Spawn(t.Context(), wire.SpawnRequest{Persona: persona, Name: "nova"}, "")
			return err
		}
		refused := spawn("nobody")
		one.lose = 1000
		silent := spawn("scribe")
		_, away := c.Stop(t.Context(), named("nova", "two", wire.AgentReady), wire.StopRequest{})
		_, foreign := manager.New(m.Endpoint(t, "vega", nil)).Census(t.Context(), wire.AgentsRequest{})
		for _, tt := range []struct {
			name    string
			err     error
			want    string
			code    wire.Code
			outcome wire.Outcome
			detail  string
		}{
			{"refused", refused, `no agent file "nobody"`, wire.CodeNotFound, wire.OutcomeNotExecuted, "requestId"},
			{"silent", silent, `supervisor "one" does not answer (waited 5s)`, wire.CodeDeadlineExceeded, wire.OutcomeUnknown, "requestId"},
			{"away", away, `supervisor "two" does not run`, wire.CodeUnavailable, wire.OutcomeNotExecuted, control.DetailEndpoint},
			{"not permitted", foreign, `publish "`, wire.CodePermissionDenied, wire.OutcomeNotExecuted, "grant"},
		} {
			e, ok := errors.AsType[*wire.Error](tt.err)
			if !ok || !strings.HasPrefix(tt.err.Error(), tt.want) || e.Code != tt.code || e.Outcome != tt.outcome || e.Details[tt.detail] == nil {
				t.Errorf("%s: %+v; want %q, %s, %s and %q in the details", tt.name, tt.err, tt.want, tt.code, tt.outcome, tt.detail)
			}
		}
	})
}

// TestStopOutlivesSupervisor asks one that dies while it is asked. The next one is asked again; where there is none, that is said
// before the time is over.
func TestStopOutlivesSupervisor(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		c := operator(t, m)
		stop := func(next bool) (wire.StopReply, time.Duration, error) {
			d := (&desk{name: "one", hangs: true}).open(t, m)
			var reply wire.StopReply
			var err error
			var took time.Duration
			var wg sync.WaitGroup
			wg.Go(func() {
				begun := time.Now()
				reply, err = c.Stop(t.Context(), named("nova", "one", wire.AgentReady), wire.StopRequest{})
				took = time.Since(begun)
			})
			time.Sleep(time.Second)
			d.conn.Close()
			if time.Sleep(2 * time.Second); next {
				(&desk{name: "one"}).open(t, m)
			}
			wg.Wait()
			return reply, took, err
		}
		_, took, err := stop(false)
		e, ok := errors.AsType[*wire.Error](err)
		if want := `supervisor "one" went away before agent "local.nova" was known to have ended`; !ok || e.Message != want || e.Outcome != wire.OutcomeUnknown {
			t.Errorf("none came after it: %+v, want unknown and %q", err, want)
		}
		if took > 12*time.Second {
			t.Errorf("none came after it: told after %v", took)
		}
		reply, took, err := stop(true)
		if err != nil || reply.Agent.State != wire.AgentExited || took > 6*time.Second {
			t.Errorf("one came after it: %+v, %v after %v", reply, err, took)
		}
		(&desk{name: "two", hangs: true}).open(t, m)
		begun := time.Now()
		_, err = c.Stop(t.Context(), named("nova", "two", wire.AgentReady), wire.StopRequest{Grace: 1000})
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Outcome != wire.OutcomeUnknown || time.Since(begun) > 21*time.Second {
			t.Errorf("one that hangs: %+v after %v, want unknown after the grace and 20s", err, time.Since(begun))
		}
	})
}
