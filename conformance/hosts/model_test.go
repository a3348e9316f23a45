//go:build linux || darwin

package hosts_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// asked is one request of a host for an answer of the model.
type asked struct {
	path   string
	body   string   // as sent
	tool   string   // the name under which the host offers the tool to call; empty when it does not
	answer string   // call, end or text
	names  []string // of all tools that are offered
}

// model answers where the providers of models would. To a request that offers the tool, cotal_send if no other is set, it answers with one call of
// it, and when the result of that is there it ends the turn.
type model struct {
	*httptest.Server
	tool, args string // the end of the name of the tool, and its arguments in JSON
	// finish is closed when the turn of the call may end, so that there is time to see the host at work.
	finish chan struct{}
	// refuse answers that the request is bad.
	refuse atomic.Bool
	// held marks requests that are not answered before answers is closed. One that the host gives up instead is in dropped.
	held    string
	answers chan struct{}
	dropped chan struct{}

	mu    sync.Mutex
	asked []asked
	more  chan struct{} // closed and made anew at each request
}

// nestedMark is in what a host is asked that another host has started: it is answered at once.
const nestedMark = "NESTED-MARK"

// callID marks the call in the conversation: a request that has it is told of the result.
const callID = "toolu_cotal0001"

func newModel(t *testing.T, text string) *model {
	args, _ := json.Marshal(map[string]string{"channel": "general", "text": text})
	m := &model{tool: "cotal_send", args: string(args), more: make(chan struct{}), finish: make(chan struct{}), answers: make(chan struct{}), dropped: make(chan struct{}, 16)}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)
	return m
}

// requests returns what was asked so far and a channel that closes when there is more.
func (m *model) requests() ([]asked, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]asked(nil), m.asked...), m.more
}

func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil || r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[],"models":[]}`)
		return
	}
	if r.Header.Get("Content-Encoding") != "" {
		http.Error(w, "no encodings here", http.StatusUnsupportedMediaType)
		return
	}
	a := asked{path: r.URL.Path, body: string(raw)}
	a.names = toolNames(raw)
	for _, name := range a.names {
		if strings.HasSuffix(name, m.tool) {
			a.tool = name
		}
	}
	switch {
	case a.tool == "", bytes.Contains(raw, []byte(nestedMark)) && !bytes.Contains(raw, []byte("PROMPT-MARK")):
		a.answer = "text"
	case bytes.Contains(raw, []byte(callID)), bytes.Contains(raw, []byte("functionResponse")):
		a.answer = "end"
	default:
		a.answer = "call"
	}
	m.mu.Lock()
	m.asked = append(m.asked, a)
	close(m.more)
	m.more = make(chan struct{})
	m.mu.Unlock()
	if m.refuse.Load() {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"refused","code":400,"status":"INVALID_ARGUMENT"}}`)
		return
	}
	if m.held != "" && bytes.Contains(raw, []byte(m.held)) {
		select {
		case <-m.answers:
		case <-r.Context().Done():
			m.dropped <- struct{}{}
			return
		}
	}
	if a.answer == "end" {
		select {
		case <-m.finish:
		case <-r.Context().Done():
			return
		}
	}
	m.reply(w, a)
}

// toolNames finds the names of tools in the request, in the form of any provider. A namespace comes before the names in it.
func toolNames(raw []byte) []string {
	var body struct {
		Tools []json.RawMessage `json:"tools"`
	}
	_ = json.Unmarshal(raw, &body)
	var names []string
	for _, t := range body.Tools {
		var tool struct {
			Name     string
			Type     string
			Function struct{ Name string }
			Tools    []struct{ Name string }

			FunctionDeclarations []struct{ Name string } `json:"functionDeclarations"`
		}
		_ = json.Unmarshal(t, &tool)
		for _, inner := range append(tool.Tools, tool.FunctionDeclarations...) {
			prefix := ""
			if tool.Type == "namespace" {
				prefix = tool.Name + "/"
			}
			names = append(names, prefix+inner.Name)
		}
		if name := tool.Name + tool.Function.Name; name != "" && tool.Type != "namespace" {
			names = append(names, name)
		}
	}
	return names
}

// reply answers in the format of the provider whose path it is.
func (m *model) reply(w http.ResponseWriter, a asked) {
	switch {
	case strings.HasSuffix(a.path, "/messages/count_tokens"):
		_, _ = io.WriteString(w, `{"input_tokens":10}`)
	case strings.HasSuffix(a.path, "/messages"):
		m.anthropic(w, a)
	case strings.HasSuffix(a.path, "/responses"):
		m.responses(w, a)
	case strings.HasSuffix(a.path, "/chat/completions"):
		m.chat(w, a)
	case strings.Contains(a.path, ":streamGenerateContent"), strings.Contains(a.path, ":generateContent"):
		m.gemini(w, a)
	default:
		http.NotFound(w, nil)
	}
}

