//go:build linux || darwin

package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// The test binary plays the seats, and an agent that joins, when it is run again.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "seat" {
		if err := seat.Main(context.Background(), os.Args[2], slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "join" {
		if err := join(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(seatless{m})
}

// seatless are tests that are over when their seats are, which what looks for goroutines cannot know: it is one of them that collects a
// seat.
type seatless struct{ *testing.M }

func (s seatless) Run() int {
	code := s.M.Run()
	for code == 0 {
		if _, err := syscall.Wait4(-1, nil, 0, nil); errors.Is(err, syscall.ECHILD) {
			break
		}
	}
	return code
}

// join takes part in the space until it is told to end.
func join() error {
	f, err := launch.Read(os.Getenv(launch.Env))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	ep, err := endpoint.Connect(ctx, f.Server, endpoint.File(f.Creds), &endpoint.Options{Name: f.Name})
	if err != nil {
		return err
	}
	fmt.Println("joined as", ep.Lifecycle())
	<-ctx.Done()
	return ep.Close()
}

// shell runs what it is told; the model decides nothing. joiner is the agent of join.
type shell struct{ plain }

// stage is a node with a supervisor over real seats. Its records and folders outlive it, so that it can begin anew.
type stage struct {
	node  *cotal.Node
	store secret.Store
	dir   string
	port  int
	tune  func(*supervisor.Options)
	stop  func()
	op    *endpoint.Endpoint
}

const stageSpace = "lab"

func newStage(t *testing.T, tune func(*supervisor.Options)) *stage {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{store: memstore.New(), dir: dir, port: freePort(t), tune: tune}
	s.begin(t)
	t.Cleanup(func() { s.finish(t) })
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *stage) agents() string { return filepath.Join(s.dir, "agents") }

func (s *stage) begin(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	opts := supervisor.Options{
		Program: self, Seats: supervisor.RealSeats{Program: self, Args: []string{"seat"}}, Project: s.dir, Host: "here", MinLife: -1,
		Environ: os.Environ(), MaxAgents: 2000,
		Connectors: []connector.Connector{shell{plain{"shell", false}}, joiner{self}},
	}
	if s.tune != nil {
		s.tune(&opts)
	}
	s.node = cotal.New(s.store, &cotal.Options{
		StateDir: filepath.Join(s.dir, "state"), Port: s.port, Transport: broker.Plaintext(), Spaces: []string{stageSpace}, SyncInterval: time.Hour,
		Supervisor: &cotal.SupervisorOptions{Dir: func(string) string { return s.agents() }, Keeper: opts},
		Logger:     testLogger(t),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.node.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run node: %v", err)
		}
	})
	select {
	case <-s.node.Ready():
	case err := <-done:
		t.Fatalf("boot node: %v", err)
	}
	creds, err := s.node.Authority().Personal(t.Context(), stageSpace, trust.Operator, "op", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s.op = s.connect(t, endpoint.Static(creds))
}

// testLogger shows what is logged when COTAL_TEST_LOG is set.
func testLogger(t *testing.T) *slog.Logger {
	if os.Getenv("COTAL_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func (s *stage) connect(t *testing.T, src endpoint.Source) *endpoint.Endpoint {
	t.Helper()
	ep, err := endpoint.Connect(t.Context(), fmt.Sprintf("nats://127.0.0.1:%d", s.port), src, &endpoint.Options{Name: "test", Quiet: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ep.Close() })
	return ep
}

// finish ends every agent and the stack, and fails the test for each process that is left.
func (s *stage) finish(t *testing.T) {
	for _, a := range s.node.Agents(stageSpace) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		var out wire.StopReply
		if err := s.op.Call(ctx, s.any(wire.CommandStop), wire.StopRequest{UID: a.UID, Force: true, Grace: 1}, &out); err != nil {
			t.Logf("stop %q: %v", a.Principal, err)
		}
		cancel()
	}
	_ = s.op.Close()
	s.stop()
	s.settle(t, 0) // a seat may end a moment after it was let go of
}

// processes are those whose environment has the mark of a seat, or that are a seat, below the folder of this stage.
func (s *stage) processes(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range all {
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		cmd, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if strings.Contains(string(env), s.dir) || strings.Contains(string(cmd), s.dir) {
			out = append(out, filepath.Base(p)+" "+strings.ReplaceAll(string(cmd), "\x00", " "))
		}
	}
	return out
}

func (s *stage) any(command string) control.Target {
	return control.Target{
		Endpoint: wire.ManagerEndpoint, Command: command, Mode: wire.ModeAny,
		Of: wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "any"}},
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute) // also in a cleanup
	t.Cleanup(cancel)
	return ctx
}

// call asks the supervisor as an operator.
func call[Out any](t *testing.T, s *stage, command string, args any) Out {
	t.Helper()
	var out Out
	if err := s.op.Call(within(t), s.any(command), args, &out); err != nil {
		t.Fatalf("%s %+v: %v", command, args, err)
	}
	return out
}

