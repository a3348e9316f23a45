package js_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// wantToolChecks is how many checks the scenario of the tools makes, whichever way it reaches them.
const wantToolChecks = 32

// build makes the program that users run.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "cotal")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/cotal-go/cotal/cmd/cotal")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0") // as it is shipped
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build cotal: %v\n%s", err, out)
	}
	return bin
}

// toolsOf is the command that serves the tools of ada, who may start agents.
func toolsOf(t *testing.T, bin string, m *cotaltest.Mesh) *exec.Cmd {
	t.Helper()
	creds := m.Credentials(t, "ada", &cotaltest.Peer{Request: &auth.Request{
		Subscribe: []string{">"}, Publish: []string{">"}, Capabilities: []string{trust.ScopeSpawn},
	}})
	path := filepath.Join(t.TempDir(), "ada.creds")
	if err := os.WriteFile(path, creds.Reveal(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin, "mcp", "--server", m.URL(), "--creds", path, "--join", "team")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "COTAL_HOME="+t.TempDir(), "COTAL_LAUNCH=")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// partnerOfTools answers questions as bob, and does what the scenario asks.
func partnerOfTools(t *testing.T, m *cotaltest.Mesh) func(json.RawMessage) (answer, error) {
	t.Helper()
	bob := m.Endpoint(t, "bob", nil)
	m.Credentials(t, "carol", nil) // is never there
	if err := bob.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		if d.Message.Text() == "a question" {
			reply := endpoint.Text("the answer")
			reply.ReplyTo = d.Message.ID
			if _, err := bob.Direct(context.Background(), d.Sender, reply); err != nil {
				t.Error(err)
			}
		}
		_ = d.Ack(context.Background()) // it comes again otherwise
	}); err != nil {
		t.Fatal(err)
	}
	ada := wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}
	return func(raw json.RawMessage) (answer, error) {
		var a ask
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		if a.Do == "direct" {
			_, err := bob.Direct(t.Context(), ada, endpoint.Text(a.Text))
			return answer{}, err
		}
		for { // until the question to carol is there; the scenario has its own end
			r, err := bob.Reach(t.Context(), wire.ReachRequest{To: "local.carol"})
			if err != nil || r.Waiting > 0 {
				return answer{}, err
			}
		}
	}
}

// TestToolsInJavaScript lists and calls every tool of the real program with the official client for JavaScript.
func TestToolsInJavaScript(t *testing.T) {
	node(t, "tools.mjs") // skips where there is none
	bin := build(t)
	t.Run("stdio", func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{Listen: true})
		tools := toolsOf(t, bin, m)
		cmd := node(t, "tools.mjs", append([]string{"stdio"}, tools.Args...)...)
		cmd.Env = tools.Env
		drive(t, cmd, wantToolChecks, partnerOfTools(t, m))
	})
	t.Run("http", func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{Listen: true})
		token := filepath.Join(t.TempDir(), "token")
		tools := toolsOf(t, bin, m)
		tools.Args = append(tools.Args, "--http", "127.0.0.1:0", "--token-file", token, "--json")
		tools.Stderr = t.Output()
		drive(t, node(t, "tools.mjs", "http", startTools(t, tools), token), wantToolChecks, partnerOfTools(t, m))
	})
}

// startTools starts a server and returns where it listens. It ends with the test.
func startTools(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // when it has ended, Wait says how
		if err := cmd.Wait(); err != nil && !strings.Contains(err.Error(), "signal") {
			t.Errorf("cotal mcp: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	var at struct{ URL string }
	if jerr := json.Unmarshal([]byte(line), &at); err != nil || jerr != nil {
		t.Fatalf("cotal mcp printed %q, %v", line, err)
	}
	return at.URL
}