// events writes server-sent events. One that has a type is named after it.
func events(w http.ResponseWriter, list ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, data := range list {
		var named struct{ Type string }
		if json.Unmarshal([]byte(data), &named) == nil && named.Type != "" {
			fmt.Fprintf(w, "event: %s\n", named.Type)
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
}

func quoted(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}

// anthropic is the Messages API.
func (m *model) anthropic(w http.ResponseWriter, a asked) {
	begin := `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"fake","content":[],` +
		`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}`
	block, delta, reason := `{"type":"text","text":""}`, `{"type":"text_delta","text":"done"}`, "end_turn"
	if a.answer == "call" {
		block = fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":{}}`, callID, a.tool)
		delta = fmt.Sprintf(`{"type":"input_json_delta","partial_json":%s}`, quoted(m.args))
		reason = "tool_use"
	}
	if !strings.Contains(a.body, `"stream":true`) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"msg_1","type":"message","role":"assistant","model":"fake","content":[{"type":"text","text":"done"}],`+
			`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}`)
		return
	}
	events(w, begin,
		`{"type":"content_block_start","index":0,"content_block":`+block+`}`,
		`{"type":"content_block_delta","index":0,"delta":`+delta+`}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"`+reason+`","stop_sequence":null},"usage":{"output_tokens":5}}`,
		`{"type":"message_stop"}`)
}

// responses is the Responses API.
func (m *model) responses(w http.ResponseWriter, a asked) {
	item := `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"done","annotations":[]}]}`
	if a.answer == "call" {
		space, name, found := strings.Cut(a.tool, "/")
		extra := ""
		if found {
			extra = fmt.Sprintf(`"namespace":%q,`, space)
		} else {
			name = a.tool
		}
		item = fmt.Sprintf(`{"type":"function_call","id":"fc_1","call_id":%q,%s"name":%q,"arguments":%s}`, callID, extra, name, quoted(m.args))
	}
	events(w, `{"type":"response.created","response":{"id":"resp_1"}}`,
		`{"type":"response.output_item.done","output_index":0,"item":`+item+`}`,
		`{"type":"response.completed","response":{"id":"resp_1","usage":{"input_tokens":10,"input_tokens_details":null,"output_tokens":5,`+
			`"output_tokens_details":null,"total_tokens":15}}}`)
}

// chat is the Chat Completions API.
func (m *model) chat(w http.ResponseWriter, a asked) {
	chunk := func(delta, finish string) string {
		return `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"fake","choices":[{"index":0,"delta":` + delta +
			`,"finish_reason":` + finish + `}]}`
	}
	if a.answer == "call" {
		delta := fmt.Sprintf(`{"role":"assistant","tool_calls":[{"index":0,"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}]}`,
			callID, a.tool, quoted(m.args))
		events(w, chunk(delta, "null"), chunk("{}", `"tool_calls"`), "[DONE]")
		return
	}
	events(w, chunk(`{"role":"assistant","content":"done"}`, "null"), chunk("{}", `"stop"`), "[DONE]")
}

// gemini is streamGenerateContent, and generateContent for what the host asks beside the turn.
func (m *model) gemini(w http.ResponseWriter, a asked) {
	part := `{"text":"done"}`
	if a.answer == "call" {
		part = fmt.Sprintf(`{"functionCall":{"name":%q,"args":%s}}`, a.tool, m.args)
	}
	data := `{"candidates":[{"content":{"role":"model","parts":[` + part + `]},"finishReason":"STOP","index":0}],` +
		`"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15},"modelVersion":"fake"}`
	if strings.Contains(a.path, ":generateContent") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, data)
		return
	}
	events(w, data)
}

// await returns the first request that is as wanted, of those so far and those to come.
func (m *model) await(t *testing.T, what string, wanted func(asked) bool) asked {
	t.Helper()
	late := time.After(patience)
	for {
		all, more := m.requests()
		for _, q := range all {
			if wanted(q) {
				return q
			}
		}
		select {
		case <-more:
		case <-late:
			for _, q := range all {
				t.Logf("asked %s, answered %s, tools %q", q.path, q.answer, q.names)
			}
			t.Fatalf("the model was not asked for %s", what)
		}
	}
}
