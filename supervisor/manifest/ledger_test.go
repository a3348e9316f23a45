package manifest_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/supervisor/manifest"
	"github.com/cotal-go/cotal/wire"
)

const uid = wire.UID("aaaaaaaaaaaaaaaaaaaaaaaaaa")

// deployed is a ledger with one of everything.
func deployed(file string) *manifest.Ledger {
	l := manifest.NewLedger(file, "main", 1)
	l.Channels = []manifest.LedgerChannel{{Channel: "work", Revision: 7, Config: wire.ChannelConfig{Description: "d"}}}
	l.Agents = []manifest.LedgerAgent{
		{Name: "a", Try: 1, RequestID: l.RequestID("a", 1), Digest: "x", Principal: "local.a", UID: uid}, {Name: "b", Try: 2, RequestID: l.RequestID("b", 2)},
	}
	l.Files = []manifest.LedgerFile{{Persona: "p", SHA256: strings.Repeat("0", 64)}}
	return l
}

func file(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("cotal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLedgers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deploys")
	s := manifest.OpenLedgers(dir)
	l := deployed(file(t))
	if _, err := s.Load(l.ID); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("load of none = %v", err)
	}
	if err := s.Save(l); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load(l.ID)
	if diff := cmp.Diff(l, got); diff != "" || err != nil {
		t.Errorf("load: %v (-want +got):\n%s", err, diff)
	}
	if all, err := s.List(); err != nil || len(all) != 1 {
		t.Errorf("list = %v, %v", all, err)
	}
	if runtime.GOOS != "windows" {
		if info, err := os.Stat(filepath.Join(dir, l.ID+".json")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("file = %v, %v", info, err)
		}
	}
	l.Channels, l.Agents, l.Files = nil, nil, nil
	if err := s.Save(l); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("an empty ledger leaves %v, %v", left, err)
	}
	if err := s.Save(l); err != nil {
		t.Errorf("again = %v", err)
	}
}

// A ledger that no deploy can have written is refused whole: nothing is taken down by its word.
func TestLedgersAreNotTrusted(t *testing.T) {
	dir := t.TempDir()
	s := manifest.OpenLedgers(dir)
	l := deployed(file(t))
	path := filepath.Join(dir, l.ID+".json")
	for name, change := range map[string]func(m map[string]any){
		"another version":        func(m map[string]any) { m["apiVersion"] = "cotal-ledger/v2" },
		"another kind":           func(m map[string]any) { m["kind"] = "Team" },
		"another deploy":         func(m map[string]any) { m["id"] = "other-00000000" },
		"another file":           func(m map[string]any) { m["file"] = filepath.Join(dir, "other.yaml") },
		"a relative file":        func(m map[string]any) { m["file"] = "cotal.yaml" },
		"a file outside":         func(m map[string]any) { m["file"] = "../cotal.yaml"; m["id"] = manifest.DeployID("../cotal.yaml") },
		"no space":               func(m map[string]any) { m["space"] = "a b" },
		"a run of its own":       func(m map[string]any) { m["run"] = "x" },
		"an unknown key":         func(m map[string]any) { m["more"] = 1 },
		"a key in another case":  func(m map[string]any) { m["Agents"] = m["agents"] },
		"a pattern":              func(m map[string]any) { first(m, "channels")["channel"] = "work.>" },
		"the defaults":           func(m map[string]any) { first(m, "channels")["channel"] = wire.DefaultsKey },
		"a path":                 func(m map[string]any) { first(m, "files")["persona"] = "../../etc/x" },
		"a sum that is none":     func(m map[string]any) { first(m, "files")["sha256"] = "00" },
		"a foreign uid":          func(m map[string]any) { first(m, "agents")["uid"] = "../x" },
		"a foreign principal":    func(m map[string]any) { first(m, "agents")["principal"] = "local.somebody" },
		"a uid without a name":   func(m map[string]any) { delete(first(m, "agents"), "principal") },
		"a request of others":    func(m map[string]any) { first(m, "agents")["requestId"] = "theirs" },
		"another try":            func(m map[string]any) { first(m, "agents")["try"] = 2 },
		"no try":                 func(m map[string]any) { first(m, "agents")["try"] = 0 },
		"an agent that is twice": func(m map[string]any) { m["agents"] = append(m["agents"].([]any), m["agents"].([]any)[0]) },
		"far too many": func(m map[string]any) {
			for range 300 {
				m["agents"] = append(m["agents"].([]any), m["agents"].([]any)[0])
			}
		},
	} {
		var m map[string]any
		data, err := json.Marshal(l)
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		change(m)
		if data, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load(l.ID); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("%s: %+v, %v, want failed-precondition", name, got, err)
		}
	}
	for _, data := range []string{"", "{", "null", "[]", "{} {}", strings.Repeat(" ", 2<<20)} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(l.ID); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("%.10q: %v", data, err)
		}
	}
}

func first(m map[string]any, list string) map[string]any { return m[list].([]any)[0].(map[string]any) }

