package persona_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

func folder(t *testing.T, files map[string]string) (*persona.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), ".cotal", persona.Folder)
	for name, data := range files {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return persona.Open(dir), dir
}

func TestStore(t *testing.T) {
	s, dir := folder(t, nil)
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Errorf("list of no folder = %v, %v", all, err)
	}
	if _, err := s.Load("a"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("load from no folder = %v", err)
	}
	if err := s.Remove("a"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("remove from no folder = %v", err)
	}
	a := persona.Persona{Name: "a", Model: "m", Subscribe: []string{"x"}, AllowSubscribe: []string{"x"}, Text: "hello"}
	if err := s.Create(a); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(a); !errors.Is(err, wire.ErrExists) {
		t.Errorf("second create = %v, want already-exists", err)
	}
	if got, err := s.Load("a"); err != nil || !got.Equal(a) {
		t.Errorf("load = %+v, %v", got, err)
	}
	if err := s.Create(persona.Persona{Name: "b", Model: "-x"}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("create of what is none = %v", err)
	}
	if err := s.Put("a", []byte("---\nrol: x\n---\n")); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("put of what is none = %v", err)
	}
	for name, data := range map[string]string{"bad.md": "---\nrol: x\n---\n", "README.md": "# hi", ".x.md": "x", "n o.md": "---\n---\n", "other.txt": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.List()
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprint(e.Name, " ", wire.CodeOf(e.Err), " ", e.Err))
	}
	want := []string{
		"a  <nil>", `bad failed-precondition .cotal/agents/bad.md:2:1: unknown key "rol"; did you mean role?`,
		"n o failed-precondition .cotal/agents/n o.md: the name of the file is no name of an agent; rename it: letters, digits, _ and -, at most 64",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("list: %v (-want +got):\n%s", err, diff)
	}
	// What no list shows is no agent file by its name either.
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("---\nagent: script\n---\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"load":   func() error { _, err := s.Load("README"); return err }(),
		"source": func() error { _, err := s.Source("readme"); return err }(),
		"create": s.Create(persona.Persona{Name: "ReadMe"}),
		"put":    s.Put("README", []byte("---\n---\n")),
		"define": func() error {
			_, _, err := s.Define(persona.Definer{Principal: "local.ada"}, wire.PersonaRequest{Name: "README", Text: "x"})
			return err
		}(),
		"remove": s.Remove("README"),
	} {
		if !errors.Is(err, wire.ErrBadRequest) || !strings.Contains(fmt.Sprint(err), "for people") {
			t.Errorf("%s README = %v, want bad-request", what, err)
		}
	}
	if err := s.Remove("a"); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 5 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Names that lead elsewhere are not names, whatever is there.
func TestNamesDoNotLeadOut(t *testing.T) {
	s, dir := folder(t, map[string]string{"a.md": "---\n---\n"})
	if err := os.WriteFile(filepath.Join(dir, "..", "out.md"), []byte("---\n---\nsecret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "../out", "a/../../out", "/etc/passwd", "..", ".", "a\x00", strings.Repeat("a", 65), `..\out`, "a.md"} {
		if _, err := s.Load(name); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("load %q = %v", name, err)
		}
		if err := s.Remove(name); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("remove %q = %v", name, err)
		}
		if err := s.Put(name, []byte("---\n---\n")); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("put %q = %v", name, err)
		}
		if _, _, err := s.Define(persona.Definer{Principal: "local.ada"}, wire.PersonaRequest{Name: name, Text: "x"}); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("define %q = %v", name, err)
		}
	}
}

