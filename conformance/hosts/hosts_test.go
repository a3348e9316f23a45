//go:build linux || darwin

package hosts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/wire"
)

// patience is how long anything of a host may take, on a machine that does other things too.
const patience = 90 * time.Second

// TestVersions: the hosts that are tried here are those whose versions the connectors state.
func TestVersions(t *testing.T) {
	for _, c := range hosts(t) {
		data, err := os.ReadFile("package-lock.json")
		if err != nil {
			t.Fatal(err)
		}
		var lock struct {
			Packages map[string]struct{ Version string }
		}
		if err := json.Unmarshal(data, &lock); err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(c.Info().Install)
		if got, want := lock.Packages["node_modules/"+words[len(words)-1]].Version, c.Info().Tried; got != want {
			t.Errorf("%s: version %q is installed here, %q is what its connector states", c.Name(), got, want)
		}
	}
}

// hosts are the connectors of a program that must be installed.
func hosts(t *testing.T) []connector.Connector {
	t.Helper()
	all := slices.DeleteFunc(connector.Builtin(), func(c connector.Connector) bool { return c.Info().Program == "" })
	for _, c := range all {
		if _, err := os.Stat(filepath.Join("node_modules", ".bin", c.Info().Program)); err != nil {
			archtest.Skip(t, "the hosts of agents are not installed: run conformance/hosts/setup")
		}
	}
	return all
}

// TestHosts runs an agent in each host: it says hello in a channel by its tools, is woken by a direct message and reads it, shows
// when it works, goes on with its conversation when it is started again, and leaves the user's settings alone.
func TestHosts(t *testing.T) {
	for _, c := range hosts(t) {
		t.Run(c.Name(), func(t *testing.T) {
			a := newAgent(t, c)
			first := a.start(t)
			a.greets(t)
			a.hears(t)
			first.end(t)
			a.resumes(t)
			a.user.unchanged(t, a.home)
		})
	}
}

// TestPluginBeginsTurn: what comes during a turn of OpenCode begins the next one by a prompt that the plugin makes, and is told once.
func TestPluginBeginsTurn(t *testing.T) {
	c, err := connector.Find(hosts(t), "opencode")
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, c)
	host := a.start(t)
	a.shows(t, wire.StatusWorking)
	a.m.await(t, "the end of the first turn", func(q asked) bool { return q.answer == "end" })
	if _, err := a.watcher.Direct(t.Context(), a.who, endpoint.Text("DURING-MARK: and then?")); err != nil {
		t.Fatal(err)
	}
	close(a.m.finish)
	next := a.m.await(t, "a turn with what came during the first", func(q asked) bool { return strings.Contains(q.body, "DURING-MARK") })
	if n := strings.Count(next.body, "DURING-MARK"); n != 1 {
		t.Errorf("what came during the first turn was told %d times", n)
	}
	host.end(t)
}

// TestModelRefuses: an agent whose turn ends because its model's provider refuses is not shown at work for ever, and the roster says that
// the turn failed, as far as the host's hooks tell. Those of Codex tell nothing of such an end. The message that the turn began with is in the next.
func TestModelRefuses(t *testing.T) {
	codes := map[string]string{"claude": "failed", "opencode": "request", "gemini": ""}
	for _, c := range hosts(t) {
		want, tells := codes[c.Name()]
		if !tells {
			continue
		}
		t.Run(c.Name(), func(t *testing.T) {
			a := newAgent(t, c)
			a.m.refuse.Store(true)
			a.tell(t, "REFUSED-MARK")
			host := a.start(t)
			a.m.await(t, "the first turn", func(q asked) bool { return q.answer == "call" })
			if want == "" {
				a.shows(t, wire.StatusWorking, wire.StatusIdle)
			} else { // a turn that is refused at once may be over before the roster shows that it began
				select {
				case code := <-a.failed:
					if code != want {
						t.Errorf("the turn is shown as %q, want %q", code, want)
					}
				case <-time.After(patience):
					t.Error("the roster does not show that the turn failed")
				}
			}
			close(a.m.finish) // the wake of the message that waits may be typed before the line of goesOn, and its turn ends too
			a.m.refuse.Store(false)
			a.goesOn(t, host, "REFUSED-MARK")
			host.end(t)
		})
	}
}

