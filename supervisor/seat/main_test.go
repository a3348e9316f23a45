//go:build linux || darwin

package seat_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// The test binary plays the seat and the agents when it is run again.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "seat" {
		if err := seat.Main(context.Background(), os.Args[2], slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "agent" {
		os.Exit(agent(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

func self(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// environment is that of agents. Those built with the race detector otherwise end a second late.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TERM=xterm-256color", "LANG=C.UTF-8", "GORACE=atexit_sleep_ms=10"}
}

// options are for a seat in a fresh folder whose agent is argv.
func options(t testing.TB, argv ...string) seat.StartOptions {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return seat.StartOptions{
		Program: self(t), Args: []string{"seat"}, Dir: filepath.Join(dir, "seat"),
		Spec: seat.Spec{ID: wire.NewUID(), Space: "lab", Principal: "local.ada", Argv: argv, Env: environment(), Dir: dir, Cols: 80, Rows: 24},
	}
}

// start starts a seat and ends it, and whatever it left, with the test.
func start(t testing.TB, o seat.StartOptions) *seat.Client {
	t.Helper()
	c, err := seat.Start(within(t), o)
	if err != nil {
		t.Fatalf("Start(%q) = %v\n%s", o.Spec.Argv, err, seatLog(o.Dir))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := c.Stop(ctx, 0); err == nil {
			_ = c.Release(ctx)
			<-c.Done()
		} else if _, err := seat.Sweep(ctx, o.Dir, 0); err != nil {
			t.Errorf("Sweep() = %v", err)
		}
		_ = c.Close()
		if t.Failed() {
			t.Logf("seat.log: %s", seatLog(o.Dir))
		}
	})
	return c
}

func seatLog(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, "seat.log"))
	return string(b)
}

// patience is the most that a test waits for anything. How fast a machine is shows nothing.
const patience = 3 * time.Minute

// within bounds what a test waits for.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func ended(t testing.TB, c *seat.Client) seat.Exit {
	t.Helper()
	select {
	case <-c.Done():
	case <-within(t).Done():
		t.Fatalf("the agent has not ended after %v", patience)
	}
	e, ok := c.Exit()
	if !ok {
		t.Fatal("the seat was lost without a word")
	}
	return e
}

// until waits for a fact of the system that nobody announces.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := within(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end.Done():
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// shows waits until the terminal has a line with the text, and returns the line.
func shows(t testing.TB, c *seat.Client, text string) string {
	t.Helper()
	line := ""
	until(t, "the terminal shows "+text, func() bool {
		lines, err := c.Lines(within(t), 100)
		for _, l := range lines {
			if strings.Contains(l, text) {
				line = l
			}
		}
		return err == nil && line != ""
	})
	return line
}

func send(t testing.TB, c *seat.Client, text string) {
	t.Helper()
	if err := c.Input(within(t), []byte(text)); err != nil {
		t.Fatalf("Input(%q) = %v", text, err)
	}
}

// deaf waits for the agent of that name and returns its pid.
func deaf(t testing.TB, c *seat.Client) int {
	t.Helper()
	said := regexp.MustCompile(`deaf (\d+)`)
	pid := 0
	until(t, "a deaf agent tells its pid", func() bool {
		lines, err := c.Lines(within(t), 100)
		if m := said.FindStringSubmatch(strings.Join(lines, "\n")); err == nil && m != nil {
			pid, _ = strconv.Atoi(m[1])
		}
		return pid != 0
	})
	return pid
}

// runs reports whether a process with the pid runs; a zombie does not.
func runs(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
