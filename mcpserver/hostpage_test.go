package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/wire"
)

// What a host may have dropped with its turn is given again, and says so; what it keeps is acknowledged and not given twice.
func TestHostThatDropsItsTurn(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		connector string
		event, in string
		kept      bool
	}{
		"nothing":                     {"claude", "", "", false},
		"a tool":                      {"claude", "tool", `{"tool_name":"Bash"}`, true},
		"a tool of a subagent":        {"claude", "tool", `{"tool_name":"Bash","agent_id":"a1"}`, false},
		"the end":                     {"claude", "stop", `{"hook_event_name":"Stop"}`, true},
		"a failure":                   {"claude", "stop", `{"hook_event_name":"StopFailure","error":"rate_limit"}`, false},
		"the prompt":                  {"claude", "notification", `{"notification_type":"idle_prompt"}`, false},
		"another session":             {"claude", "session-start", `{"source":"clear"}`, false},
		"the end of Codex":            {"codex", "stop", `{}`, true},
		"a tool of Gemini":            {"gemini", "tool", `{"tool_name":"ls"}`, false}, // it takes that back, too
		"the end of Gemini":           {"gemini", "stop", `{"prompt_response":"done"}`, true},
		"a cancelled turn of Gemini":  {"gemini", "stop", `{"prompt_response":"[no response text]"}`, false},
		"a turn of Gemini on record":  {"gemini", "stop", `{"prompt_response":"done","transcript_path":"` + dir + `/kept"}`, true},
		"a turn of Gemini taken back": {"gemini", "stop", `{"prompt_response":"don","transcript_path":"` + dir + `/cancelled"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := cotaltest.New(t, nil)
			bob := m.Endpoint(t, "bob", nil)
			h := newHost(t, m)
			if _, err := h.ListTools(t.Context(), nil); err != nil { // which the start of a session waits for
				t.Fatal(err)
			}
			h.hook(t, tt.connector, "prompt", "{}")
			direct(t, bob, h.ep, endpoint.Text("look at this"))
			h.has(t, "look at this")
			first := h.hook(t, tt.connector, "prompt", "{}")
			if !strings.Contains(first, "look at this") || strings.Contains(first, "handed out before") {
				t.Fatalf("the turn begins with %q", first)
			}
			record(t, dir, first)
			if tt.event != "" {
				if out := h.hook(t, tt.connector, tt.event, tt.in); strings.Contains(out, "look at this") {
					t.Errorf("%s was answered %s", tt.event, out)
				}
			}
			again := h.hook(t, tt.connector, "prompt", "{}")
			if given := strings.Contains(again, "look at this"); given == tt.kept || given && !strings.Contains(again, ", handed out before:") {
				t.Errorf("the next turn begins with %q", again)
			}
			if _, held, err := h.ep.Waiting(t.Context()); !tt.kept && (err != nil || held != 1) {
				t.Errorf("%d are held until the turn comes to something, want 1: %v", held, err)
			}
			h.hook(t, "codex", "stop", "{}")
			h.acknowledged(t)
		})
	}
}

// acknowledged waits until the broker has heard that all messages were.
func (h *hostOf) acknowledged(t *testing.T) {
	t.Helper()
	awaitText(t, "the broker", func() string {
		waiting, held, err := h.ep.Waiting(t.Context())
		return fmt.Sprintf("waiting %d, held %d, %v", waiting, held, err)
	}, "waiting 0, held 0, <nil>")
}

// record writes what Gemini CLI keeps of a conversation with a prompt: as it was, and after the turn was cancelled.
func record(t *testing.T, dir, prompt string) {
	t.Helper()
	entry, err := json.Marshal(map[string]any{"type": "user", "content": []any{map[string]any{"text": claudeContextOf(prompt)}}})
	if err != nil {
		t.Fatal(err)
	}
	kept := `{"$set":{"messages":[]}}` + "\n" + string(entry) + "\n" + `{"type":"gemini","content":"done"}` + "\n"
	for name, text := range map[string]string{"kept": kept, "cancelled": kept + `{"$set":{"messages":[{"type":"user"}]}}` + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// claudeContextOf is the text that a host takes from the output of the hook of a prompt.
func claudeContextOf(out string) string {
	var got struct {
		HookSpecificOutput struct {
			AdditionalContext string `json:"additionalContext"`
		} `json:"hookSpecificOutput"`
	}
	_ = json.Unmarshal([]byte(out), &got) // the empty text is not found
	return got.HookSpecificOutput.AdditionalContext
}

// A turn that takes an hour until it calls a tool costs its messages no attempt.
func TestShownPageWaits(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bob := m.Endpoint(t, "bob", nil)
		ada := newAgent(t, m, "ada", setup{})
		sent := direct(t, bob, ada.ep, endpoint.Text("read me"))
		ada.has(t, "read me")
		ada.s.HostShown(t.Context(), ada.s.HostEvent(t.Context(), mcpserver.EventPrompt))
		time.Sleep(time.Hour)
		r, err := bob.Receipt(t.Context(), wire.ReceiptRequest{ID: sent.ID})
		if err != nil || r.Recipients[0].Stage == wire.StageHandled || r.Recipients[0].Attempts > 1 {
			t.Errorf("receipt after an hour %+v, %v", r, err)
		}
		ada.s.HostTells(t.Context(), mcpserver.EventTool, mcpserver.Detail{Tool: "Bash", Lives: true})
		synctest.Wait()
		r, err = bob.Receipt(t.Context(), wire.ReceiptRequest{ID: sent.ID})
		if err != nil || r.Recipients[0].Stage != wire.StageHandled || r.Recipients[0].Attempts > 1 {
			t.Errorf("receipt after the tool %+v, %v; want handled at the first attempt", r, err)
		}
	})
}

// What a cancelled turn began with does not begin the next by itself at once, and not for ever.
func TestDroppedTurnWakesLater(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bob := m.Endpoint(t, "bob", nil)
		begun, woken := time.Now(), []time.Duration{}
		var ada *agent
		drop := func() {
			ada.s.HostShown(t.Context(), ada.s.HostEvent(t.Context(), mcpserver.EventPrompt))
			if page := ada.s.HostTells(t.Context(), mcpserver.EventStop, mcpserver.Detail{Dropped: true}); page != "" {
				t.Errorf("the end of a cancelled turn begins another with page %s", page)
			}
		}
		turns := make(chan struct{}, 10)
		ada = newAgent(t, m, "ada", setup{opts: mcpserver.Options{Wake: func(context.Context, string) (bool, error) {
			woken = append(woken, time.Since(begun).Round(time.Second))
			turns <- struct{}{}
			return true, nil
		}}})
		ada.s.HostEvent(t.Context(), mcpserver.EventPrompt)
		direct(t, bob, ada.ep, endpoint.Text("read me"))
		ada.has(t, "read me")
		drop()
		end := time.After(90 * time.Minute)
		for {
			select {
			case <-turns:
				drop()
				continue
			case <-end:
			}
			break
		}
		synctest.Wait()
		if len(woken) < 4 || len(woken) > 6 || woken[0] != time.Minute || woken[len(woken)-1] < 15*time.Minute {
			t.Errorf("woken at %v", woken)
		}
	})
}
