package persona_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

const whole = `---
# who it is
name: scout
role: scout
description: >
  looks around
  and tells
tags: [read, "two words"]
agent: command
model: small-1
variant: high
command:
  - htop
  - -d
  - "5"
cwd: sub/folder
env:
  LANG: C.UTF-8
  LEVEL: 3
subscribe: [general, team.*]
allowSubscribe:
  - general
  - team.>
allowPublish: general
capabilities: [spawn, role:scout]
skills: [reading]
restart: never
meta: {since: 2026, nice: true}
owner: local.ada
---

First line.

---
Last line.
`

func TestParse(t *testing.T) {
	got, err := persona.Parse("scout.md", "scout", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := persona.Persona{
		Name: "scout", Role: "scout", Description: "looks around and tells", Tags: []string{"read", "two words"}, Agent: "command", Model: "small-1",
		Variant: "high", Command: []string{"htop", "-d", "5"}, Cwd: "sub/folder", Env: map[string]string{"LANG": "C.UTF-8", "LEVEL": "3"},
		Subscribe: []string{"general", "team.*"}, AllowSubscribe: []string{"general", "team.>"}, AllowPublish: []string{"general"},
		Capabilities: []string{"spawn", "role:scout"}, Skills: []string{"reading"}, Restart: "never",
		Meta: map[string]string{"since": "2026", "nice": "true"}, Owner: "local.ada", Text: "First line.\n\n---\nLast line.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("persona (-want +got):\n%s", diff)
	}
	crlf, err := persona.Parse("scout.md", "scout", []byte("\xef\xbb\xbf"+strings.ReplaceAll(whole, "\n", "\r\n")))
	if err != nil || !crlf.Equal(want) {
		t.Errorf("with carriage returns and a mark: %v\n%s", err, cmp.Diff(want, crlf))
	}
	_, err = persona.Parse("scout.md", "scout", []byte("\xef\xbb\xbf---\nrol: x\n---\n"))
	if all := persona.ProblemsOf(err); len(all) != 1 || all[0].Line != 2 || all[0].Column != 1 {
		t.Errorf("with a mark the problem is at %v", all)
	}
	again, err := persona.Parse("scout.md", "scout", persona.Render(got))
	if err != nil || !again.Equal(want) {
		t.Errorf("after a round trip: %v\n%s", err, cmp.Diff(want, again))
	}
}

func TestDefaults(t *testing.T) {
	for front, want := range map[string][3][]string{
		"":                                  {{"general"}, {"general"}, nil},
		"subscribe: []":                     {{}, {}, nil},
		"subscribe: team":                   {{"team"}, {"team"}, nil},
		"allowSubscribe: [team, general]":   {{"general"}, {"team", "general"}, nil},
		`allowSubscribe: ">"`:               {{"general"}, {">"}, nil},
		"allowSubscribe: [team]":            {nil, {"team"}, nil},
		"allowPublish: [a, b.>]":            {{"general"}, {"general"}, {"a", "b.>"}},
		"subscribe: [a]\nallowSubscribe: a": {{"a"}, {"a"}, nil},
	} {
		p, err := persona.Parse("x.md", "x", []byte("---\n"+front+"\n---\nhi\n"))
		if err != nil {
			t.Errorf("%q: %v", front, err)
			continue
		}
		got := [3][]string{p.Subscribe, p.AllowSubscribe, p.AllowPublish}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q = %v, want %v", front, got, want)
		}
		again, err := persona.Parse("x.md", "x", persona.Render(p))
		if err != nil || !again.Equal(p) {
			t.Errorf("%q after a round trip: %v\n%s", front, err, cmp.Diff(p, again))
		}
	}
}

