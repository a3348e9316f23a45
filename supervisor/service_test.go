package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// crew is a keeper over a theatre in a real mesh, whose authority grants what it asks for.
type crew struct {
	m    *cotaltest.Mesh
	th   *theatre
	k    *supervisor.Keeper
	dir  string
	stop func() // of the keeper
}

// newCrew is for a bubble. Call stop before the bubble ends.
func newCrew(t *testing.T, m *cotaltest.Mesh, dir, host string) *crew {
	t.Helper()
	c := &crew{m: m, th: newTheatre(), dir: dir}
	k, err := supervisor.NewKeeper(m.Space(), &supervisor.Options{
		Dir: filepath.Join(dir, host), Program: "/bin/cotal", Seats: c.th, Project: dir, Host: host, MinLife: -1,
		Server:     func() supervisor.Server { return supervisor.Server{URL: "nats://127.0.0.1:4222"} },
		Connectors: []connector.Connector{plain{"process", false}, plain{"joins", true}}, Personas: persona.Open(filepath.Join(dir, "agents")),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.k = k
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run keeper: %v", err)
		}
	})
	t.Cleanup(c.stop)
	<-k.Ready()
	return c
}

// front is a service over the keeper with a credential of its own. Say is false to end it as a killed process does.
func (c *crew) front(t *testing.T) (stop func(say bool)) {
	t.Helper()
	creds, err := c.m.Node().Authority().SupervisorCredential(t.Context(), c.m.Space(), c.k.Instance(), 47*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := c.m.Node().Dial(t.Context(), creds)
	if err != nil {
		t.Fatal(err)
	}
	s := supervisor.New(nc, creds.Identity().Lifecycle, c.k, &supervisor.ServiceOptions{Version: "test"})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("run service: %v", err)
	}
	var once sync.Once
	stop = func(say bool) {
		once.Do(func() {
			if !say {
				nc.Close()
			}
			cancel()
			if err := <-done; err != nil && say {
				t.Errorf("run service: %v", err)
			}
			nc.Close()
		})
	}
	t.Cleanup(func() { stop(true) })
	return stop
}

// asker is an endpoint with a credential of a profile.
func (c *crew) asker(t *testing.T, p trust.Profile) *endpoint.Endpoint {
	t.Helper()
	creds, err := c.m.Node().Authority().Personal(t.Context(), c.m.Space(), p, "op", 12*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return c.connect(t, endpoint.Static(creds))
}

func (c *crew) connect(t *testing.T, src endpoint.Source) *endpoint.Endpoint {
	t.Helper()
	ep, err := endpoint.Connect(t.Context(), "", src, &endpoint.Options{Name: "test", Quiet: true, InProcess: c.m.InProcess(), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ep.Close() })
	return ep
}

func target(command, instance string, mode wire.Mode) control.Target {
	t := control.Target{Endpoint: wire.ManagerEndpoint, Command: command, Instance: instance, Mode: mode}
	if mode == wire.ModeAny {
		t.Of = wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "any"}}
	}
	return t
}

func census(t *testing.T, ep *endpoint.Endpoint, mode wire.Mode, expect int) map[string]wire.AgentsReply {
	t.Helper()
	answers, err := ep.Scatter(t.Context(), target(wire.CommandAgents, "", mode), wire.AgentsRequest{}, 3*time.Second, expect)
	if err != nil {
		t.Fatalf("census: %v", err)
	}
	out := map[string]wire.AgentsReply{}
	for _, a := range answers {
		var r wire.AgentsReply
		if a.Err != nil {
			t.Fatalf("census: %v", a.Err)
		}
		if err := json.Unmarshal(a.Data, &r); err != nil {
			t.Fatal(err)
		}
		out[a.Instance] = r
	}
	return out
}

// TestTwoSupervisors lets two of them know of each other: who asks learns how many there are, and whether one left or fell silent.
func TestTwoSupervisors(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: state})
		one, two := newCrew(t, m, dir, "one"), newCrew(t, m, dir, "two")
		_, leaveTwo := one.front(t), two.front(t)
		op := one.asker(t, trust.Operator)
		synctest.Wait()
		var a wire.SpawnReply
		if err := op.Call(t.Context(), target(wire.CommandSpawn, one.k.Instance(), wire.ModeAny), named("ada"), &a); err != nil {
			t.Fatal(err)
		}
		got := census(t, op, wire.ModeAny, 2)
		for name, r := range got {
			if len(r.Peers) != 2 || r.Instance != name {
				t.Errorf("%s knows of %+v", name, r.Peers)
			}
		}
		if r := got[one.k.Instance()]; len(r.Agents) != 1 || r.Host != "one" || r.Peers[0].Agents != 1 {
			t.Errorf("the first has %+v", r)
		}
		err := op.Call(t.Context(), target(wire.CommandStop, two.k.Instance(), wire.ModeAny), wire.StopRequest{UID: a.Agent.UID}, nil)
		codeIs(t, err, wire.CodeUnavailable, "stop asked of the wrong one")
		leaveTwo(false) // killed: it is still counted on
		time.Sleep(10 * time.Minute)
		if r := census(t, op, wire.ModeAny, 1)[one.k.Instance()]; len(r.Peers) != 2 || time.Since(time.UnixMilli(r.Peers[1].Heard)) < 9*time.Minute {
			t.Errorf("a silent one is forgotten: %+v", r.Peers)
		}
		two.front(t)(true)
		synctest.Wait()
		if r := census(t, op, wire.ModeAny, 1)[one.k.Instance()]; len(r.Peers) != 1 {
			t.Errorf("one that left is still there: %+v", r.Peers)
		}
	})
}