// agent is one agent in one host, with who looks at it from the space.
type agent struct {
	c    connector.Connector
	user user
	req  connector.Request
	home string
	m    *model

	launch launch.File
	seats  string // folder of its seats
	starts int

	watcher *endpoint.Endpoint
	who     wire.Principal
	heard   chan *endpoint.Delivery
	status  chan wire.Status // each change
	failed  chan string      // the code of each new condition
}

const (
	greeting = "--hello from an agent\nto \"all\" $(id)"
	persona  = "You are the one that the persona marks: PERSONA-MARK.\nSecond line, ✓ \"quoted\"."
	prompt   = "--greet 'everybody'\nin \"general\" $(id), PROMPT-MARK"
)

func newAgent(t *testing.T, c connector.Connector) *agent {
	mesh := cotaltest.New(t, &cotaltest.Options{Listen: true})
	a := &agent{c: c, home: t.TempDir(), m: newModel(t, greeting), heard: make(chan *endpoint.Delivery, 16), status: make(chan wire.Status, 64), failed: make(chan string, 64)}
	cwd, dir := t.TempDir(), filepath.Join(t.TempDir(), "it's an agent")
	host := filepath.Join(dir, "host")
	if err := os.MkdirAll(host, 0o700); err != nil {
		t.Fatal(err)
	}
	a.user = userOf(t, c.Name(), cwd, a.m.URL)
	a.user.settle(t, a.home)
	creds := mesh.Credentials(t, "ada", &cotaltest.Peer{Subscribe: []string{"general"}, Publish: []string{"general"}})
	life := creds.Identity()
	a.who = wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}
	path, file := filepath.Join(dir, "creds"), filepath.Join(dir, "launch.json")
	if err := os.WriteFile(path, creds.Reveal(), 0o600); err != nil {
		t.Fatal(err)
	}
	a.seats = shortDir(t)
	a.launch = launch.File{
		Space: mesh.Space(), Server: mesh.URL(), Principal: a.who.String(), UID: life.UID, Name: "ada", Connector: c.Name(), Model: a.user.model,
		PersonaText: persona, Manager: "m1", Dir: dir, Creds: path, Subscribe: []string{"general"}, Prompt: prompt,
		HostSocket: filepath.Join(a.seats, "hooks"), Wakes: true,
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := filepath.Abs(filepath.Join("node_modules", ".bin"))
	if err != nil {
		t.Fatal(err)
	}
	a.req = connector.Request{
		Dir: host, Program: self, LaunchFile: file, Name: "ada", Model: a.user.model, Prompt: prompt, PersonaText: persona, Cwd: cwd,
		LookPath: func(name string) (string, error) { return exec.LookPath(filepath.Join(bin, name)) },
		Getenv:   a.getenv,
	}
	a.watch(t, mesh)
	return a
}

// shortDir is a folder whose path is short enough for sockets.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the test is over
	return dir
}

// getenv is the environment of the supervisor.
func (a *agent) getenv(name string) string {
	switch name {
	case "HOME":
		return a.home
	case "PATH":
		return os.Getenv("PATH")
	}
	return strings.ReplaceAll(a.user.env[name], "HOME", a.home)
}

// watch looks at the channel and the roster.
func (a *agent) watch(t *testing.T, mesh *cotaltest.Mesh) {
	a.watcher = mesh.Endpoint(t, "watcher", nil)
	if _, err := a.watcher.Listen(t.Context(), "general", func(d *endpoint.Delivery) { a.heard <- d }); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		var last wire.Status
		code := ""
		done <- a.watcher.WatchRoster(ctx, func(u endpoint.RosterUpdate) {
			for _, e := range u.Entries {
				if e.Principal == a.who.String() && e.Presence.Status != last {
					last = e.Presence.Status
					a.status <- last
				}
				if c := e.Presence.Condition; e.Principal == a.who.String() && c != nil && c.Code != code {
					code = c.Code
					a.failed <- code
				}
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("watch roster: %v", err)
		}
	})
}

