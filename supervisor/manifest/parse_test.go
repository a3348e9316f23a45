package manifest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/supervisor/manifest"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

const head = "apiVersion: cotal/v1\nkind: Team\n"

const whole = head + `space: main
agent: claude
defaults: {replayWindow: 7d, deliveryClass: live}
channels:
  work:
    description: what is under way
    instructions: |
      Be short.
      Be kind.
    replay: false
    deliveryClass: durable
    subscribe: [lead, worker]
    allowSubscribe: [lead, worker, eye]
    allowPublish: lead
  team.ops:
    subscribe: [lead]
agents:
  lead: agents/lead.md
  worker:
    persona: reviewer
    count: 2
    agent: codex
    model: small
    variant: high
    cwd: sub
    role: work
    prompt: >
      Say hello
      in work.
    restart: always
    capabilities: [spawn, "role:work"]
    env: {LEVEL: 3}
  eye: scribe
  bare-one: {}
`

func TestParse(t *testing.T) {
	got, err := manifest.Parse("t.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	off := false
	both := []string{"worker_1", "worker_2"}
	worker := func(n int) manifest.Agent {
		return manifest.Agent{
			Name: fmt.Sprintf("worker_%d", n), Entry: "worker", Place: "t.yaml:21:3", Persona: "reviewer", Agent: "codex", Model: "small", Variant: "high", Cwd: "sub",
			Role: "work", Prompt: "Say hello in work.", Restart: "always", Capabilities: []string{"spawn", "role:work"}, Env: map[string]string{"LEVEL": "3"},
			Subscribe: []string{"work"}, AllowSubscribe: []string{"work"}, AllowPublish: []string{},
		}
	}
	want := manifest.Team{
		File: "t.yaml", Space: "main", Agent: "claude",
		Channels: []manifest.Channel{
			{Name: "work", Config: wire.ChannelConfig{Replay: &off, ReplayWindow: "7d", DeliveryClass: "durable", Description: "what is under way", Instructions: "Be short.\nBe kind."},
				Subscribe: append([]string{"lead"}, both...), AllowSubscribe: append(append([]string{"lead"}, both...), "eye"), AllowPublish: []string{"lead"}},
			{Name: "team.ops", Config: wire.ChannelConfig{ReplayWindow: "7d", DeliveryClass: "live"}, Subscribe: []string{"lead"}, AllowSubscribe: []string{"lead"}},
		},
		Agents: []manifest.Agent{
			{Name: "lead", Entry: "lead", Place: "t.yaml:20:3", Persona: "lead", File: "agents/lead.md",
				Subscribe: []string{"work", "team.ops"}, AllowSubscribe: []string{"work", "team.ops"}, AllowPublish: []string{"work"}},
			worker(1), worker(2),
			{Name: "eye", Entry: "eye", Place: "t.yaml:35:3", Persona: "scribe", Subscribe: []string{}, AllowSubscribe: []string{"work"}, AllowPublish: []string{}},
			{Name: "bare_one", Entry: "bare-one", Place: "t.yaml:36:3", Agent: "claude", Subscribe: []string{}, AllowSubscribe: []string{}, AllowPublish: []string{}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("team (-want +got):\n%s", diff)
	}
}

func TestWithoutChannelsFilesDecide(t *testing.T) {
	got, err := manifest.Parse("t.yaml", []byte(head+"agents: {a: x, b: {agent: script}}\n"))
	if err != nil || !got.Open || got.Agents[0].Subscribe != nil || got.Agents[1].AllowPublish != nil {
		t.Fatalf("team = %+v, %v", got, err)
	}
	graph := got.Access(func(a manifest.Agent) (manifest.AgentAccess, bool) {
		return manifest.AgentAccess{Agent: "claude", Role: "r", Subscribe: []string{"general"}, AllowSubscribe: []string{"general", "team.>"}}, a.Name == "a"
	})
	want := manifest.Access{
		Channels: []manifest.ChannelAccess{{Channel: "general", Hears: []string{"a"}, MayRead: []string{"a"}, MayPost: []string{}}, {Channel: "team.>", Hears: []string{}, MayRead: []string{"a"}, MayPost: []string{}}},
		Agents: []manifest.AgentAccess{
			{Name: "a", Persona: "x", Agent: "claude", Role: "r", Subscribe: []string{"general"}, AllowSubscribe: []string{"general", "team.>"}},
			{Name: "b", Agent: "script"},
		},
	}
	if diff := cmp.Diff(want, graph); diff != "" {
		t.Errorf("graph (-want +got):\n%s", diff)
	}
}

// TestAccessHasEverybodyWhomAPatternLetsIn: a column has those, too, whose lists take it in without naming it, and not those whose lists take in
// a part of it.
func TestAccessHasEverybodyWhomAPatternLetsIn(t *testing.T) {
	team, err := manifest.Parse("t.yaml", []byte(head+"agents: {wide: w, narrow: n, dark: d}\n"))
	if err != nil {
		t.Fatal(err)
	}
	graph := team.Access(func(a manifest.Agent) (manifest.AgentAccess, bool) {
		switch a.Name {
		case "wide":
			return manifest.AgentAccess{Subscribe: []string{"general"}, AllowSubscribe: []string{">"}, AllowPublish: []string{"team.*"}}, true
		case "narrow":
			return manifest.AgentAccess{Subscribe: []string{"team.secret"}, AllowSubscribe: []string{"team.secret"}, AllowPublish: []string{"team.secret.deep"}}, true
		}
		return manifest.AgentAccess{Role: "r"}, true
	})
	want := []manifest.ChannelAccess{
		{Channel: "general", Hears: []string{"wide"}, MayRead: []string{"wide"}, MayPost: []string{}},
		{Channel: ">", Hears: []string{}, MayRead: []string{"wide"}, MayPost: []string{}},
		{Channel: "team.*", Hears: []string{}, MayRead: []string{"wide"}, MayPost: []string{"wide"}},
		{Channel: "team.secret", Hears: []string{"narrow"}, MayRead: []string{"wide", "narrow"}, MayPost: []string{"wide"}},
		{Channel: "team.secret.deep", Hears: []string{}, MayRead: []string{"wide"}, MayPost: []string{"narrow"}},
	}
	if diff := cmp.Diff(want, graph.Channels); diff != "" {
		t.Errorf("channels (-want +got):\n%s", diff)
	}
	if data, err := json.Marshal(graph.Agents[2]); err != nil || string(data) != `{"name":"dark","persona":"d","role":"r"}` {
		t.Errorf("an agent of which nobody knows what its file says = %s, %v; want no lists", data, err)
	}
}

// A mark of byte order, and no channels at all, are what they seem.
func TestParseMark(t *testing.T) {
	got, err := manifest.Parse("t.yaml", []byte("\xef\xbb\xbf"+head+"channels: {}\nagents: {a: x}\n"))
	if err != nil || got.Open || len(got.Agents) != 1 || got.Agents[0].Subscribe == nil || got.Agents[0].Place != "t.yaml:4:10" {
		t.Errorf("team = %+v, %v; want one agent without a channel", got, err)
	}
}

// TestCountedAgentsAreNumbered: an entry with a count keeps the names of its agents when it grows and shrinks.
func TestCountedAgentsAreNumbered(t *testing.T) {
	for entry, want := range map[string]string{
		"{persona: x}":           "[w]",
		"{persona: x, count: 1}": "[w_1]",
		"{persona: x, count: 2}": "[w_1 w_2]",
	} {
		got, err := manifest.Parse("t.yaml", []byte(head+"agents: {w: "+entry+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, a := range got.Agents {
			names = append(names, a.Name)
		}
		if fmt.Sprint(names) != want {
			t.Errorf("w: %s makes %v, want %s", entry, names, want)
		}
	}
}

// Every problem of a file is told with its place and what to do.
func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{"", "t.yaml:1:1: the file is empty; begin with apiVersion: cotal/v1"},
		{"# nothing\n", "t.yaml:1:1: the file is empty"},
		{"- a\n", "a team file is not a map; write key: value lines"},
		{"kind: Team\nagents: {a: x}\n", "t.yaml:1:1: apiVersion is missing; add apiVersion: cotal/v1"},
		{"apiVersion: cotal/v1\nagents: {a: x}\n", "t.yaml:1:1: kind is missing; add kind: Team"},
		{"apiVersion: cotal/v2\nkind: Team\n", `t.yaml:1:13: apiVersion is "cotal/v2"; write cotal/v1`},
		{"apiVersion: cotal/v1\nkind: Mesh\n", `t.yaml:2:7: kind is "Mesh"; write Team: a mesh is set up by the flags of cotal up, and this file has its channels and agents`},
		{"apiVersion: cotal/v1\nkind: Deployment\n", `t.yaml:2:7: kind is "Deployment"; write Team`},
		{head, "t.yaml:1:1: the file declares nothing; add agents: or channels:"},
		{head + "broker: {}\n", `t.yaml:3:1: unknown key "broker"; there are apiVersion, kind,`},
		{head + "agent: a\nagents: {a: x}\nagents: {b: x}\n", `t.yaml:5:1: key "agents" is there already, in line 4; keep one of them`},
		{head + "space: a b\n", `t.yaml:3:8: space "a b" is no space; write letters, digits, _ and -`},
		{head + "space:\n", `t.yaml:3:1: space has no value`},
		{head + "agent: --x\n", `t.yaml:3:8: agent "--x" would be read as a flag; remove the dash`},
		{head + "defaults: {replays: true}\n", `t.yaml:3:12: unknown key "replays"; did you mean replay?`},
		{head + "defaults: {description: x}\n", `unknown key "description"`},
		{head + "defaults: {replay: 1}\n", `t.yaml:3:20: replay is "1"; write true or false`},
		{head + "defaults: {replayWindow: 7}\n", `t.yaml:3:26: replayWindow is "7"; write a number and s, m, h or d, such as 12h`},
		{head + "defaults: {deliveryClass: x}\n", `t.yaml:3:27: deliveryClass is "x"; write live or durable`},
		{head + "channels:\n#  work: {subscribe: [a]}\nagents: {a: x}\n", `t.yaml:3:1: channels has no value; remove the key, so that agents have the channels of their own files, or write {} for no channels at all`},
		{head + "channels: {a: {}}\nagents: # none\n", `t.yaml:4:1: agents has no value; name the agents, or remove the key`},
		{head + "defaults:\nagents: {a: x}\n", `t.yaml:3:1: defaults has no value; remove the key`},
		{"\xef\xbb\xbfapiVersion: cotal/v2\r\nkind: Mesh\r\n", `t.yaml:1:13: apiVersion is "cotal/v2"; write cotal/v1`},
		{"\xef\xbb\xbf\xef\xbb\xbf" + head, `t.yaml:1:1: a control character, or not UTF-8`},
		{head + "channels: [a]\n", `channels is not a map; write name: value lines`},
		{head + "channels: {\"a.>\": {}}\n", `t.yaml:3:12: "a.>" is no channel; name each channel: a pattern has no settings`},
		{head + "channels: {\"#a\": {}}\n", `t.yaml:3:12: "#a" is no channel; write it without #`},
		{head + "channels: {\"a b\": {}}\n", `"a b" is no channel; write letters, digits, _ and -, parts joined by dots`},
		{head + "channels:\n  a:\n  a:\n", `t.yaml:5:3: "a" is there already, in line 4; keep one of them`},
		{head + "channels: {a: x}\n", `a channel is not a map`},
		{head + "channels: {a: {members: []}}\n", `key "members" is not ours; rename it to subscribe`},
		{head + "channels: {a: {subscribe: [b]}}\nagents: {c: x}\n", `t.yaml:3:28: subscribe: "b" is no agent of this file; declare it below agents`},
		{head + "channels: {a: {allowPublish: worker}}\nagents: {workers: x}\n", `allowPublish: "worker" is no agent of this file; did you mean workers?`},
		{head + "channels: {a: {subscribe: [w_1]}}\nagents: {w: {persona: x, count: 2}}\n", `subscribe: "w_1" is no agent of this file; name its entry, w: that means all of its agents`},
		{head + "channels: {a: {subscribe: [b, b]}}\nagents: {b: x}\n", `"b" is in subscribe twice`},
		{head + "channels: {a: {subscribe: [b], allowSubscribe: []}}\nagents: {b: x}\n", `t.yaml:3:48: b hears channel a and is not in allowSubscribe; add it, or remove it from subscribe`},
		{head + "channels: {a: {description: " + strings.Repeat("x", 201) + "}}\n", `description has 201 characters, want at most 200; shorten it`},
		{head + "channels: {a: {instructions: " + strings.Repeat("x", 2001) + "}}\n", `instructions has 2001 characters, want at most 2000`},
		{head + "channels: {" + many("c%d: {}", 65) + "}\n", `65 channels, want at most 64`},
		{head + "agents: [a]\n", `agents is not a map`},
		{head + "agents: {a b: x}\n", `"a b" is no name of an agent; write letters, digits, _ and -`},
		{head + "agents: {a: }\n", `t.yaml:3:10: agent a says nothing; name its agent file: a: {persona: <name>}`},
		{head + "agents: {a: [x]}\n", `agent a says nothing`},
		{head + "agents: {a: x.txt}\n", `t.yaml:3:13: "x.txt" is no agent file; write the name of an agent file, or its path ending in .md`},
		{head + "agents: {a: ../b c.md}\n", `"../b c.md" is no agent file`},
		{head + "agents: {a: {}}\n", `t.yaml:3:10: agent a names neither an agent file nor what runs it; add persona:`},
		{head + "agents: {a: {personna: x}}\n", `unknown key "personna"; did you mean persona?`},
		{head + "agents: {a: {persona: x, replicas: 2}}\n", `key "replicas" is not ours; rename it to count`},
		{head + "agents: {a: {persona: x, count: 0}}\n", `count is "0"; write a number from 1 to 32`},
		{head + "agents: {a: {persona: x, count: many}}\n", `count is "many"; write a number from 1 to 32`},
		{head + "agents: {a: {persona: x, count: 32}, b: {persona: x, count: 32}, c: x}\n", `65 agents, want at most 64`},
		{head + "agents: {a: {persona: x, count: 2}, a_2: x}\n", `agent a_2 is also made by a; rename one of them`},
		{head + "agents: {a-b: x, a_b: x}\n", `agent a_b is also made by a-b; rename one of them`},
		{head + "agents: {" + strings.Repeat("a", 64) + ": {persona: x, count: 2}}\n", `has 66 characters, want at most 64; shorten it`},
		{head + "agents: {a: {persona: x, model: -m}}\n", `model "-m" would be read as a flag`},
		{head + "agents: {a: {persona: x, role: a b}}\n", `role "a b" is no role`},
		{head + "agents: {a: {persona: x, restart: now}}\n", `restart is "now"; write never, on-failure or always`},
		{head + "agents: {a: {persona: x, capabilities: [admin]}}\n", `capabilities: "admin" is none; write spawn, or role:<role>`},
		{head + "agents: {a: {persona: x, env: {COTAL_X: 1}}}\n", `env: "COTAL_X" cannot be set`},
		{head + "agents: {a: {persona: x, prompt: [a]}}\n", `prompt is nested; write one text`},
		{head + "agents: {a: {persona: x, prompt: " + strings.Repeat("x", wire.MaxPrompt+1) + "}}\n", `prompt has 32769 bytes, want at most 32768`},
		{head + "agents: &a {a: *a}\n", `anchors and aliases (& * <<) are not taken`},
		{head + "agents: {a: x\n", `t.yaml:3:9: not YAML`},
		{head + "---\nkind: Team\n", `more than one document`},
	} {
		_, err := manifest.Parse("t.yaml", []byte(tt.file))
		found := false
		for _, p := range persona.ProblemsOf(err) {
			found = found || strings.Contains(p.String(), tt.want)
		}
		if wire.CodeOf(err) != wire.CodeBadRequest || !found {
			t.Errorf("%.120q: %v\n%v\nwant %q", tt.file, err, persona.ProblemsOf(err), tt.want)
		}
	}
}

func many(format string, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(out, ", ")
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got, err := manifest.Load(write("good.yaml", whole), "good.yaml"); err != nil || len(got.Agents) != 5 {
		t.Errorf("load = %+v, %v", got, err)
	}
	for path, want := range map[string]wire.Code{
		filepath.Join(dir, "none.yaml"): wire.CodeNotFound, dir: wire.CodeFailedPrecondition, write("bad.yaml", "a"): wire.CodeBadRequest,
		write("big.yaml", strings.Repeat("#", manifest.MaxFile+1)): wire.CodeFailedPrecondition,
	} {
		if _, err := manifest.Load(path, "x.yaml"); wire.CodeOf(err) != want || strings.Contains(err.Error(), dir) {
			t.Errorf("load %s = %v, want %s without the folder", path, err, want)
		}
	}
}

// What a digest stands for: anything that would make another agent changes it, and nothing else does.
func TestDigest(t *testing.T) {
	a := manifest.Agent{Name: "a", Persona: "p", Model: "m", Subscribe: []string{"x"}}
	same := a
	same.Entry, same.Place, same.File = "e", "p", "f"
	if a.Digest([]byte("t")) != same.Digest([]byte("t")) {
		t.Error("where an agent is declared changes it")
	}
	other := a
	other.AllowPublish = []string{}
	if a.Digest(nil) == a.Digest([]byte("t")) || a.Digest(nil) == other.Digest(nil) {
		t.Error("another text or other rights do not change it")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{whole, head, head + "agents: {a: {persona: x, count: 3}}\n", head + "channels: {a: {subscribe: [b]}}\nagents: {b: x}\n", "kind: Mesh\n", head + "agents: {a-b: c, a_b: d}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		team, err := manifest.Parse("t.yaml", data)
		if err != nil {
			if len(persona.ProblemsOf(err)) == 0 {
				t.Errorf("error without a problem: %v", err)
			}
			return
		}
		names := map[string]bool{}
		for _, a := range team.Agents {
			if wire.ValidateActor(a.Name) != nil || names[a.Name] || a.Persona == "" && a.Agent == "" {
				t.Errorf("agent %+v of %q", a, data)
			}
			names[a.Name] = true
			for _, ch := range a.Subscribe {
				if !contains(a.AllowSubscribe, ch) {
					t.Errorf("agent %+v hears what it may not read, of %q", a, data)
				}
			}
		}
		for _, c := range team.Channels {
			if wire.ValidateChannel(c.Name) != nil || c.Config.Validate() != nil {
				t.Errorf("channel %+v of %q", c, data)
			}
			for _, who := range append(append(c.Subscribe, c.AllowSubscribe...), c.AllowPublish...) {
				if !names[who] {
					t.Errorf("channel %+v names somebody who is not there, of %q", c, data)
				}
			}
		}
	})
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}
