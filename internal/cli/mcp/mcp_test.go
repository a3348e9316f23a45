package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/wire"
)

// TestMain lets copies of the test binary be the program.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"cotal": program}) }

func program() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	code := cli.Main(ctx, os.Args[1:], cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Dir: dir})
	os.Exit(code)
}

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// cotal is a command in a folder and a home of the test's own.
func cotal(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cotal", args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), append([]string{"COTAL_HOME=" + t.TempDir(), launch.Env + "="}, env...)...)
	cmd.Stderr = t.Output()
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// credentials is a file with a credential of an actor.
func credentials(t *testing.T, m *cotaltest.Mesh, actor string, p *cotaltest.Peer) string {
	t.Helper()
	text := m.Credentials(t, actor, p).Reveal()
	path := filepath.Join(t.TempDir(), actor+".creds")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func connect(t *testing.T, cmd *exec.Cmd) *sdk.ClientSession {
	t.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func call(t *testing.T, c *sdk.ClientSession, tool string, args map[string]any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if args == nil {
		args = map[string]any{}
	}
	r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	text := r.Content[0].(*sdk.TextContent).Text
	if r.IsError {
		t.Fatalf("%s was refused: %s", tool, text)
	}
	return text
}

// has waits until the inbox shows a text.
func has(t *testing.T, c *sdk.ClientSession, want string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		text := call(t, c, "cotal_inbox", nil)
		if strings.Contains(text, want) {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("the inbox does not show %q:\n%s", want, text)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// pageOf is the id of the page in a text.
func pageOf(t *testing.T, text string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\npage ")
	id, _, _ := strings.Cut(rest, ":")
	if !ok {
		t.Fatalf("no page in\n%s", text)
	}
	return id
}

// A process that is killed between a page and its acknowledgement has acknowledged nothing: the next one shows it again. What was
// acknowledged is not shown again, and a client that goes ends the process.
func TestKilledProcessLosesNothing(t *testing.T) {
	m := cotaltest.New(t, &cotaltest.Options{Listen: true})
	bob := m.Endpoint(t, "bob", nil)
	creds := credentials(t, m, "ada", nil)
	start := func() (*sdk.ClientSession, *exec.Cmd) {
		cmd := cotal(t, nil, "mcp", "--server", m.URL(), "--creds", creds, "--join", "team")
		return connect(t, cmd), cmd
	}
	c, cmd := start()
	if card := call(t, c, "cotal_orient", nil); !strings.Contains(card, "you are local.ada in the space test") || !strings.Contains(card, "you have joined: #team") {
		t.Errorf("card:\n%s", card)
	}
	post := func(text string) endpoint.Receipt {
		t.Helper()
		r, err := bob.Post(t.Context(), "team", endpoint.Text(text))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := post("the first")
	call(t, c, "cotal_inbox", map[string]any{"ack": pageOf(t, has(t, c, "the first"))})
	post("the second")
	has(t, c, "the second")
	for limit := time.Now().Add(patience); time.Now().Before(limit); { // until the first is reported, a second later
		r, err := bob.Receipt(t.Context(), wire.ReceiptRequest{ID: first.ID})
		if err == nil && len(r.Recipients) == 1 && r.Recipients[0].Stage == wire.StageHandled {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Close() // it was killed
	c, cmd = start()
	text := has(t, c, "the second")
	if strings.Contains(text, "the first") {
		t.Errorf("shown again although it was acknowledged:\n%s", text)
	}
	call(t, c, "cotal_inbox", map[string]any{"ack": pageOf(t, text)})
	if err := c.Close(); err != nil || cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("close: %v, exit %d", err, cmd.ProcessState.ExitCode())
	}
}

// In the shell of an agent the tools and the hooks are that agent's. A hook without tools fails nothing.
func TestLaunchedAgent(t *testing.T) {
	m := cotaltest.New(t, &cotaltest.Options{Listen: true})
	bob := m.Endpoint(t, "bob", nil)
	creds := m.Credentials(t, "ada", &cotaltest.Peer{Role: "reviewer"})
	dir, err := os.MkdirTemp("", "agent") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := launch.File{
		Space: m.Space(), Server: m.URL(), Principal: "local.ada", UID: creds.Identity().UID, Name: "ada", Role: "reviewer", Connector: "claude",
		Persona: "reviewer", Manager: "m1", Dir: dir, Creds: filepath.Join(dir, "creds"), Subscribe: []string{"team"}, HostSocket: filepath.Join(dir, "host"),
	}
	if err := os.WriteFile(f.Creds, creds.Reveal(), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "launch.json")
	if err := launch.Write(path, f); err != nil {
		t.Fatal(err)
	}
	env := []string{launch.Env + "=" + path}
	hook := func(event, in string) (out, errs string) {
		t.Helper()
		cmd := cotal(t, env, "hook", "claude", event)
		var o, e bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &o, &e
		begun := time.Now()
		if err := cmd.Run(); err != nil {
			t.Errorf("hook %s: %v", event, err)
		}
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("hook %s took %v", event, d)
		}
		return o.String(), e.String()
	}
	if out, errs := hook("prompt", "{}"); out != "" || !strings.HasPrefix(errs, "cotal hook: ") || strings.Count(errs, "\n") != 1 {
		t.Errorf("without tools: %q, %q", out, errs)
	}
	c := connect(t, cotal(t, env, "mcp"))
	if card := call(t, c, "cotal_orient", nil); !strings.Contains(card, "role reviewer, persona reviewer") || !strings.Contains(card, "you have joined: #team") {
		t.Errorf("card:\n%s", card)
	}
	if _, err := bob.Direct(t.Context(), creds.Identity().Principal, endpoint.Text("look")); err != nil {
		t.Fatal(err)
	}
	has(t, c, "| look\n")
	out, errs := hook("prompt", `{"prompt":"x"}`)
	var got struct {
		HookSpecificOutput struct{ HookEventName, AdditionalContext string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || errs != "" || got.HookSpecificOutput.HookEventName != "UserPromptSubmit" ||
		!strings.Contains(got.HookSpecificOutput.AdditionalContext, "| look\n") {
		t.Errorf("prompt: %q, %q, %v", out, errs, err)
	}
	if out, errs = hook("tool", `{"tool_name":"Bash"}`); out != "" || errs != "" {
		t.Errorf("hook of a tool = %q, %q", out, errs)
	}
	if out, errs = hook("prompt", "{}"); out != "" || errs != "" {
		t.Errorf("a second time: %q, %q", out, errs)
	}
	for _, args := range [][]string{{"hook"}, {"hook", "claude", "boom"}, {"hook", "claude", "stop", "more"}, {"hook", "--unknown", "claude", "stop"}} {
		cmd := cotal(t, env, args...)
		if err := cmd.Run(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// Over HTTP the command says where, and never the token.
func TestServesHTTP(t *testing.T) {
	m := cotaltest.New(t, &cotaltest.Options{Listen: true})
	tokenFile := filepath.Join(t.TempDir(), "token")
	cmd := cotal(t, nil, "mcp", "--server", m.URL(), "--creds", credentials(t, m, "ada", nil), "--http", "127.0.0.1:0", "--token-file", tokenFile, "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var at struct{ URL, TokenFile string }
	if jerr := json.Unmarshal([]byte(line), &at); err != nil || jerr != nil || at.TokenFile != tokenFile {
		t.Fatalf("printed %q, %v", line, err)
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil || strings.Contains(line, strings.TrimSpace(string(token))) {
		t.Fatalf("token file: %v; printed %q", err, line)
	}
	client := &http.Client{Transport: withToken(strings.TrimSpace(string(token)))}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: at.URL, HTTPClient: client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if card := call(t, c, "cotal_orient", nil); !strings.Contains(card, "you are local.ada") {
		t.Error(card)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	_ = c.Close() // the server has gone
}

// withToken adds the token to every request.
type withToken string

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(w))
	return http.DefaultTransport.RoundTrip(r)
}

func TestUsage(t *testing.T) {
	m := cotaltest.New(t, &cotaltest.Options{Listen: true})
	creds := credentials(t, m, "ada", nil)
	for _, args := range [][]string{
		{"mcp", "--token-file", "x"}, {"mcp", "more"}, {"mcp", "--server", m.URL(), "--creds", creds, "--http", "127.0.0.1:0"},
		{"mcp", "--server", m.URL(), "--creds", creds, "--http", "127.0.0.1:0", "--token-file", filepath.Join(t.TempDir(), "token"), "--notices"},
	} {
		cmd := cotal(t, nil, args...)
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 2 {
			t.Errorf("%v: exit %d, want 2", args, code)
		}
	}
}