// seatDir is the folder of the seat of the next start.
func (a *agent) seatDir() string { return filepath.Join(a.seats, fmt.Sprint("s", a.starts)) }

// start prepares and starts the host, as a supervisor does.
func (a *agent) start(t *testing.T) *terminal {
	t.Helper()
	a.starts++
	a.launch.Seat = a.seatDir()
	if err := launch.Write(a.req.LaunchFile, a.launch); err != nil {
		t.Fatal(err)
	}
	l, err := a.c.Prepare(t.Context(), a.req)
	if err != nil {
		t.Fatal(err)
	}
	if err := connector.Write(a.req.Dir, l.Files); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": a.home, "PATH": os.Getenv("PATH"),
		"GORACE": "atexit_sleep_ms=10", // hooks built with the race detector otherwise end a second late
	}
	for _, name := range l.PassEnv {
		if v := a.getenv(name); v != "" {
			env[name] = v
		}
	}
	maps.Copy(env, a.user.set)
	maps.Copy(env, l.Env)
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return run(t, a.seatDir(), wire.Lifecycle{Principal: a.who}, l.Argv, list, a.req.Cwd)
}

// greets waits for the first turn: the model is given the persona, the prompt and the tools, and what it says by them is in the space.
func (a *agent) greets(t *testing.T) {
	t.Helper()
	ask := a.m.await(t, "the first turn", func(q asked) bool { return q.answer == "call" })
	for _, want := range []string{"PERSONA-MARK", "PROMPT-MARK"} {
		if !strings.Contains(ask.body, want) {
			t.Errorf("the first turn says nothing of %s", want)
		}
	}
	if name := a.user.model[strings.LastIndex(a.user.model, "/")+1:]; !strings.Contains(ask.path+ask.body, name) {
		t.Errorf("the first turn is not for model %q: %s", name, ask.path)
	}
	select {
	case d := <-a.heard:
		if got := d.Message.Parts[0].Text; d.Sender != a.who || got != greeting {
			t.Errorf("%s said %q, want %s to say %q", d.Sender, got, a.who, greeting)
		}
	case <-time.After(patience):
		t.Fatalf("nothing was said in the channel; tools were %q", ask.names)
	}
	a.shows(t, wire.StatusWorking)
	close(a.m.finish)
	a.m.await(t, "the end of the first turn", func(q asked) bool { return q.answer == "end" })
	a.shows(t, wire.StatusIdle)
}

// shows waits until the roster has shown the statuses, one after the other.
func (a *agent) shows(t *testing.T, list ...wire.Status) {
	t.Helper()
	late := time.After(patience)
	for len(list) > 0 {
		select {
		case s := <-a.status:
			if s == list[0] {
				list = list[1:]
			}
		case <-late:
			t.Fatalf("the roster does not show the agent as %s", list[0])
		}
	}
}

// hears sends a direct message: the seat types a line, and the turn that it begins brings the message.
func (a *agent) hears(t *testing.T) {
	t.Helper()
	if _, err := a.watcher.Direct(t.Context(), a.who, endpoint.Text("DIRECT-MARK: how are you?")); err != nil {
		t.Fatal(err)
	}
	a.m.await(t, "a turn with the message", func(q asked) bool { return strings.Contains(q.body, "DIRECT-MARK") })
}

// resumes starts the host again: the conversation goes on.
func (a *agent) resumes(t *testing.T) {
	t.Helper()
	if !a.c.Info().Resumes {
		return
	}
	host := a.start(t)
	a.shows(t, wire.StatusOffline, wire.StatusIdle)
	host.line(t, "Go on, AGAIN-MARK")
	again := a.m.await(t, "a turn after the second start", func(q asked) bool { return q.tool != "" && strings.Contains(q.body, "AGAIN-MARK") })
	for _, want := range []string{"PERSONA-MARK", "PROMPT-MARK", "DIRECT-MARK"} {
		if !strings.Contains(again.body, want) {
			t.Errorf("the turn after the second start says nothing of %s", want)
		}
	}
	if n := strings.Count(again.body, "PROMPT-MARK"); n > 1 {
		t.Errorf("the prompt was given %d times", n)
	}
	host.end(t)
}
