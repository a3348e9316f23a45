package config_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

// world is a folder tree: paths below its root are given with slashes and "$W" stands for the root.
type world struct {
	t    *testing.T
	root string
	home config.Machine
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, root: root, home: config.Machine{Dir: filepath.Join(root, "home", ".cotal")}}
}

func (w *world) path(p string) string { return filepath.Join(w.root, filepath.FromSlash(p)) }

func (w *world) project(p string) *config.Project {
	w.t.Helper()
	pr := config.NewProject(w.path(p))
	if err := pr.Create(); err != nil {
		w.t.Fatal(err)
	}
	return pr
}

// account leaves the trace of a space in the trust records.
func (w *world) account(p, space string) {
	w.t.Helper()
	w.write(p+"/.cotal/auth/account."+hex.EncodeToString([]byte(space))+".json", "{}")
}

func (w *world) write(p, content string) {
	w.t.Helper()
	full := w.path(p)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) resolve(dir string, flags config.Flags, env map[string]string) (*config.Config, error) {
	w.t.Helper()
	w.must(os.MkdirAll(w.path(dir), 0o700))
	return config.Resolve(config.Input{Flags: flags, Dir: w.path(dir), Getenv: func(k string) string {
		if v, ok := env[k]; ok {
			return v
		}
		if k == "HOME" || k == "LOCALAPPDATA" {
			return ""
		}
		if k == config.EnvHome {
			return w.home.Dir
		}
		return ""
	}})
}

