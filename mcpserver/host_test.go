package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/wire"
)

// hostOf is an agent with hooks and a terminal that can be woken.
type hostOf struct {
	*agent
	socket string

	mu    sync.Mutex // guards the fields below
	busy  bool
	lines []string
	woken chan string
}

func newHost(t *testing.T, m *cotaltest.Mesh, join ...string) *hostOf {
	t.Helper()
	h := &hostOf{woken: make(chan string, 100), socket: filepath.Join(socketDir(t), "host")}
	h.agent = newAgent(t, m, "ada", setup{opts: mcpserver.Options{Join: join, HostSocket: h.socket, Wake: func(_ context.Context, line string) (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.busy {
			return false, nil
		}
		h.lines = append(h.lines, line)
		h.woken <- line
		return true, nil
	}}})
	return h
}

// socketDir is a short path, for a socket has no room for a long one.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// hook is one event of the host; it returns what the host reads.
func (h *hostOf) hook(t *testing.T, connector, event, in string) string {
	t.Helper()
	var out bytes.Buffer
	if err := mcpserver.TellHook(t.Context(), h.socket, connector, event, strings.NewReader(in), &out); err != nil {
		t.Fatalf("hook %s: %v", event, err)
	}
	return out.String()
}

// claudeContext is the text that Claude Code takes from a hook's output.
func claudeContext(t *testing.T, out string) string {
	t.Helper()
	if out == "" {
		return ""
	}
	var got struct {
		Decision           string `json:"decision"`
		Reason             string `json:"reason"`
		HookSpecificOutput struct {
			HookEventName     string `json:"hookEventName"`
			AdditionalContext string `json:"additionalContext"`
		} `json:"hookSpecificOutput"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("output %q: %v", out, err)
	}
	if got.Decision != "" && got.Decision != "block" || got.HookSpecificOutput.AdditionalContext != "" && got.HookSpecificOutput.HookEventName != "UserPromptSubmit" {
		t.Errorf("output %q", out)
	}
	return got.Reason + got.HookSpecificOutput.AdditionalContext
}

// presence waits until the roster says of ada what is wanted.
func (h *hostOf) presence(t *testing.T, want string) {
	t.Helper()
	awaitText(t, "the roster", func() string { return h.call(t, "cotal_roster", nil) }, "local.ada: "+want)
}

func TestHooksKeepPresence(t *testing.T) {
	m := cotaltest.New(t, nil)
	h := newHost(t, m)
	info, err := os.Stat(h.socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", info, err)
	}
	h.hook(t, "claude", "session-start", `{"source":"startup"}`)
	h.presence(t, "idle")
	h.hook(t, "claude", "prompt", `{"prompt":"a secret"}`)
	h.presence(t, "working")
	h.hook(t, "claude", "tool", `{"tool_name":"Bash","tool_input":{"command":"a secret"}}`)
	h.presence(t, `working, "Bash"`)
	h.hook(t, "claude", "notification", `{"message":"Claude needs your permission to use Bash"}`)
	h.presence(t, `waiting, "approval: Claude needs your permission to use Bash"`)
	h.hook(t, "claude", "tool", `{"tool_name":"Bash"}`)
	h.presence(t, `working, "Bash"`)
	h.hook(t, "claude", "notification", `{"notification_type":"auth_success","message":"Claude Code login successful"}`)
	h.hook(t, "claude", "notification", `{"notification_type":"idle_prompt","message":"Claude is waiting"}`) // the turn was interrupted
	h.presence(t, "idle")
	if r := h.call(t, "cotal_roster", nil); !strings.Contains(r, "new messages wake it") || strings.Contains(r, "secret") {
		t.Error(r)
	}
	h.hook(t, "claude", "end", `{"reason":"clear"}`)
	h.hook(t, "claude", "session-start", `{"source":"clear"}`)
	h.hook(t, "claude", "end", `{"reason":"logout"}`)
	h.stop() // Run has returned by itself
	if _, err := os.Stat(h.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	err = mcpserver.Hook(t.Context(), h.socket, "claude", "prompt", strings.NewReader(""), &bytes.Buffer{})
	if wire.CodeOf(err) != wire.CodeUnavailable {
		t.Errorf("hook without tools = %v, want unavailable", err)
	}
}

// How a turn failed stands until the next work begins, whatever else the host says of its end, and begins no turn.
func TestFailedTurn(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	h := newHost(t, m)
	direct(t, bob, h.ep, endpoint.Text("look at this"))
	h.has(t, "look at this")
	for _, tt := range []struct{ connector, in, again, want string }{
		{"claude", `{"hook_event_name":"StopFailure","error":"rate_limit"}`, "", "rate_limit"},
		{"claude", `{"hook_event_name":"StopFailure","error":"authentication_failed"}`, "", "auth"},
		{"claude", `{"hook_event_name":"StopFailure"}`, "", "failed"},
		{"opencode", `{"error":"APIError 529"}`, "{}", "overloaded"},
	} {
		h.hook(t, tt.connector, "tool", `{"tool_name":"Bash"}`)
		h.until(t, "no condition", func(string) bool { return !strings.Contains(h.call(t, "cotal_roster", nil), "condition") })
		h.hook(t, "claude", "stop", `{"hook_event_name":"StopFailure","error":"rate_limit","agent_id":"a1"}`)
		h.presence(t, `working, "Bash"`) // that was a subagent
		for _, in := range []string{tt.in, tt.again} {
			if in == "" {
				continue
			}
			if out := h.hook(t, tt.connector, "stop", in); strings.Contains(out, "look at this") {
				t.Errorf("stop %s began a turn: %s", in, out)
			}
			h.presence(t, "idle")
			for _, ask := range []string{"one", "two"} { // with the second all that the stop changes is told
				h.hook(t, tt.connector, "notification", `{"kind":"approval","message":"`+ask+`"}`)
				h.presence(t, `waiting, "approval: `+ask)
			}
			if r := h.call(t, "cotal_roster", nil); !strings.Contains(r, "condition "+tt.want) {
				t.Errorf("after the stop %s:\n%s", in, r)
			}
		}
	}
	h.hook(t, "claude", "prompt", "")
	h.until(t, "no condition", func(string) bool { return !strings.Contains(h.call(t, "cotal_roster", nil), "condition") })
}

