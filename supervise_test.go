//go:build linux || darwin

package cotal_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// seatWord makes the test binary a seat: it and a folder are its arguments then.
const seatWord = "be-a-seat"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == seatWord {
		if err := seat.Main(context.Background(), os.Args[2], slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stack is a node that runs agents, over records and files that outlive it.
type stack struct {
	t     *testing.T
	store *memstore.Store
	opts  cotal.Options
	node  *cotal.Node
	stop  func()
}

const lab = "lab"

func newStack(t *testing.T, edit func(o *cotal.Options)) *stack {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cotal") // short: sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &stack{t: t, store: memstore.New(), opts: cotal.Options{
		StateDir: t.TempDir(), Port: broker.RandomPort, Transport: broker.Plaintext(), Spaces: []string{lab},
		Supervisor: &cotal.SupervisorOptions{
			Dir: func(space string) string { return dir + "/" + space },
			Keeper: supervisor.Options{
				Program: self, Project: dir, Environ: os.Environ(), Seats: supervisor.RealSeats{Program: self, Args: []string{seatWord}}, MinLife: -1,
			},
		},
	}}
	if edit != nil {
		edit(&s.opts)
	}
	s.start()
	t.Cleanup(func() {
		s.stop()
		for _, a := range s.node.Agents(lab) { // of a test that failed
			if a.Process.State == wire.ProcessRunning {
				_ = syscall.Kill(a.Process.PID, syscall.SIGKILL)
			}
		}
	})
	return s
}

func (s *stack) start() {
	s.t.Helper()
	s.node = cotal.New(s.store, &s.opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.node.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		s.stop = func() {}
	}
	select {
	case <-s.node.Ready():
	case err := <-done:
		cancel()
		s.t.Fatal(err)
	}
}