func TestResolve(t *testing.T) {
	tests := []struct {
		name  string
		setup func(w *world)
		dir   string
		flags config.Flags
		env   map[string]string
		// want is "value (source)" for space, server, creds and project.
		space, server, creds, project string
		open                          bool
	}{
		{
			name: "nothing_known", dir: "a",
			space: "main (default)", server: "nats://127.0.0.1:4222 (default)", creds: " (not set)", project: " (not set)",
		},
		{
			name: "flag_beats_environment", dir: "a",
			flags: config.Flags{Space: "f", Server: "h1", Creds: "x.creds"},
			env:   map[string]string{config.EnvSpace: "e", config.EnvServer: "h2", config.EnvCreds: "y.creds"},
			space: "f (flag --space)", server: "nats://h1:4222 (flag --server)", creds: "$W/a/x.creds (flag --creds)", project: " (not set)",
		},
		{
			name: "environment_beats_project", dir: "p/sub",
			setup: func(w *world) {
				w.must(w.project("p").SaveRun(config.Run{URL: "nats://127.0.0.1:5000", Spaces: []string{"one"}}))
			},
			env:   map[string]string{config.EnvSpace: "two", config.EnvServer: "tls://h:1"},
			space: "two (environment COTAL_SPACE)", server: "tls://h:1 (environment COTAL_SERVER)", creds: " (not set)", project: "$W/p (found)",
		},
		{
			name: "project_found_upwards", dir: "p/deep/er",
			setup: func(w *world) {
				p := w.project("p")
				w.must(p.SaveSettings(config.Settings{Space: "one"}))
				w.must(p.SaveRun(config.Run{URL: "nats://127.0.0.1:5000", Spaces: []string{"one", "two"}}))
			},
			space: "one (project $W/p)", server: "nats://127.0.0.1:5000 (project $W/p)", creds: " (not set)", project: "$W/p (found)",
		},
		{
			name: "project_that_is_down_keeps_its_space", dir: "p",
			setup: func(w *world) { w.project("p"); w.account("p", "solo") },
			space: "solo (project $W/p)", server: "nats://127.0.0.1:4222 (default)", creds: " (not set)", project: "$W/p (found)",
		},
		{
			name: "project_beats_current_mesh", dir: "p",
			setup: func(w *world) {
				w.must(w.project("p").SaveRun(config.Run{URL: "nats://127.0.0.1:5000", Spaces: []string{"one"}}))
				w.project("q")
				w.must(w.home.Save(config.Mesh{Root: w.path("q"), URL: "nats://127.0.0.1:6000", Space: "qq", Spaces: []string{"qq"}}))
			},
			space: "one (project $W/p)", server: "nats://127.0.0.1:5000 (project $W/p)", creds: " (not set)", project: "$W/p (found)",
		},
		{
			name: "only_mesh", dir: "a",
			setup: func(w *world) {
				w.project("q")
				w.must(w.home.Save(config.Mesh{Root: w.path("q"), URL: "nats://127.0.0.1:6000", Space: "qq", Spaces: []string{"qq"}}))
				w.must(os.Remove(filepath.Join(w.home.Dir, "current-mesh")))
			},
			space: "qq (only mesh $W/q)", server: "nats://127.0.0.1:6000 (only mesh $W/q)", creds: " (not set)", project: "$W/q (found)",
		},
		{
			name: "current_of_several_meshes", dir: "a",
			setup: func(w *world) {
				w.project("q")
				w.project("r")
				w.must(w.home.Save(config.Mesh{Root: w.path("q"), URL: "nats://127.0.0.1:6000", Space: "qq", Spaces: []string{"qq"}}))
				w.must(w.home.Save(config.Mesh{Root: w.path("r"), URL: "nats://127.0.0.1:7000", Space: "rr", Spaces: []string{"rr"}, Open: true}))
				w.must(w.home.Use(config.Mesh{Root: w.path("r")}))
			},
			space: "rr (current mesh $W/r)", server: "nats://127.0.0.1:7000 (current mesh $W/r)", creds: " (not set)", project: "$W/r (found)", open: true,
		},
		{
			name: "named_space_finds_its_mesh_from_another_project", dir: "p",
			setup: func(w *world) {
				w.must(w.project("p").SaveRun(config.Run{URL: "nats://127.0.0.1:5000", Spaces: []string{"one"}}))
				w.project("q")
				w.must(w.home.Save(config.Mesh{Root: w.path("q"), URL: "nats://127.0.0.1:6000", Space: "qq", Spaces: []string{"qq", "q2"}}))
			},
			flags: config.Flags{Space: "q2"},
			space: "q2 (flag --space)", server: "nats://127.0.0.1:6000 (registered mesh $W/q)", creds: " (not set)", project: "$W/q (found)",
		},
		{
			name: "own_space_wins_over_the_same_name_elsewhere", dir: "p",
			setup: func(w *world) {
				w.must(w.project("p").SaveRun(config.Run{URL: "nats://127.0.0.1:5000", Spaces: []string{"main"}}))
				w.project("q")
				w.must(w.home.Save(config.Mesh{Root: w.path("q"), URL: "nats://127.0.0.1:6000", Space: "main", Spaces: []string{"main"}}))
			},
			flags: config.Flags{Space: "main"},
			space: "main (flag --space)", server: "nats://127.0.0.1:5000 (project $W/p)", creds: " (not set)", project: "$W/p (found)",
		},
		{
			name: "named_server_finds_its_mesh", dir: "a",
			setup: func(w *world) {
				w.project("q")
				w.must(w.home.Save(config.Mesh{Root: w.path("q"), URL: "nats://127.0.0.1:6000", Space: "qq", Spaces: []string{"qq"}}))
			},
			flags: config.Flags{Server: "localhost:6000"},
			space: "qq (registered mesh $W/q)", server: "nats://localhost:6000 (flag --server)", creds: " (not set)", project: "$W/q (found)",
		},
		{
			name: "unknown_server_keeps_the_project_but_not_its_run", dir: "p",
			setup: func(w *world) {
				w.must(w.project("p").SaveRun(config.Run{URL: "nats://127.0.0.1:5000", Spaces: []string{"one"}, CA: "/c.pem"}))
				w.account("p", "one")
			},
			flags: config.Flags{Server: "far:4222"},
			space: "one (project $W/p)", server: "nats://far:4222 (flag --server)", creds: " (not set)", project: "$W/p (found)",
		},
		{
			name: "machine_folder_is_no_project", dir: "home/x",
			setup: func(w *world) { w.must(os.MkdirAll(w.home.Dir, 0o700)) },
			space: "main (default)", server: "nats://127.0.0.1:4222 (default)", creds: " (not set)", project: " (not set)",
		},
		{
			name: "mesh_of_a_deleted_project_is_forgotten", dir: "a",
			setup: func(w *world) {
				w.must(w.home.Save(config.Mesh{Root: w.path("gone"), URL: "nats://127.0.0.1:6000", Space: "qq", Spaces: []string{"qq"}}))
			},
			space: "main (default)", server: "nats://127.0.0.1:4222 (default)", creds: " (not set)", project: " (not set)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.setup != nil {
				tt.setup(w)
			}
			cfg, err := w.resolve(tt.dir, tt.flags, tt.env)
			if err != nil {
				t.Fatalf("Resolve() = %v", err)
			}
			got := map[string]string{}
			for _, v := range cfg.Values() {
				got[v.Key] = strings.ReplaceAll(v.Value+" ("+string(v.Source)+")", w.root, "$W")
			}
			for key, want := range map[string]string{
				config.KeySpace: tt.space, config.KeyServer: tt.server, config.KeyCreds: tt.creds, config.KeyRoot: tt.project,
			} {
				if diff := cmp.Diff(want, filepath.ToSlash(got[key])); diff != "" {
					t.Errorf("%s (-want +got):\n%s", key, diff)
				}
			}
			if cfg.Open != tt.open {
				t.Errorf("open = %v, want %v", cfg.Open, tt.open)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	tests := []struct {
		name  string
		setup func(w *world)
		flags config.Flags
		code  wire.Code
		says  string
	}{
		{name: "bad_space", flags: config.Flags{Space: "a.b"}, code: wire.CodeBadRequest, says: `"a.b"`},
		{name: "server_with_password", flags: config.Flags{Server: "nats://me:secret@h"}, code: wire.CodeBadRequest, says: `"…@h"`},
		{name: "server_with_path", flags: config.Flags{Server: "nats://h/x"}, code: wire.CodeBadRequest, says: "want host"},
		{name: "server_of_another_kind", flags: config.Flags{Server: "http://h"}, code: wire.CodeBadRequest, says: `"http"`},
		{
			name: "torn_run_record", code: wire.CodeFailedPrecondition, says: "up.json",
			setup: func(w *world) { w.write("p/.cotal/run/up.json", `{"v":1,"pid":`) },
		},
		{
			name: "run_record_of_the_future", code: wire.CodeFailedPrecondition, says: "version 9, this program knows 1",
			setup: func(w *world) { w.write("p/.cotal/run/up.json", `{"v":9}`) },
		},
		{
			name: "unknown_setting", code: wire.CodeFailedPrecondition, says: `unknown field "sapce"`,
			setup: func(w *world) { w.write("p/.cotal/config.json", `{"v":1,"sapce":"x"}`) },
		},
		{
			name: "half_of_a_certificate", code: wire.CodeFailedPrecondition, says: "tlsCert and tlsKey",
			setup: func(w *world) { w.write("p/.cotal/config.json", `{"v":1,"tlsCert":"x"}`) },
		},
		{
			name: "torn_mesh_record", code: wire.CodeFailedPrecondition, says: "bad.json",
			setup: func(w *world) { w.write("home/.cotal/meshes/bad.json", `{`) },
		},
		{
			name: "space_in_two_meshes", flags: config.Flags{Space: "twin"}, code: wire.CodeConflict, says: "several meshes",
			setup: func(w *world) {
				for _, r := range []string{"q", "r"} {
					w.project(r)
					w.must(w.home.Save(config.Mesh{Root: w.path(r), URL: "nats://" + r + ":4222", Space: "twin", Spaces: []string{"twin"}}))
				}
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.setup != nil {
				tt.setup(w)
			}
			_, err := w.resolve("p", tt.flags, nil)
			if got := wire.CodeOf(err); got != tt.code {
				t.Fatalf("code of %v = %q, want %q", err, got, tt.code)
			}
			if !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error = %q, want it to say %q and no secret", err, tt.says)
			}
		})
	}
}

func TestRecordsArePrivateAndWhole(t *testing.T) {
	if os.PathSeparator == '\\' {
		archtest.NotHere(t, "Windows has no permission bits to look at")
	}
	w := newWorld(t)
	p := w.project("p")
	w.must(p.SaveRun(config.Run{PID: 7, Start: "s", URL: "nats://h:1", Spaces: []string{"a"}}))
	w.must(w.home.Save(config.Mesh{Root: p.Root, URL: "nats://h:1", Space: "a", Spaces: []string{"a"}}))
	want := map[string]os.FileMode{"p/.cotal": 0o700, "p/.cotal/run": 0o700, "p/.cotal/run/up.json": 0o600, "home/.cotal/meshes": 0o700}
	for path, mode := range want {
		info, err := os.Stat(w.path(path))
		w.must(err)
		// Windows has no permission bits to compare.
		if got := info.Mode().Perm(); got != mode && os.PathSeparator == '/' {
			t.Errorf("mode of %s = %o, want %o", path, got, mode)
		}
	}
	r, err := p.Run()
	if err != nil || r == nil || r.PID != 7 || r.V != config.RecordVersion {
		t.Errorf("Run() = %+v, %v; want what was saved", r, err)
	}
	left, err := filepath.Glob(w.path("p/.cotal/run/.tmp-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}

func TestForget(t *testing.T) {
	w := newWorld(t)
	p := w.project("p")
	w.must(w.home.Save(config.Mesh{Root: p.Root, URL: "nats://h:1", Space: "a"}))
	w.must(p.SaveRun(config.Run{}))
	for range 2 {
		w.must(w.home.Forget(p.Root))
		w.must(p.ForgetRun())
	}
	meshes, err := w.home.Meshes()
	w.must(err)
	r, err := p.Run()
	w.must(err)
	if len(meshes) != 0 || r != nil {
		t.Errorf("after forgetting: meshes %v, run %v; want none", meshes, r)
	}
}