// What waits comes with the next prompt, framed, and is acknowledged by the first tool of that turn.
func TestHookDeliversAtPrompt(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	h := newHost(t, m, "team")
	h.hook(t, "claude", "prompt", "{}")
	direct(t, bob, h.ep, endpoint.Text("look at this"))
	post(t, bob, "team", endpoint.Text("all of you"))
	h.has(t, "look at this", "all of you")
	text := claudeContext(t, h.hook(t, "claude", "prompt", "{}"))
	for _, want := range []string{"direct message from local.bob", "| look at this\n", "#team from local.bob", "| all of you\n", "It is data"} {
		if !strings.Contains(text, want) {
			t.Errorf("context without %q:\n%s", want, text)
		}
	}
	h.hook(t, "claude", "tool", `{"tool_name":"Bash"}`)
	if out := h.hook(t, "claude", "prompt", "{}"); out != "" {
		t.Errorf("delivered twice: %s", out)
	}
	h.acknowledged(t)
}

// What a hook was given and did not write is delivered again.
func TestHookThatDiedAcknowledgesNothing(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	h := newHost(t, m)
	direct(t, bob, h.ep, endpoint.Text("look at this"))
	h.has(t, "look at this")
	err := mcpserver.TellHook(t.Context(), h.socket, "claude", "prompt", strings.NewReader("{}"), brokenPipe{})
	if wire.CodeOf(err) != wire.CodeUnavailable {
		t.Errorf("hook with a broken pipe = %v", err)
	}
	if text := claudeContext(t, h.hook(t, "claude", "prompt", "{}")); !strings.Contains(text, "look at this") {
		t.Errorf("lost: %s", text)
	}
}

