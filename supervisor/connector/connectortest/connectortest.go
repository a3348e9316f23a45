// Package connectortest is the contract of a connector: what every body of connector.Connector is held to, whatever its host.
package connectortest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/wire"
)

// Run holds a connector to the contract. It starts nothing: the program of the host need not be installed.
func Run(t *testing.T, c connector.Connector) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, c connector.Connector)
	}{
		{"says_what_it_is", says},
		{"launch_is_complete", complete},
		{"same_request_same_launch", repeats},
		{"no_secret_leaves_the_environment", secrets},
		{"files_are_the_agents_alone", files},
		{"two_agents_share_nothing", apart},
		{"unsupported_options_are_refused", refuses},
		{"operands_that_no_host_takes_are_refused", bad},
		{"missing_program_is_not_found", missing},
		{"text_is_never_an_option", hostile},
		{"model_is_stated", model},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

const (
	secret = "sk-0123456789-this-is-a-key"
	host   = "/opt/hosts/bin/"
)

// Request returns a request that the connector takes, for an agent with a folder of its own. The environment of its user has a home
// that is empty and a key behind every other name.
func Request(t *testing.T, c connector.Connector) connector.Request {
	t.Helper()
	home := t.TempDir()
	dir := filepath.Join(t.TempDir(), "agent")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := connector.Request{
		Dir: dir, Program: "/opt/cotal/bin/cotal", LaunchFile: filepath.Join(dir, "..", "launch.json"),
		Name: "ada", Role: "reviewer", Cwd: "/srv/work",
		LookPath: func(name string) (string, error) {
			if filepath.IsAbs(name) {
				return name, nil
			}
			return host + name, nil
		},
		Getenv: func(name string) string {
			switch name {
			case "HOME":
				return home
			case "CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME", "GEMINI_CLI_TRUSTED_FOLDERS_PATH":
				return ""
			}
			return secret
		},
	}
	i := c.Info()
	if i.Prompt {
		r.Prompt = "Say hello."
	}
	if i.Persona {
		r.PersonaText = "You review code."
	}
	if i.Model {
		r.Model = "provider/model-1"
	}
	if i.Program == "" && !i.Tools {
		r.Command = []string{"/bin/program", "--flag", "two words"}
	}
	return r
}

func prepare(t *testing.T, c connector.Connector, r connector.Request) connector.Launch {
	t.Helper()
	l, err := c.Prepare(t.Context(), r)
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	return l
}

// refused asserts that a request is refused with a code and a reason, and that nothing was made.
func refused(t *testing.T, c connector.Connector, r connector.Request, code wire.Code, reason string) {
	t.Helper()
	_, err := c.Prepare(t.Context(), r)
	if wire.CodeOf(err) != code {
		t.Errorf("prepare: %v, want code %s", err, code)
		return
	}
	if !strings.Contains(err.Error(), reason) {
		t.Errorf("prepare: %q does not say %q", err, reason)
	}
	untouched(t, r.Dir)
}

func untouched(t *testing.T, dir string) {
	t.Helper()
	if made, err := os.ReadDir(dir); err != nil || len(made) != 0 {
		t.Errorf("prepare made %v in the agent's folder (%v), want nothing before it is decided", made, err)
	}
}

func says(t *testing.T, c connector.Connector) {
	i := c.Info()
	if !regexp.MustCompile(`^[a-z]+$`).MatchString(c.Name()) || i.Name != c.Name() {
		t.Errorf("name %q, of its info %q: want one of [a-z]+", c.Name(), i.Name)
	}
	if i.Title == "" || i.Home == "" || i.Approvals == "" {
		t.Errorf("info %+v leaves out the title, the home or the approvals", i)
	}
	if (i.Program == "") != (i.Install == "") || (i.Program == "") != (i.Tried == "") {
		t.Errorf("info %+v: a program has an install line and a version that was tried, and nothing else has", i)
	}
	if i.Hooks && !i.Tools {
		t.Error("hooks report to the tools, which it has not")
	}
}

func complete(t *testing.T, c connector.Connector) {
	r := Request(t, c)
	l := prepare(t, c, r)
	untouched(t, r.Dir)
	if len(l.Argv) == 0 || !filepath.IsAbs(l.Argv[0]) {
		t.Errorf("argv %q does not begin with an absolute path", l.Argv)
	}
	if got := l.Env[launch.Env]; got != r.LaunchFile {
		t.Errorf("%s is %q, want %q", launch.Env, got, r.LaunchFile)
	}
	if l.Joins != c.Info().Tools {
		t.Errorf("joins %v, want it of those that have tools", l.Joins)
	}
	if l.Joins && l.Slow <= 0 {
		t.Error("a host that joins says how long that may take")
	}
	names := regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
	for name := range l.Env {
		if !names.MatchString(name) {
			t.Errorf("environment has the name %q", name)
		}
	}
	for n, name := range l.PassEnv {
		if _, set := l.Env[name]; set || !names.MatchString(name) || slices.Contains(l.PassEnv[:n], name) {
			t.Errorf("name %q is passed on and set, or twice, or is no name", name)
		}
	}
}

func repeats(t *testing.T, c connector.Connector) {
	r := Request(t, c)
	before := slices.Clone(r.Command)
	a, b := prepare(t, c, r), prepare(t, c, r)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("the same request was answered by %+v and by %+v", a, b)
	}
	if len(a.Argv) > 1 {
		a.Argv[1] = "changed"
	}
	if !slices.Equal(r.Command, before) {
		t.Errorf("the caller's command is now %q", r.Command)
	}
}

