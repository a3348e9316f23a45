package mcpserver_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// everyone has these; supervised are there with the right to start agents.
var (
	everyone = []string{
		"cotal_ask", "cotal_attention", "cotal_channels", "cotal_despawn", "cotal_dm", "cotal_history", "cotal_inbox", "cotal_join", "cotal_leave",
		"cotal_orient", "cotal_receipt", "cotal_roster", "cotal_send", "cotal_status",
	}
	supervised = []string{"cotal_persona", "cotal_spawn"}
)

// spawner may start agents.
func spawner() *auth.Request {
	return &auth.Request{Subscribe: []string{">"}, Publish: []string{">"}, Capabilities: []string{trust.ScopeSpawn}}
}

func names(t *testing.T, a *agent) (out []string, all []*mcp.Tool) {
	t.Helper()
	r, err := a.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range r.Tools {
		out = append(out, tool.Name)
	}
	slices.Sort(out)
	return out, r.Tools
}

func TestToolsFollowTheCredential(t *testing.T) {
	m := cotaltest.New(t, nil)
	plain, _ := names(t, newAgent(t, m, "ada", setup{}))
	if diff := cmp.Diff(everyone, plain); diff != "" {
		t.Errorf("without the right (-want +got):\n%s", diff)
	}
	boss, _ := names(t, newAgent(t, m, "boss", setup{peer: cotaltest.Peer{Request: spawner()}}))
	want := append(slices.Clone(everyone), supervised...)
	slices.Sort(want)
	if diff := cmp.Diff(want, boss); diff != "" {
		t.Errorf("with the right (-want +got):\n%s", diff)
	}
}

// Every tool refuses a key that it does not name, a value of another type and a key that stands twice, and then does nothing.
func TestArgumentsAreClosed(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := newAgent(t, m, "bob", setup{})
	ada := newAgent(t, m, "ada", setup{peer: cotaltest.Peer{Request: spawner()}})
	_, all := names(t, ada)
	valid := map[string]args{
		"cotal_send": {"channel": "team", "text": "x"}, "cotal_dm": {"to": "bob", "text": "x"}, "cotal_ask": {"to": "bob", "text": "x"},
		"cotal_history": {"channel": "team"}, "cotal_join": {"channel": "team"}, "cotal_leave": {"channel": "team"}, "cotal_receipt": {"id": "x"},
		"cotal_spawn": {"persona": "x"},
	}
	for _, tool := range all {
		schema := schemaOf(t, tool)
		if schema["additionalProperties"] != false {
			t.Errorf("%s: the schema leaves other keys open: %v", tool.Name, schema)
		}
		for _, key := range []string{"from", "owner", "actor", "caller", "sender", "as", "Text", "TO"} {
			in := args{key: "local.boss"}
			for k, v := range valid[tool.Name] {
				in[k] = v
			}
			if text, refused := ada.try(t, tool.Name, in); !refused {
				t.Errorf("%s with the key %q was not refused: %s", tool.Name, key, text)
			}
		}
		properties, _ := schema["properties"].(map[string]any) // a tool without arguments has none
		for k := range properties {
			in := args{}
			for k, v := range valid[tool.Name] {
				in[k] = v
			}
			in[k] = map[string]any{"x": 1}
			if text, refused := ada.try(t, tool.Name, in); !refused {
				t.Errorf("%s with an object as %s was not refused: %s", tool.Name, k, text)
			}
		}
		for k := range valid[tool.Name] {
			in := args{}
			for other, v := range valid[tool.Name] {
				if other != k {
					in[other] = v
				}
			}
			if _, refused := ada.try(t, tool.Name, in); !refused && k != "to" {
				t.Errorf("%s without %s was not refused", tool.Name, k)
			}
		}
	}
	r, err := ada.CallTool(t.Context(), &mcp.CallToolParams{Name: "cotal_dm", Arguments: rawJSON(`{"to":"bob","text":"a","text":"b"}`)})
	if err == nil && !r.IsError {
		t.Errorf("a key that stands twice was taken: %s", textOf(r))
	}
	if text := bob.call(t, "cotal_inbox", nil); pageOf(text) != "" {
		t.Errorf("a refused call sent something:\n%s", text)
	}
}

// rawJSON is JSON as it stands.
type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