// A file that others could have written, or that lies elsewhere, is no ledger.
func TestLedgersAreFilesOfThisUser(t *testing.T) {
	dir, out := filepath.Join(t.TempDir(), "deploys"), t.TempDir()
	s := manifest.OpenLedgers(dir)
	l := deployed(file(t))
	if err := s.Save(l); err != nil {
		t.Fatal(err)
	}
	path, away := filepath.Join(dir, l.ID+".json"), filepath.Join(out, l.ID+".json")
	for _, id := range []string{"../" + l.ID, "a/b", "", strings.Repeat("a", 65), "..", l.ID + ".json"} {
		if _, err := s.Load(id); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("load %q = %v", id, err)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	for _, mode := range []os.FileMode{0o644, 0o660, 0o604} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(l.ID); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, away); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{away, "own.json"} {
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(l.ID); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("link to %s: %v", to, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(away, path); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(l); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("saving over a link leaves %v, %v", info, err)
	}
}

// Only what the deploy asked for, in that life, is the deploy's.
func TestMade(t *testing.T) {
	l := deployed(file(t))
	a := wire.AgentStatus{Deploy: l.ID, RequestID: l.Agents[0].RequestID, Principal: "local.a", UID: uid, State: wire.AgentReady}
	if !l.Made(l.Agents[0], a) {
		t.Error("the agent of the entry is not the deploy's")
	}
	for name, change := range map[string]func(a *wire.AgentStatus){
		"another deploy": func(a *wire.AgentStatus) { a.Deploy = "other-00000000" }, "no deploy": func(a *wire.AgentStatus) { a.Deploy = "" },
		"another request": func(a *wire.AgentStatus) { a.RequestID = "x" }, "another life": func(a *wire.AgentStatus) { a.UID = wire.NewUID() },
		"another principal": func(a *wire.AgentStatus) { a.Principal = "local.b" },
	} {
		other := a
		change(&other)
		if l.Made(l.Agents[0], other) {
			t.Errorf("%s is taken for the deploy's", name)
		}
	}
	if b := (wire.AgentStatus{Deploy: l.ID, RequestID: l.Agents[1].RequestID, Principal: "local.b", UID: wire.NewUID()}); !l.Made(l.Agents[1], b) {
		t.Error("an agent whose answer was lost is not found again")
	}
	if l.RequestID("a", 1) == l.RequestID("a", 2) || l.RequestID("a", 1) == l.RequestID("b", 1) || l.RequestID("a", 1) == manifest.NewLedger(l.File, "main", 1).RequestID("a", 1) {
		t.Error("ids of requests repeat")
	}
	if wire.ValidateRole(l.RequestID("a", 1)) != nil {
		t.Errorf("request id %q", l.RequestID("a", 1))
	}
}

func TestDeployID(t *testing.T) {
	for path, want := range map[string]string{"/a/cotal.yaml": "cotal-", "/a/My Team é.yml": "My_Team__-", "/a/.yaml": "team-", "/" + strings.Repeat("x", 99): strings.Repeat("x", 40) + "-"} {
		if got := manifest.DeployID(path); !strings.HasPrefix(got, want) || len(got) != len(want)+8 || wire.ValidateRole(got) != nil {
			t.Errorf("DeployID(%q) = %q, want %s…", path, got, want)
		}
	}
	if manifest.DeployID("/a/cotal.yaml") == manifest.DeployID("/b/cotal.yaml") {
		t.Error("two files have one deploy")
	}
}

// A team file in a project is named by where it lies there, so that the project may be moved; its ledger is as good as one of a build before,
// which names the file by its path.
func TestFileName(t *testing.T) {
	root := filepath.Dir(file(t))
	for path, want := range map[string]string{
		file(t): "cotal.yaml", filepath.Join(root, "teams", "a b.yaml"): "teams/a b.yaml", filepath.Join(root, "..a", "t.yaml"): "..a/t.yaml",
		filepath.Dir(root): filepath.Dir(root), root + "-other": root + "-other",
	} {
		got := manifest.FileName(root, path)
		if got != want {
			t.Errorf("FileName(%q) = %q, want %q", path, got, want)
		}
		if back := (&manifest.Ledger{File: got}).Path(root); back != path {
			t.Errorf("Path of %q = %q, want %q", got, back, path)
		}
		if l := deployed(got); manifest.OpenLedgers(t.TempDir()).Save(l) != nil {
			t.Errorf("a ledger of %q is refused", got)
		}
	}
	if got := manifest.FileName("", file(t)); got != file(t) {
		t.Errorf("without a project: %q", got)
	}
	for _, bad := range []string{"", ".", "..", "../t.yaml", "a/../../t.yaml", "a/../t.yaml", "./t.yaml", "a//t.yaml"} {
		if manifest.OpenLedgers(t.TempDir()).Save(deployed(bad)) == nil {
			t.Errorf("a ledger of %q is written", bad)
		}
	}
}

// A team that was moved is as it was: the folder of an agent counts as the file has it. What a build before wrote is not otherwise for that.
func TestDigestOfATeamThatWasMoved(t *testing.T) {
	team, err := manifest.Parse("t.yaml", []byte(head+"agents: {a: {persona: p, cwd: work}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(folder string) manifest.Agent {
		a := team.Agents[0]
		a.Folder = folder
		return a
	}
	old := team.Agents[0]
	old.Cwd = "/old/work"
	moved := at("/new/work")
	if got := moved.Request("", "").Cwd; got != "/new/work" {
		t.Errorf("it is to work in %q", got)
	}
	l := manifest.NewLedger("t.yaml", "main", 1)
	for name, tc := range map[string]struct {
		made manifest.Agent
		now  manifest.Agent
		do   manifest.Action
	}{
		"moved": {at("/old/work"), moved, manifest.Keep}, "earlier_build": {old, at("/old/work"), manifest.Keep}, "earlier_build_moved": {old, moved, manifest.Stale},
		"another_folder": {func() manifest.Agent { a := at("/old/other"); a.Cwd = "other"; return a }(), at("/old/work"), manifest.Stale},
	} {
		t.Run(name, func(t *testing.T) {
			e := manifest.LedgerAgent{Name: "a", Try: 1, RequestID: l.RequestID("a", 1), Digest: tc.made.Digest(nil), Principal: "local.a", UID: uid}
			l.Agents = []manifest.LedgerAgent{e}
			here := manifest.Current{Agents: []wire.AgentStatus{{Principal: e.Principal, UID: uid, Deploy: l.ID, RequestID: e.RequestID, State: wire.AgentReady}}}
			if s := (manifest.Team{Agents: []manifest.Agent{tc.now}}).Plan(l, here, nil); s[0].Do != tc.do {
				t.Errorf("plan = %+v, want %s", s[0], tc.do)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	team, err := manifest.Parse("t.yaml", []byte(head+`
channels:
  new: {}
  kept: {description: d}
  other: {description: other}
  changed: {description: d}
  foreign: {}
  lost: {description: d}
agents: {new: p, kept: p, stale: p, ended: p, taken: p, asked: p, orphan: p}
`))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	l := manifest.NewLedger(file(t), "main", 1)
	cfg := wire.ChannelConfig{Description: "d"}
	l.Channels = []manifest.LedgerChannel{{Channel: "kept", Revision: 1, Config: cfg}, {Channel: "other", Revision: 2, Config: cfg}, {Channel: "changed", Revision: 3, Config: cfg},
		{Channel: "gone", Revision: 5, Config: cfg}, {Channel: "lost", Config: cfg}}
	now := manifest.Current{Channels: []wire.ChannelInfo{
		{Channel: "kept", Config: &cfg, Revision: 1}, {Channel: "other", Config: &cfg, Revision: 2}, {Channel: "changed", Config: &cfg, Revision: 9},
		{Channel: "foreign", Config: &wire.ChannelConfig{}, Revision: 4}, {Channel: "new"}, {Channel: "lost", Config: &cfg, Revision: 8},
	}}
	add := func(name, state, digest string, known bool) {
		e := manifest.LedgerAgent{Name: name, Try: 1, RequestID: l.RequestID(name, 1), Digest: digest}
		a := wire.AgentStatus{Principal: "local." + name, UID: wire.NewUID(), Deploy: l.ID, RequestID: e.RequestID, State: state}
		if known {
			e.Principal, e.UID = a.Principal, a.UID
		}
		if digest != "-" {
			l.Agents = append(l.Agents, e)
		}
		if state != "" {
			now.Agents = append(now.Agents, a)
		}
	}
	of := func(name string) string {
		for _, a := range team.Agents {
			if a.Name == name {
				return a.Digest(nil)
			}
		}
		return ""
	}
	add("kept", wire.AgentReady, of("kept"), true)
	add("stale", wire.AgentBackoff, "old", true)
	add("ended", wire.AgentFailed, of("ended"), true)
	add("asked", wire.AgentStarting, of("asked"), false)
	add("orphan", wire.AgentReady, "-", true)
	add("dropped", wire.AgentReady, "x", true)
	now.Agents = append(now.Agents, wire.AgentStatus{Principal: "local.taken", UID: wire.NewUID(), State: wire.AgentReady},
		wire.AgentStatus{Principal: "local.new", UID: wire.NewUID(), State: wire.AgentExited})
	var got []string
	for _, s := range team.Plan(l, now, files) {
		got = append(got, s.Kind+" "+s.Name+" "+string(s.Do))
	}
	want := []string{
		"channel new create", "channel kept keep", "channel other update", "channel changed exists", "channel foreign exists", "channel lost keep",
		"agent new create", "agent kept keep", "agent stale stale", "agent ended again", "agent taken exists", "agent asked keep", "agent orphan exists",
		"channel gone dropped", "agent dropped dropped",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func FuzzLedger(f *testing.F) {
	path, err := filepath.Abs("cotal.yaml")
	if err != nil {
		f.Fatal(err)
	}
	l := deployed(path)
	data, err := json.Marshal(l)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"apiVersion":"cotal-ledger/v1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := manifest.ParseLedger(l.ID, data)
		if err != nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := manifest.ParseLedger(l.ID, again); err != nil {
			t.Errorf("what was accepted is refused: %v\n%s", err, again)
		}
	})
}