func secrets(t *testing.T, c connector.Connector) {
	l := prepare(t, c, Request(t, c))
	for _, arg := range l.Argv {
		if strings.Contains(arg, secret) {
			t.Errorf("argument %q has a key", arg)
		}
	}
	for name, value := range l.Env {
		if strings.Contains(value, secret) {
			t.Errorf("variable %s has a key", name)
		}
	}
	for _, f := range l.Files {
		if strings.Contains(string(f.Data), secret) {
			t.Errorf("file %q has a key", f.Path)
		}
	}
}

func files(t *testing.T, c connector.Connector) {
	r := Request(t, c)
	l := prepare(t, c, r)
	for range 2 { // a second start finds what the first one left
		if err := connector.Write(r.Dir, l.Files); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if open := info.Mode().Perm() & 0o077; open != 0 && info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%q has mode %v: others reach it", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range l.Files {
		if f.Link != "" && !filepath.IsAbs(f.Link) {
			t.Errorf("link %q leads to %q, which is not absolute", f.Path, f.Link)
		}
		if _, err := os.Lstat(f.Path); err != nil {
			t.Errorf("file of the launch: %v", err)
		}
	}
}

func apart(t *testing.T, c connector.Connector) {
	a, b := Request(t, c), Request(t, c)
	b.Getenv = a.Getenv // one user
	for _, pair := range [][2]connector.Request{{a, b}, {b, a}} {
		l := prepare(t, c, pair[0])
		other := filepath.Dir(pair[1].Dir)
		var all []string
		all = append(all, l.Argv...)
		for _, v := range l.Env {
			all = append(all, v)
		}
		for _, f := range l.Files {
			all = append(all, f.Path, f.Link, string(f.Data))
		}
		for _, text := range all {
			if strings.Contains(text, other) {
				t.Errorf("%q leads to the other agent", text)
			}
		}
	}
}

func refuses(t *testing.T, c connector.Connector) {
	i := c.Info()
	for _, o := range []struct {
		option string
		taken  bool
		set    func(r *connector.Request)
	}{
		{"model", i.Model, func(r *connector.Request) { r.Model = "provider/model-1" }},
		{"variant", len(i.Variants) > 0, func(r *connector.Request) { r.Variant = slices.Concat(i.Variants, []string{"high"})[0] }},
		{"variant", false, func(r *connector.Request) { r.Variant = "no-such-variant" }},
		{"prompt", i.Prompt, func(r *connector.Request) { r.Prompt = "Say hello." }},
		{"persona", i.Persona, func(r *connector.Request) { r.PersonaText = "You review code." }},
		{"command", len(Request(t, c).Command) > 0, func(r *connector.Request) { r.Command = []string{"/bin/program"} }},
	} {
		r := Request(t, c)
		o.set(&r)
		if o.taken {
			prepare(t, c, r)
			continue
		}
		refused(t, c, r, wire.CodeUnimplemented, o.option)
	}
}