func TestSendingTools(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{Join: []string{"team"}}})
	bob := newAgent(t, m, "bob", setup{peer: cotaltest.Peer{Role: "reviewer"}, opts: mcpserver.Options{Join: []string{"team"}}})
	ada.until(t, "bob in the roster", func(string) bool { return strings.Contains(ada.call(t, "cotal_roster", nil), "local.bob") })

	out := ada.call(t, "cotal_send", args{"channel": "#team", "text": "hello team", "mentions": []string{"@Bob"}})
	if !strings.Contains(out, "posted to #team, id ") || !strings.Contains(out, "mention of bob: live") {
		t.Errorf("send: %s", out)
	}
	ada.refuse(t, "not-found", "cotal_send", args{"channel": "team", "text": "x", "mentions": []string{"nobody"}})
	ada.refuse(t, "bad-request", "cotal_send", args{"channel": "no/channel", "text": "x"})
	ada.refuse(t, "bad-request", "cotal_send", args{"channel": "team", "text": "  "})
	out = ada.call(t, "cotal_dm", args{"to": "bob", "text": "hello bob"})
	if !strings.Contains(out, "sent to local.bob, id ") || !strings.Contains(out, "the recipient is there") {
		t.Errorf("dm: %s", out)
	}
	ada.refuse(t, "not-found", "cotal_dm", args{"to": "nobody", "text": "x"})
	ada.refuse(t, "bad-request", "cotal_dm", args{"to": "a.b.c", "text": "x"})
	out = ada.call(t, "cotal_ask", args{"role": "reviewer", "text": "a question"})
	if !strings.Contains(out, "asked the role reviewer, id ") {
		t.Errorf("ask: %s", out)
	}
	ada.refuse(t, "not-found", "cotal_ask", args{"role": "nobody", "text": "x"})
	ada.refuse(t, "not-found", "cotal_ask", args{"to": "local.nobody", "text": "x", "wait_seconds": 300})
	ada.refuse(t, "bad-request", "cotal_ask", args{"role": "reviewer", "to": "bob", "text": "x"})
	ada.refuse(t, "bad-request", "cotal_ask", args{"role": "reviewer", "text": "x", "wait_seconds": 301})
	text := bob.has(t, "| hello team\n", "| hello bob\n", "message to the role reviewer, which you took from local.ada", "| a question\n", "#team, mentions you from local.ada")
	if strings.Contains(ada.call(t, "cotal_inbox", nil), "hello team") {
		t.Error("one's own message comes to one's inbox")
	}
	bob.call(t, "cotal_inbox", args{"ack": pageOf(text)})
	id := idIn(t, out)
	awaitText(t, "the receipt", func() string { return ada.call(t, "cotal_receipt", args{"id": id, "role": "reviewer", "sequence": 1}) }, ": gone")
	ada.refuse(t, "not-found", "cotal_receipt", args{"id": "no-such-id"})
	if h := ada.call(t, "cotal_history", args{"channel": "team"}); !strings.Contains(h, "| hello team\n") || !strings.Contains(h, "yourself") {
		t.Errorf("history:\n%s", h)
	}
	ada.refuse(t, "bad-request", "cotal_history", args{"channel": "team", "limit": 101})
	for _, before := range []uint64{2, 1 << 53, math.MaxInt64} {
		if h := ada.call(t, "cotal_history", args{"channel": "team", "before": before, "limit": 3}); !strings.Contains(h, "| hello team\n") {
			t.Errorf("history before %d:\n%s", before, h)
		}
	}
}

// idIn is the id of the message that a result names.
func idIn(t *testing.T, out string) string {
	t.Helper()
	_, rest, ok := strings.Cut(out, "id ")
	if !ok {
		t.Fatalf("no id in %q", out)
	}
	return strings.FieldsFunc(rest, func(r rune) bool { return r == ',' || r == ';' || r == '\n' })[0]
}