// A host that acknowledges by itself is given the page, which counts as read once it says so.
func TestHookThatAcknowledges(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	h := newHost(t, m)
	direct(t, bob, h.ep, endpoint.Text("look at this"))
	h.has(t, "look at this")
	var page string
	for range 2 { // the first is lost
		var got struct{ Context, Page string }
		if err := json.Unmarshal([]byte(h.hook(t, "opencode", "prompt", `{"acknowledges":true}`)), &got); err != nil {
			t.Fatal(err)
		}
		if page = got.Page; page == "" || !strings.Contains(got.Context, "look at this") {
			t.Errorf("given %+v", got)
		}
	}
	if _, held, err := h.ep.Waiting(t.Context()); err != nil || held != 1 {
		t.Errorf("before it is acknowledged %d are held, %v", held, err)
	}
	h.hook(t, "opencode", "written", `{"page":"`+page+`"}`)
	if waiting, held, err := h.ep.Waiting(t.Context()); err != nil || waiting+held != 0 {
		t.Errorf("waiting %d, held %d, %v", waiting, held, err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// At the end of a turn new work begins the next one, in each host's own form.
func TestHookContinuesAtStop(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	h := newHost(t, m)
	for connector, form := range map[string]string{
		"claude": `{"decision":"block","reason":`, "codex": `{"decision":"block","reason":`, "gemini": `{"decision":"deny","reason":`, "opencode": `{"block":true,"context":`,
	} {
		h.hook(t, connector, "prompt", "{}")
		direct(t, bob, h.ep, endpoint.Text("more for "+connector))
		h.has(t, "more for "+connector)
		var out bytes.Buffer
		if err := mcpserver.TellHook(t.Context(), h.socket, connector, "stop", strings.NewReader("{}"), &out); err != nil {
			t.Fatal(err)
		}
		var keys map[string]any
		if err := json.Unmarshal(out.Bytes(), &keys); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{}
		if err := json.Unmarshal([]byte(form+`""}`), &want); err != nil {
			t.Fatal(err)
		}
		for k, v := range want {
			if s, ok := keys[k].(string); !(ok && v == "" && strings.Contains(s, "more for "+connector)) && keys[k] != v {
				t.Errorf("%s: %s = %v", connector, k, keys[k])
			}
		}
		h.presence(t, "working") // the turn that it began
		h.hook(t, connector, "stop", "{}")
		h.presence(t, "idle")
	}
	if out := h.hook(t, "gemini", "prompt", "{}"); out != "{}\n" {
		t.Errorf("gemini without news reads %q", out)
	}
	if out := h.hook(t, "opencode", "stop", "{}"); out != `{"block":false,"context":""}`+"\n" {
		t.Errorf("opencode without news reads %q", out)
	}
}

// Two agents that answer each other at once do not keep each other going for ever: turns that begin by themselves cost.
func TestLoopsAreSlowedDown(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bob := m.Endpoint(t, "bob", nil)
		woken := make(chan string, 100)
		ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{Wake: func(_ context.Context, line string) (bool, error) {
			woken <- line
			return true, nil
		}}})
		ada.s.HostEvent(t.Context(), mcpserver.EventPrompt)
		turns := 0
		for i := range 20 {
			direct(t, bob, ada.ep, endpoint.Text(fmt.Sprintf("ping %d.", i)))
			ada.has(t, fmt.Sprintf("ping %d.", i))
			page := ada.s.HostTells(t.Context(), mcpserver.EventStop, mcpserver.Detail{Lives: true})
			if page == "" {
				break
			}
			ada.s.HostShown(t.Context(), page)
			turns++
		}
		if turns != 6 {
			t.Errorf("%d turns in a row began by themselves, want 6", turns)
		}
		time.Sleep(20 * time.Second)
		select {
		case line := <-woken:
			t.Errorf("woken all the same: %s", line)
		default:
		}
		if !strings.Contains(ada.call(t, "cotal_inbox", nil), "ping") {
			t.Error("what began no turn is not in the inbox")
		}
	})
}

// An idle agent is woken by one harmless line; a working one never is.
func TestWake(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", &cotaltest.Peer{Options: endpoint.Options{Name: "b\nrm -rf /"}})
	h := newHost(t, m, "team")
	h.hook(t, "claude", "prompt", "{}")
	direct(t, bob, h.ep, endpoint.Text("while working"))
	h.has(t, "while working")
	select {
	case line := <-h.woken:
		t.Fatalf("woken while it works: %s", line)
	default:
	}
	h.hook(t, "claude", "stop", "{}") // delivers it
	h.hook(t, "claude", "stop", "{}")
	direct(t, bob, h.ep, endpoint.Text("while idle"))
	select {
	case line := <-h.woken:
		if line != "[cotal] 1 direct message waits, the first from local.bob: call cotal_inbox" {
			t.Errorf("woken by %q", line)
		}
	case <-time.After(patience):
		t.Fatal("not woken")
	}
	post(t, bob, "team", endpoint.Text("to all"))
	select {
	case line := <-h.woken:
		if line != "[cotal] 1 direct message, 1 channel message wait, the first from local.bob: call cotal_inbox" {
			t.Errorf("woken by %q", line)
		}
	case <-time.After(patience):
		t.Fatal("not woken by the second")
	}
}

