package account_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// crew is how many agents each of the two supervisors has.
const crew = 3

// worn is how often an agent may have been started again before another takes its place: more often is given up on, rightly.
const worn = 2

// audit compares what runs with what ought to run, and returns what is wrong.
func (w *world) audit(agents []wire.AgentStatus) []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	known := map[int]bool{}
	for _, s := range []*service{w.stack, w.apart} {
		if s != nil {
			known[s.pid] = true
		}
	}
	for _, b := range w.bystanders {
		known[b.pid] = true
		if err := b.hurt(); err != nil {
			say("stranger signalled: %v: %v", b.process, err)
		}
	}
	seats, bodies := map[wire.UID]process{}, map[int]process{}
	for _, p := range household(w.home) {
		dir := p.seat()
		uid := wire.UID(filepath.Base(filepath.Dir(dir)))
		switch {
		case p.zombie:
			say("zombie: %v", p)
		case known[p.pid]:
		case dir != "" && seats[uid].pid != 0:
			say("twin: seats %v and %v", seats[uid], p)
		case dir != "":
			seats[uid] = p
		case p.variable("COTAL_SEAT") != "":
			bodies[p.pid] = p
		default:
			say("orphan: %v", p)
		}
	}
	for _, a := range agents {
		body, ok := bodies[a.Process.PID]
		switch {
		case !ok:
			say("agent %s is not there: %+v", a.Principal, a.Process)
		case body.ppid != seats[a.UID].pid || seats[a.UID].pid == 0:
			say("agent %s is not in its seat: %v, seat %v", a.Principal, body, seats[a.UID])
		}
		delete(bodies, a.Process.PID)
		delete(seats, a.UID)
	}
	for _, p := range bodies {
		say("orphan: %v", p)
	}
	for _, p := range seats {
		say("orphan: seat %v", p)
	}
	return wrong
}

// settled returns the agents once all of them work and every process is accounted for.
func (w *world) settled() (agents []wire.AgentStatus) {
	w.t.Helper()
	w.until("account", func() (wrong []string) {
		var err error
		if agents, err = w.agents(); err != nil {
			return []string{err.Error()}
		}
		var names []string
		var lives []wire.UID
		for _, a := range agents {
			if a.State != wire.AgentReady || a.Process.State != wire.ProcessRunning || a.Mesh.Status == wire.StatusOffline || a.Mesh.Status == wire.StatusUnknown {
				wrong = append(wrong, fmt.Sprintf("agent %s is %s (%s), process %s, in the space %s", a.Principal, a.State, a.Reason, a.Process.State, a.Mesh.Status))
			}
			names, lives = append(names, a.Principal), append(lives, a.UID)
		}
		if wrong = append(wrong, w.audit(agents)...); len(wrong) > 0 {
			return wrong
		}
		slices.Sort(names)
		if present, err := w.present(); err != nil || !slices.Equal(names, present) {
			wrong = append(wrong, fmt.Sprintf("in the space are %q, %v, agents are %q", present, err, names))
		}
		granted, err := w.granted()
		slices.Sort(granted)
		if slices.Sort(lives); err != nil || !slices.Equal(granted, lives) {
			wrong = append(wrong, fmt.Sprintf("granted are %q, %v, lives are %q", granted, err, lives))
		}
		return wrong
	})
	return agents
}

// man makes the crew of both supervisors complete again: who was started again too often is replaced, which it would be given up for.
func (w *world) man(agents []wire.AgentStatus) []wire.AgentStatus {
	w.t.Helper()
	changed := false
	for _, on := range []*service{w.stack, w.apart} {
		n := 0
		for _, a := range agents {
			if a.Instance != on.instance {
				continue
			}
			if n++; a.Process.Restarts >= worn || n > crew {
				w.must("stop", a.Principal)
				n--
				changed = true
			}
		}
		for ; n < crew; n++ {
			w.must("spawn", "scribe", "--on", on.instance)
			changed = true
		}
	}
	if !changed {
		return agents
	}
	return w.settled()
}

// works lets an agent post what is typed into its terminal.
func (w *world) works(a wire.AgentStatus, text string) {
	w.t.Helper()
	w.must("input", a.Principal, text)
	w.until("answer of "+a.Principal, func() []string {
		out, err := w.run("history", "general", "--json")
		if err == nil && strings.Contains(out, text) {
			return nil
		}
		return []string{fmt.Sprint(out, err)}
	})
}

