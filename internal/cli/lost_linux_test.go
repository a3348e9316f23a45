package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/config"
)

// process runs a command of the program in a process of its own, and waits for the first line that it prints.
func (w *world) process(program string, args ...string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=10", "COTAL_PROGRAM=" + os.Args[0]}
	for k, v := range w.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		w.t.Fatalf("cotal %v printed nothing: %v", args, err)
	}
	return cmd
}

// takeDown ends a mesh that is a process of its own, with its agents.
func (w *world) takeDown() {
	if code, _, errs := w.run("", "down", "--with-agents"); code != 0 {
		w.t.Errorf("down: exit %d: %s", code, errs)
	}
}

// crash ends the mesh's process, which is the broker's, as the system does when memory runs out.
func (w *world) crash() {
	w.t.Helper()
	run, err := config.NewProject(w.dir).Run()
	if err != nil || run == nil {
		w.t.Fatalf("run: %v, %v", run, err)
	}
	if err := syscall.Kill(run.PID, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
}

// pidOf is the process of an agent that is ready.
func (w *world) pidOf(name string) int {
	w.t.Helper()
	var line struct {
		Agent struct {
			State   string
			Process struct{ PID int }
		}
	}
	if err := json.Unmarshal([]byte(w.must("ps", name, "--json")), &line); err != nil {
		w.t.Fatal(err)
	}
	return line.Agent.Process.PID
}

// TestC24TheBrokerIsKilled kills the process of the broker while messages are acknowledged. It is back by itself: it takes messages once its
// keeper has paused for 5 s in all at most, what was acknowledged is there, and the agent is the process that it was and hears. Then it is killed and cannot start, until
// it can; and is taken down while it cannot, and stays down.
func TestC24TheBrokerIsKilled(t *testing.T) {
	w := newWorld(t)
	agents := filepath.Join(w.dir, ".cotal", "agents")
	const scribe = "---\nagent: script\nsubscribe: [general]\nallowSubscribe: [general]\nallowPublish: [general]\n---\n"
	if err := os.MkdirAll(agents, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(agents, "scribe.md"), []byte(scribe), 0o600); err != nil {
		t.Fatal(err)
	}
	w.must("up", "--detach")
	defer func() { _, _, _ = w.run("", "down") }() // nothing is left of it but after a failure
	w.must("spawn", "scribe")
	before := w.pidOf("scribe")

	var acked []string
	var crashed atomic.Bool
	stopped := make(chan struct{})
	go func() { // ends with the first message that is refused, or the one that is on its way as the broker dies
		defer close(stopped)
		for i := 0; !crashed.Load(); i++ {
			text := fmt.Sprintf("acked-%d.", i)
			if code, _, _ := w.run("", "send", "msg", "general", text); code != 0 {
				return
			}
			acked = append(acked, text)
		}
	}()
	w.until("acked-5.", "read", "general")
	w.crash()
	killed := time.Now()
	crashed.Store(true)
	comesBack := func() {
		t.Helper()
		for end, code := time.Now().Add(patience), -1; code != 0; {
			if code, _, _ = w.run("", "send", "msg", "general", "it is back"); time.Now().After(end) {
				t.Fatal("the mesh does not come back")
			}
		}
	}
	comesBack()
	back := time.Since(killed)
	<-stopped
	t.Logf("killed with %d messages acknowledged, back after %v", len(acked), back)
	if n, paused := w.pauses(); n == 0 || paused > 5*time.Second {
		t.Errorf("back after %d pauses, %v in all, want some and at most 5 s", n, paused)
	}
	all := w.must("history", "general", "--limit", "1000")
	for _, text := range acked {
		if !strings.Contains(all, text) {
			t.Errorf("%q was acknowledged and is lost", text)
		}
	}
	w.until(" ready ", "ps")
	if after := w.pidOf("scribe"); after != before {
		t.Errorf("the agent was process %d and is %d", before, after)
	}
	w.must("send", "dm", "scribe", "do you hear again?")
	w.until("local.scribe: do you hear again?", "inbox")
	t.Logf("the agent answered after %v", time.Since(killed))

	broker, aside := filepath.Join(w.dir, ".cotal", "broker"), filepath.Join(w.dir, "aside")
	block := func() { // a file stands where the broker keeps its own
		if err := os.Rename(broker, aside); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(broker, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free := func() {
		if err := os.Remove(broker); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(aside, broker); err != nil {
			t.Fatal(err)
		}
	}
	log := func(want string) {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			data, err := os.ReadFile(filepath.Join(w.dir, ".cotal", "log", "up.log"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the log lacks %q:\n%s", want, data)
			}
		}
	}
	block()
	w.crash()
	log("keeper: the mesh does not start: ")
	if code, _, errs := w.run("", "status"); code != 7 || !strings.Contains(errs, "start") || !strings.Contains(errs, "again") {
		t.Errorf("status while it cannot start: exit %d: %s", code, errs)
	}
	free()
	comesBack()
	w.until(" ready ", "ps")
	w.must("stop", "scribe")
	block()
	w.crash()
	keeper, err := config.NewProject(w.dir).Keeper()
	if err != nil || keeper == nil {
		t.Fatalf("keeper: %v, %v", keeper, err)
	}
	w.must("down")
	if alive, err := process.Running(process.Identity{PID: keeper.PID, Start: keeper.Start}); alive || err != nil {
		t.Errorf("after down the keeper runs: %v, %v", alive, err)
	}
	free()
	if code, _, errs := w.run("", "status"); code != 7 || !strings.Contains(errs, "not running") {
		t.Errorf("status after down: exit %d: %s", code, errs)
	}
}

// pauses counts and adds up the pauses that the keeper has made before it started the mesh again.
func (w *world) pauses() (n int, all time.Duration) {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, ".cotal", "log", "up.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`; it is started again in (\S+)`).FindAllSubmatch(data, -1) {
		d, err := time.ParseDuration(string(m[1]))
		if err != nil {
			w.t.Fatal(err)
		}
		n, all = n+1, all+d
	}
	return n, all
}

// TestAttachOutlivesTheSupervisor kills the supervisor, then the broker, amid a session: the last screen stays under a line that says what
// is wrong, what is typed is dropped, and the same session goes on when the other is back. With --no-reconnect it ends instead.
func TestAttachOutlivesTheSupervisor(t *testing.T) {
	w := newWorld(t)
	w.must("up", "--detach", "--no-restart", "--no-supervisor")
	defer w.takeDown()
	s := w.process(os.Args[0], "serve", "supervisor", "--json")
	_ = w.shell("sh4")
	pid := w.pidOf("sh4")
	defer func() {
		if t.Failed() { // the supervisor that could end it may be gone
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	g, wait := attachOn(t, w, 100, 24, "sh4")
	once, waitOnce := attachOn(t, w, 100, 24, "sh4", "--view", "--no-reconnect")
	g.shows("$")
	once.shows("$")
	g.send("echo before$((1+1))\r")
	g.shows("before2")

	kill(t, s)
	g.shows("before2", "ctrl-] leaves; not connected, trying again")
	g.send("echo drop\"\"ped\r")
	if code := waitOnce(); code != 7 {
		t.Errorf("--no-reconnect ended with %d, want 7", code)
	}
	once.shows("has not answered", "the supervisor of the agent does not answer; see which do: cotal ps")
	once.cooked()
	w.process(os.Args[0], "serve", "supervisor", "--json")
	seen := g.comesBack("between")
	if strings.Contains(seen, "dropped\n") || !strings.Contains(seen, "before2") {
		t.Errorf("after the supervisor is back:\n%s", seen)
	}

	w.crash()
	g.shows("the connection is lost; trying again")
	w.must("up", "--detach", "--no-supervisor")
	g.comesBack("after")
	if now := w.pidOf("sh4"); now != pid {
		t.Errorf("the agent was process %d and is %d", pid, now)
	}
	g.send("\x1d")
	if code := wait(); code != 0 {
		t.Errorf("attach ended with %d", code)
	}
	g.shows("left sh4, which goes on")
	g.cooked()
}

// kill ends a process as a crash does, and waits until it is gone.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// comesBack types a word, again and again since it may be dropped, until the agent's shell has answered, and returns what the person sees.
func (g *glass) comesBack(word string) string {
	g.t.Helper()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); ; {
		g.send("echo " + word + "$((40+2))\r")
		select {
		case <-tick.C:
		case <-limit:
			g.t.Fatalf("the session does not come back; the person sees\n%s", g.text())
		}
		if seen := g.text(); strings.Contains(seen, word+"42") && !strings.Contains(seen, "not connected") && !strings.Contains(seen, "is lost") {
			return seen
		}
	}
}

// text is what the person sees now.
func (g *glass) text() string {
	g.terminal.mu.Lock()
	all := g.seen.String()
	g.seen.Reset()
	g.terminal.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = g.screen.Write([]byte(all))
	return g.screen.Grid().Text()
}

// TestAKeeperEndsWithItsFolder takes the project away from a mesh and kills that: nobody could take down what would start it again.
func TestAKeeperEndsWithItsFolder(t *testing.T) {
	w := newWorld(t)
	w.must("up", "--detach")
	p := config.NewProject(w.dir)
	keeper, err := p.Keeper()
	run, rerr := p.Run()
	if err != nil || rerr != nil || keeper == nil || run == nil {
		t.Fatalf("keeper %v, %v; run %v, %v", keeper, err, run, rerr)
	}
	kept := process.Identity{PID: keeper.PID, Start: keeper.Start}
	defer func() { _ = kept.Kill() }()                   // it is gone but after a failure
	for _, command := range []string{"status", "down"} { // another mesh is named
		if code, _, errs := w.run("", command, "--server", "nats://127.0.0.1:1"); code == 0 || strings.Contains(errs, "again") {
			t.Errorf("%s of another mesh: exit %d: %s", command, code, errs)
		}
	}
	if alive, err := process.Running(kept); !alive || err != nil {
		t.Fatalf("after down of another mesh the keeper runs: %v, %v", alive, err)
	}
	if err := os.Rename(p.Dir, filepath.Join(w.dir, "away")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(run.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := process.Wait(ctx, kept); err != nil {
		t.Errorf("the keeper runs on: %v", err)
	}
}

// TestAKeeperThatIsAskedToEnd leaves the mesh as it is, and the next start gives it another one.
func TestAKeeperThatIsAskedToEnd(t *testing.T) {
	w := newWorld(t)
	w.must("up", "--detach")
	defer w.takeDown()
	p := config.NewProject(w.dir)
	keeper, err := p.Keeper()
	if err != nil || keeper == nil {
		t.Fatalf("keeper: %v, %v", keeper, err)
	}
	kept := process.Identity{PID: keeper.PID, Start: keeper.Start}
	if err := kept.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := process.Wait(ctx, kept); err != nil {
		t.Errorf("the keeper runs on: %v", err)
	}
	if left, err := p.Keeper(); left != nil || err != nil {
		t.Errorf("its record: %v, %v", left, err)
	}
	code, out, errs := w.run("", "up", "--detach")
	if code != 0 || !strings.Contains(out, "was gone; there is another one") || errs != "" {
		t.Errorf("up: exit %d: %s%s", code, out, errs)
	}
}
