package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// idleAgents are watched together while they do nothing, for idleFor after they came to rest.
	idleAgents = 100
	idleFor    = 10 * time.Second
	// agentWithin bounds the start and the end of one agent.
	agentWithin = time.Minute
)

// host is a daemon and an operator at it.
type host struct {
	*daemon
	ep *endpoint.Endpoint
	m  *manager.Client
}

func (l *lab) host(ctx context.Context) (*host, error) {
	d, err := l.daemon(ctx)
	if err != nil {
		return nil, err
	}
	h := &host{daemon: d}
	creds, err := d.client.Authority().Personal(ctx, benchSpace, trust.Operator, "op", 0)
	if err == nil {
		h.ep, err = endpoint.Connect(ctx, d.url, endpoint.Static(creds), &endpoint.Options{Name: "op", Quiet: true})
	}
	if err != nil {
		d.stop()
		return nil, err
	}
	h.m = manager.New(h.ep)
	return h, nil
}

// endAgents ends the agents while every supervisor is there: nothing goes on after a measurement.
func (h *host) endAgents() {
	ctx, cancel := context.WithTimeout(context.Background(), agentWithin)
	defer cancel()
	_, _ = h.client.StopAgents(ctx, string(benchSpace), time.Second)
}

func (h *host) close() {
	_ = h.ep.Close()
	h.stop()
}

// agent starts a script and returns it once it is ready.
func (h *host) agent(ctx context.Context, name, on string) (wire.AgentStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, agentWithin)
	defer cancel()
	made, err := h.m.Spawn(ctx, wire.SpawnRequest{Agent: "script", Name: name, Subscribe: []string{"general"}}, on)
	if err != nil {
		return wire.AgentStatus{}, err
	}
	a, err := h.m.Settle(ctx, made.Agent, []string{wire.AgentStarting}, func(wire.AgentStatus, error) {})
	if err == nil && a.State != wire.AgentReady {
		err = fmt.Errorf("agent %s is %s: %s", name, a.State, a.Reason)
	}
	return a, err
}

// spawn measures what a supervisor adds to the start of an agent: from asking for a script until it is ready, beside the same program
// with a credential at hand, from its start until it says that it is in the space.
func (l *lab) spawn(ctx context.Context) ([]Result, error) {
	over := series{name: "over its own start", unit: "ms", limit: 150}
	ready := series{name: "to ready", unit: "ms", smaller: true}
	h, err := l.host(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	defer h.endAgents()
	res := []Result{{Name: "spawn " + ready.name, Unit: ready.unit}, {Name: "spawn " + over.name, Unit: over.unit}}
	for round := range l.opts.Rounds + 1 {
		l.opts.Progress(fmt.Sprintf("spawn: round %d of %d", round, l.opts.Rounds))
		began := time.Now()
		a, err := h.agent(ctx, fmt.Sprintf("spawned_%d", round), "")
		ours := float64(time.Since(began)) / 1e6
		if err != nil {
			return nil, err
		}
		raw, err := l.bare(ctx, h, fmt.Sprintf("bare_%d", round))
		if err != nil {
			return nil, err
		}
		if _, err := h.m.Stop(ctx, a, wire.StopRequest{}); err != nil {
			return nil, err
		}
		if round > 0 { // the first one is not counted
			res[0].Ours, res[0].Raw = append(res[0].Ours, ours), append(res[0].Raw, raw)
			res[1].Ours = append(res[1].Ours, ours-raw)
		}
	}
	res[0].settle(ready)
	res[1].settle(over)
	return res, nil
}

// bare starts the program of a script agent by hand.
func (l *lab) bare(ctx context.Context, h *host, name string) (ms float64, err error) {
	creds, err := h.issue(ctx, name)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(l.dir, "bare-")
	if err != nil {
		return 0, fmt.Errorf("create folder: %w", err)
	}
	file, id := filepath.Join(dir, "launch.json"), creds.Identity()
	f := launch.File{
		Space: benchSpace, Server: h.url, Principal: id.Principal.String(), UID: id.UID, Name: name, Connector: "script",
		Manager: "bench", Dir: dir, Seat: dir, Creds: filepath.Join(dir, "agent.creds"), Subscribe: []string{"general"},
	}
	if err := os.WriteFile(f.Creds, creds.Reveal(), 0o600); err != nil {
		return 0, fmt.Errorf("write credential: %w", err)
	}
	if err := launch.Write(file, f); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, l.opts.Executable, "script")
	cmd.Dir, cmd.Env = dir, append(h.cmd.Env[:len(h.cmd.Env):len(h.cmd.Env)], launch.Env+"="+file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("open output: %w", err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("open input: %w", err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start script: %w", err)
	}
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	ms = float64(time.Since(began)) / 1e6
	_ = cmd.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, r)
	_ = in.Close()
	_ = cmd.Wait()
	if err != nil || !strings.Contains(line, "is in space") {
		return 0, fmt.Errorf("script said %q: %v", line, err)
	}
	return ms, nil
}

// idleSeats measures what the seats of agents cost that do nothing: memory of each, and processor time of all.
func (l *lab) idleSeats(ctx context.Context) ([]Result, error) {
	memory := series{name: "memory per seat", unit: "MB", limit: 12}
	cpu := series{name: "processor of all seats", unit: "% of a core", limit: 1}
	h, err := l.host(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	_, stop, err := l.serveSupervisor(ctx, h.daemon) // one supervisor takes 64
	if err != nil {
		return nil, err
	}
	defer stop()
	defer h.endAgents()
	var seats []int
	n := max(4, int(idleAgents*min(1, l.opts.Scale)))
	for i := range n {
		l.opts.Progress(fmt.Sprintf("agents-idle: agent %d of %d", i+1, n))
		a, err := h.agent(ctx, fmt.Sprintf("idle_%d", i), "")
		if err != nil {
			return nil, err
		}
		seats = append(seats, parent(a.Process.PID))
	}
	if err := pause.For(ctx, idleFor); err != nil { // a seat comes to rest some seconds after it began
		return nil, err
	}
	before, began := ticks(seats), time.Now()
	if err := pause.For(ctx, idleFor); err != nil {
		return nil, err
	}
	used := float64(ticks(seats)-before) / 100 / time.Since(began).Seconds() * 100
	var all int64
	for _, pid := range seats {
		all += resident(pid)
	}
	if all == 0 {
		return nil, nil // this system does not tell
	}
	res := []Result{
		{Name: "agents-idle " + memory.name, Unit: memory.unit, Ours: []float64{float64(all) / 1e6 / float64(n)}},
		{Name: "agents-idle " + cpu.name, Unit: cpu.unit, Ours: []float64{used}},
	}
	res[0].settle(memory)
	res[1].settle(cpu)
	return res, nil
}

// stat is a field of /proc/<pid>/stat, counted from the state, which is 0; 0 where the system does not say.
func stat(pid, field int) int {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if err != nil || field >= len(f) {
		return 0
	}
	n, _ := strconv.Atoi(f[field])
	return n
}

func parent(pid int) int { return stat(pid, 1) }

// ticks is the processor time of processes, in hundredths of a second.
func ticks(pids []int) (sum int) {
	for _, pid := range pids {
		sum += stat(pid, 11) + stat(pid, 12)
	}
	return sum
}