// sh is an agent that runs a script.
func sh(name, script string) wire.SpawnRequest {
	return wire.SpawnRequest{RequestID: wire.NewID(), Agent: "shell", Name: name, Command: []string{"/bin/sh", "-c", script}}
}

// await waits until an agent is in a state.
func (s *stage) await(t *testing.T, u wire.UID, state string) wire.AgentStatus {
	t.Helper()
	var from []string
	for _, x := range []string{wire.AgentStarting, wire.AgentReady, wire.AgentStopping, wire.AgentExited, wire.AgentFailed, wire.AgentBackoff} {
		if x != state {
			from = append(from, x)
		}
	}
	a := call[wire.AgentStatus](t, s, wire.CommandAwait, wire.AwaitRequest{UID: u, From: from})
	if a.State != state {
		t.Fatalf("agent %q is %s (%s), want %s", a.Principal, a.State, a.Reason, state)
	}
	return a
}

// alive reports whether a process runs. One that ended and that nobody asked about yet does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		_, rest, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(rest, "Z")
	}
	return syscall.Kill(pid, 0) == nil
}

// joiner is a connector for join.
type joiner struct{ self string }

func (j joiner) Name() string         { return "joiner" }
func (j joiner) Info() connector.Info { return connector.Info{Name: "joiner"} }

func (j joiner) Prepare(_ context.Context, r connector.Request) (connector.Launch, error) {
	return connector.Launch{Argv: []string{j.self, "join"}, Joins: true}, nil
}

// TestSpawnJoinsAndLeaves brings an agent into the space and takes it out again, and measures both.
func TestSpawnJoinsAndLeaves(t *testing.T) {
	s := newStage(t, nil)
	began := time.Now()
	req := wire.SpawnRequest{RequestID: wire.NewID(), Agent: "joiner", Name: "ada", Subscribe: []string{"general"}, AllowPublish: []string{"general"}}
	a := call[wire.SpawnReply](t, s, wire.CommandSpawn, req).Agent
	accepted := time.Since(began)
	got := s.await(t, a.UID, wire.AgentReady)
	t.Logf("accepted after %v, ready after %v", accepted, time.Since(began))
	if got.Mesh.Status != wire.StatusIdle || got.Process.PID == 0 || !alive(got.Process.PID) {
		t.Errorf("ready as %+v", got)
	}
	s.checkPrivate(t, a.UID, got.Process.PID)
	began = time.Now()
	out := call[wire.StopReply](t, s, wire.CommandStop, wire.StopRequest{UID: a.UID})
	t.Logf("ended after %v", time.Since(began))
	if out.Agent.State != wire.AgentExited || alive(got.Process.PID) {
		t.Errorf("stopped as %+v", out.Agent)
	}
	s.awaitRetired(t, "ada")
	t.Logf("retired after %v", time.Since(began))
	req.RequestID = wire.NewID()
	next := call[wire.SpawnReply](t, s, wire.CommandSpawn, req).Agent
	if next.UID == a.UID || next.Name != "ada" {
		t.Errorf("the next life is %+v", next)
	}
	s.await(t, next.UID, wire.AgentReady)
}

// checkPrivate looks for secrets where everybody can read, and for files that others can read.
func (s *stage) checkPrivate(t *testing.T, u wire.UID, pid int) {
	t.Helper()
	dir := filepath.Join(s.agents(), string(u))
	creds, err := os.ReadFile(filepath.Join(dir, "agent.creds"))
	if err != nil {
		t.Fatal(err)
	}
	seed := ""
	for line := range strings.Lines(string(creds)) {
		if strings.HasPrefix(line, "SU") {
			seed = strings.TrimSpace(line)
		}
	}
	if len(seed) < 50 {
		t.Fatal("the credential file has no seed")
	}
	for _, name := range []string{"environ", "cmdline"} {
		if data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)); strings.Contains(string(data), seed) {
			t.Errorf("the seed is in %s", name)
		}
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		info, serr := d.Info()
		if errors.Join(err, serr) != nil {
			return nil // it went meanwhile
		}
		if info.Mode().Perm()&0o077 != 0 && info.Mode().Type()&fs.ModeSymlink == 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if info.Mode().IsRegular() && d.Name() != "agent.creds" {
			if data, _ := os.ReadFile(path); strings.Contains(string(data), seed) {
				t.Errorf("the seed is in %s", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// awaitRetired waits until the authority has retired a name.
func (s *stage) awaitRetired(t *testing.T, actor string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx := within(t); ; {
		all, err := s.node.Authority().List(ctx, stageSpace)
		stands := err != nil // a stream may not answer for a moment
		for _, g := range all {
			stands = stands || g.Actor == actor && g.State != trust.GrantRetired
		}
		if !stands {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the grant of %q still stands", actor)
		}
	}
}
