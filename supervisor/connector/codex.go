package connector

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// codex is the Codex CLI. It reads its settings from one folder, CODEX_HOME, which is also where it writes, and takes a persona from
// there alone: the agent has one of its own, with a copy of the user's settings and links to the user's login and instructions. What
// is the agent's lies over the copy as a profile.
type codex struct{}

var _ Connector = codex{}

func (codex) Name() string { return "codex" }

func (codex) Info() Info {
	return Info{
		Name: "codex", Title: "Codex", Program: "codex",
		Install: "npm install -g @openai/codex", Tried: "0.171.0",
		Model: true, Variants: []string{"none", "minimal", "low", "medium", "high", "xhigh"},
		Persona: true, Prompt: true, Tools: true, Hooks: true, Resumes: true,
		Home:      "a CODEX_HOME of the agent's own: a copy of the user's config.toml, links to the login, AGENTS.md, prompts, rules and skills",
		Approvals: "the host's own rules; the tools of the space are allowed",
	}
}

// codexEvents are the host's events, with what they are to the agent's tools.
var codexEvents = []hostEvent{
	{host: "SessionStart", ours: "session-start"},
	{host: "UserPromptSubmit", ours: "prompt"},
	{host: "PreToolUse", ours: "tool"},
	{host: "PermissionRequest", ours: "notification"},
	{host: "Stop", ours: "stop"},
}

// codexProfile is the name of the profile, which is the name of its file.
const codexProfile = "cotal"

// codexShared is what the agent's home leads to in the user's.
var codexShared = []string{"auth.json", "AGENTS.md", "AGENTS.override.md", "prompts", "rules", "skills"}

// Prepare makes the agent's home.
func (c codex) Prepare(_ context.Context, r Request) (Launch, error) {
	info := c.Info()
	program, l, err := r.begin(info)
	if err != nil {
		return Launch{}, err
	}
	home := filepath.Join(r.Dir, info.Name)
	l.Files, err = r.codexHome(home)
	if err != nil {
		return Launch{}, err
	}
	profile := filepath.Join(home, codexProfile+".config.toml")
	l.Files = append(l.Files, File{Path: profile, Data: r.codexConfig(profile)})
	// The shared background server would run the agent outside of its seat, and without its environment.
	flags := []string{"--no-daemon", "--profile", codexProfile, "--cd", r.Cwd}
	l.Argv = append([]string{program}, flags...)
	if ran(r.Dir, info.Name, "sessions", "*", "*", "*", "rollout-*") { // the folder has no other agent's
		l.Argv = append([]string{program, "resume", "--last"}, flags...)
	} else if r.Prompt != "" {
		l.Argv = append(l.Argv, "--", r.Prompt)
	}
	l.Env = merged(l.Env, map[string]string{"CODEX_HOME": home})
	l.PassEnv = []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "OPENAI_ORGANIZATION", "OPENAI_PROJECT"}
	return l, nil
}

// codexHome returns the files of the agent's home that come from the user's.
func (r Request) codexHome(home string) ([]File, error) {
	user := r.getenv("CODEX_HOME")
	if user == "" {
		user = filepath.Join(r.home(), ".codex")
	}
	config := filepath.Join(user, "config.toml")
	data, err := os.ReadFile(config)
	if err != nil && !os.IsNotExist(err) {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "start Codex: read its settings %q: %v: make them readable", config, err)
	}
	// What the user has trusted of the user's own hooks is known by the path of the file: the copy has another.
	mine := filepath.Join(home, "config.toml")
	data = bytes.ReplaceAll(data, []byte(tomlInner(config)+":"), []byte(tomlInner(mine)+":"))
	files := []File{{Path: mine, Data: data, Keep: true}}
	return r.share(files, "codex", user, codexShared), nil
}

// codexConfig is the profile: TOML.
func (r Request) codexConfig(path string) []byte {
	var b strings.Builder
	// Many agents share one installation. A line that is typed to wake the agent is no pasted text, which Enter would not send.
	b.WriteString("check_for_update_on_startup = false\ndisable_paste_burst = true\n")
	for _, o := range []struct{ key, value string }{
		{"model", r.Model}, {"model_reasoning_effort", r.Variant}, {"developer_instructions", r.PersonaText},
	} {
		if o.value != "" {
			fmt.Fprintf(&b, "%s = %s\n", o.key, tomlString(o.value))
		}
	}
	fmt.Fprintf(&b, "\n[mcp_servers.cotal]\ncommand = %s\nargs = [\"mcp\"]\ndefault_tools_approval_mode = \"approve\"\n\n[mcp_servers.cotal.env]\n", tomlString(r.Program))
	for name, value := range r.env() {
		fmt.Fprintf(&b, "%s = %s\n", name, tomlString(value))
	}
	for _, e := range codexEvents {
		cmd := r.hook("codex", e.ours)
		fmt.Fprintf(&b, "\n[[hooks.%s]]\n\n[[hooks.%s.hooks]]\ntype = \"command\"\ncommand = %s\ntimeout = %d\n", e.host, e.host, tomlString(cmd), hookSeconds)
		fmt.Fprintf(&b, "\n[hooks.state.%s]\ntrusted_hash = %s\n", tomlString(path+":"+snake(e.host)+":0:0"), tomlString(codexTrust(e.host, cmd)))
	}
	return []byte(b.String())
}

// codexTrust is what Codex remembers of a hook that its user has reviewed: a digest of the event and the command. Ours is
// reviewed by whoever starts the agent; hooks of anybody else stay as the user left them. A Codex that counts otherwise leaves
// ours out and says so.
func codexTrust(event, command string) string {
	identity, err := plainJSON(object{
		"event_name": snake(event),
		"hooks":      []object{{"type": "command", "command": command, "timeout": hookSeconds, "async": false}},
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(identity)
	return "sha256:" + hex.EncodeToString(sum[:])
}
