package connector

import (
	"context"
	"path/filepath"
)

// claude is Claude Code. All that it is given goes by flags, which lie over the user's own settings and write none of them.
type claude struct{}

var _ Connector = claude{}

func (claude) Name() string { return "claude" }

func (claude) Info() Info {
	return Info{
		Name: "claude", Title: "Claude Code", Program: "claude",
		Install: "npm install -g @anthropic-ai/claude-code", Tried: "2.1.332",
		Model: true, Variants: []string{"low", "medium", "high", "xhigh", "max"},
		Persona: true, Prompt: true, Tools: true, Hooks: true, Resumes: true,
		Home:      "the user's settings and login; MCP servers are those of the space alone",
		Approvals: "the host's own rules; the tools of the space are allowed",
	}
}

// claudeEvents are the host's events, with what they are to the agent's tools. Those of tools have a matcher.
var claudeEvents = []hostEvent{
	{host: "SessionStart", ours: "session-start"},
	{host: "UserPromptSubmit", ours: "prompt"},
	{host: "PreToolUse", ours: "tool", matcher: "*"},
	{host: "Notification", ours: "notification"},
	{host: "Stop", ours: "stop"},
	{host: "StopFailure", ours: "stop"}, // instead, when the model's provider refused
	{host: "SessionEnd", ours: "end"},
}

// hostEvent is one event of a host that has a hook.
type hostEvent struct{ host, ours, matcher string }

// Prepare lays the tools, the hooks and the persona over the user's settings by files named in flags.
func (c claude) Prepare(_ context.Context, r Request) (Launch, error) {
	info := c.Info()
	program, l, err := r.begin(info)
	if err != nil {
		return Launch{}, err
	}
	// Without alwaysLoad the model would have to search for the tools. The first turn waits for them in the hook of SessionStart.
	tools := r.file("claude/mcp.json", encode(object{"mcpServers": object{"cotal": object{
		"type": "stdio", "command": r.Program, "args": []string{"mcp"}, "env": r.env(), "alwaysLoad": true,
	}}}))
	settings := r.file("claude/settings.json", encode(object{
		"hooks":       r.commandHooks(info.Name, claudeEvents, hookSeconds),
		"permissions": object{"allow": []string{"mcp__cotal"}},
	}))
	l.Files = []File{tools, settings}
	l.Argv = []string{program, "--mcp-config", tools.Path, "--strict-mcp-config", "--settings", settings.Path}
	if r.PersonaText != "" {
		persona := r.file("claude/persona.md", []byte(r.PersonaText))
		l.Files = append(l.Files, persona)
		l.Argv = append(l.Argv, "--append-system-prompt-file", persona.Path)
	}
	if r.Model != "" {
		l.Argv = append(l.Argv, "--model", r.Model)
	}
	if r.Variant != "" {
		l.Argv = append(l.Argv, "--effort", r.Variant)
	}
	if r.claudeRan() {
		l.Argv = append(l.Argv, "--resume", r.sessionID())
	} else {
		l.Argv = append(l.Argv, "--session-id", r.sessionID())
		if r.Prompt != "" {
			l.Argv = append(l.Argv, "--", r.Prompt)
		}
	}
	l.Env = merged(l.Env, map[string]string{"DISABLE_AUTOUPDATER": "1"}) // many agents share one installation
	l.PassEnv = []string{
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR",
	}
	return l, nil
}

// hookSeconds bounds one hook. The command behind it gives up sooner.
const hookSeconds = 10

// commandHooks returns the hooks of a host in the form that several of them share.
func (r Request) commandHooks(connector string, events []hostEvent, timeout int) object {
	hooks := object{}
	for _, e := range events {
		group := object{"hooks": []object{{"type": "command", "command": r.hook(connector, e.ours), "timeout": timeout}}}
		if e.matcher != "" {
			group["matcher"] = e.matcher
		}
		hooks[e.host] = []object{group}
	}
	return hooks
}

// claudeRan reports whether the host has kept a conversation of this agent, which resuming needs.
func (r Request) claudeRan() bool {
	home := r.getenv("CLAUDE_CONFIG_DIR")
	if home == "" {
		home = filepath.Join(r.home(), ".claude")
	}
	return ran(home, "projects", "*", r.sessionID()+".jsonl")
}
