package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/wire"
)

const lab = wire.Space("lab")

// theatre has seats without processes, which outlive the keepers of a test as real ones do.
type theatre struct {
	mu      sync.Mutex // guards what follows
	seats   map[string]*playSeat
	lives   map[string]int // processes alive, by principal
	starts  int
	busy    int // starts under way
	busiest int
	twins   []string
	refuse  error
	broken  error         // what is said before any start
	deaf    int           // times that a seat is not heard of after its start
	slow    time.Duration // of each start
	script  func(s *playSeat)

	terminal relay.Terminal // of every seat
}

func newTheatre() *theatre {
	return &theatre{seats: map[string]*playSeat{}, lives: map[string]int{}}
}

type playSeat struct {
	th    *theatre
	spec  supervisor.SeatSpec
	began time.Time
	done  chan struct{}
	exit  *supervisor.SeatExit
	gone  bool
	stuck bool // does not end when told
}

func (th *theatre) Start(ctx context.Context, dir string, spec supervisor.SeatSpec) (supervisor.Seat, error) {
	th.mu.Lock()
	th.busy++
	th.busiest = max(th.busiest, th.busy)
	slow, refuse := th.slow, th.refuse
	th.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow) // in a bubble
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	th.busy--
	if refuse != nil {
		return nil, refuse
	}
	if th.seats[dir] != nil {
		return nil, wire.Errorf(wire.CodeAlreadyExists, "the folder %q has a seat", dir)
	}
	s := &playSeat{th: th, spec: spec, began: time.Now(), done: make(chan struct{})}
	th.seats[dir] = s
	th.starts++
	th.lives[spec.Principal]++
	if th.lives[spec.Principal] > 1 {
		th.twins = append(th.twins, spec.Principal)
	}
	if th.script != nil {
		th.script(s)
	}
	if th.deaf > 0 {
		return nil, wire.Errorf(wire.CodeDeadlineExceeded, "no word of the seat")
	}
	return s, nil
}

func (th *theatre) Open(_ context.Context, dir string) (supervisor.Seat, error) {
	th.mu.Lock()
	defer th.mu.Unlock()
	switch s := th.seats[dir]; {
	case th.deaf > 0:
		th.deaf--
		return nil, wire.Errorf(wire.CodeUnavailable, "no word of the seat")
	case s == nil:
		return nil, wire.Errorf(wire.CodeNotFound, "no seat in %q", dir)
	case s.gone:
		return nil, supervisor.ErrSeatGone
	default:
		return s, nil
	}
}

func (th *theatre) Ended(dir string) (supervisor.SeatExit, bool) {
	th.mu.Lock()
	defer th.mu.Unlock()
	if s := th.seats[dir]; s != nil && s.exit != nil {
		return *s.exit, true
	}
	return supervisor.SeatExit{}, false
}

func (th *theatre) Sweep(_ context.Context, dir string, _ time.Duration) (int, error) {
	th.mu.Lock()
	defer th.mu.Unlock()
	s := th.seats[dir]
	switch {
	case s == nil:
		return 0, nil
	case !s.gone:
		return 0, wire.Errorf(wire.CodeFailedPrecondition, "the seat of %q runs", dir)
	case s.exit != nil:
		return 0, nil
	}
	th.lives[s.spec.Principal]--
	s.exit = &supervisor.SeatExit{Ending: supervisor.Ending{Lost: true}}
	return 1, nil
}

// of returns the newest seat of a principal that has not ended.
func (th *theatre) of(principal string) *playSeat {
	th.mu.Lock()
	defer th.mu.Unlock()
	for _, s := range th.seats {
		if s.spec.Principal == principal && s.exit == nil {
			return s
		}
	}
	return nil
}

// alive counts the processes.
func (th *theatre) alive() int {
	th.mu.Lock()
	defer th.mu.Unlock()
	n := 0
	for _, c := range th.lives {
		n += c
	}
	return n
}

func (th *theatre) counts() (starts, busiest int, twins []string) {
	th.mu.Lock()
	defer th.mu.Unlock()
	return th.starts, th.busiest, th.twins
}

// end ends the process of a seat.
func (s *playSeat) end(how supervisor.Ending, lines ...string) {
	s.th.mu.Lock()
	defer s.th.mu.Unlock()
	s.endLocked(how, lines)
}

func (s *playSeat) endLocked(how supervisor.Ending, lines []string) {
	if s.exit != nil {
		return
	}
	s.exit = &supervisor.SeatExit{Ending: how, At: time.Now(), LastLines: lines}
	s.th.lives[s.spec.Principal]--
	close(s.done)
}

// lose is a seat that is killed: its agent is left.
func (s *playSeat) lose() {
	s.th.mu.Lock()
	defer s.th.mu.Unlock()
	s.gone = true
	close(s.done)
}

func (s *playSeat) Process(context.Context) (int, time.Time, error) { return 4242, s.began, nil }
func (s *playSeat) Done() <-chan struct{}                           { return s.done }
func (s *playSeat) Close(context.Context, bool) error               { return nil }

