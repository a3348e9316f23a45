package account_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// patience is how long what has to come may take on a busy machine.
const patience = 60 * time.Second

// world is a project with a stack and, if a test starts one, a supervisor beside it, in a home of its own.
type world struct {
	t          testing.TB
	dir, home  string
	stack      *service
	apart      *service
	bystanders []*bystander
}

// persona is an agent that answers, so that it can be seen to work.
const persona = `---
agent: script
subscribe: [general]
allowSubscribe: [general]
allowPublish: [general]
---
`

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: filepath.Join(dir, "p"), home: filepath.Join(dir, "home")}
	agents := filepath.Join(w.dir, ".cotal", "agents")
	for _, d := range []string{agents, w.home} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(agents, "scribe.md"), []byte(persona), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	w.stack = w.serve("up", "--json")
	return w
}

// close ends whatever a test left: nothing outlives it, however it went.
func (w *world) close() {
	for _, s := range []*service{w.stack, w.apart} {
		if s != nil {
			s.kill()
		}
	}
	for _, b := range w.bystanders {
		b.end()
	}
	for _, p := range household(w.home) {
		if !p.zombie && p.running() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
	if w.t.Failed() {
		logs, _ := filepath.Glob(filepath.Join(w.dir, ".cotal", "run", "agents", "*", "*", "seat-*", "seat.log"))
		for _, path := range logs {
			if b, _ := os.ReadFile(path); len(b) > 0 {
				w.t.Logf("%s:\n%s", path, b)
			}
		}
	}
}

func (w *world) command(args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Dir = w.dir
	c.Env = []string{"HOME=" + w.home, "COTAL_HOME=" + filepath.Join(w.home, ".cotal"), "PATH=" + os.Getenv("PATH")}
	return c
}

// run runs the program and returns what it printed.
func (w *world) run(args ...string) (string, error) {
	var out, told bytes.Buffer
	c := w.command(args...)
	c.Stdout, c.Stderr = &out, &told
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("cotal %s: %w: %s%s", strings.Join(args, " "), err, &out, &told)
	}
	return out.String(), nil
}

func (w *world) must(args ...string) string {
	w.t.Helper()
	out, err := w.run(args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// agents are those that have not ended, as cotal ps lists them.
func (w *world) agents() ([]wire.AgentStatus, error) {
	out, err := w.run("ps", "--json")
	if err != nil {
		return nil, err
	}
	var all []wire.AgentStatus
	for line := range strings.Lines(out) {
		var l struct{ Agent wire.AgentStatus }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return nil, fmt.Errorf("cotal ps said %q: %w", line, err)
		}
		if l.Agent.UID != "" {
			all = append(all, l.Agent)
		}
	}
	return all, nil
}

// present are the agents that the space has.
func (w *world) present() ([]string, error) {
	out, err := w.run("roster", "--json")
	if err != nil {
		return nil, err
	}
	var r struct {
		Present []struct{ Principal, Kind string }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return nil, fmt.Errorf("cotal roster said %q: %w", out, err)
	}
	var all []string
	for _, p := range r.Present {
		if p.Kind == "agent" {
			all = append(all, p.Principal)
		}
	}
	slices.Sort(all)
	return all, nil
}

// granted are the lives of agents whose grants are active.
func (w *world) granted() ([]wire.UID, error) {
	out, err := w.run("grants", "--json")
	if err != nil {
		return nil, err
	}
	var r struct {
		Grants []struct {
			UID         wire.UID
			Kind, State string
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return nil, fmt.Errorf("cotal grants said %q: %w", out, err)
	}
	var all []wire.UID
	for _, g := range r.Grants {
		if g.Kind == "managed" && g.State == "active" {
			all = append(all, g.UID)
		}
	}
	return all, nil
}

// until waits for a fact that nobody announces: that nothing is wrong any more.
func (w *world) until(what string, wrong func() []string) {
	w.t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left := wrong()
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-end.C:
			w.t.Fatalf("%s: not within %v:\n%s", what, patience, strings.Join(left, "\n"))
		}
	}
}

// service is a process that serves: the stack, or a supervisor beside it.
type service struct {
	process
	args     []string
	instance string // of the supervisor in it
	url      string // of the broker in it
	cmd      *exec.Cmd
	said     bytes.Buffer
	done     chan struct{}
}

// serve starts a service and waits until it says that it serves.
func (w *world) serve(args ...string) *service {
	w.t.Helper()
	s := &service{args: args, cmd: w.command(args...), done: make(chan struct{})}
	s.cmd.Stderr = &s.said
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	r := bufio.NewReader(out)
	line, err := r.ReadBytes('\n') // ends with the process
	go func() {
		defer close(s.done)
		_, _ = io.Copy(io.Discard, r)
		_ = s.cmd.Wait()
	}()
	var first struct {
		URL, Instance string
		Spaces        []struct{ Supervisor struct{ Instance string } }
	}
	if err == nil {
		err = json.Unmarshal(line, &first)
	}
	if err != nil {
		s.kill()
		w.t.Fatalf("cotal %q said %q: %v\n%s", args, line, err, &s.said)
	}
	s.instance, s.url = first.Instance, first.URL
	for _, sp := range first.Spaces {
		s.instance = sp.Supervisor.Instance
	}
	s.process, _ = look(s.cmd.Process.Pid)
	return s
}

// kill is kill -9, and waits until the process is gone.
func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

func (s *service) dead() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// revive starts what was killed, the stack first.
func (w *world) revive() {
	w.t.Helper()
	for _, s := range []**service{&w.stack, &w.apart} {
		if *s == nil || !(*s).dead() {
			continue
		}
		was := (*s).instance
		*s = w.serve((*s).args...)
		if (*s).instance != was {
			w.t.Errorf("cotal %q was %q and is %q", (*s).args, was, (*s).instance)
		}
	}
}

// bystander is a process that nobody here has anything to do with.
type bystander struct {
	process
	cmd  *exec.Cmd
	in   io.Closer
	file string
}

// bystander starts one that looks as the arguments and variables make it look. Its program is called cotal, as ours is.
func (w *world) bystander(env []string, args ...string) *bystander {
	w.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	b := &bystander{file: filepath.Join(dir, "signals")}
	link := filepath.Join(dir, "cotal")
	if err := os.Symlink(exe, link); err != nil {
		w.t.Fatal(err)
	}
	b.cmd = &exec.Cmd{
		Path: link, Args: append([]string{program}, args...), SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		Env: append([]string{"HOME=" + w.home, bystanderFile + "=" + b.file}, env...),
	}
	if b.in, err = b.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.bystanders = append(w.bystanders, b)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		w.t.Fatalf("bystander said %q: %v", line, err)
	}
	b.process, _ = look(b.cmd.Process.Pid)
	return b
}

// hurt is what was done to the bystander.
func (b *bystander) hurt() error {
	signals, err := os.ReadFile(b.file)
	switch {
	case err != nil:
		return err
	case len(signals) > 0:
		return fmt.Errorf("it got the signals %q", signals)
	case !b.running():
		return errors.New("it was killed")
	}
	return nil
}

func (b *bystander) end() {
	_ = b.in.Close()
	_ = b.cmd.Wait()
}
