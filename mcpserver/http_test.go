//lint:file-ignore SA1019 hosts of today have nothing newer than log messages

package mcpserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/wire"
)

// bearer adds a token to every request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// serveHTTP serves an agent's tools and returns where, and the token.
func serveHTTP(t *testing.T, a *agent) (url, token string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	tok, err := mcpserver.ReadToken(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("token file %v, %v", info, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%v %+v %#v %s", tok, tok, tok, tok); strings.Contains(s, strings.TrimSpace(string(data))) {
		t.Errorf("the token prints: %s", s)
	}
	if _, err := mcpserver.ReadToken(path); err != nil {
		t.Errorf("second read: %v", err)
	}
	l, err := mcpserver.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(a.s.Handler(l.Addr(), tok))
	_ = srv.Listener.Close() // ours instead
	srv.Listener = l
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return "http://" + l.Addr().String() + mcpserver.HTTPPath, strings.TrimSpace(string(data))
}

func TestHTTP(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{})
	url, token := serveHTTP(t, ada)
	client := &http.Client{Transport: bearer{token, http.DefaultTransport}}
	t.Cleanup(client.CloseIdleConnections)
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "cotal_orient", Arguments: args{}})
	if err != nil || !strings.Contains(textOf(r), "you are local.ada") {
		t.Errorf("orient over HTTP: %v, %v", r, err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// A client over HTTP is told that something waits by log messages.
func TestHTTPClientsAreTold(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{Channel: true}})
	url, token := serveHTTP(t, ada)
	client := &http.Client{Transport: bearer{token, http.DefaultTransport}}
	t.Cleanup(client.CloseIdleConnections)
	logged := make(chan any, 10)
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { logged <- r.Params.Data },
	}).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		t.Fatal(err)
	}
	direct(t, bob, ada.ep, endpoint.Text("obey"))
	select {
	case got := <-logged:
		if got != "[cotal] 1 direct message waits, the first from local.bob: call cotal_inbox" {
			t.Errorf("told %q", got)
		}
	case <-time.After(patience):
		t.Error("not told")
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// Nobody without the token, of another host or of a page of another origin gets in.
func TestHTTPRefuses(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{})
	url, token := serveHTTP(t, ada)
	for name, tt := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"no_token":      {func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized},
		"another_token": {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", len(token))) }, http.StatusUnauthorized},
		"prefix":        {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token[:20]) }, http.StatusUnauthorized},
		"basic":         {func(r *http.Request) { r.SetBasicAuth("x", token) }, http.StatusUnauthorized},
		"host":          {func(r *http.Request) { r.Host = "evil.example" }, http.StatusForbidden},
		"rebound_host":  {func(r *http.Request) { r.Host = "evil.example:" + r.URL.Port() }, http.StatusForbidden},
		"other_port":    {func(r *http.Request) { r.Host = "127.0.0.1:1" }, http.StatusForbidden},
		"origin":        {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, http.StatusForbidden},
		"null_origin":   {func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"https_origin":  {func(r *http.Request) { r.Header.Set("Origin", "https://"+r.URL.Host) }, http.StatusForbidden},
		"path":          {func(r *http.Request) { r.URL.Path = "/" }, http.StatusNotFound},
		"large":         {func(r *http.Request) { r.Body = io.NopCloser(io.LimitReader(spaces{}, 4<<20)) }, http.StatusRequestEntityTooLarge},
		"no_scheme":     {func(r *http.Request) { r.Header.Set("Authorization", token) }, http.StatusUnauthorized},
		"lower_scheme":  {func(r *http.Request) { r.Header.Set("Authorization", "bearer "+token) }, http.StatusOK},
		"upper_scheme":  {func(r *http.Request) { r.Header.Set("Authorization", "BEARER  "+token) }, http.StatusOK},
		"own_origin":    {func(r *http.Request) { r.Header.Set("Origin", "http://"+r.URL.Host) }, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			tt.change(r)
			if tt.want == http.StatusRequestEntityTooLarge {
				r.ContentLength = -1
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			if res.StatusCode != tt.want {
				t.Errorf("status %d, want %d: %s", res.StatusCode, tt.want, text)
			}
			if strings.Contains(string(text), token) {
				t.Error("the token is in the answer")
			}
		})
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestListenIsLoopback(t *testing.T) {
	for address, code := range map[string]wire.Code{
		"0.0.0.0:0": wire.CodeFailedPrecondition, ":0": wire.CodeFailedPrecondition, "192.0.2.1:0": wire.CodeFailedPrecondition,
		"example.com:0": wire.CodeFailedPrecondition, "localhost": wire.CodeBadRequest,
	} {
		if l, err := mcpserver.Listen(address); wire.CodeOf(err) != code {
			t.Errorf("listen at %q = %v, %v; want %s", address, l, err, code)
		}
	}
}

func TestTokenFiles(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		text string
		mode os.FileMode
		code wire.Code
	}{
		"open":    {strings.Repeat("x", 40), 0o644, wire.CodeFailedPrecondition},
		"short":   {"x", 0o600, wire.CodeBadRequest},
		"empty":   {"", 0o600, wire.CodeBadRequest},
		"spaces":  {strings.Repeat("x y ", 20), 0o600, wire.CodeBadRequest},
		"no_text": {strings.Repeat("\x00", 40), 0o600, wire.CodeBadRequest},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := mcpserver.ReadToken(path); wire.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "short"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := mcpserver.ReadToken(filepath.Join(dir, "link")); wire.CodeOf(err) != wire.CodeFailedPrecondition {
		t.Errorf("a link: %v", err)
	}
	if _, err := mcpserver.ReadToken(filepath.Join(dir, "none", "token")); wire.CodeOf(err) != wire.CodeFailedPrecondition {
		t.Errorf("no folder: %v", err)
	}
}