func bad(t *testing.T, c connector.Connector) {
	for _, b := range []struct {
		what string
		set  func(r *connector.Request)
	}{
		{"folder", func(r *connector.Request) { r.LaunchFile = "launch.json" }},
		{"program", func(r *connector.Request) { r.Program = "cotal" }},
		{"working folder", func(r *connector.Request) { r.Cwd = "work" }},
		{"name with a zero byte", func(r *connector.Request) { r.Name = "a\x00b" }},
		{"prompt with a zero byte", func(r *connector.Request) { r.Prompt = "a\x00b" }},
		{"persona with a zero byte", func(r *connector.Request) { r.PersonaText = "a\x00b" }},
		{"long prompt", func(r *connector.Request) { r.Prompt = strings.Repeat("a", wire.MaxPrompt+1) }},
		{"long persona", func(r *connector.Request) { r.PersonaText = strings.Repeat("a", wire.MaxPersonaText+1) }},
		{"model that is an option", func(r *connector.Request) { r.Model = "--dangerously-skip-permissions/x" }},
		{"model with a newline", func(r *connector.Request) { r.Model = "a/b\nc" }},
	} {
		r := Request(t, c)
		b.set(&r)
		t.Run(strings.ReplaceAll(b.what, " ", "_"), func(t *testing.T) { refused(t, c, r, wire.CodeBadRequest, "start ") })
	}
}

func missing(t *testing.T, c connector.Connector) {
	r := Request(t, c)
	r.LookPath = func(name string) (string, error) { return "", &exec.Error{Name: name, Err: exec.ErrNotFound} }
	i := c.Info()
	switch {
	case i.Program != "":
		refused(t, c, r, wire.CodeNotFound, i.Install)
		r.LookPath, r.Getenv = Request(t, c).LookPath, nil
		refused(t, c, r, wire.CodeFailedPrecondition, "set HOME")
	case len(r.Command) > 0:
		refused(t, c, r, wire.CodeNotFound, r.Command[0])
	default:
		prepare(t, c, r) // it is cotal itself
	}
	if _, err := c.Prepare(t.Context(), r); errors.Is(err, exec.ErrNotFound) {
		t.Error("the system's error is handed on: callers would come to depend on it")
	}
}

// Hostile are texts that break whoever forgets to quote.
var Hostile = []string{
	"--dangerously-skip-permissions", "-p", "--", "@/etc/passwd", "!id", "/quit", "$(id)", "`id`", "'; id; '", `"; id; "`, `\`, "a\nb\r\nc",
	"# not a comment", "é 漢字 \u202e ✓ \U0001f600", "${HOME} %s %n", "<b>&amp;</b>", "\x1b[31mred", strings.Repeat("long ", 1000),
}

func hostile(t *testing.T, c connector.Connector) {
	i := c.Info()
	plain := prepare(t, c, Request(t, c))
	for _, text := range Hostile {
		r := Request(t, c)
		r.Name, r.Role = text[:min(len(text), 200)], text[:min(len(text), 200)]
		if i.Persona {
			r.PersonaText = text
		}
		if i.Prompt {
			r.Prompt = text
		}
		if len(r.Command) > 0 {
			r.Command = []string{"/bin/program", text, "two words"}
		}
		l := prepare(t, c, r)
		if len(l.Argv) != len(plain.Argv) {
			t.Errorf("%q makes %d arguments of %d: %q", text, len(l.Argv), len(plain.Argv), l.Argv)
		}
		if len(r.Command) > 0 {
			if !slices.Equal(l.Argv, r.Command) {
				t.Errorf("the command %q became %q", r.Command, l.Argv)
			}
			continue
		}
		// An argument that is the text is the last one, after "--"; else the text is the value of an option in the same word.
		last := len(l.Argv) - 1
		options, after := l.Argv[:last], l.Argv[last]
		if after == text && options[last-1] == "--" {
			options = options[:last-1]
		}
		if slices.Contains(options, text) {
			t.Errorf("%q is an argument of %q that can be read as an option", text, l.Argv)
		}
	}
}

func model(t *testing.T, c connector.Connector) {
	r := Request(t, c)
	l := prepare(t, c, r)
	if l.Model != r.Model {
		t.Errorf("the launch states model %q, asked for %q", l.Model, r.Model)
	}
	if !c.Info().Model {
		return
	}
	found := slices.ContainsFunc(l.Argv, func(arg string) bool { return strings.HasSuffix(arg, r.Model) })
	for _, f := range l.Files {
		found = found || strings.Contains(string(f.Data), r.Model)
	}
	if !found {
		t.Errorf("model %q reaches the host by no argument and no file", r.Model)
	}
	r.Model = ""
	if l := prepare(t, c, r); l.Model != "" {
		t.Errorf("the launch states model %q, which nobody asked for", l.Model)
	}
}