// Every problem of a file is told with its place and what to do.
func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ front, want string }{
		{"rol: x", `x.md:2:1: unknown key "rol"; did you mean role?`},
		{"allowsubscribe: x", `x.md:2:1: unknown key "allowsubscribe"; did you mean allowSubscribe?`},
		{"zzzzzzzz: x", `x.md:2:1: unknown key "zzzzzzzz"; there are name, role,`},
		{"model: a\n\n# c\nmodel: b", `x.md:5:1: key "model" is there already, in line 2; keep one of them`},
		{"channels: [a]", `x.md:2:1: key "channels" is not ours; rename it to subscribe`},
		{"publish: [a]", `x.md:2:1: key "publish" is not ours; rename it to allowPublish`},
		{"role:", `x.md:2:1: role has no value; give it one, or remove the key`},
		{"role: [a]", `x.md:2:7: role is nested; write one text`},
		{"role: a b", `x.md:2:7: role "a b" is no role; write letters, digits, _ and -`},
		{"role: {a: b}", `role is nested; write one text`},
		{"name: other", `x.md:2:7: name is "other" and the file is called x.md; rename the file, or remove the key`},
		{"description: " + long, `x.md:2:14: description has 300 characters, want at most 200; shorten it`},
		{`description: "a\nb"`, `x.md:2:14: description has a line end or another control character; write it in one line`},
		{`description: " a"`, `x.md:2:14: description has spaces around it; remove them`},
		{`description: ""`, `x.md:2:14: description is empty; give it a value, or remove it`},
		{"tags: [a, a]", `x.md:2:11: "a" is in tags twice; remove it`},
		{"tags: [a, [b]]", `x.md:2:11: an entry of tags is nested or empty; write one text an entry`},
		{"tags: {a: b}", `tags is nested; write a list: [tags, …]`},
		{"tags:", `x.md:2:1: tags has no value; write [] for none, or remove the key`},
		{"tags: [" + strings.TrimSuffix(strings.Repeat("a,", 65), ",") + "]", `tags has 65 entries, want at most 64`},
		{"agent: a b", `x.md:2:8: agent "a b" is no connector; write claude, codex, opencode, gemini, command or script`},
		{"model: --dangerous", `x.md:2:8: model "--dangerous" would be read as a flag; remove the dash`},
		{"variant: -x", `x.md:2:10: variant "-x" would be read as a flag; remove the dash`},
		{"env: {1A: b}", `env: "1A" is no name of a variable; write letters, digits and _`},
		{"env:\n  COTAL_LAUNCH: b", `x.md:3:3: env: "COTAL_LAUNCH" is set by the supervisor; remove it`},
		{"env: [a]", `x.md:2:6: env is not a map; write name: value lines`},
		{"env:", `x.md:2:1: env has no value`},
		{"env:\n  A: 1\n  A: 2", `x.md:4:3: "A" is there already, in line 3; keep one of them`},
		{"env:\n  A: [b]", `x.md:3:6: env.A is nested; write one text`},
		{"meta: {a b: c}", `meta: "a b" is no name; write letters, digits, _ and -`},
		{"subscribe: [a b]", `x.md:2:13: subscribe: "a b" is no channel; write letters, digits, _ and -`},
		{`subscribe: ["#general"]`, `x.md:2:13: subscribe: "#general" is no channel; write it without #`},
		{"subscribe: [a]\nallowSubscribe: [b]", `x.md:2:13: subscribe: "a" is not within allowSubscribe; add it to allowSubscribe, or remove it here`},
		{"subscribe: a\nallowSubscribe: [b]", `x.md:2:12: subscribe: "a" is not within allowSubscribe`},
		{"capabilities: [admin]", `x.md:2:16: capabilities: "admin" is none; write spawn, or role:<role>`},
		{"capabilities: supervise", `x.md:2:15: capabilities: "supervise" is none`},
		{"restart: sometimes", `x.md:2:10: restart is "sometimes"; write never, on-failure or always`},
		{"owner: ada", `x.md:2:8: owner "ada" is no principal; remove the key`},
		{"command: [a]", `x.md:2:1: command is for the connector command alone; write agent: command, or remove it`},
		{"agent: command", `x.md:2:1: agent command needs a command; add command: [program, argument, …]`},
		{"agent: command\ncommand: []", `x.md:3:1: command is empty; name the program and its arguments`},
		{"agent: command\ncommand: htop -d 5", `x.md:3:10: command is one text, and no shell takes it apart; write a list: [htop, -d, 5]`},
		{"model: &a b", `x.md:2:8: anchors and aliases (& * <<) are not taken`},
		{"model: *a", `x.md:2:8: anchors and aliases (& * <<) are not taken`},
		{"<<: {model: a}", `the key is not a name`},
		{"model: !!str 5", `x.md:2:8: tags (!) are not taken`},
		{"- a", `the front matter is not a map; write key: value lines`},
		{"just text", `the front matter is not a map; write key: value lines`},
		{"model: [", `x.md:2:8: not YAML: sequence end token ']' not found`},
		{"model: a: b", `x.md:2:8: not YAML: mapping value is not allowed in this context`},
		{"\tmodel: a", `x.md:2:6: not YAML: tab character cannot use as a map key directly`},
		{"model: a\n...\nrole: b", `more than one document`},
		{"model: \x01", `x.md:2:1: a control character, or not UTF-8; save the file as UTF-8 text`},
		{"model: \xff", `x.md:2:1: a control character, or not UTF-8`},
		{"- - - - a", `x.md:2:1: lists in lists, and keys that are not names, mean nothing here`},
		{"a: " + strings.Repeat("[", 1025), `more than 1024 brackets`},
		{"meta: {a: {b: {c: {d: {e: {f: {g: {h: i}}}}}}}}", `more than 8 levels`},
		{"# " + strings.Repeat("x", persona.MaxFrontMatter), `x.md:1:1: no line --- ends the front matter within 16384 bytes`},
	} {
		_, err := persona.Parse("x.md", "x", []byte("---\n"+tt.front+"\n---\ntext\n"))
		if wire.CodeOf(err) != wire.CodeBadRequest || !told(err, tt.want) {
			t.Errorf("%.60q: %v\n%v\nwant %q", tt.front, err, persona.ProblemsOf(err), tt.want)
		}
	}
}