func (s *stack) client() *cotal.NodeClient {
	s.t.Helper()
	c, err := cotal.DialNode(s.t.Context(), s.node.URL(), s.store, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// asker asks supervisors with a credential.
type asker struct {
	*control.Caller
	id trust.Identity
}

func (a asker) Identity() trust.Identity { return a.id }

func (s *stack) manager(creds *trust.Credentials) *manager.Client {
	s.t.Helper()
	nc, err := s.node.Dial(s.t.Context(), creds)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	id := creds.Identity()
	c, err := control.NewCaller(nc, lab, id.Lifecycle, wire.EndpointRef{ID: id.Principal.String(), Name: id.Actor}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return manager.New(asker{c, id})
}

func (s *stack) operator() *manager.Client {
	s.t.Helper()
	creds, err := s.node.Authority().ServiceCredential(s.t.Context(), lab, trust.Operator, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.manager(creds)
}

func (s *stack) agent(a *auth.Authority, actor string, capabilities ...string) *manager.Client {
	s.t.Helper()
	creds, err := a.Issue(s.t.Context(), auth.Request{Space: lab, Actor: actor, Subscribe: []string{">"}, Publish: []string{">"}, Capabilities: capabilities})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.manager(creds)
}

// spawned starts a program as an agent and waits until it runs.
func (s *stack) spawned(m *manager.Client, name string, command ...string) wire.AgentStatus {
	s.t.Helper()
	ctx := s.t.Context()
	out, err := m.Spawn(ctx, wire.SpawnRequest{RequestID: manager.RequestID(), Name: name, Agent: "command", Command: command}, "")
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := m.Await(ctx, out.Agent, wire.AgentStarting)
	if err != nil || a.State != wire.AgentReady || a.Process.PID == 0 {
		s.t.Fatalf("agent %s: %+v, %v", name, a, err)
	}
	return a
}

// TestC26AgentsOutliveTheirNode: the node stops and its agent works on; the next node adopts the same process. Ending all agents is
// proved, and refused while a supervisor cannot be asked.
func TestC26AgentsOutliveTheirNode(t *testing.T) {
	t.Parallel()
	s := newStack(t, nil)
	first := s.spawned(s.operator(), "sleeper", "sleep", "600")
	st, err := s.node.Status(t.Context())
	if err != nil || st.Spaces[0].Supervisor == nil || st.Spaces[0].Supervisor.State != "serving" || st.Spaces[0].Supervisor.Agents[wire.AgentReady] != 1 || !st.Healthy() {
		t.Fatalf("status %+v, %v", st.Spaces, err)
	}
	s.stop()
	if left := s.node.Agents(lab); len(left) != 1 || left[0].Process.PID != first.Process.PID {
		t.Errorf("the node says that it left %+v", left)
	}
	if err := alive(first.Process.PID); err != nil {
		t.Fatalf("the agent ended with its node: %v", err)
	}
	s.start()
	c := s.client()
	all, err := c.Agents(t.Context(), lab)
	if err != nil || len(all) != 1 || all[0].UID != first.UID || all[0].Process.PID != first.Process.PID || all[0].State != wire.AgentReady {
		t.Fatalf("after the next start: %+v, %v", all, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended, err := c.StopAgents(ctx, lab, 0)
	if err != nil || len(ended) != 1 || ended[0].UID != first.UID || ended[0].Process.State != wire.ProcessExited {
		t.Fatalf("StopAgents = %+v, %v", ended, err)
	}
	if err := alive(first.Process.PID); err == nil {
		t.Error("the agent is said to have ended, and lives")
	}
	grants, err := c.Authority().List(t.Context(), lab)
	if err != nil || slices.ContainsFunc(grants, func(g trust.Grant) bool { return g.Kind == trust.KindManaged && g.State != trust.GrantRetired }) {
		t.Errorf("grants after that: %+v, %v", grants, err)
	}
}

// TestAgentsCannotBeEndedUnasked: without a supervisor that answers nothing is said to have ended.
func TestAgentsCannotBeEndedUnasked(t *testing.T) {
	t.Parallel()
	s := newStack(t, func(o *cotal.Options) { o.Supervisor, o.SupervisorElsewhere = nil, true })
	c := s.client()
	if n, err := c.Supervisors(t.Context(), lab); err != nil || n != 0 {
		t.Fatalf("supervisors = %d, %v", n, err)
	}
	if ended, err := c.StopAgents(t.Context(), lab, 0); !errors.Is(err, wire.ErrUnavailable) || len(ended) > 0 {
		t.Errorf("StopAgents = %+v, %v, want unavailable", ended, err)
	}
	st, err := s.node.Status(t.Context())
	if err != nil || st.Spaces[0].Supervisor == nil || st.Spaces[0].Supervisor.State != "elsewhere" || !st.Healthy() {
		t.Errorf("status %+v, %v", st.Spaces, err)
	}
}

// TestASupervisorApart: a process of its own runs agents, and the node does not.
func TestASupervisorApart(t *testing.T) {
	t.Parallel()
	var opts cotal.SupervisorOptions
	s := newStack(t, func(o *cotal.Options) { opts, o.Supervisor, o.SupervisorElsewhere = *o.Supervisor, nil, true })
	c := s.client()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- c.ServeSupervisor(ctx, lab, opts, "", func(instance string) { ready <- instance }) }()
	var instance string
	select {
	case instance = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	a := s.spawned(s.operator(), "sleeper", "sleep", "600")
	if a.Instance != instance {
		t.Errorf("the agent is kept by %q, want %q", a.Instance, instance)
	}
	if n, err := c.Supervisors(ctx, lab); err != nil || n != 1 {
		t.Errorf("supervisors = %d, %v", n, err)
	}
	if err := c.ServeSupervisor(ctx, lab, opts, "", func(string) { t.Error("two supervisors work on one folder") }); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("a second supervisor over the folder = %v, want failed-precondition", err)
	}
	stopping, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	if gone, err := c.StopAgents(stopping, lab, 0); err != nil || len(gone) != 1 {
		t.Errorf("StopAgents = %+v, %v", gone, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestC17AnAgentCommandsItsOwnChildren: who was started under an agent may be ended by it, and by no other agent.
func TestC17AnAgentCommandsItsOwnChildren(t *testing.T) {
	t.Parallel()
	s := newStack(t, nil)
	a := s.node.Authority()
	lead := s.agent(a, "lead", trust.ScopeSpawn)
	other := s.agent(a, "other", trust.ScopeSpawn)
	child := s.spawned(lead, "child", "sleep", "600")
	if child.Parent != "local.lead" {
		t.Errorf("the parent is %q", child.Parent)
	}
	if _, err := other.Stop(t.Context(), child, wire.StopRequest{Force: true}); !errors.Is(err, wire.ErrPermissionDenied) && !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("another agent ends it: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := lead.Stop(ctx, child, wire.StopRequest{Force: true})
	if err != nil || out.Agent.UID != child.UID {
		t.Errorf("its parent ends it: %+v, %v", out, err)
	}
	if err := alive(child.Process.PID); err == nil {
		t.Error("it lives")
	}
}

// alive is nil while a process is there.
func alive(pid int) error { return syscall.Kill(pid, 0) }
