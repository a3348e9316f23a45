package account_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/secret/filestore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const space = wire.Space("main")

// operator is a person at the stack who may do everything with agents, over one connection.
type operator struct {
	*manager.Client
	ep *endpoint.Endpoint
}

func (w *world) operator(name string) operator {
	w.t.Helper()
	store, err := filestore.New(filepath.Join(w.dir, ".cotal"))
	if err != nil {
		w.t.Fatal(err)
	}
	node, err := cotal.DialNode(w.t.Context(), w.stack.url, store, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	creds, err := node.Authority().Personal(w.t.Context(), space, trust.Operator, name, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	ep, err := endpoint.Connect(w.t.Context(), w.stack.url, endpoint.Static(creds), &endpoint.Options{Name: name, Quiet: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = ep.Close() })
	return operator{manager.New(ep), ep}
}

// cycle starts an agent, waits until it works or has finished, and ends it for good. Every second one is a script, which stays until it
// is told to end; the others are commands that finish by themselves.
func (o operator) cycle(ctx context.Context, n int) error {
	req, want := wire.SpawnRequest{Persona: "scribe"}, wire.AgentReady
	if n%2 == 1 {
		req, want = wire.SpawnRequest{Agent: "command", Name: fmt.Sprintf("brief_%d", n), Command: []string{"true"}, Restart: "never"}, wire.AgentExited
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	made, err := o.Spawn(ctx, req, "")
	if err != nil {
		return fmt.Errorf("spawn %d: %w", n, err)
	}
	from := []string{wire.AgentStarting}
	if want == wire.AgentExited {
		from = append(from, wire.AgentReady)
	}
	a, err := o.Settle(ctx, made.Agent, from, func(wire.AgentStatus, error) {})
	if err != nil || a.State != want || a.Process.Code != 0 || a.Process.Restarts != 0 {
		return fmt.Errorf("agent %d is %+v, want %s: %w", n, a, want, err)
	}
	if _, err := o.Stop(ctx, a, wire.StopRequest{}); err != nil {
		return fmt.Errorf("stop %d: %w", n, err)
	}
	return nil
}

// TestSpawnsUnderLoad starts agents one beside the other on a stack that carries messages meanwhile, as many as its ceiling lets live at
// a time. Every one works or finishes, none is refused or started twice, and nothing is left of any.
func TestSpawnsUnderLoad(t *testing.T) {
	const together = 24
	w := newWorld(t)
	o := w.operator("starter")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	posts := w.load(ctx)
	var next, failed atomic.Int64
	var took []time.Duration
	var mu sync.Mutex // guards took
	var wg sync.WaitGroup
	begun := time.Now()
	for range together {
		wg.Go(func() {
			for n := int(next.Add(1)); n <= *spawns; n = int(next.Add(1)) {
				at := time.Now()
				if err := o.cycle(ctx, n); err != nil {
					failed.Add(1)
					t.Error(err)
				}
				mu.Lock()
				took = append(took, time.Since(at))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	all := time.Since(begun)
	cancel()
	slices.Sort(took)
	t.Logf("%d agents in %v, %d failed, beside %d posts; from asking to the end half within %v, the slowest %v",
		*spawns, all.Round(time.Millisecond), failed.Load(), posts(), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	w.until("end of all agents", func() []string { return w.audit(nil) })
	if agents := w.settled(); len(agents) != 0 {
		t.Errorf("there are still %+v", agents)
	}
}

// load posts to a channel that all scripts hear, until ctx ends, and returns how often.
func (w *world) load(ctx context.Context) func() int64 {
	o := w.operator("poster")
	var n atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if _, err := o.ep.Post(ctx, "general", endpoint.Draft{Parts: []wire.Part{wire.Text("work goes on")}}); err == nil {
				n.Add(1)
			} else if ctx.Err() == nil {
				w.t.Errorf("post under load: %v", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() int64 {
		wg.Wait()
		return n.Load()
	}
}

// TestP7FinishedAgentsLeaveNothing starts and ends agents one after the other. The stack then has the processes, threads and files that it
// had before, and little more memory: what it remembers of those that ended.
func TestP7FinishedAgentsLeaveNothing(t *testing.T) {
	const warm, threads, kilobytes = 10, 8, 16 << 10
	w := newWorld(t)
	o := w.operator("starter")
	for n := range warm {
		if err := o.cycle(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	w.until("end of the first agents", func() []string { return w.audit(nil) })
	before := w.use()
	for n := range *cycles {
		if err := o.cycle(t.Context(), warm+n); err != nil {
			t.Fatal(err)
		}
	}
	w.until("end of all agents", func() []string { return w.audit(nil) })
	after := w.use()
	t.Logf("after %d agents: before %+v, after %+v", *cycles, before, after)
	if after.processes != before.processes || after.files > before.files+2 || after.threads > before.threads+threads || after.memory > before.memory+kilobytes {
		t.Errorf("something piles up: before %+v, after %+v", before, after)
	}
}

// use is what the stack takes.
type use struct{ processes, files, threads, memory int }

func (w *world) use() use {
	return use{len(household(w.home)), files(w.stack.pid), status(w.stack.pid, "Threads"), status(w.stack.pid, "VmRSS")}
}