func TestParseRefusesFiles(t *testing.T) {
	for _, tt := range []struct{ name, file, want string }{
		{"x", "", "x.md:1:1: no front matter; begin the file with a line ---, the keys, and another line ---"},
		{"x", "hello", "x.md:1:1: no front matter"},
		{"x", "---\nmodel: a\n", "x.md:1:1: no line --- ends the front matter; begin"},
		{"x", "---\n---\na\x00b", "x.md:3:1: the text has a control character, or is not UTF-8; save the file as UTF-8 text"},
		{"x", "---\n---\na\x1b[2Jb", "x.md:3:1: the text has a control character"},
		{"x", "---\n---\na\xffb", "x.md:3:1: the text has a control character"},
		{"x", "---\n---\n" + strings.Repeat("x", wire.MaxPersonaText+1), "x.md:3:1: the text has 65537 bytes, want at most 65536; shorten it"},
		{"x", strings.Repeat("x", persona.MaxFile+1), "x.md:1:1: the file has more than"},
		{"a b", "---\n---\n", "x.md: the name of the file is no name of an agent; rename it: letters, digits, _ and -, at most 64"},
		{"", "---\n---\n", "the name of the file is no name"},
	} {
		_, err := persona.Parse("x.md", tt.name, []byte(tt.file))
		if wire.CodeOf(err) != wire.CodeBadRequest || !told(err, tt.want) {
			t.Errorf("%q %.40q: %v, want %q", tt.name, tt.file, err, tt.want)
		}
	}
}

// told reports whether one of the problems of err says so.
func told(err error, want string) bool {
	for _, p := range persona.ProblemsOf(err) {
		if strings.Contains(p.String(), want) {
			return true
		}
	}
	return false
}