// TestHandOver replaces the credential of a supervisor under requests: none is lost or answered twice, and nobody thinks that it left.
func TestHandOver(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: state})
		c := newCrew(t, m, dir, "one")
		leave := c.front(t)
		op := c.asker(t, trust.Operator)
		left := 0
		watch, err := m.Node().Dial(t.Context(), serviceCreds(t, m))
		if err != nil {
			t.Fatal(err)
		}
		filter, err := wire.EventFilter(m.Space(), wire.ManagerEndpoint, wire.TopicPeer)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watch.Close)
		if _, err := watch.Subscribe(filter, func(msg *nats.Msg) {
			var p wire.ManagerPeer
			if json.Unmarshal(msg.Data, &p) == nil && p.Left {
				left++
			}
		}); err != nil {
			t.Fatal(err)
		}
		req := named("ada")
		var first wire.SpawnReply
		if err := op.Call(t.Context(), target(wire.CommandSpawn, "", wire.ModeAny), req, &first); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		asked := 0
		wg.Go(func() {
			for ctx.Err() == nil {
				var again wire.SpawnReply
				if err := op.Call(t.Context(), target(wire.CommandSpawn, c.k.Instance(), wire.ModeAny), req, &again); err != nil || again.Agent.UID != first.Agent.UID {
					t.Errorf("asked during the hand-over: %+v, %v", again, err)
				}
				asked++
				time.Sleep(3 * time.Millisecond)
			}
		})
		for range 3 {
			next := c.front(t)
			time.Sleep(100 * time.Millisecond)
			leave(true)
			leave = next
			time.Sleep(100 * time.Millisecond)
			if r := census(t, op, wire.ModeAny, 1); len(r) != 1 || len(r[c.k.Instance()].Agents) != 1 {
				t.Errorf("census during the hand-over: %+v", r)
			}
		}
		cancel()
		wg.Wait()
		if left != 0 || asked < 100 {
			t.Errorf("said goodbye %s, asked %s", times(left), times(asked))
		}
		leave(true)
		synctest.Wait()
		if left != 1 {
			t.Errorf("said goodbye %s when it left", times(left))
		}
	})
}

