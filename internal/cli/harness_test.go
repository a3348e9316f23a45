package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/cli"
)

// world is a machine with one project, on which commands run in this process.
type world struct {
	t   *testing.T
	dir string // the project's folder
	env map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root := t.TempDir()
	w := &world{t: t, dir: filepath.Join(root, "p"), env: map[string]string{
		"COTAL_HOME": filepath.Join(root, "home"), "HOME": root, "COTAL_NAME": "ada",
	}}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) cliEnv(in io.Reader, out, errs io.Writer) cli.Env {
	return cli.Env{Stdin: in, Stdout: out, Stderr: errs, Dir: w.dir, Getenv: func(k string) string { return w.env[k] }}
}

// up runs `cotal up --json` beside the test until the test ends, and returns the line it printed when it was ready.
func (w *world) up(args ...string) string {
	w.t.Helper()
	return w.beside(append([]string{"up", "--json"}, args...)...)
}

// beside runs a command beside the test until the test ends, and returns the first line it printed.
func (w *world) beside(args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	pr, pw := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		c := cli.Main(ctx, args, w.cliEnv(strings.NewReader(""), pw, &errs))
		_ = pw.Close()
		code <- c
	}()
	line, err := bufio.NewReader(pr).ReadString('\n')
	w.t.Cleanup(func() {
		cancel()
		if c := <-code; c != 0 {
			w.t.Errorf("cotal %s ended with %d: %s", strings.Join(args, " "), c, &errs)
		}
	})
	if err != nil {
		w.t.Fatalf("cotal %s printed nothing: %v", strings.Join(args, " "), err)
	}
	return line
}

// run runs one command with text on standard input.
func (w *world) run(stdin string, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	var out, errs bytes.Buffer
	code = cli.Main(w.t.Context(), args, w.cliEnv(strings.NewReader(stdin), &out, &errs))
	return code, out.String(), errs.String()
}

// mainOf runs one command with its output where the caller wants it.
func mainOf(w *world, out, errs io.Writer, args ...string) int {
	return cli.Main(w.t.Context(), args, w.cliEnv(strings.NewReader(""), out, errs))
}

// must runs one command that has to work and returns what it printed.
func (w *world) must(args ...string) string {
	w.t.Helper()
	code, out, errs := w.run("", args...)
	if code != 0 {
		w.t.Fatalf("cotal %s: exit %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// until runs a command that shows what others do until it prints want, and returns what it printed. What is for display
// may be a moment old.
func (w *world) until(want string, args ...string) string {
	w.t.Helper()
	return w.untilIt("print "+strconv.Quote(want), func(out string) bool { return strings.Contains(out, want) }, args...)
}

// untilIt is until for anything that an output may show.
func (w *world) untilIt(does string, shows func(out string) bool, args ...string) string {
	w.t.Helper()
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		if out := w.must(args...); shows(out) {
			return out
		}
	}
	w.t.Fatalf("cotal %s does not %s", strings.Join(args, " "), does)
	return ""
}

func decodeJSON(t *testing.T, line string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		t.Fatalf("not JSON: %q: %v", line, err)
	}
	return v
}
