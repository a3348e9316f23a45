//go:build linux || darwin

package hosts_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// quiet is how long a host's terminal has said nothing when a line is typed.
const quiet = time.Second

// terminal is one host in its seat.
type terminal struct {
	seat *seat.Client
	over bool
}

// run starts a host in a seat. It ends with the test at the latest.
func run(t *testing.T, dir string, life wire.Lifecycle, argv, env []string, cwd string) *terminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := seat.Start(t.Context(), seat.StartOptions{Program: self, Args: []string{"seat"}, Dir: dir, Spec: seat.Spec{
		ID: wire.NewUID(), Space: "test", Principal: life.Principal.String(), Argv: argv, Env: env, Dir: cwd, Cols: 120, Rows: 40,
	}})
	if err != nil {
		t.Fatalf("start %q: %v", argv, err)
	}
	c := &terminal{seat: s}
	t.Cleanup(func() { c.end(t) })
	return c
}

// line types a line at the prompt once the terminal is quiet.
func (c *terminal) line(t *testing.T, text string) {
	t.Helper()
	tick := time.NewTicker(quiet / 4)
	defer tick.Stop()
	late := time.After(patience)
	for {
		typed, err := c.seat.Wake(t.Context(), text, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if typed {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the host's terminal is never quiet")
		}
	}
}

// end ends the host and proves that nothing of it is left.
func (c *terminal) end(t *testing.T) {
	t.Helper()
	if c.over {
		return
	}
	c.over = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if t.Failed() {
		lines, _ := c.seat.Lines(ctx, 40) // what it shows is a help and no more
		t.Logf("screen:\n%s", strings.Join(lines, "\n"))
	}
	exit, err := c.seat.Stop(ctx, 5*time.Second)
	if err != nil {
		t.Errorf("stop the host: %v", err)
	}
	for _, p := range exit.Left {
		t.Errorf("the host left process %d, %q", p.PID, p.Name)
	}
	if err := c.seat.Release(ctx); err != nil {
		t.Errorf("release the seat: %v", err)
	}
	_ = c.seat.Close() // it is over
}