func (s *playSeat) Terminal() relay.Terminal {
	s.th.mu.Lock()
	defer s.th.mu.Unlock()
	return s.th.terminal
}

func (s *playSeat) Exit() (supervisor.SeatExit, bool) {
	s.th.mu.Lock()
	defer s.th.mu.Unlock()
	if s.exit == nil || s.gone {
		return supervisor.SeatExit{}, false
	}
	return *s.exit, true
}

func (s *playSeat) Stop(context.Context, time.Duration) (supervisor.SeatExit, error) {
	s.th.mu.Lock()
	defer s.th.mu.Unlock()
	if s.gone || s.stuck {
		return supervisor.SeatExit{}, errors.New("it does not end")
	}
	s.endLocked(supervisor.Ending{Signal: "SIGTERM"}, nil)
	return *s.exit, nil
}

func (s *playSeat) Lines(context.Context, int) ([]string, error) { return nil, nil }

// ledger is an authority that grants everything, once.
type ledger struct {
	mu     sync.Mutex // guards what follows
	grants map[string]*wire.ManagedGrant
	proofs map[string]string // of a grant, by principal
	starts map[string]uint64 // number of the last start that was made or ended, by principal
	asked  []any             // starts and stops
	calls  map[string]int
	lose   int   // answers to lose
	down   error // of every question
}

func newLedger() *ledger {
	return &ledger{grants: map[string]*wire.ManagedGrant{}, proofs: map[string]string{}, starts: map[string]uint64{}, calls: map[string]int{}}
}

func (l *ledger) ask(_ context.Context, command string, args, out any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down != nil {
		return l.down
	}
	l.calls[command]++
	answer, err := l.do(args)
	if err != nil {
		return err
	}
	if l.lose > 0 && command == wire.CommandAgentGrant {
		l.lose--
		return wire.Errorf(wire.CodeDeadlineExceeded, "no answer")
	}
	if out == nil {
		return nil
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}

func (l *ledger) do(args any) (any, error) {
	switch r := args.(type) {
	case wire.AgentGrantRequest:
		owner := r.Owner
		if p, err := wire.ParsePrincipal(r.Parent); err == nil {
			owner = p.Owner
		}
		p := owner + "." + r.Actor
		if g := l.grants[p]; g != nil && l.proofs[p] != r.Proof.UserKey {
			return nil, wire.Errorf(wire.CodeAlreadyExists, "%q is granted", p)
		} else if g == nil {
			l.grants[p] = &wire.ManagedGrant{Principal: p, UID: wire.NewUID(), Parent: r.Parent, ParentUID: r.ParentUID, Label: r.Label, Started: true}
			l.proofs[p] = r.Proof.UserKey
		}
		return wire.AgentCredential{Principal: p, UID: l.grants[p].UID, Exchange: true}, nil
	case wire.AgentStartRequest:
		g := l.grants[r.Principal]
		if g == nil || g.UID != r.UID {
			return nil, wire.Errorf(wire.CodePermissionDenied, "%q is not granted", r.Principal)
		}
		l.asked = append(l.asked, r)
		if r.Start <= l.starts[r.Principal] {
			return nil, wire.Errorf(wire.CodeConflict, "start %d of %q comes late", r.Start, r.Principal)
		}
		l.starts[r.Principal], g.Started = r.Start, true
		return wire.AgentCredential{Principal: r.Principal, UID: r.UID, Exchange: true}, nil
	case wire.AgentStopRequest:
		g := l.grants[r.Principal]
		if g == nil || g.UID != r.UID {
			return nil, wire.Errorf(wire.CodeNotFound, "%q is not granted", r.Principal)
		}
		l.asked = append(l.asked, r)
		if r.Start >= l.starts[r.Principal] {
			l.starts[r.Principal], g.Started = r.Start, false
		}
		return nil, nil
	case wire.AgentRequest:
		if g := l.grants[r.Principal]; g == nil || g.UID != r.UID {
			return nil, wire.Errorf(wire.CodeNotFound, "%q is not granted", r.Principal)
		}
		delete(l.grants, r.Principal)
		delete(l.starts, r.Principal)
		return nil, nil
	}
	var out wire.AgentGrantsReply
	for _, g := range l.grants {
		out.Agents = append(out.Agents, *g)
	}
	return out, nil
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.grants)
}

// plain is a connector that runs what it is told; model and variant are refused when they begin with "no-".
type plain struct {
	name  string
	joins bool
}

func (p plain) Name() string         { return p.name }
func (p plain) Info() connector.Info { return connector.Info{Name: p.name} }

func (p plain) Prepare(_ context.Context, r connector.Request) (connector.Launch, error) {
	if r.Variant != "" {
		return connector.Launch{}, wire.Errorf(wire.CodeUnimplemented, "start %s: there is no variant %q", p.name, r.Variant)
	}
	argv := r.Command
	if argv == nil {
		argv = []string{"/bin/true"}
	}
	return connector.Launch{Argv: argv, Joins: p.joins, Model: r.Model}, nil
}