func awaitText(t *testing.T, what string, read func() string, want string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		text := read()
		if strings.Contains(text, want) {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not say %q: %s", what, want, text)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// An answer comes to who waits for it, is framed as any message, and is acknowledged as a page is.
func TestAskWaitsForTheAnswer(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{})
	bob := m.Endpoint(t, "bob", &cotaltest.Peer{Role: "reviewer"})
	if err := bob.HandleRole(t.Context(), func(d *endpoint.Delivery) {
		answer := endpoint.Text("the answer to " + d.Message.Text())
		answer.ReplyTo = d.Message.ID
		if _, err := bob.Direct(context.Background(), d.Sender, answer); err != nil {
			t.Error(err)
		}
		_ = d.Ack(context.Background())
	}); err != nil {
		t.Fatal(err)
	}
	out := ada.call(t, "cotal_ask", args{"role": "reviewer", "text": "why?", "wait_seconds": 15})
	if !strings.Contains(out, "direct message from local.bob") || !strings.Contains(out, "| the answer to why?\n") || pageOf(out) == "" {
		t.Errorf("ask:\n%s", out)
	}
	ada.has(t, "the answer to why?")
	if text := ada.call(t, "cotal_inbox", args{"ack": pageOf(out)}); pageOf(text) != "" {
		t.Errorf("shown after it was acknowledged:\n%s", text)
	}
}

// An answer that the inbox has no room for is not waited for, whether that was full before or becomes so.
func TestAskWithAFullInbox(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{})
	bob := m.Endpoint(t, "bob", nil)
	for i := range 31 {
		direct(t, bob, ada.ep, endpoint.Text(fmt.Sprintf("number %d.", i)))
	}
	ada.has(t, "| number 30.\n")
	asked := make(chan struct{}, 2)
	if err := bob.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		_ = d.Ack(context.Background())
		asked <- struct{}{}
	}); err != nil {
		t.Fatal(err)
	}
	in := args{"to": "bob", "text": "?", "wait_seconds": 300}
	out := make(chan string, 1)
	go func() {
		r, err := ada.CallTool(t.Context(), &mcp.CallToolParams{Name: "cotal_ask", Arguments: in})
		if err != nil {
			out <- err.Error()
			return
		}
		out <- textOf(r)
	}()
	<-asked
	direct(t, bob, ada.ep, endpoint.Text("the last"))
	const want = "no answer can come while your inbox is full"
	select {
	case text := <-out:
		if !strings.Contains(text, want) {
			t.Errorf("filled meanwhile: %s", text)
		}
	case <-time.After(patience):
		t.Fatal("waits for an answer that cannot come")
	}
	if text := ada.call(t, "cotal_ask", in); !strings.Contains(text, want) {
		t.Errorf("filled before: %s", text)
	}
}

// A call that is cancelled stops waiting, and the question stands.
func TestCancelledAskStopsWaiting(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{})
	m.Credentials(t, "bob", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	begun := time.Now()
	go func() {
		_, err := ada.CallTool(ctx, &mcp.CallToolParams{Name: "cotal_ask", Arguments: args{"to": "local.bob", "text": "?", "wait_seconds": 300}})
		done <- err
	}()
	ep := m.Endpoint(t, "carol", nil) // sees that the question has left
	awaitText(t, "bob's queue", func() string {
		r, err := ep.Reach(t.Context(), wire.ReachRequest{To: "local.bob"})
		if err != nil || r.Waiting == 0 {
			return ""
		}
		return "waits"
	}, "waits")
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the call was answered")
		}
	case <-time.After(patience):
		t.Fatal("the call goes on")
	}
	ada.stop() // would wait for the handler
	if d := time.Since(begun); d >= 300*time.Second {
		t.Errorf("ended after %v", d)
	}
}

func TestSpaceTools(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{Join: []string{"team"}, Persona: "planner"}})
	bob := newAgent(t, m, "bob", setup{})
	card := ada.call(t, "cotal_orient", nil)
	for _, want := range []string{"you are local.ada in the space test, profile agent, persona planner", "you have joined: #team", "you may start agents: no", "attention: open"} {
		if !strings.Contains(card, want) {
			t.Errorf("card without %q:\n%s", want, card)
		}
	}
	if out := bob.call(t, "cotal_join", args{"channel": "#news"}); !strings.HasPrefix(out, "joined #news") {
		t.Error(out)
	}
	if out := bob.call(t, "cotal_join", args{"channel": "news"}); !strings.Contains(out, "already") {
		t.Error(out)
	}
	ada.call(t, "cotal_send", args{"channel": "news", "text": "the first"})
	text := bob.has(t, "| the first\n")
	bob.call(t, "cotal_inbox", args{"ack": pageOf(text)})
	if out := bob.call(t, "cotal_channels", nil); !strings.Contains(out, "#news, durable, joined") || !strings.Contains(out, "is kept for you") {
		t.Errorf("channels:\n%s", out)
	}
	bob.call(t, "cotal_leave", args{"channel": "news", "discard": true})
	bob.refuse(t, "not-found", "cotal_leave", args{"channel": "news"})
	ada.call(t, "cotal_send", args{"channel": "news", "text": "the second"})
	ada.call(t, "cotal_dm", args{"to": "local.bob", "text": "after it"})
	if text := bob.has(t, "after it"); strings.Contains(text, "the second") {
		t.Errorf("a channel that was left comes still:\n%s", text)
	}
	if out := bob.call(t, "cotal_status", args{"status": "working", "activity": "reading"}); !strings.Contains(out, "local.bob: working, \"reading\"") {
		t.Error(out)
	}
	bob.refuse(t, "bad-request", "cotal_status", args{"status": "offline"})
	bob.refuse(t, "bad-request", "cotal_status", args{"activity": "x"})
	awaitText(t, "the roster", func() string { return ada.call(t, "cotal_roster", nil) }, "local.bob: working, \"reading\"")
	if out := bob.call(t, "cotal_attention", args{"mode": "focus"}); !strings.HasPrefix(out, "attention: focus") {
		t.Error(out)
	}
	awaitText(t, "the roster", func() string { return ada.call(t, "cotal_roster", nil) }, "attention focus")
	bob.refuse(t, "bad-request", "cotal_attention", args{"mode": "quiet"})
	ada.refuse(t, "permission-denied", "cotal_despawn", args{"name": "bob"})
	ada.refuse(t, "unavailable", "cotal_despawn", nil) // no supervisor here
}

