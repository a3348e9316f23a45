//go:build linux || darwin

package hosts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/wire"
)

// TestCancelledTurn: a message that a turn begins with is not handled, and is in the next turn, when the turn is cancelled: by Esc before
// the model says something, where the host takes back the prompt, and with Gemini CLI, which takes back all of the turn, after a tool.
func TestCancelledTurn(t *testing.T) {
	for _, tt := range []struct{ host, held string }{
		{"claude", "CANCELLED-MARK"}, {"gemini", "functionResponse"},
	} {
		t.Run(tt.host, func(t *testing.T) {
			c, err := connector.Find(hosts(t), tt.host)
			if err != nil {
				t.Fatal(err)
			}
			a := newAgent(t, c)
			a.m.held = tt.held
			sent := a.tell(t, "CANCELLED-MARK")
			host := a.start(t)
			a.m.await(t, "the turn", func(q asked) bool {
				return strings.Contains(q.body, "CANCELLED-MARK") && strings.Contains(q.body, tt.held)
			})
			if _, err := host.seat.Type(t.Context(), []byte("\x1b")); err != nil {
				t.Fatal(err)
			}
			select {
			case <-a.m.dropped:
			case <-time.After(patience):
				t.Fatal("the turn is not cancelled")
			}
			close(a.m.answers)
			a.stage(t, sent, wire.StageHanded)
			close(a.m.finish)
			if _, err := host.seat.Type(t.Context(), []byte("\x15")); err != nil { // the prompt that the host puts back
				t.Fatal(err)
			}
			a.goesOn(t, host, "CANCELLED-MARK")
			a.stage(t, sent, wire.StageHandled)
			host.end(t)
		})
	}
}

// TestNestedHost: another process of the host's program, which the agent starts in its shell, is not the agent: it is told nothing of what is
// for the agent, and the agent's tools, hooks and conversation are as before.
func TestNestedHost(t *testing.T) {
	for host, tt := range map[string]struct{ tool, args string }{
		"opencode": {"bash", "run --model %s"}, "gemini": {"run_shell_command", "--model=%s -p"},
	} {
		t.Run(host, func(t *testing.T) {
			c, err := connector.Find(hosts(t), host)
			if err != nil {
				t.Fatal(err)
			}
			a := newAgent(t, c)
			program, err := filepath.Abs(filepath.Join("node_modules", ".bin", c.Info().Program))
			if err != nil {
				t.Fatal(err)
			}
			command := program + " " + fmt.Sprintf(tt.args, a.user.model) + " " + nestedMark
			args, err := json.Marshal(map[string]string{"command": command, "description": "ask another"})
			if err != nil {
				t.Fatal(err)
			}
			a.m.tool, a.m.args, a.m.held = tt.tool, string(args), "PROMPT-MARK"
			seat := a.start(t)
			a.m.await(t, "the first turn", func(q asked) bool { return q.answer == "call" })
			sent := a.tell(t, "AGENT-MARK")
			a.stage(t, sent, wire.StageHanded)
			kept := filepath.Join(a.req.Dir, host, "session")
			before, _ := os.ReadFile(kept) // that of OpenCode
			close(a.m.answers)
			a.m.await(t, "the end of the first turn", func(q asked) bool { return q.answer == "end" })
			all, _ := a.m.requests()
			nested := false
			for _, q := range all {
				if strings.Contains(q.body, "PROMPT-MARK") || !strings.Contains(q.body, nestedMark) {
					continue
				}
				nested = true
				if strings.Contains(q.body, "AGENT-MARK") {
					t.Error("the other process has the agent's message")
				}
			}
			if !nested {
				t.Error("the other process did not ask its model")
			}
			if after, _ := os.ReadFile(kept); string(after) != string(before) || host == "opencode" && len(after) == 0 {
				t.Errorf("the agent's session is kept as %q, was %q", after, before)
			}
			close(a.m.finish)
			a.m.await(t, "a turn of the agent with the message", func(q asked) bool {
				return strings.Contains(q.body, "PROMPT-MARK") && strings.Contains(q.body, "AGENT-MARK")
			})
			a.stage(t, sent, wire.StageHandled)
			seat.end(t)
		})
	}
}

// tell sends the agent a direct message and returns its id.
func (a *agent) tell(t *testing.T, text string) string {
	t.Helper()
	r, err := a.watcher.Direct(t.Context(), a.who, endpoint.Text(text))
	if err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// goesOn begins the next turn of the agent and waits until it has a message, which its hooks or the conversation bring.
func (a *agent) goesOn(t *testing.T, host *terminal, text string) {
	t.Helper()
	host.line(t, "Go on, AGAIN-MARK")
	next := a.m.await(t, "the next turn", func(q asked) bool { return q.tool != "" && strings.Contains(q.body, "AGAIN-MARK") })
	if !strings.Contains(next.body, text) {
		t.Errorf("the next turn does not have %s", text)
	}
}

// stage waits until a message has got to a stage, and fails when it is beyond.
func (a *agent) stage(t *testing.T, id string, want wire.Stage) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := a.watcher.Receipt(t.Context(), wire.ReceiptRequest{ID: id})
		if err != nil || len(r.Recipients) != 1 {
			t.Fatalf("receipt %+v, %v", r, err)
		}
		got := r.Recipients[0].Stage
		if got == want {
			return
		}
		if got == wire.StageHandled {
			t.Fatalf("the message is %s, want %s", got, want)
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the message is %s, want %s", got, want)
		}
	}
}
