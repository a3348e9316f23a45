//go:build linux || darwin

package supervisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// TestC26StackStops ends the whole stack: the agent goes on, the next stack adopts it, and only who asks for it ends agents too.
func TestC26StackStops(t *testing.T) {
	s := newStage(t, nil)
	a := call[wire.SpawnReply](t, s, wire.CommandSpawn, wire.SpawnRequest{RequestID: wire.NewID(), Agent: "joiner", Name: "ada"}).Agent
	before := s.await(t, a.UID, wire.AgentReady)
	_ = s.op.Close()
	s.stop()
	if !alive(before.Process.PID) {
		t.Fatal("the agent ended with the stack")
	}
	s.begin(t)
	after := s.await(t, a.UID, wire.AgentReady)
	if after.Process.PID != before.Process.PID || after.UID != before.UID || after.Process.Restarts != 0 {
		t.Errorf("was %+v, is %+v", before.Process, after.Process)
	}
	out := call[wire.StopReply](t, s, wire.CommandStop, wire.StopRequest{UID: a.UID})
	if alive(before.Process.PID) || out.Agent.Process.State != wire.ProcessExited {
		t.Errorf("stopped, and it is %+v", out.Agent.Process)
	}
}

// TestC27ReportsExactly tells code and last words of an agent that leaves by itself, and what killed another.
func TestC27ReportsExactly(t *testing.T) {
	s := newStage(t, nil)
	req := sh("brief", "echo nobody watches me; exit 7")
	req.Restart = supervisor.RestartNever
	a := call[wire.SpawnReply](t, s, wire.CommandSpawn, req).Agent
	got := s.await(t, a.UID, wire.AgentFailed)
	if got.Process.Code != 7 || got.Reason != "exit code 7" || !strings.Contains(strings.Join(got.Process.LastLines, "\n"), "nobody watches me") {
		t.Errorf("told as %q, %+v", got.Reason, got.Process)
	}
	req = sh("killed", "kill -9 $$")
	req.Restart = supervisor.RestartNever
	b := call[wire.SpawnReply](t, s, wire.CommandSpawn, req).Agent
	if got := s.await(t, b.UID, wire.AgentFailed); got.Process.Signal != "SIGKILL" || got.Process.Code != 0 {
		t.Errorf("told as %+v", got.Process)
	}
	req = sh("missing", "")
	req.Command = []string{filepath.Join(s.dir, "no-such-program")}
	c := call[wire.SpawnReply](t, s, wire.CommandSpawn, req).Agent
	if got := s.await(t, c.UID, wire.AgentFailed); got.Process.State != wire.ProcessNone || got.Reason == "" {
		t.Errorf("told as %q, %+v", got.Reason, got.Process)
	}
}

// TestSeatKilled kills a seat: what its agent was is ended, and the agent starts again, once.
func TestSeatKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		archtest.NotHere(t, "the mark of a seat is read from /proc")
	}
	s := newStage(t, nil)
	a := call[wire.SpawnReply](t, s, wire.CommandSpawn, sh("ada", "sleep 1000 & echo $! > child; wait")).Agent
	before := s.await(t, a.UID, wire.AgentReady)
	r, err := seat.Read(filepath.Join(s.agents(), string(a.UID), "seat-1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(r.Seat.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	after := s.await(t, a.UID, wire.AgentReady)
	for ctx := within(t); after.Process.Restarts == 0 && ctx.Err() == nil; { // the supervisor may not have heard of it yet
		after = s.await(t, a.UID, wire.AgentReady)
	}
	if after.Process.PID == before.Process.PID || after.Process.Restarts != 1 || alive(before.Process.PID) {
		t.Errorf("was %+v, is %+v", before.Process, after.Process)
	}
}

// TestP7RealCycles spawns and finishes fifty times: the processes, descriptors and memory, and the supervisor's goroutines, are back where
// they were.
func TestP7RealCycles(t *testing.T) {
	s := newStage(t, func(o *supervisor.Options) { o.MaxEnded = 4 })
	cycle := func(n int) {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				a := call[wire.SpawnReply](t, s, wire.CommandSpawn, sh(fmt.Sprintf("a%d", i), "echo done")).Agent
				s.await(t, a.UID, wire.AgentExited)
				call[wire.StopReply](t, s, wire.CommandStop, wire.StopRequest{UID: a.UID})
				s.awaitRetired(t, a.Name)
			})
		}
		wg.Wait()
	}
	cycle(5)
	s.settle(t, 0)
	files, heap, own := usage(t)
	for range 10 {
		cycle(5)
	}
	s.settle(t, own)
	files2, heap2, own2 := usage(t)
	t.Logf("files %d then %d, heap %d KiB then %d, own goroutines %d then %d", files, files2, heap>>10, heap2>>10, own, own2)
	if files2 > files+4 || heap2 > heap+4<<20 {
		t.Error("something piles up")
	}
}

// settle waits until no process of an agent or seat is there, and no more goroutines than at most, when that is given.
func (s *stage) settle(t *testing.T, most int) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx := within(t); ; {
		left := s.processes(t)
		_, _, own := usage(t)
		if len(left) == 0 && (most == 0 || own <= most) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d goroutines, were %d; processes are left: %v", own, most, left)
		}
	}
}

func usage(t *testing.T) (files int, heap uint64, goroutines int) {
	t.Helper()
	fds, _ := os.ReadDir("/proc/self/fd")
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	buf := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "cotal/supervisor.") || strings.Contains(stack, "supervisor/seat.") || strings.Contains(stack, "supervisor/relay.") {
			goroutines++ // those of the broker come and go with its own work
		}
	}
	return len(fds), m.HeapAlloc, goroutines
}

// TestManyRealStarts spawns many at once on a machine that is busy with them; none fails, each process is there once, and all end.
func TestManyRealStarts(t *testing.T) {
	n := 60
	if v := os.Getenv("COTAL_TEST_STARTS"); v != "" {
		if _, err := fmt.Sscan(v, &n); err != nil {
			t.Fatal(err)
		}
	}
	s := newStage(t, nil)
	began := time.Now()
	uids := make([]wire.UID, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			req := sh("", "exec sleep 1000")
			uids[i] = call[wire.SpawnReply](t, s, wire.CommandSpawn, req).Agent.UID
		})
	}
	wg.Wait()
	t.Logf("%d accepted after %v", n, time.Since(began))
	pids := map[int]bool{}
	for _, u := range uids {
		a := s.await(t, u, wire.AgentReady)
		pids[a.Process.PID] = true
	}
	t.Logf("%d ready after %v", n, time.Since(began))
	if len(pids) != n {
		t.Errorf("%d processes for %d agents", len(pids), n)
	}
	began = time.Now()
	for _, u := range uids {
		wg.Go(func() { call[wire.StopReply](t, s, wire.CommandStop, wire.StopRequest{UID: u, Grace: 2000}) })
	}
	wg.Wait()
	t.Logf("%d ended after %v", n, time.Since(began))
}
