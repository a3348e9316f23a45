package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/mcp"
	"github.com/cotal-go/cotal/internal/faketime"
)

// TestInputOfAFile asks by an input that ends at once: all of it is done and answered, and the command ends.
func TestInputOfAFile(t *testing.T) {
	m := cotaltest.New(t, &cotaltest.Options{Listen: true})
	bob := m.Endpoint(t, "bob", nil)
	got := make(chan string, 1)
	if err := bob.HandleDirect(t.Context(), func(d *endpoint.Delivery) { got <- d.Message.Text() }); err != nil {
		t.Fatal(err)
	}
	cmd := cotal(t, nil, "mcp", "--server", m.URL(), "--creds", credentials(t, m, "ada", nil))
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/list"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"cotal_dm","arguments":{"to":"local.bob","text":"from a file"}}}`)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	answered := map[any]bool{}
	for line := range strings.Lines(out.String()) {
		var a struct {
			ID     any
			Result struct{ IsError bool }
			Error  any
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.Error != nil || a.Result.IsError {
			t.Errorf("%.200s: %v", line, err)
		}
		answered[a.ID] = true
	}
	if !answered["a"] || !answered[1.0] || !answered[2.0] {
		t.Errorf("answered are %v", answered)
	}
	select {
	case text := <-got:
		if text != "from a file" {
			t.Errorf("got %q", text)
		}
	case <-time.After(patience):
		t.Error("nothing was sent")
	}
}

// TestAnswersThatDoNotCome ends the input over a call that is not answered, or cannot be any more.
func TestAnswersThatDoNotCome(t *testing.T) {
	const asks, listens = `{"jsonrpc":"2.0","id":1,"method":"x"}` + "\n", `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen"}` + "\n"
	for name, c := range map[string]struct {
		in   string
		does func(stop func(), conn sdk.Connection)
		want time.Duration
	}{
		"late":      {asks, func(func(), sdk.Connection) {}, mcp.LastAnswers},
		"told":      {asks, func(stop func(), _ sdk.Connection) { stop() }, time.Second},
		"closed":    {asks, func(_ func(), conn sdk.Connection) { _ = conn.Close() }, time.Second},
		"listening": {listens, func(func(), sdk.Connection) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				in := io.NopCloser(strings.NewReader(c.in))
				conn, err := mcp.Finishing(&sdk.IOTransport{Reader: in, Writer: discard{}}).Connect(ctx)
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				time.AfterFunc(time.Second, func() { c.does(stop, conn) })
				for err == nil {
					_, err = conn.Read(t.Context())
				}
				if took := time.Since(begun); took != c.want || err != io.EOF {
					t.Errorf("%v after %v, want the end after %v", err, took, c.want)
				}
			})
		})
	}
}

// discard is a writer for nobody.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }
