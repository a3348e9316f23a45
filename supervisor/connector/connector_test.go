package connector_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/connector/connectortest"
	"github.com/cotal-go/cotal/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestContract(t *testing.T) {
	for _, c := range connector.Builtin() {
		t.Run(c.Name(), func(t *testing.T) { connectortest.Run(t, c) })
	}
}

// TestLaunches shows what each host is started with, for a person to review.
func TestLaunches(t *testing.T) {
	for _, c := range connector.Builtin() {
		t.Run(c.Name(), func(t *testing.T) {
			r := connectortest.Request(t, c)
			if v := c.Info().Variants; len(v) > 0 {
				r.Variant = v[len(v)-1]
			}
			got := show(t, c, r)
			path := filepath.Join("testdata", c.Name()+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("launch differs from %s, -want +got:\n%s", path, d)
			}
		})
	}
}

// show tells a launch as text, with the folders of the test by name.
func show(t *testing.T, c connector.Connector, r connector.Request) string {
	t.Helper()
	l, err := c.Prepare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, arg := range l.Argv {
		fmt.Fprintf(&b, "arg %q\n", arg)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Env)) {
		fmt.Fprintf(&b, "env %s=%s\n", name, l.Env[name])
	}
	fmt.Fprintf(&b, "pass %s\nmodel %q wakes %v joins %v slow %v\n", strings.Join(l.PassEnv, " "), l.Model, l.Wakes, l.Joins, l.Slow)
	for _, f := range l.Files {
		fmt.Fprintf(&b, "\n-- %s keep %v link %q --\n%s", f.Path, f.Keep, f.Link, f.Data)
	}
	session := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`) // is of the folder
	return strings.NewReplacer(r.Dir, "/DIR", filepath.Dir(r.Dir), "/AGENT", r.Getenv("HOME"), "/HOME").Replace(session.ReplaceAllString(b.String(), "UUID"))
}

// TestC12: a model or a variant that a host cannot take is refused before anything is made, and the result states the model.
func TestC12(t *testing.T) {
	for _, c := range connector.Builtin() {
		i := c.Info()
		r := connectortest.Request(t, c)
		r.Variant = "thinks-twice"
		if _, err := c.Prepare(t.Context(), r); wire.CodeOf(err) != wire.CodeUnimplemented || !strings.Contains(err.Error(), "variant") {
			t.Errorf("%s: unsupported variant: %v, want unimplemented", i.Name, err)
		}
		r.Variant, r.Model = "", "provider/other"
		l, err := c.Prepare(t.Context(), r)
		switch {
		case i.Model && (err != nil || l.Model != "provider/other"):
			t.Errorf("%s: launch states model %q (%v), want the one that was asked for", i.Name, l.Model, err)
		case !i.Model && wire.CodeOf(err) != wire.CodeUnimplemented:
			t.Errorf("%s: a model that it cannot take: %v, want unimplemented", i.Name, err)
		}
		if made, err := os.ReadDir(r.Dir); err != nil || len(made) > 0 {
			t.Errorf("%s: refused, and %v was made (%v)", i.Name, made, err)
		}
	}
}

func TestFind(t *testing.T) {
	all := connector.Builtin()
	if c, err := connector.Find(all, "codex"); err != nil || c.Name() != "codex" {
		t.Errorf("find codex: %v, %v", c, err)
	}
	if _, err := connector.Find(all, "emacs"); wire.CodeOf(err) != wire.CodeNotFound || !strings.Contains(err.Error(), "claude, codex") {
		t.Errorf("find emacs: %v, want not-found with the names that there are", err)
	}
}

// TestUserSettings: what the user has said to a host stands beside what is the agent's.
func TestUserSettings(t *testing.T) {
	for _, test := range []struct {
		connector, path, text string
		file, want            string
	}{
		{"codex", ".codex/config.toml", "model = \"mine\"\n", "codex/config.toml", "model = \"mine\"\n"},
		{"codex", ".codex/config.toml", "[hooks.state.\"HOME/.codex/config.toml:stop:0:0\"]\n", "codex/config.toml", "DIR/codex/config.toml:stop:0:0"},
		{"codex", ".codex/auth.json", "{}", "codex/auth.json", ""},
		{"gemini", ".gemini/settings.json", "// mine\n{\"ui\": {\"theme\": \"http://x\"}, \"mcpServers\": {\"a\": {}}}", "gemini/.gemini/settings.json", `"theme": "http://x"`},
		{"gemini", ".gemini/settings.json", `{"hooks":{"AfterAgent":[{"hooks":[{"type":"command","command":"bell"}]}]}}`, "gemini/.gemini/settings.json", `"bell"`},
		{"gemini", ".gemini/GEMINI.md", "Mine.", "gemini/.gemini/GEMINI.md", "Mine.\n\nYou review code."},
		{"gemini", ".gemini/oauth_creds.json", "{}", "gemini/.gemini/oauth_creds.json", ""},
	} {
		t.Run(test.connector+" "+filepath.Base(test.path), func(t *testing.T) {
			c, err := connector.Find(connector.Builtin(), test.connector)
			if err != nil {
				t.Fatal(err)
			}
			r := connectortest.Request(t, c)
			own := filepath.Join(r.Getenv("HOME"), test.path)
			test.text = strings.ReplaceAll(test.text, "HOME", r.Getenv("HOME"))
			test.want = strings.ReplaceAll(test.want, "DIR", r.Dir)
			if err := errors.Join(os.MkdirAll(filepath.Dir(own), 0o700), os.WriteFile(own, []byte(test.text), 0o600)); err != nil {
				t.Fatal(err)
			}
			l, err := c.Prepare(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			n := slices.IndexFunc(l.Files, func(f connector.File) bool { return f.Path == filepath.Join(r.Dir, test.file) })
			if n < 0 {
				t.Fatalf("there is no file %q", test.file)
			}
			if f := l.Files[n]; test.want == "" && f.Link != own || !strings.Contains(string(f.Data), test.want) {
				t.Errorf("file %q is %q, link %q: want %q or a link to %q", test.file, f.Data, f.Link, test.want, own)
			}
		})
	}
}

// TestBrokenSettings: settings that cannot be read are the user's to repair, and are said to be.
func TestBrokenSettings(t *testing.T) {
	c, err := connector.Find(connector.Builtin(), "gemini")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"{", "[]", `{"a": 1} x`, "{} /* open"} {
		r := connectortest.Request(t, c)
		own := filepath.Join(r.Getenv("HOME"), ".gemini", "settings.json")
		if err := errors.Join(os.MkdirAll(filepath.Dir(own), 0o700), os.WriteFile(own, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Prepare(t.Context(), r); wire.CodeOf(err) != wire.CodeFailedPrecondition || !strings.Contains(err.Error(), own) {
			t.Errorf("settings %q: %v, want failed-precondition that names the file", text, err)
		}
	}
}

// TestHooksAreQuoted runs the shell commands of hooks with a program whose path has all that a shell minds.
func TestHooksAreQuoted(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), `it's $(a) "b" & <c> é`)
	program := filepath.Join(dir, "cotal")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(program, []byte("#!/bin/sh\nprintf '%s,' \"$@\"\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, c := range connector.Builtin() {
		if !c.Info().Hooks || c.Name() == "opencode" { // whose hooks start the program without a shell
			continue
		}
		for _, event := range []string{"session-start", "prompt", "stop"} {
			out, err := exec.CommandContext(t.Context(), sh, "-c", connector.Hook(program, c.Name(), event)).Output()
			if want := "hook," + c.Name() + "," + event + ","; err != nil || string(out) != want {
				t.Errorf("hook of %s: %q (%v), want %q", c.Name(), out, err, want)
			}
		}
	}
}

