package mcpserver_test

import (
	"strings"
	"testing"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
)

// Another process of the agent's host, which the agent has started, is given nothing, changes nothing and ends nothing.
func TestHooksOfAnotherSession(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	h := newHost(t, m)
	if _, err := h.ListTools(t.Context(), nil); err != nil { // which the start of a session waits for
		t.Fatal(err)
	}
	h.hook(t, "gemini", "session-start", `{"session_id":"ours","source":"startup"}`)
	h.hook(t, "gemini", "prompt", `{"session_id":"ours"}`)
	h.hook(t, "gemini", "tool", `{"session_id":"ours","tool_name":"run_shell_command"}`)
	direct(t, bob, h.ep, endpoint.Text("for the agent"))
	h.has(t, "for the agent")
	for _, connector := range []string{"gemini", "opencode", "claude"} {
		other := `{"session_id":"of ` + connector + `","source":"startup","tool_name":"theirs","reason":"exit"}`
		want := map[string]string{"gemini": "{}\n", "opencode": `{"block":false,"context":"","other":true}` + "\n"}[connector]
		for _, event := range []string{"session-start", "prompt", "tool", "notification", "stop", "end"} {
			if out := h.hook(t, connector, event, other); out != want {
				t.Errorf("%s %s is answered %q, want %q", connector, event, out, want)
			}
		}
	}
	late := `{"session_id":"late"}` // one whose start nobody heard, while the agent works
	for _, event := range []string{"prompt", "end"} {
		if out := h.hook(t, "gemini", event, late); out != "{}\n" {
			t.Errorf("%s of a session without a start is answered %q", event, out)
		}
	}
	h.presence(t, `working, "run_shell_command"`)
	if out := h.hook(t, "gemini", "stop", `{"session_id":"ours","prompt_response":"done"}`); !strings.Contains(out, "for the agent") {
		t.Errorf("the agent's own end of a turn is answered %q", out)
	}
	h.hook(t, "gemini", "stop", `{"session_id":"ours","prompt_response":"done"}`)
	h.presence(t, "idle")
	if out := h.hook(t, "gemini", "prompt", late); out != "{}\n" {
		t.Errorf("prompt of a session that is another's is answered %q", out)
	}
	h.presence(t, "idle")
}

// The host goes on with another session after a clear or a resume, also where it tells only of the next prompt.
func TestHooksFollowTheHost(t *testing.T) {
	m := cotaltest.New(t, nil)
	h := newHost(t, m)
	if _, err := h.ListTools(t.Context(), nil); err != nil { // which the start of a session waits for
		t.Fatal(err)
	}
	h.hook(t, "claude", "session-start", `{"session_id":"one","source":"startup"}`)
	h.hook(t, "claude", "prompt", `{"session_id":"one"}`)
	h.hook(t, "claude", "end", `{"session_id":"one","reason":"clear"}`)
	h.hook(t, "claude", "session-start", `{"session_id":"two","source":"clear"}`)
	h.presence(t, "idle")
	h.hook(t, "claude", "tool", `{"session_id":"two","tool_name":"Bash"}`)
	h.presence(t, `working, "Bash"`)
	h.hook(t, "claude", "stop", `{"session_id":"two"}`)
	h.hook(t, "gemini", "prompt", `{"session_id":"three"}`)
	h.presence(t, "working")
	h.hook(t, "gemini", "stop", `{"session_id":"three"}`)
	h.presence(t, "idle")
	h.hook(t, "claude", "session-start", `{"session_id":"one","source":"resume"}`)
	h.hook(t, "claude", "tool", `{"session_id":"one","tool_name":"Read"}`)
	h.presence(t, `working, "Read"`)
	h.hook(t, "claude", "end", `{"session_id":"one","reason":"logout"}`)
	h.stop()
}