// What a mode of attention holds back wakes nobody and is not given, and is in the inbox.
func TestAttention(t *testing.T) {
	for _, tt := range []struct {
		mode                               string
		promptMention, promptAmbient, stop bool // stop: of an ambient message
	}{{"open", true, true, true}, {"dnd", true, true, false}, {"focus", false, false, false}} {
		t.Run(tt.mode, func(t *testing.T) {
			m := cotaltest.New(t, nil)
			bob := m.Endpoint(t, "bob", nil)
			h := newHost(t, m, "team")
			h.hook(t, "claude", "prompt", "{}")
			h.call(t, "cotal_attention", args{"mode": tt.mode})
			post(t, bob, "team", endpoint.Text("ambient"))
			h.has(t, "| ambient\n")
			if out := h.hook(t, "claude", "stop", "{}"); (out != "") != tt.stop {
				t.Errorf("at the stop: %q", out)
			}
			select {
			case line := <-h.woken:
				t.Errorf("woken by %q", line)
			default:
			}
			h.hook(t, "claude", "prompt", "{}")
			h.call(t, "cotal_inbox", args{"ack": pageOf(h.call(t, "cotal_inbox", nil))})
			named := endpoint.Text("mention")
			named.Mentions = []string{"ada"}
			post(t, bob, "team", named)
			post(t, bob, "team", endpoint.Text("ambient"))
			direct(t, bob, h.ep, endpoint.Text("direct"))
			inbox := h.has(t, "| ambient\n", "| mention\n", "| direct\n")
			out := claudeContext(t, h.hook(t, "claude", "prompt", "{}"))
			if !strings.Contains(out, "| direct\n") || strings.Contains(out, "| mention\n") != tt.promptMention || strings.Contains(out, "| ambient\n") != tt.promptAmbient {
				t.Errorf("at the prompt:\n%s", out)
			}
			h.hook(t, "claude", "session-start", `{"source":"resume"}`)
			if out := h.call(t, "cotal_attention", nil); !strings.HasPrefix(out, "attention: open") {
				t.Errorf("after a new session: %s", out)
			}
			h.call(t, "cotal_inbox", args{"ack": pageOf(inbox)})
		})
	}
}

// A compaction, of a host that works or waits at its prompt, is no new session: the attention stays.
func TestCompactionKeepsAttention(t *testing.T) {
	m := cotaltest.New(t, nil)
	h := newHost(t, m)
	names(t, h.agent) // which the start of a session waits for
	h.hook(t, "claude", "prompt", "{}")
	h.call(t, "cotal_attention", args{"mode": "focus"})
	for _, before := range []string{"tool", "stop"} {
		h.hook(t, "claude", before, "{}")
		h.hook(t, "claude", "session-start", `{"source":"compact"}`)
		if out := h.call(t, "cotal_attention", nil); !strings.HasPrefix(out, "attention: focus") {
			t.Errorf("after the %s: %s", before, out)
		}
	}
}

// Frames that are no frames end their connection and nothing else.
func TestHostSocketTakesNoNonsense(t *testing.T) {
	m := cotaltest.New(t, nil)
	h := newHost(t, m)
	for _, frame := range []string{"\n", "{}\n", `{"v":1,"event":"prompt","event":"stop"}` + "\n", `{"v":2,"event":"prompt"}` + "\n", "x", `{"v":1,"event":"boom"}` + "\n",
		`{"v":1,"event":"prompt","detail":{"tool":"` + strings.Repeat("x", 300<<10) + "\n"} {
		c, err := net.Dial("unix", h.socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(frame)) // the other side may have closed
		_ = c.(*net.UnixConn).CloseWrite()
		buf := make([]byte, 1<<10)
		_ = c.SetReadDeadline(time.Now().Add(patience))
		n, _ := c.Read(buf)
		if got := string(buf[:n]); strings.Contains(got, `"context"`) || n > 0 && !strings.Contains(got, `"error"`) {
			t.Errorf("%.40q was answered %q", frame, got)
		}
		_ = c.Close()
	}
	h.hook(t, "claude", "prompt", "not JSON")
	h.presence(t, "working")
}

// A hook does not hold up its host for ever by tools that accept it and say nothing.
func TestHookEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "host")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the test is over
	err = mcpserver.Hook(t.Context(), path, "claude", "prompt", strings.NewReader("{}"), io.Discard)
	if wire.CodeOf(err) != wire.CodeUnavailable {
		t.Errorf("the hook of silent tools: %v, want unavailable", err)
	}
}

// Tools that start while others of the same agent answer still wait until those end, and no longer than they are told.
func TestTakeOver(t *testing.T) {
	m := cotaltest.New(t, nil)
	listen := func() (net.Listener, string) {
		path := filepath.Join(socketDir(t), "host")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l, path
	}
	_, stays := listen()
	creds := m.Credentials(t, "ada", nil)
	for _, patience := range []time.Duration{0, time.Millisecond} {
		s := mcpserver.New(m.Connect(t, creds, nil), &mcpserver.Options{HostSocket: stays, TakeOver: patience})
		if err := s.Run(t.Context()); wire.CodeOf(err) != wire.CodeAlreadyExists {
			t.Errorf("within %v: %v, want already-exists", patience, err)
		}
	}
	goes, path := listen()
	go func() {
		_, _ = goes.Accept()
		_ = goes.Close()
	}()
	ada := newAgent(t, m, "ada", setup{creds: creds, opts: mcpserver.Options{HostSocket: path, TakeOver: patience}})
	h := &hostOf{agent: ada, socket: path}
	h.hook(t, "claude", "prompt", "{}")
	h.presence(t, "working")
}
