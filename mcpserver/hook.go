package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// HookWithin bounds how long a hook holds up its host; StartWithin does for EventSessionStart, which waits for the tools to be there.
const (
	HookWithin  = 2 * time.Second
	StartWithin = 8 * time.Second
)

// maxHookInput bounds what a host may tell its hook, in bytes. More of it is of no interest.
const maxHookInput = 4 << 20

// Hook tells the tools of an agent, which listen at socket, of one event of its host: in is what the host gave the hook, out what the
// host reads of it. What is written there is acknowledged once a later event shows that the host keeps it: a tool of that turn or its end;
// until then the next turn begins with it again. Connector is the host: claude, codex, gemini,
// opencode; another is answered as opencode is, with {"context": …, "block": …}. A host that knows when its conversation has that says
// {"acknowledges": true}: it is given "page" too, and acknowledges it by the event written, with {"page": …}.
//
// A host says by {"session_id": …} which of its processes it is: those of another than the agent's, such as one that the agent has
// started itself, change nothing and are given nothing; one that is answered as opencode is reads {"other": true}.
//
// It takes at most HookWithin, and at the start of a session StartWithin: some hosts begin their tools and their first turn at the
// same time, and the turn would have no tools. Errors: unavailable when nobody listens or answers; bad-request for an event or input that is malformed.
// Nothing was written then, or what was written is shown again.
func Hook(ctx context.Context, socket, connector, event string, in io.Reader, out io.Writer) error {
	within := HookWithin
	if event == EventSessionStart {
		within = StartWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return tellHook(ctx, socket, connector, event, in, out)
}

// tellHook is [Hook] for as long as ctx lasts.
func tellHook(ctx context.Context, socket, connector, event string, in io.Reader, out io.Writer) error {
	h, err := readInput(ctx, event, in)
	if err != nil || event == EventStop && h.AgentID != "" { // a subagent's turn, while that of the agent goes on
		return err
	}
	detail := h.detail(connector, event)
	c, err := dialHost(ctx, socket, event == EventSessionStart)
	if err != nil {
		return wire.Errorf(wire.CodeUnavailable, "tell hook event %q: %v", event, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		_ = c.Close() // both sides know by now
	}()
	r := bufio.NewReader(c)
	req := hookRequest{V: hookVersion, Event: event, Detail: detail, Page: claim(h.Page, maxName)}
	if connector != "codex" { // its hooks are of a profile that no process inherits
		req.Session = claim(h.SessionID, maxName)
	}
	reply, err := exchange(c, r, req)
	if err != nil {
		return err
	}
	if text := hostReply(connector, event, reply, h.Acknowledges); text != "" {
		if _, err := io.WriteString(out, text); err != nil {
			return wire.Errorf(wire.CodeUnavailable, "write reply of hook: %v", err)
		}
	}
	if reply.Page == "" || h.Acknowledges {
		return nil
	}
	_, err = exchange(c, r, hookRequest{V: hookVersion, Event: eventWritten, Page: reply.Page, Shown: true})
	return err
}

// redial is the pause between tries to reach tools that are still starting.
const redial = 20 * time.Millisecond

// dialHost connects to the tools; with wait it tries until ctx ends.
func dialHost(ctx context.Context, socket string, wait bool) (net.Conn, error) {
	var d net.Dialer
	tick := time.NewTicker(redial)
	defer tick.Stop()
	for {
		c, err := d.DialContext(ctx, "unix", socket)
		if err == nil || !wait {
			return c, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

func exchange(c net.Conn, in *bufio.Reader, req hookRequest) (hookReply, error) {
	data, err := json.Marshal(req)
	if err != nil {
		return hookReply{}, wire.Errorf(wire.CodeBadRequest, "encode hook event %q: %v", req.Event, err)
	}
	if _, err := c.Write(append(data, '\n')); err != nil {
		return hookReply{}, wire.Errorf(wire.CodeUnavailable, "tell hook event %q: %v", req.Event, err)
	}
	var reply hookReply
	if err := readFrame(in, &reply); err != nil {
		return hookReply{}, wire.Errorf(wire.CodeUnavailable, "hear about hook event %q: %v", req.Event, err)
	}
	if reply.Error != "" {
		return hookReply{}, wire.Errorf(wire.CodeBadRequest, "tell hook event %q: %s", req.Event, claim(reply.Error, maxName))
	}
	return reply, nil
}

// hostInput are the fields of what hosts give their hooks that mean something here. Prompts, arguments and results are passed over; of
// what the model said only whether it did is looked at.
type hostInput struct {
	SessionID        string          `json:"session_id"`
	Source           string          `json:"source"`
	ToolName         string          `json:"tool_name"`
	Tool             string          `json:"tool"`
	Kind             string          `json:"kind"`
	NotificationType string          `json:"notification_type"`
	HookEventName    string          `json:"hook_event_name"`
	AgentID          string          `json:"agent_id"` // of a subagent
	Message          string          `json:"message"`
	Error            json.RawMessage `json:"error"`
	Reason           string          `json:"reason"`
	Acknowledges     bool            `json:"acknowledges"`
	Page             string          `json:"page"` // with eventWritten
	PromptResponse   *string         `json:"prompt_response"`
	TranscriptPath   string          `json:"transcript_path"`
}

// readInput reads what the host says, until ctx ends: a host that leaves its pipe open must not hold up its own hook.
func readInput(ctx context.Context, event string, in io.Reader) (hostInput, error) {
	type read struct {
		data []byte
		err  error
	}
	done := make(chan read, 1)
	go func() { // ends with the pipe, or the process of the hook
		data, err := io.ReadAll(io.LimitReader(in, maxHookInput))
		done <- read{data, err}
	}()
	var got read
	select {
	case got = <-done:
	case <-ctx.Done():
		return hostInput{}, wire.Errorf(wire.CodeUnavailable, "read input of hook event %q: the host does not end it", event)
	}
	if got.err != nil {
		return hostInput{}, wire.Errorf(wire.CodeUnavailable, "read input of hook event %q: %v", event, got.err)
	}
	var h hostInput
	if text := strings.TrimSpace(string(got.data)); text != "" {
		if err := json.Unmarshal([]byte(text), &h); err != nil { // hosts are of many minds: a field of another type is as good as none
			h = hostInput{}
		}
	}
	return h, nil
}

func (h hostInput) detail(connector, event string) Detail {
	d := Detail{}
	switch event {
	case EventSessionStart:
		d.Source = claim(h.Source, maxName)
	case EventTool:
		d.Tool = claim(h.ToolName+h.Tool, maxName)
		d.Lives = h.AgentID == "" && connector != "gemini" // which takes a whole turn back when it is cancelled
	case EventNotification:
		d.Kind, d.Message = h.kind(), claim(h.Message, maxActivity)
	case EventStop:
		d.Error = claim(strings.Trim(string(h.Error), `"`), maxName)
		if d.Error == "null" || d.Error == "false" {
			d.Error = ""
		}
		if d.Error == "" && h.HookEventName == "StopFailure" {
			d.Error = "unknown"
		}
		d.Lives = d.Error == ""
		if connector == "gemini" {
			h.geminiStop(&d)
		}
	case EventEnd:
		d.Reason = claim(h.Reason, maxName)
	}
	return d
}

// news are the notifications of Claude Code that ask for nothing.
var news = []string{
	"agent_completed", "auth_success", "computer_use_exit", "elicitation_complete", "elicitation_response", "plugin_notification", "push_notification",
}

// kind says what a host waits for. One that says nothing of it waits for leave to do something.
func (h hostInput) kind() string {
	switch {
	case h.Kind == KindInput, h.NotificationType == "idle_prompt", strings.Contains(strings.ToLower(h.Message), "waiting for your input"):
		return KindInput
	case slices.Contains(news, h.NotificationType):
		return KindNews
	}
	return KindApproval
}

// hostEvents are what hosts call the events that can carry context.
var hostEvents = map[string]map[string]string{
	"claude": {EventPrompt: "UserPromptSubmit"},
	"codex":  {EventPrompt: "UserPromptSubmit"},
	"gemini": {EventPrompt: "BeforeAgent"},
}

// hostReply is what the host reads: its own form, or with the page when it acknowledges that itself. Empty: nothing is to be said.
func hostReply(connector, event string, r hookReply, acknowledges bool) string {
	names, known := hostEvents[connector]
	var v any
	switch {
	case acknowledges && r.Page != "":
		v = map[string]any{"context": r.Context, "block": r.Block, "page": r.Page}
	case !known && r.Other:
		v = map[string]any{"context": "", "block": false, "other": true}
	case !known:
		v = map[string]any{"context": r.Context, "block": r.Block}
	case r.Context == "" && connector == "gemini":
		v = struct{}{} // it wants an object
	case r.Context == "":
		return ""
	case event == EventStop && connector == "gemini":
		v = map[string]any{"decision": "deny", "reason": r.Context}
	case event == EventStop:
		v = map[string]any{"decision": "block", "reason": r.Context}
	default:
		v = map[string]any{"hookSpecificOutput": map[string]any{"hookEventName": names[event], "additionalContext": r.Context}}
	}
	data, err := json.Marshal(v)
	if err != nil {
		return "" // maps of strings have a JSON form
	}
	return string(data) + "\n"
}
