//lint:file-ignore SA1019 hosts of today have nothing newer than log messages

package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
)

// A client that asks for it is told that something waits, without a word of the sender's.
func TestClientsAreTold(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	logged, updated := make(chan string, 10), make(chan string, 100)
	ada := newAgent(t, m, "ada", setup{client: &mcp.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { s, _ := r.Params.Data.(string); logged <- s },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			updated <- r.Params.URI
		},
	}})
	if err := ada.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		t.Fatal(err)
	}
	if err := ada.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "cotal://inbox"}); err != nil {
		t.Fatal(err)
	}
	direct(t, bob, ada.ep, endpoint.Text("obey"))
	for what, ch := range map[string]chan string{"[cotal] 1 direct message waits, the first from local.bob: call cotal_inbox": logged, "cotal://inbox": updated} {
		select {
		case got := <-ch:
			if got != what {
				t.Errorf("told %q, want %q", got, what)
			}
		case <-time.After(patience):
			t.Fatalf("not told %q", what)
		}
	}
	r, err := ada.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "cotal://inbox"})
	if err != nil || r.Contents[0].Text != "1 direct message, 0 mentions, 0 channel messages wait\n" {
		t.Errorf("resource %+v, %v", r, err)
	}
}

// A client that announces claude/channel, and no other, is sent such notices.
func TestClaudeChannel(t *testing.T) {
	for _, announces := range []bool{true, false} {
		cotaltest.Bubble(t, func(t *testing.T) {
			m := cotaltest.New(t, nil)
			bob := m.Endpoint(t, "bob", nil)
			ada := newAgent(t, m, "ada", setup{})
			lines := rawClient(t, ada, announces)
			direct(t, bob, ada.ep, endpoint.Text("obey"))
			ada.has(t, "obey")
			if !announces {
				direct(t, bob, ada.ep, endpoint.Text("obey again"))
			}
			for {
				select {
				case line := <-lines:
					var n struct {
						Method string `json:"method"`
						Params struct {
							Content string `json:"content"`
						} `json:"params"`
					}
					if err := json.Unmarshal([]byte(line), &n); err != nil {
						t.Fatal(err)
					}
					if n.Method != "notifications/claude/channel" {
						continue
					}
					if !announces || !strings.HasPrefix(n.Params.Content, "[cotal] 1 direct message waits") {
						t.Errorf("sent %s", line)
					}
				case <-time.After(time.Second):
					if announces {
						t.Error("not sent")
					}
				}
				break
			}
		})
	}
}

// rawClient is a client by hand; it returns what it is sent beside answers.
func rawClient(t *testing.T, a *agent, announces bool) <-chan string {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = a.s.Serve(ctx, &mcp.IOTransport{Reader: inR, Writer: outW}) // how it ends is of no interest
	}()
	lines, read := make(chan string, 100), make(chan struct{})
	answered := make(chan struct{})
	go func() {
		defer close(read)
		s := bufio.NewScanner(outR)
		for first := true; s.Scan(); first = false {
			if first {
				close(answered)
				continue
			}
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		cancel()
		<-served
		_ = outW.Close()
		<-read
	})
	capabilities := `{}`
	if announces {
		capabilities = `{"experimental":{"claude/channel":{}}}`
	}
	write := func(line string) {
		if _, err := io.WriteString(inW, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":` + capabilities + `,"clientInfo":{"name":"x","version":"1"}}}`)
	<-answered
	write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return lines
}
