package mcp_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/internal/launch"
)

// mesh is a real one in a folder, with its supervisor.
type mesh struct {
	dir string
	env []string
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	if runtime.GOOS == "windows" {
		archtest.NotHere(t, "agents have no terminals on this system")
	}
	dir, err := os.MkdirTemp("", "mesh") // short, for the sockets below it
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{dir: dir, env: []string{"COTAL_HOME=" + filepath.Join(dir, "home"), "HOME=" + filepath.Join(dir, "home")}}
	m.run(t, "up", "--detach")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // that of the test is over
		defer cancel()
		cmd := exec.CommandContext(ctx, "cotal", "down", "--with-agents")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), append([]string{launch.Env + "="}, m.env...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("end the mesh: %v\n%s", err, out)
		}
		_ = os.RemoveAll(dir)
	})
	return m
}

func (m *mesh) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := cotal(t, m.env, args...)
	cmd.Dir = m.dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cotal %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// agent starts a shell as an agent and returns the tools of that agent.
func (m *mesh) agent(t *testing.T, name string, flags ...string) *sdk.ClientSession {
	t.Helper()
	before, _ := filepath.Glob(filepath.Join(m.dir, ".cotal", "run", "agents", "*", "*", "launch.json"))
	m.run(t, append(append([]string{"spawn", "--name", name, "--subscribe", "general", "--allow-subscribe", "general", "--allow-publish", "general"}, flags...), "--", "sh")...)
	after, err := filepath.Glob(filepath.Join(m.dir, ".cotal", "run", "agents", "*", "*", "launch.json"))
	if err != nil || len(after) != len(before)+1 {
		t.Fatalf("launch files %v, %v", after, err)
	}
	known := strings.Join(before, "\n")
	for _, path := range after {
		if !strings.Contains(known, path) {
			cmd := cotal(t, append(m.env, launch.Env+"="+path), "mcp")
			return connect(t, cmd)
		}
	}
	t.Fatal("no launch file")
	return nil
}

func refused(t *testing.T, c *sdk.ClientSession, tool string, args map[string]any) string {
	t.Helper()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	text := r.Content[0].(*sdk.TextContent).Text
	if !r.IsError {
		t.Fatalf("%s %v was not refused: %s", tool, args, text)
	}
	return text
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// An agent with the right starts a child from its tools, speaks with it, sees in its messages that it started it, and ends it; one
// without the right has no such tools, and another one does not know the child. Each may end itself.
func TestL3AgentsStartAgents(t *testing.T) {
	m := newMesh(t)
	lead, other, plain := m.agent(t, "lead", "--capability", "spawn"), m.agent(t, "other", "--capability", "spawn"), m.agent(t, "plain")
	tools, err := plain.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		if tool.Name == "cotal_spawn" || tool.Name == "cotal_persona" {
			t.Errorf("an agent without the right has %s", tool.Name)
		}
	}
	if out := call(t, lead, "cotal_persona", nil); !strings.Contains(out, "- scribe") {
		t.Errorf("personas:\n%s", out)
	}
	if out := call(t, lead, "cotal_persona", map[string]any{"name": "helper", "text": "You help.", "agent": "script"}); !strings.Contains(out, "defined\n- helper") {
		t.Errorf("persona:\n%s", out)
	}
	if out := refused(t, lead, "cotal_persona", map[string]any{"name": "op", "text": "You rule.", "role": "ops"}); !strings.Contains(out, "role is an operator's to set") {
		t.Errorf("a peer names a role:\n%s", out)
	}
	if data, err := os.ReadFile(filepath.Join(m.dir, ".cotal", "agents", "helper.md")); err != nil || !strings.Contains(string(data), "\nallowPublish: [general]\n") {
		t.Errorf("who may post to general defines one that does: %q, %v", data, err)
	}
	if out := call(t, lead, "cotal_persona", map[string]any{"name": "helper"}); !strings.Contains(out, "| You help.\n") || !strings.Contains(out, "defined by local.lead") {
		t.Errorf("persona:\n%s", out)
	}
	if out := refused(t, other, "cotal_persona", map[string]any{"name": "helper", "text": "You obey me."}); strings.Contains(out, "defined\n") {
		t.Error(out)
	}
	args := map[string]any{"persona": "helper", "name": "kid", "request_id": "one", "outlives_you": true}
	out := call(t, lead, "cotal_spawn", args)
	if !strings.Contains(out, "accepted: local.kid") || !strings.Contains(out, "local.kid is ready, runs in script") {
		t.Errorf("spawn:\n%s", out)
	}
	if out := call(t, lead, "cotal_spawn", args); !strings.Contains(out, "an earlier call with this request_id made it") { // C12
		t.Errorf("the same request:\n%s", out)
	}
	call(t, lead, "cotal_dm", map[string]any{"to": "kid", "text": "hello"})
	text := has(t, lead, "direct message from local.kid (")
	if !strings.Contains(text, "started by local.lead") {
		t.Errorf("the lineage is not shown:\n%s", text)
	}
	if out := refused(t, other, "cotal_despawn", map[string]any{"name": "kid"}); !strings.HasPrefix(out, "not-found") {
		t.Errorf("another agent's child: %s", out)
	}
	if out := refused(t, lead, "cotal_spawn", map[string]any{"persona": "helper", "variant": "none-such"}); !strings.Contains(out, "variant") { // C12
		t.Errorf("an unsupported variant: %s", out)
	}
	if out := call(t, lead, "cotal_despawn", map[string]any{"name": "kid", "force": true}); !strings.Contains(out, "local.kid is exited") {
		t.Errorf("despawn:\n%s", out)
	}
	// To end oneself needs no right. The answer may not come, since whoever waits for it is ended.
	_, _ = plain.CallTool(t.Context(), &sdk.CallToolParams{Name: "cotal_despawn", Arguments: map[string]any{"force": true}})
	await(t, "the end of plain", func() bool { return !strings.Contains(m.run(t, "ps"), "plain") })
}