// twins looks all the time whether an agent runs twice, however shortly, until ctx ends. It returns those that did.
func (w *world) twins(ctx context.Context) func() []string {
	var found []string
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(40 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			by := map[string]process{}
			for _, p := range household(w.home) {
				of := p.variable("COTAL_LAUNCH")
				if other, ok := by[of]; ok && of != "" && other.running() && p.running() {
					found = append(found, fmt.Sprintf("%v and %v", other, p))
				}
				by[of] = p
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() []string {
		wg.Wait()
		return found
	}
}

// killing kills something of a world. The agent was working, and is one of the supervisor beside the stack half of the time.
type killing struct {
	name string
	do   func(k *killer)
}

// killer is one round.
type killer struct {
	*world
	rnd   *rand.Rand
	agent wire.AgentStatus
	host  *service // of the agent
}

func (k *killer) kill(pid int) {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		k.t.Errorf("kill %d: %v", pid, err)
	}
}

// seatPID is the process of the agent's seat.
func (k *killer) seatPID() int {
	for _, p := range household(k.home) {
		if dir := p.seat(); dir != "" && filepath.Base(filepath.Dir(dir)) == string(k.agent.UID) {
			return p.pid
		}
	}
	k.t.Fatalf("agent %s has no seat", k.agent.Principal)
	return 0
}

func (k *killer) killAgent() { k.kill(k.agent.Process.PID) }

// killSeat kills the seat and returns its process, which may be reaped any time.
func (k *killer) killSeat() { k.kill(k.seatPID()) }

// amid runs the program, and kills within the time that it takes. What it says does not count: it may have been done or not. Who gets
// no answer gives up.
func (k *killer) amid(kill func(), args ...string) {
	c := k.command(args...)
	if err := c.Start(); err != nil {
		k.t.Fatal(err)
	}
	<-time.After(time.Duration(k.rnd.IntN(250)) * time.Millisecond) // real time: it is to be anywhere in the middle
	kill()
	k.revive() // what it asks for again finds somebody
	give := time.AfterFunc(10*time.Second, func() { _ = c.Process.Signal(os.Interrupt) })
	defer give.Stop()
	_ = c.Wait()
}

func killings() []killing {
	return []killing{
		{"supervisor", func(k *killer) { k.apart.kill() }},
		{"stack", func(k *killer) { k.stack.kill() }},
		{"seat", (*killer).killSeat},
		{"agent", (*killer).killAgent},
		{"everything", func(k *killer) {
			k.stack.kill()
			k.apart.kill()
			k.killSeat()
			_ = syscall.Kill(k.agent.Process.PID, syscall.SIGKILL)
		}},
		{"host amid a spawn", func(k *killer) { k.amid(k.host.kill, "spawn", "scribe", "--on", k.host.instance) }},
		{"host amid a stop", func(k *killer) { k.amid(k.host.kill, "stop", k.agent.Principal) }},
		{"seat amid a stop", func(k *killer) {
			pid := k.seatPID()
			k.amid(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }, "stop", k.agent.Principal)
		}},
		{"host amid a restart", func(k *killer) { k.amid(k.host.kill, "restart", k.agent.Principal) }},
		{"seat and agent", func(k *killer) { k.killSeat(); _ = syscall.Kill(k.agent.Process.PID, syscall.SIGKILL) }},
		{"host, then agent", func(k *killer) { k.host.kill(); k.killAgent() }},
		{"host, then seat", func(k *killer) { k.host.kill(); k.killSeat() }},
		{"agent, then host", func(k *killer) { k.killAgent(); k.host.kill() }},
		{"seat, then host", func(k *killer) { k.killSeat(); k.host.kill() }},
		{"stack and supervisor", func(k *killer) { k.stack.kill(); k.apart.kill() }},
	}
}

// TestEveryProcessIsAccountedFor kills supervisors, the stack, seats and agents, each in turn and then at random, alone and together,
// at rest and in the middle of something. After each time the next start adopts what lives and starts again what died, each agent runs
// and is present once, no process is left over, and nobody's else was signalled.
func TestEveryProcessIsAccountedFor(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-accounting.seed=%d", s)
	w, rnd, all := newWorld(t), rand.New(rand.NewPCG(s, 0)), killings()
	w.apart = w.serve("serve", "supervisor", "--json", "--state", filepath.Join(w.dir, "apart"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	found := w.twins(ctx)
	w.bystander(nil, "script")
	w.bystander([]string{"COTAL_SEAT=" + string(wire.NewUID())}, "script")
	agents := w.man(nil)
	w.bystander(nil, "seat", filepath.Join(w.dir, "apart", "6d61696e", string(agents[0].UID), "seat-1"))
	for i := range *rounds {
		kill := all[i%len(all)]
		if i >= len(all) {
			kill = all[rnd.IntN(len(all))]
		}
		k := &killer{world: w, rnd: rnd, agent: agents[rnd.IntN(len(agents))], host: w.stack}
		if k.agent.Instance == w.apart.instance {
			k.host = w.apart
		}
		begun := time.Now()
		kill.do(k)
		w.revive()
		agents = w.settled()
		t.Logf("round %d: %s (%s): accounted for after %v", i+1, kill.name, k.agent.Principal, time.Since(begun).Round(time.Millisecond))
		agents = w.man(agents)
		a := agents[rnd.IntN(len(agents))]
		w.works(a, fmt.Sprintf("%s after round %d", a.Name, i+1))
	}
	for _, a := range agents {
		w.works(a, a.Name+" at the end")
	}
	w.must("down", "--with-agents")
	<-w.stack.done
	w.apart.kill()
	w.until("end", func() []string { return w.audit(nil) })
	cancel()
	for _, twin := range found() {
		t.Errorf("twin: %s", twin)
	}
}
