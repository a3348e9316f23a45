package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/cli"
)

// TestWhatIsNoMessageEndsNothing writes lines that are no message: each is answered, and the tools go on.
func TestWhatIsNoMessageEndsNothing(t *testing.T) {
	m := cotaltest.New(t, &cotaltest.Options{Listen: true})
	cmd := cotal(t, nil, "mcp", "--server", m.URL(), "--creds", credentials(t, m, "ada", nil))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	for _, c := range []struct {
		line string
		code int
	}{
		{"{", -32700},
		{"\xff\xfe", -32700},
		{"[]", -32600},
		{"null", -32600},
		{`{"jsonrpc":"1.0","id":5,"method":"ping"}`, -32600},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600},
		{`{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":"` + string(bytes.Repeat([]byte("a"), 17<<20)) + `"}}`, -32600},
		{"\r\n" + `{"jsonrpc":"2.0","id":6,"method":"ping"}` + "\r", 0},
	} {
		what := c.line[:min(len(c.line), 40)]
		if _, err := io.WriteString(in, c.line+"\n"); err != nil {
			t.Fatalf("write %q: %v", what, err)
		}
		var got struct{ Error struct{ Code int } }
		if !answers.Scan() {
			t.Fatalf("%q was not answered: %v", what, answers.Err())
		}
		if err := json.Unmarshal(answers.Bytes(), &got); err != nil || got.Error.Code != c.code {
			t.Errorf("%q was answered %.200s, want code %d", what, answers.Bytes(), c.code)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("when its input has ended: %v", err)
	}
}

// TestHostThatDoesNotRead asks much and reads no answer: the command ends all the same when it is told to, or its input ends.
func TestHostThatDoesNotRead(t *testing.T) {
	m := cotaltest.New(t, &cotaltest.Options{Listen: true})
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	for name, end := range map[string]func(stop func(), in io.Closer) error{
		"told":   func(stop func(), _ io.Closer) error { stop(); return nil },
		"closed": func(_ func(), in io.Closer) error { return in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			creds, dir, home := credentials(t, m, name, nil), t.TempDir(), t.TempDir()
			getenv := func(key string) string {
				if key == "COTAL_HOME" {
					return home
				}
				return ""
			}
			stdin, in := io.Pipe()
			out, stdout := io.Pipe() // holds nothing: what is not read is not written
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan int, 1)
			go func() {
				ended <- cli.Main(ctx, []string{"mcp", "--server", m.URL(), "--creds", creds},
					cli.Env{Stdin: stdin, Stdout: stdout, Stderr: t.Output(), Getenv: getenv, Dir: dir})
			}()
			t.Cleanup(func() { _, _ = in.Close(), out.Close() })
			if _, err := io.WriteString(in, hello); err != nil {
				t.Fatal(err)
			}
			answers := bufio.NewReaderSize(out, 16)
			if _, err := answers.ReadBytes('\n'); err != nil {
				t.Fatal(err)
			}
			for i := range 300 {
				if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n", i+1); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := answers.ReadByte(); err != nil { // the rest of that answer is on its way
				t.Fatal(err)
			}
			if err := end(stop, in); err != nil {
				t.Fatal(err)
			}
			select {
			case code := <-ended:
				if code != 0 {
					t.Errorf("exit %d", code)
				}
			case <-time.After(patience):
				t.Error("it did not end")
			}
		})
	}
}
