package js_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/archtest"
)

// patience is how long the partner of a scenario waits for what it is asked.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// How many checks the scenario makes and how many vectors there are at least: one that is lost is a failure.
const (
	wantChecks  = 120
	wantVectors = 351
)

// node returns the command that runs a script of this folder.
func node(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := exec.LookPath("node")
	if err != nil {
		archtest.Skip(t, "node is not installed")
	}
	if _, err := os.Stat(filepath.Join("node_modules", "@nats-io", "transport-node")); err != nil {
		archtest.Skip(t, "the JavaScript NATS client is not installed: run conformance/js/setup")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, bin, append([]string{script}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = t.Output()
	return cmd
}

// TestJavaScriptClient drives a space with the JavaScript participant, and with Go endpoints beside it.
func TestJavaScriptClient(t *testing.T) {
	cmd := node(t, "drive.mjs")
	m := cotaltest.New(t, &cotaltest.Options{Listen: true})
	p := newPartner(t, m)
	cmd.Args = append(cmd.Args, m.URL())
	for _, actor := range []string{"jay", "mallory", "sam"} {
		cmd.Args = append(cmd.Args, actor+"="+p.credential(t, actor, requests[actor]))
	}
	drive(t, cmd, wantChecks, func(raw json.RawMessage) (answer, error) {
		var a ask
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		return p.do(t, a), nil
	})
}

// drive runs a scenario: do does what it asks, and its checks are subtests. One that makes another number of them fails.
func drive(t *testing.T, cmd *exec.Cmd, want int, do func(ask json.RawMessage) (answer, error)) {
	t.Helper()
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
	t.Cleanup(func() { _ = cmd.Wait() }) // when the test ended early: by now its context has killed the child
	checks, script := 0, filepath.Base(cmd.Args[1])
	answers := json.NewEncoder(in)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Check, Error string
			OK           bool
			Ask          json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("%s said %q: %v", script, lines.Text(), err)
			continue
		}
		if line.Ask != nil {
			got, err := do(line.Ask)
			if err != nil {
				got = answer{"error": err.Error()}
			}
			if err := answers.Encode(got); err != nil {
				t.Fatalf("answer %s: %v", line.Ask, err)
			}
			continue
		}
		checks++
		t.Run(line.Check, func(t *testing.T) {
			if !line.OK {
				t.Error(line.Error)
			}
		})
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	if checks != want {
		t.Errorf("%s made %d checks, want %d", script, checks, want)
	}
}

// TestVectorsInJavaScript holds the JavaScript reading of SPEC.md against the vectors that the Go code is held against.
func TestVectorsInJavaScript(t *testing.T) {
	cmd := node(t, "vectors.mjs", filepath.Join("..", "..", "wire", "testdata", "vectors"))
	out, runErr := cmd.Output()
	cases := 0
	for line := range bytes.Lines(out) {
		var v struct {
			Vector, Got, Want string
			OK                bool
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("vectors.mjs said %q: %v", line, err)
		}
		cases++
		if !v.OK {
			t.Errorf("%s: got %s, want %s", v.Vector, v.Got, v.Want)
		}
	}
	if runErr != nil {
		t.Errorf("vectors.mjs: %v", runErr)
	}
	if cases < wantVectors {
		t.Errorf("vectors.mjs ran %d vectors, want at least %d", cases, wantVectors)
	}
}

// TestLockNamesNoHost: packages come from whatever registry the machine uses, and are known by their digests.
func TestLockNamesNoHost(t *testing.T) {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(lock, []byte("://")) || !bytes.Contains(lock, []byte(`"integrity": "sha512-`)) {
		t.Error("package-lock.json names an address or no digest")
	}
}