// TestResume: an agent that has talked goes on with that, and is not given its first task again.
func TestResume(t *testing.T) {
	for _, c := range connector.Builtin() {
		if !c.Info().Resumes {
			continue
		}
		t.Run(c.Name(), func(t *testing.T) {
			r := connectortest.Request(t, c)
			l, err := c.Prepare(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			id := ""
			if n := slices.Index(l.Argv, "--session-id"); n > 0 {
				id = l.Argv[n+1]
			}
			kept := map[string]string{
				"claude":   filepath.Join(r.Getenv("HOME"), ".claude", "projects", "-srv-work", id+".jsonl"),
				"codex":    filepath.Join(r.Dir, "codex", "sessions", "2026", "11", "30", "rollout-1.jsonl"),
				"gemini":   filepath.Join(r.Dir, "gemini", ".gemini", "tmp", "work", "chats", "session-1.jsonl"),
				"opencode": filepath.Join(r.Dir, "opencode", "session"),
			}[c.Name()]
			if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, []byte("ses_1"), 0o600)); err != nil {
				t.Fatal(err)
			}
			l, err = c.Prepare(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			line := strings.Join(l.Argv, " ")
			if !strings.Contains(line, "resume") && !strings.Contains(line, "--session=ses_1") || strings.Contains(line, r.Prompt) {
				t.Errorf("second start by %q, want it to go on without the prompt", l.Argv)
			}
		})
	}
}