// What a link outside the folder leads to is neither read nor written, and what is no file or too large is not read.
func TestLinksDoNotLeadOut(t *testing.T) {
	s, dir := folder(t, map[string]string{"a.md": "---\n---\n", "big.md": "---\n---\n" + strings.Repeat("x", persona.MaxFile)})
	out := filepath.Join(dir, "..", "out.md")
	if err := os.WriteFile(out, []byte("---\nowner: local.ada\n---\nsecret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"rel.md": "../out.md", "abs.md": out} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Logf("no links here: %v", err)
			return
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.md"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rel", "abs", "dir", "big"} {
		p, err := s.Load(name)
		if !errors.Is(err, wire.ErrPrecondition) || p.Text != "" {
			t.Errorf("load %s = %+v, %v, want failed-precondition", name, p, err)
		}
		if strings.Contains(fmt.Sprint(err), dir) {
			t.Errorf("the error shows folders of the host: %v", err)
		}
		if _, _, err := s.Define(persona.Definer{Principal: "local.ada"}, wire.PersonaRequest{Name: name, Text: "x"}); err == nil {
			t.Errorf("define %s was done", name)
		}
	}
	if err := s.Put("rel", []byte("---\n---\nmine\n")); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("abs"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(out); err != nil || !strings.Contains(string(data), "secret") {
		t.Errorf("the file outside = %q, %v", data, err)
	}
	if p, err := s.Load("rel"); err != nil || p.Text != "mine" {
		t.Errorf("the file in place of the link = %+v, %v", p, err)
	}
	if runtime.GOOS != "windows" {
		pipe(t, filepath.Join(dir, "pipe.md"))
		if _, err := s.Load("pipe"); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("load of a pipe = %v", err)
		}
	}
}

func TestDefine(t *testing.T) {
	s, dir := folder(t, map[string]string{"host.md": "---\nmodel: m\n---\nours\n"})
	ada, eve, operator := persona.Definer{Principal: "local.ada"}, persona.Definer{Principal: "local.eve"}, persona.Definer{Principal: "local.op", Any: true}
	ada.Grant = &wire.ManagedGrant{Subscribe: []string{"general"}, Publish: []string{"*"}, Scope: []string{"spawn", "role:help"}}
	req := wire.PersonaRequest{Name: "helper", Text: "Help.\n", Model: "small", Description: "helps", Connector: "claude"}
	p, created, err := s.Define(ada, req)
	want := persona.Persona{
		Name: "helper", Description: "helps", Agent: "claude", Model: "small", Owner: "local.ada", Text: "Help.",
		Subscribe: []string{"general"}, AllowSubscribe: []string{"general"}, AllowPublish: []string{"general"},
	}
	if err != nil || !created || !p.Equal(want) {
		t.Errorf("define = %+v, %t, %v", p, created, err)
	}
	if got, err := s.Load("helper"); err != nil || !got.Equal(want) {
		t.Errorf("load = %+v, %v", got, err)
	}
	// the person gives it more, which a later definition leaves
	file := filepath.Join(dir, "helper.md")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(data), "allowPublish: [general]", "role: help\nallowPublish: [a, b] # by hand", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	p, created, err = s.Define(ada, wire.PersonaRequest{Name: "helper", Text: "Help more.", Role: "help"})
	want.Text, want.Role, want.AllowPublish = "Help more.", "help", []string{"a", "b"}
	if err != nil || created || !p.Equal(want) {
		t.Errorf("define again = %+v, %t, %v", p, created, err)
	}
	if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), "# by hand") {
		t.Errorf("the comment is gone: %q, %v", data, err)
	}
	for _, tt := range []struct {
		by   persona.Definer
		req  wire.PersonaRequest
		want error
	}{
		{eve, wire.PersonaRequest{Name: "helper", Text: "mine"}, wire.ErrPermissionDenied},
		{ada, wire.PersonaRequest{Name: "host", Text: "mine"}, wire.ErrPermissionDenied},
		{ada, wire.PersonaRequest{Name: "helper", Text: "x", Role: "other"}, wire.ErrPrecondition},
		{ada, wire.PersonaRequest{Name: "helper", Text: "x", Connector: "script"}, wire.ErrPrecondition},
		{ada, wire.PersonaRequest{Name: "runner", Text: "x", Connector: "command"}, wire.ErrPermissionDenied},
		{ada, wire.PersonaRequest{Name: "helper2", Text: "x", Role: "help"}, wire.ErrPermissionDenied},
		{ada, wire.PersonaRequest{Name: "empty", Text: " \n"}, wire.ErrBadRequest},
		{ada, wire.PersonaRequest{Name: "flag", Text: "x", Model: "--flag"}, wire.ErrBadRequest},
		{ada, wire.PersonaRequest{Name: "key", Text: "x", Model: "m\ncapabilities: [spawn]"}, wire.ErrBadRequest},
		{ada, wire.PersonaRequest{Name: "helper", Text: "x", Model: "m\ncapabilities: [spawn]"}, wire.ErrBadRequest},
		{persona.Definer{}, wire.PersonaRequest{Name: "helper", Text: "x"}, wire.ErrInternal},
	} {
		if _, _, err := s.Define(tt.by, tt.req); !errors.Is(err, tt.want) {
			t.Errorf("define %+v by %+v = %v, want %v", tt.req, tt.by, err, tt.want)
		}
	}
	if p, _, err := s.Define(operator, wire.PersonaRequest{Name: "helper", Text: "by the operator"}); err != nil || p.Owner != "local.ada" {
		t.Errorf("by the operator = %+v, %v", p, err)
	}
	if p, _, err := s.Define(ada, wire.PersonaRequest{Name: "helper", Text: "---\ncapabilities: [spawn]\n---\n"}); err != nil || len(p.Capabilities) > 0 {
		t.Errorf("a text with keys = %+v, %v", p, err)
	}
	if p, err := s.Load("helper"); err != nil || len(p.Capabilities) > 0 || p.Owner != "local.ada" {
		t.Errorf("after a text with keys = %+v, %v", p, err)
	}
}

