package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/wire"
)

// agentShell gives the world a shell of an agent that it mints, and returns the launch file's path.
func (w *world) agentShell(name string, mint ...string) string {
	w.t.Helper()
	dir := w.t.TempDir()
	creds := filepath.Join(dir, "creds")
	var minted struct {
		UID wire.UID `json:"uid"`
	}
	args := append([]string{"mint", name, "--out", creds, "--json"}, mint...)
	if err := json.Unmarshal([]byte(w.must(args...)), &minted); err != nil {
		w.t.Fatal(err)
	}
	var up struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal([]byte(w.must("status", "--json")), &up); err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(dir, "launch.json")
	err := launch.Write(path, launch.File{
		Space: "main", Server: up.URL, Principal: "local." + name, UID: minted.UID, Name: name, Connector: "script", Manager: "m1", Dir: dir, Creds: creds,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.env[launch.Env] = path
	return path
}

// TestAgentShell is about commands in the shell of an agent: they act as that agent, wherever they run and whatever the environment
// says, or not at all.
func TestAgentShell(t *testing.T) {
	w := newWorld(t)
	w.up()
	path := w.agentShell("nova", "--allow-subscribe", "general", "--allow-publish", "general")
	home := w.dir
	for _, dir := range []string{home, t.TempDir()} {
		w.dir = dir
		if out := w.must("send", "msg", "general", "hello"); !strings.Contains(out, "from local.nova in space main") {
			t.Errorf("in %s the sender is another: %s", dir, out)
		}
	}
	w.env["COTAL_NAME"], w.env["COTAL_SPACE"], w.env["COTAL_CREDS"] = "mallory", "lab", "/nowhere"
	if out := w.must("send", "msg", "general", "again"); !strings.Contains(out, "from local.nova in space main") {
		t.Errorf("the environment makes it somebody else: %s", out)
	}
	if out := w.must("whoami"); !strings.Contains(out, "you are:  local.nova\n") || !strings.Contains(out, "launch file "+path) {
		t.Errorf("who it is: %s", out)
	}
	w.must("roster")
	w.must("read", "general")
	w.dir = home
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{3, "does not work with the trust records", []string{"mint", "other"}},
		{3, "does not work with the trust records", []string{"down"}},
		{3, "may not post to #secret", []string{"send", "msg", "secret", "x"}},
		{2, "--name in the shell of agent local.nova", []string{"send", "msg", "general", "x", "--name", "ada"}},
		{2, "--creds in the shell of agent local.nova", []string{"send", "msg", "general", "x", "--creds", "other.creds"}},
		{2, "--space in the shell of agent local.nova", []string{"send", "msg", "general", "x", "--space", "lab"}},
		{2, "--server in the shell of agent local.nova", []string{"send", "msg", "general", "x", "--server", "nats://127.0.0.1:1"}},
		{3, "it was not granted spawn", []string{"spawn", "scribe"}},
		{3, "it was not granted spawn", []string{"ps"}},
	} {
		code, _, errs := w.run("", c.args...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("cotal %s: exit %d, want %d with %q: %s", strings.Join(c.args, " "), code, c.code, c.says, errs)
		}
	}
	sub := filepath.Join(home, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{home, sub} {
		w.dir = dir
		if code, _, errs := w.run("", "up", "--detach", "--no-restart"); code != 3 || !strings.Contains(errs, "does not work with the trust records") {
			t.Errorf("cotal up in %s: exit %d, want 3: %s", dir, code, errs)
		}
	}
	w.dir = home
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := w.run("", "send", "msg", "general", "x"); code != 5 || !strings.Contains(errs, "want 0600") || !strings.Contains(errs, "never as anybody else") {
		t.Errorf("a file that others can read: exit %d: %s", code, errs)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := w.run("", "send", "msg", "general", "x"); code != 4 || !strings.Contains(errs, "never as anybody else") {
		t.Errorf("no file: exit %d: %s", code, errs)
	}
}