func TestWriteRefusesOtherFolders(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "..", "x"), "/etc/x", dir, "x"} {
		files := []connector.File{{Path: filepath.Join(dir, "first")}, {Path: path}}
		if err := connector.Write(dir, files); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("write %q: %v, want bad-request", path, err)
		}
		if _, err := os.Stat(files[0].Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("write %q: the first file was made (%v)", path, err)
		}
	}
}

// TestWriteReplacesWhole: a file is its new self or its old one, with its own mode, whatever stood in its place; nothing else is left.
func TestWriteReplacesWhole(t *testing.T) {
	dir := t.TempDir()
	path, theirs := filepath.Join(dir, "sub", "a"), filepath.Join(t.TempDir(), "theirs")
	if err := os.WriteFile(theirs, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []connector.File{
		{Path: path, Data: []byte("one"), Mode: 0o700}, {Path: path, Link: theirs}, {Path: path, Data: []byte("two")}, {Path: path, Link: theirs}, {Path: path, Link: theirs},
	} {
		if err := connector.Write(dir, []connector.File{f}); err != nil {
			t.Fatal(err)
		}
		want, wantMode := string(f.Data), fs.FileMode(0o600)
		if f.Link != "" {
			want = "theirs"
		} else if f.Mode != 0 {
			wantMode = f.Mode
		}
		info, err := os.Stat(path)
		if err != nil || runtime.GOOS != "windows" && info.Mode() != wantMode {
			t.Errorf("after %+v: mode %v, %v", f, info.Mode(), err)
		}
		if got, err := os.ReadFile(path); string(got) != want || err != nil {
			t.Errorf("after %+v it holds %q, %v", f, got, err)
		}
	}
	if all, err := os.ReadDir(filepath.Dir(path)); len(all) != 1 || err != nil {
		t.Errorf("the folder holds %v, %v", all, err)
	}
	if got, err := os.ReadFile(theirs); string(got) != "theirs" || err != nil {
		t.Errorf("what a link led to holds %q, %v", got, err)
	}
}

// TestWriteKeeps: what a host has written stays, everything else is as it was prepared.
func TestWriteKeeps(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, text := range []string{"one", "two"} {
		err := connector.Write(dir, []connector.File{{Path: a, Data: []byte(text), Keep: true}, {Path: b, Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{a: "one", b: "two"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q holds %q (%v), want %q", path, got, err, want)
		}
	}
}
