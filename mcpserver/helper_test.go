package mcpserver_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/trust"
)

func TestMain(m *testing.M) {
	mcpserver.Patient()
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must happen.
const patience = time.Minute

// agent is a participant with tools, and a client of them.
type agent struct {
	*mcp.ClientSession
	ep    *endpoint.Endpoint
	s     *mcpserver.Server
	kill  func() // ends it as a crash does: nothing is given back
	stop  func() // ends it in order
	creds *trust.Credentials
}

// setup shapes an agent; the zero value works.
type setup struct {
	peer   cotaltest.Peer
	creds  *trust.Credentials
	opts   mcpserver.Options
	client *mcp.ClientOptions
}

// newAgent connects an agent, runs its tools and a client in memory.
func newAgent(t *testing.T, m *cotaltest.Mesh, actor string, set setup) *agent {
	t.Helper()
	if set.opts.News == nil {
		set.opts.News = &mcpserver.News{}
	}
	mcpserver.Prepare(&set.peer.Options, set.opts.News, set.opts.Wake != nil)
	if set.creds == nil {
		set.creds = m.Credentials(t, actor, &set.peer)
	}
	a := &agent{creds: set.creds}
	a.ep = m.Connect(t, set.creds, &set.peer)
	a.s = mcpserver.New(a.ep, &set.opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.s.Run(ctx) }()
	select {
	case <-a.s.Ready():
	case err := <-done:
		t.Fatalf("tools of %s: %v", actor, err)
	case <-time.After(patience):
		t.Fatal("tools not ready")
	}
	a.ClientSession = connectTo(t, a.s, set.client)
	ended := false
	a.stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("tools of %s ended with %v", actor, err)
		}
		_ = a.ep.Close()
	}
	a.kill = func() {
		if ended {
			return
		}
		ended = true
		_ = a.ep.Close() // without what Run says at its end
		cancel()
		<-done
	}
	t.Cleanup(a.stop)
	return a
}

// connectTo is a client of a server, in memory.
func connectTo(t *testing.T, s *mcpserver.Server, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, there) }()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		cancel()
		<-served
	})
	return c
}

// args are the arguments of a call.
type args = map[string]any

// try calls a tool and returns its text, and whether it was refused.
func (a *agent) try(t *testing.T, tool string, in args) (string, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if in == nil {
		in = args{}
	}
	r, err := a.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: in})
	if err != nil {
		t.Fatalf("%s %v: %v", tool, in, err)
	}
	return textOf(r), r.IsError
}

// call calls a tool that must not refuse.
func (a *agent) call(t *testing.T, tool string, in args) string {
	t.Helper()
	text, refused := a.try(t, tool, in)
	if refused {
		t.Fatalf("%s %v was refused: %s", tool, in, text)
	}
	return text
}

// refuse calls a tool that must refuse with a code.
func (a *agent) refuse(t *testing.T, code, tool string, in args) string {
	t.Helper()
	text, refused := a.try(t, tool, in)
	if !refused || !strings.HasPrefix(text, code) {
		t.Errorf("%s %v = refused %v, %q; want refused with %s", tool, in, refused, text, code)
	}
	return text
}

func textOf(r *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

// until reads the inbox until what it shows satisfies ok.
func (a *agent) until(t *testing.T, what string, ok func(text string) bool) string {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		text := a.call(t, "cotal_inbox", nil)
		if ok(text) {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("the inbox does not show %s within %v:\n%s", what, patience, text)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// has waits until the inbox shows every one of some texts.
func (a *agent) has(t *testing.T, want ...string) string {
	t.Helper()
	return a.until(t, strings.Join(want, ", "), func(text string) bool {
		for _, w := range want {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	})
}

var pageID = regexp.MustCompile(`(?m)^page (p[a-z0-9]{6}-\d+):`)

// pageOf is the id of the page in a text, "" for none.
func pageOf(text string) string {
	if m := pageID.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

func direct(t *testing.T, from *endpoint.Endpoint, to *endpoint.Endpoint, d endpoint.Draft) endpoint.Receipt {
	t.Helper()
	r, err := from.Direct(t.Context(), to.Principal(), d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func post(t *testing.T, from *endpoint.Endpoint, channel string, d endpoint.Draft) endpoint.Receipt {
	t.Helper()
	r, err := from.Post(t.Context(), channel, d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func schemaOf(t *testing.T, tool *mcp.Tool) map[string]any {
	t.Helper()
	data, err := json.Marshal(tool.InputSchema)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