// Of news that are too many the newest are told, with how many are not, and none of them again.
func TestNewsAreTheNewest(t *testing.T) {
	m := cotaltest.New(t, nil)
	var news mcpserver.News
	ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{News: &news}})
	const all = 50
	for i := range all {
		news.Tell(endpoint.EventDenied{Err: wire.Errorf(wire.CodePermissionDenied, "number %d. %s", i, strings.Repeat("x", 200))})
	}
	card := ada.call(t, "cotal_orient", nil)
	shown := strings.Count(card, "number ")
	if shown < 2 || !strings.Contains(card, fmt.Sprintf("from this program:\n- %d older events not shown\n- denied: ", all-shown)) {
		t.Errorf("%d of %d are shown:\n%s", shown, all, card)
	}
	for i := range shown {
		if !strings.Contains(card, fmt.Sprintf("number %d. ", all-shown+i)) {
			t.Errorf("number %d is not shown:\n%s", all-shown+i, card)
		}
	}
	if card := ada.call(t, "cotal_orient", nil); strings.Contains(card, "from this program") {
		t.Errorf("told twice:\n%s", card)
	}
}

// Rights are the broker's: what the credential does not cover is refused by it, in words.
func TestToolsAreBoundByTheCredential(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{peer: cotaltest.Peer{Subscribe: []string{"team"}, Publish: []string{"team"}}, opts: mcpserver.Options{Join: []string{"secret"}}})
	if card := ada.call(t, "cotal_orient", nil); !strings.Contains(card, "from this program:\n- #secret was not joined: ") {
		t.Errorf("card:\n%s", card)
	}
	ada.refuse(t, "permission-denied", "cotal_send", args{"channel": "secret", "text": "x"})
	ada.refuse(t, "permission-denied", "cotal_join", args{"channel": "secret"})
	ada.refuse(t, "permission-denied", "cotal_history", args{"channel": "secret"})
	ada.call(t, "cotal_send", args{"channel": "team", "text": "x"})
}

// A name means who bears it: one that several bear names them, one that somebody only claims means nobody, and of several that of
// whoever is there. See also case C10: the base name leads to the one that lives.
func TestC10NamesResolve(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{})
	_ = m.Endpoint(t, "bob", &cotaltest.Peer{Options: endpoint.Options{Name: "Boss"}})
	awaitText(t, "the roster", func() string { return ada.call(t, "cotal_roster", nil) }, "calls itself \"Boss\"")
	if out := ada.refuse(t, "conflict", "cotal_dm", args{"to": "boss", "text": "x"}); !strings.Contains(out, "local.bob") {
		t.Errorf("the candidate is not named: %s", out)
	}
	if out := ada.call(t, "cotal_dm", args{"to": "BOB", "text": "x"}); !strings.Contains(out, "sent to local.bob") {
		t.Error(out)
	}
	if out := ada.call(t, "cotal_dm", args{"to": "local.bob", "text": "x"}); !strings.Contains(out, "sent to local.bob") {
		t.Error(out)
	}
}

// TestC1WordsOfASend: what a send says differs with whether somebody is there, and never says that it was read.
func TestC1WordsOfASend(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{})
	m.Credentials(t, "carol", nil) // was never here
	out := ada.call(t, "cotal_dm", args{"to": "carol", "text": "x"})
	if !strings.Contains(out, "is not there and gets it when it comes back") || strings.Contains(out, "delivered") {
		t.Error(out)
	}
}