// All that is wrong is told at once, in the order of the file.
func TestAllProblems(t *testing.T) {
	_, err := persona.Parse("x.md", "x", []byte("---\nowner: me\nrol: a\nmodel: -x\n---\n"))
	var got []int
	for _, p := range persona.ProblemsOf(err) {
		got = append(got, p.Line)
	}
	if diff := cmp.Diff([]int{2, 3, 4}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s\n%v", diff, err)
	}
	if !strings.HasSuffix(err.Error(), "(and 2 more)") {
		t.Errorf("error = %v", err)
	}
	if persona.ProblemsOf(errors.New("x")) != nil {
		t.Error("an error of others has problems")
	}
}

// A change of text and model leaves comments, order and quotes alone.
func TestPatchKeepsTheFile(t *testing.T) {
	out, err := persona.Patch("scout.md", "scout", []byte(whole), "\nNew text.\n\n", "large-2")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(whole[:strings.Index(whole, "\n\nFirst")], "small-1", "large-2", 1) + "\n\nNew text.\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	for _, tt := range []struct{ file, model, want string }{
		{"---\n# c\n---\nold\n", "m", "---\n# c\nmodel: m\n---\n\nnew\n"},
		{"---\nmodel: m # why\nrole: r\n---\nold\n", "", "---\nrole: r\n---\n\nnew\n"},
		{"---\n{role: r, model: m}\n---\n", "n", "---\nrole: r\nmodel: n\n---\n\nnew\n"},
		{"---\nmodel:\n  m\n---\n", "n", "---\nmodel: n\n---\n\nnew\n"},
		{"---\ndescription: |\n  model\n---\n", "n:1 # x", "---\ndescription: |\n  model\nmodel: \"n:1 # x\"\n---\n\nnew\n"},
	} {
		out, err := persona.Patch("x.md", "x", []byte(tt.file), "new", tt.model)
		if err != nil || string(out) != tt.want {
			t.Errorf("Patch(%q) = %q, %v, want %q", tt.file, out, err, tt.want)
		}
	}
	if _, err := persona.Patch("x.md", "x", []byte("---\n---\n"), "a\x00", ""); err == nil {
		t.Error("a text that is none was taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole), "new", "m")
	for _, s := range []string{
		"---\n---\n", "---\nrole: [\n---\n", "---\nmodel: \"\\u2028\"\n---\n\n\n", "---\nenv: {A: '', B: \"\\n\"}\n---\n---\n", "---\ntags: ['#', '- a', ': ', '1e3', '~']\n---",
		"---\n? a\n: b\n---\n", "---\nmodel: |+\n  a\n\n---\n", "---\r\nmodel: a\r\n---\r\nb\r\nc", "---\n%YAML 1.2\n---\n", "---\na: {b: [c, {d: e}]}\n---\n",
		"---\n&a a: *a\n---\n", "---\nmeta: {true: null, 1: 2}\n---\n",
	} {
		f.Add([]byte(s), "text\n---\n", "a: b")
	}
	f.Fuzz(func(t *testing.T, data []byte, text, model string) {
		p, err := persona.Parse("x.md", "x", data)
		if err != nil {
			for _, problem := range persona.ProblemsOf(err) {
				if problem.File != "x.md" || problem.What == "" || problem.Line < 0 || problem.Line > 2+strings.Count(string(data), "\n") {
					t.Errorf("problem %+v of %q", problem, data)
				}
			}
			if len(persona.ProblemsOf(err)) == 0 || wire.CodeOf(err) != wire.CodeBadRequest {
				t.Errorf("error without a problem: %v", err)
			}
			return
		}
		again, err := persona.Parse("x.md", "x", persona.Render(p))
		if err != nil || !again.Equal(p) {
			t.Errorf("round trip of %q: %v\n%s\n%s", data, err, persona.Render(p), cmp.Diff(p, again))
		}
		out, err := persona.Patch("x.md", "x", data, text, model)
		if err != nil {
			return
		}
		changed, err := persona.Parse("x.md", "x", out)
		p.Text, p.Model = changed.Text, changed.Model
		if err != nil || !changed.Equal(p) || changed.Model != model {
			t.Errorf("patch of %q changed more: %v\n%s", data, err, cmp.Diff(p, changed))
		}
	})
}