func serviceCreds(t *testing.T, m *cotaltest.Mesh) *trust.Credentials {
	t.Helper()
	creds, err := m.Node().Authority().ServiceCredential(t.Context(), m.Space(), trust.Supervisor, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// TestCredentialsOfAgents keeps the credential of an agent fresh for a day and more, takes it away while the agent is down, and for good when
// it is stopped.
func TestCredentialsOfAgents(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: state, DeliveryElsewhere: true})
		c := newCrew(t, m, dir, "one")
		c.front(t)
		reply, err := c.k.Spawn(t.Context(), operator, named("ada"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		file := filepath.Join(dir, "one", string(reply.Agent.UID), "agent.creds")
		read := func() *trust.Credentials {
			t.Helper()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			creds, err := trust.ParseCredentials(data)
			if err != nil {
				t.Fatal(err)
			}
			return creds
		}
		first := read()
		ada := c.connect(t, endpoint.File(file))
		for range 26 { // longer than the first credential lives
			time.Sleep(time.Hour)
			if creds := read(); time.Until(creds.Identity().Expires) < time.Hour {
				t.Fatalf("the credential ends at %v", creds.Identity().Expires)
			}
		}
		if read().Same(first) {
			t.Error("the credential was never renewed")
		}
		if err := ada.Call(t.Context(), control.Target{Endpoint: wire.ManagerEndpoint, Command: control.CommandHealth}, nil, nil); err != nil || ada.Lifecycle().UID != reply.Agent.UID {
			t.Errorf("ada is %s: %v", ada.Lifecycle(), err)
		}
		_ = ada.Close()
		held := read()
		c.th.of(reply.Agent.Principal).end(supervisor.Ending{}) // it finished: until it is started again nobody comes back as it
		time.Sleep(time.Minute)
		if nc, err := m.Node().Dial(t.Context(), held); err == nil {
			nc.Close()
			t.Error("the credential of one that ended still lets somebody in")
		}
		if _, err := c.k.Restart(t.Context(), operator, wire.RestartRequest{UID: reply.Agent.UID}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		again := read()
		nc, err := m.Node().Dial(t.Context(), again)
		if err != nil {
			t.Fatalf("the credential of the next start: %v", err)
		}
		nc.Close()
		if _, err := c.k.Stop(t.Context(), operator, wire.StopRequest{UID: reply.Agent.UID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if nc, err := m.Node().Dial(t.Context(), again); err == nil {
			nc.Close()
			t.Error("the credential of one that was stopped still lets somebody in")
		}
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the credential file is still there: %v", err)
		}
	})
}

// TestC17OverTheWire has the broker vouch for who asks: an agent ends what it started, and nothing else.
func TestC17OverTheWire(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	if err := persona.Open(filepath.Join(dir, "agents")).Create(persona.Persona{Name: "spy", Text: "look", Capabilities: []string{"spawn"}, Subscribe: []string{"secret"}, AllowSubscribe: []string{"secret"}}); err != nil {
		t.Fatal(err)
	}
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: state})
		c := newCrew(t, m, dir, "one")
		c.front(t)
		mayStart := func(name string) wire.SpawnRequest {
			req := named(name)
			req.Capabilities = []string{"spawn"}
			return req
		}
		start := func(name string) *endpoint.Endpoint {
			t.Helper()
			r, err := c.k.Spawn(t.Context(), operator, mayStart(name))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return c.connect(t, endpoint.File(filepath.Join(dir, "one", string(r.Agent.UID), "agent.creds")))
		}
		a, other := start("a"), start("other")
		var b wire.SpawnReply
		if err := a.Call(t.Context(), target(wire.CommandSpawn, "", wire.ModeNone), named("b"), &b); err != nil {
			t.Fatal(err)
		}
		if b.Agent.Parent != "local.a" || b.Agent.ParentUID != a.Lifecycle().UID {
			t.Errorf("b was started by %q", b.Agent.Parent)
		}
		stop := target(wire.CommandStop, c.k.Instance(), wire.ModeNone)
		err := other.Call(t.Context(), stop, wire.StopRequest{UID: b.Agent.UID}, nil)
		codeIs(t, err, wire.CodePermissionDenied, "another agent ends b")
		err = a.Call(t.Context(), target(wire.CommandStop, c.k.Instance(), wire.ModeAny), wire.StopRequest{UID: other.Lifecycle().UID}, nil)
		codeIs(t, err, wire.CodePermissionDenied, "an agent as an operator")
		wide := mayStart("wide")
		wide.AllowPublish = []string{"everything"}
		err = a.Call(t.Context(), target(wire.CommandSpawn, "", wire.ModeNone), wide, nil)
		codeIs(t, err, wire.CodePermissionDenied, "more than its parent has")
		if err := a.Call(t.Context(), stop, wire.StopRequest{UID: b.Agent.UID}, nil); err != nil {
			t.Errorf("a ends b: %v", err)
		}
		for mode, who := range map[wire.Mode]*endpoint.Endpoint{wire.ModeNone: a, wire.ModeAny: c.asker(t, trust.Operator)} {
			// Which channels an agent file names is for those who may start it as they like, and peers read the text alone.
			var got wire.PersonasReply
			err := who.Call(t.Context(), target(wire.CommandPersonas, c.k.Instance(), mode), wire.PersonasRequest{Name: "spy"}, &got)
			if err != nil || len(got.Personas) != 1 || got.Personas[0].Text != "look" {
				t.Fatalf("agent file with mode %q = %+v, %v", mode, got, err)
			}
			p := got.Personas[0]
			if lists := fmt.Sprint(p.Capabilities, p.Subscribe, p.AllowSubscribe, p.AllowPublish, p.Subscribe == nil, p.AllowPublish == nil); mode == wire.ModeNone && lists != "[] [] [] [] true true" ||
				mode == wire.ModeAny && lists != "[spawn] [secret] [secret] [] false false" {
				t.Errorf("with mode %q it allows %s", mode, lists)
			}
		}
		if got := census(t, other, wire.ModeNone, 1)[c.k.Instance()]; !slices.Equal(names(got), []string{"other"}) {
			t.Errorf("other knows of %v", names(got))
		}
		if err := a.Call(t.Context(), target(wire.CommandStop, c.k.Instance(), wire.ModeSelf), wire.StopRequest{}, nil); err != nil {
			t.Errorf("a ends itself: %v", err)
		}
		time.Sleep(time.Minute)
	})
}