// Of many who define a name at once, one owns it and the others are refused.
func TestOneDefines(t *testing.T) {
	s, _ := folder(t, nil)
	var wg sync.WaitGroup
	made := make([]bool, 16)
	for i := range made {
		wg.Go(func() {
			who := fmt.Sprintf("local.a%d", i)
			_, created, err := s.Define(persona.Definer{Principal: who}, wire.PersonaRequest{Name: "one", Text: "of " + who})
			if made[i] = created; !created && err == nil {
				t.Errorf("%s changed what another made", who)
			}
		})
	}
	wg.Wait()
	owner := ""
	for i, ok := range made {
		if ok {
			owner += fmt.Sprintf("local.a%d", i)
		}
	}
	p, err := s.Load("one")
	if err != nil || p.Owner != owner || p.Text != "of "+owner {
		t.Errorf("%q made it, and it is %+v, %v", owner, p, err)
	}
}

func TestCatalog(t *testing.T) {
	s, _ := folder(t, map[string]string{"a.md": "---\nrole: r\nagent: script\nenv: {TOKEN: x}\n---\ntext", "b.md": "---\nrol: x\n---\nhidden"})
	got, err := s.Catalog("")
	want := []wire.Persona{{Name: "a", Role: "r", Connector: "script"}, {Name: "b", Invalid: `.cotal/agents/b.md:2:1: unknown key "rol"; did you mean role?`}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("catalog: %v (-want +got):\n%s", err, diff)
	}
	one, err := s.Catalog("a")
	want = []wire.Persona{{Name: "a", Role: "r", Connector: "script", Text: "text",
		Capabilities: []string{}, Subscribe: []string{"general"}, AllowSubscribe: []string{"general"}, AllowPublish: []string{}}}
	if diff := cmp.Diff(want, one); diff != "" || err != nil {
		t.Errorf("one: %v (-want +got):\n%s", err, diff)
	}
}

func TestSeed(t *testing.T) {
	_, dir := folder(t, nil)
	made, err := persona.Seed(dir)
	if diff := cmp.Diff([]string{"default", "reviewer", "scribe"}, made); diff != "" || err != nil {
		t.Errorf("seeded: %v (-want +got):\n%s", err, diff)
	}
	all, err := persona.Open(dir).List()
	if err != nil || len(all) != 3 {
		t.Fatalf("list = %v, %v", all, err)
	}
	for _, e := range all {
		p := e.Persona
		if e.Err != nil || fmt.Sprint(p.Subscribe, p.AllowSubscribe, p.AllowPublish) != "[general] [general] [general]" || p.Text == "" || p.Description == "" {
			t.Errorf("%s: %+v, %v", e.Name, p, e.Err)
		}
		if role := p.Role; role != "" && !strings.Contains(fmt.Sprint(all[0].Persona.Capabilities), "role:"+role) {
			t.Errorf("default cannot start %s, which answers for %s", e.Name, role)
		}
	}
	if all[0].Persona.Capabilities[0] != persona.CapabilitySpawn || all[2].Persona.Agent != "script" {
		t.Errorf("default = %+v, scribe = %+v", all[0].Persona, all[2].Persona)
	}
	if made, err := persona.Seed(dir); err != nil || made != nil {
		t.Errorf("second = %v, %v, want nothing done", made, err)
	}
	if err := os.Remove(filepath.Join(dir, "reviewer.md")); err != nil {
		t.Fatal(err)
	}
	if made, err := persona.Seed(dir); err != nil || made != nil {
		t.Errorf("of a folder with files = %v, %v, want nothing done", made, err)
	}
}