// files are personas in memory.
type files map[string]persona.Persona

func (f files) Load(name string) (persona.Persona, error) {
	p, ok := f[name]
	if !ok {
		return p, wire.Errorf(wire.CodeNotFound, "there is no persona %q", name)
	}
	return p, nil
}

func (f files) Catalog(string) ([]wire.Persona, error) { return nil, nil }

func (f files) Define(persona.Definer, wire.PersonaRequest) (persona.Persona, bool, error) {
	return persona.Persona{}, false, wire.Errorf(wire.CodeUnimplemented, "not here")
}

// stand is a keeper over a theatre and a ledger; again begins the next keeper of the same folder.
type stand struct {
	*supervisor.Keeper
	th   *theatre
	led  *ledger
	opts supervisor.Options
	stop func()

	mu   sync.Mutex // guards told
	told []wire.AgentStatus
}

// newStand is for a bubble; change may be nil.
func newStand(t *testing.T, change func(*supervisor.Options)) *stand {
	t.Helper()
	dir := t.TempDir()
	s := &stand{th: newTheatre(), led: newLedger()}
	s.opts = supervisor.Options{
		Dir: filepath.Join(dir, "agents"), Program: "/bin/cotal", Seats: s.th, Project: dir, Host: "here",
		Server: func() supervisor.Server {
			return supervisor.Server{URL: "nats://127.0.0.1:4222", CapabilityFile: "/tmp/capability"}
		},
		Personas:   files{"reviewer": {Name: "reviewer", Agent: "process", Subscribe: []string{"general"}, AllowSubscribe: []string{"general"}}},
		Connectors: []connector.Connector{plain{"process", false}, plain{"joins", true}},
		MaxAgents:  2000, MinLife: -1,
	}
	if change != nil {
		change(&s.opts)
	}
	s.begin(t)
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *stand) begin(t *testing.T) {
	t.Helper()
	k, err := supervisor.NewKeeper(lab, &s.opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Keeper = k
	detach := k.Speak(s.led.ask, func(a wire.AgentStatus) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, a)
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		detach()
		if err := <-done; err != nil {
			t.Errorf("run keeper: %v", err)
		}
	})
	select {
	case <-k.Ready():
	case err := <-done:
		t.Fatalf("run keeper: %v", err)
	}
	k.RosterIs()
}

// again is a supervisor that ends and another that begins.
func (s *stand) again(t *testing.T) {
	t.Helper()
	s.stop()
	s.begin(t)
}

var operator = supervisor.Caller{Life: wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "op"}, UID: wire.NewUID()}, Mode: wire.ModeAny}

// as is a caller that is the agent.
func as(a wire.AgentStatus) supervisor.Caller {
	p, _ := wire.ParsePrincipal(a.Principal)
	return supervisor.Caller{Life: wire.Lifecycle{Principal: p, UID: a.UID}}
}

func request(agent string) wire.SpawnRequest {
	return wire.SpawnRequest{RequestID: wire.NewID(), Agent: agent}
}

// spawn spawns and fails the test on an error.
func (s *stand) spawn(t *testing.T, by supervisor.Caller, req wire.SpawnRequest) wire.SpawnReply {
	t.Helper()
	out, err := s.Spawn(t.Context(), by, req)
	if err != nil {
		t.Fatalf("spawn %+v: %v", req, err)
	}
	return out
}

// see is the agent as an operator sees it, once nothing moves.
func (s *stand) see(t *testing.T, u wire.UID) wire.AgentStatus {
	t.Helper()
	synctest.Wait()
	all := s.Agents(operator, wire.AgentsRequest{UID: u, Ended: true, Lines: true}).Agents
	if len(all) != 1 {
		t.Fatalf("agent %q: %d are told", u, len(all))
	}
	return all[0]
}

// want checks the state of an agent.
func (s *stand) want(t *testing.T, u wire.UID, state, process string) wire.AgentStatus {
	t.Helper()
	a := s.see(t, u)
	if a.State != state || a.Process.State != process {
		t.Fatalf("agent is %s (%s), its process %s; want %s, %s", a.State, a.Reason, a.Process.State, state, process)
	}
	return a
}

// present is a roster entry of an agent.
func present(a wire.AgentStatus, status wire.Status) wire.RosterEntry {
	return wire.RosterEntry{Principal: a.Principal, SeenMS: time.Now().UnixMilli(), Presence: wire.Presence{
		Card: wire.Card{ID: a.Principal, Name: a.Name, Kind: wire.CardAgent}, Status: status, LifecycleUID: a.UID, TS: time.Now().UnixMilli(),
	}}
}

func codeIs(t *testing.T, err error, want wire.Code, what string) {
	t.Helper()
	if got := wire.CodeOf(err); got != want {
		t.Errorf("%s: %v (%s), want %s", what, err, got, want)
	}
}

func times(n int) string { return fmt.Sprintf("%d times", n) }

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// set changes what happens from now on.
func (th *theatre) set(change func()) {
	th.mu.Lock()
	defer th.mu.Unlock()
	change()
}

func (l *ledger) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}
