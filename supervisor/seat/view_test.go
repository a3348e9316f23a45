//go:build linux || darwin

package seat_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/internal/term"
	"github.com/cotal-go/cotal/supervisor/seat"
)

// eye is a viewer with a screen.
type eye struct {
	view      *seat.View
	screen    *term.Screen
	snapshots int
	output    int // bytes
	ended     bool
}

func look(t testing.TB, c *seat.Client) *eye {
	t.Helper()
	v, err := c.View(within(t), seat.ViewOptions{})
	if err != nil {
		t.Fatalf("View() = %v", err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return &eye{view: v, screen: term.New(1, 1)}
}

// step takes one frame.
func (e *eye) step(ctx context.Context) error {
	f, err := e.view.Next(ctx)
	if err != nil {
		return err
	}
	switch f.Kind {
	case seat.Snapshot:
		e.snapshots++
		e.screen.Resize(f.Cols, f.Rows)
		_, _ = e.screen.Write(f.Data)
	case seat.Output:
		e.output += len(f.Data)
		_, _ = e.screen.Write(f.Data)
	case seat.Resized:
		e.screen.Resize(f.Cols, f.Rows)
	case seat.Ended:
		e.ended = true
	}
	return nil
}

// sees takes frames until the screen shows the text.
func (e *eye) sees(t testing.TB, text string) {
	t.Helper()
	ctx := within(t)
	for !strings.Contains(e.screen.Grid().Text(), text) {
		if err := e.step(ctx); err != nil {
			t.Fatalf("waiting for %q: %v; the screen shows\n%s", text, err, e.screen.Grid().Text())
		}
	}
}

// settled takes frames until none came for a while, and returns the grid.
func (e *eye) settled() term.Grid {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		err := e.step(ctx)
		cancel()
		if err != nil {
			return e.screen.Grid()
		}
	}
}

// sameAsSeat compares a viewer that has followed with one that looks for the first time: that one has the seat's own grid. What the
// program still writes then is told to both, so they are taken to differ when they stay different.
func sameAsSeat(t testing.TB, c *seat.Client, e *eye) {
	t.Helper()
	got := e.settled()
	fresh := look(t, c)
	for end := within(t); ; got = e.settled() {
		d := cmp.Diff(fresh.settled(), got)
		if d == "" {
			break
		}
		if end.Err() != nil {
			t.Fatalf("grids differ (-seat +viewer):\n%s", d)
		}
	}
	if n := len(e.screen.Replies()); n > 0 {
		t.Errorf("a viewer's terminal was asked something: %d bytes of answers", n)
	}
}

// P12: 50 MB of output with a viewer that does not read and one that does: the agent is not held up, the slow one gets a snapshot
// and no false end, and both end with the seat's grid.
func TestP12SlowViewerGetsASnapshot(t *testing.T) {
	const size = 50 << 20
	c := start(t, options(t, "sh", "-c", fmt.Sprintf("read x; exec '%s' agent flood %d", self(t), size)))
	quick, slow := look(t, c), look(t, c)
	send(t, c, "\r") // not before the slow one has its first snapshot
	begun := time.Now()
	quick.sees(t, "the end")
	t.Logf("50 MB in %v, %d bytes and %d snapshots to the quick viewer", time.Since(begun), quick.output, quick.snapshots)
	slow.sees(t, "the end")
	t.Logf("%d bytes and %d snapshots to the slow one", slow.output, slow.snapshots)
	if slow.snapshots < 2 || slow.ended || slow.output > size/2 {
		t.Errorf("slow viewer: %d snapshots, ended %t, %d bytes; want a fresh snapshot, no end, and no backlog", slow.snapshots, slow.ended, slow.output)
	}
	sameAsSeat(t, c, quick)
	sameAsSeat(t, c, slow)
	send(t, c, "\r")
	for !slow.ended {
		if err := slow.step(within(t)); err != nil {
			t.Fatalf("waiting for the end: %v", err)
		}
	}
	if err := slow.step(within(t)); !errors.Is(err, seat.ErrGone) {
		t.Errorf("Next() after the end = %v, want ErrGone", err)
	}
}

// A viewer that never reads holds up neither the agent nor the end of its seat.
func TestDeafViewerDoesNotKeepTheSeat(t *testing.T) {
	c := start(t, options(t, self(t), "agent", "flood", fmt.Sprint(4<<20)))
	look(t, c) // more than a socket holds is written for it
	shows(t, c, "the end")
	if _, err := c.Stop(within(t), time.Second); err != nil {
		t.Fatal(err)
	}
	if err := c.Release(within(t)); err != nil {
		t.Fatal(err)
	}
	until(t, "the seat is gone", func() bool { return !runs(c.Record().Seat.PID) })
}

func TestFullScreenProgramsLookTheSame(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	var b bytes.Buffer
	for i := range 500 {
		fmt.Fprintf(&b, "%d 漢字かな e\u0301a\u0308 — some text of line %d that goes on %s\n", i, i, strings.Repeat("and on ", i%20))
	}
	if err := os.WriteFile(text, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]struct {
		argv       []string
		first, end string
		keys       []string
	}{
		"vim":  {[]string{"vim", "-u", "NONE", "-N", "+syntax on", text}, "some text", "", []string{"\x06", "\x06", "50G", "dd", "p", "ihello\x1b", ":vsplit\r", ":set nu\r", "\x15", "/line 77\r", "zz"}},
		"less": {[]string{"less", "-N", text}, "some text", "", []string{" ", " ", "b", "/line 3\r", "n", "n", "G", "g", "50g", "-S\r"}},
		"bash": {[]string{"bash", "--norc", "-i"}, "bash", "", []string{"ls --color /usr\r", "printf '\\033[5;10r\\033[10;1H\\n\\n\\nx'\r", "clear\r", "echo 漢字漢字\r"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting until a screen is quiet
			if _, err := exec.LookPath(p.argv[0]); err != nil {
				archtest.Skip(t, "vim, less or bash is not installed")
			}
			c := start(t, options(t, p.argv...))
			e := look(t, c)
			e.sees(t, p.first)
			for i, k := range p.keys {
				send(t, c, k)
				if i%3 == 0 {
					if err := c.Resize(within(t), 60+i*7%50, 15+i*5%20); err != nil {
						t.Fatal(err)
					}
				}
				sameAsSeat(t, c, e)
			}
		})
	}
}

func TestResizeStorm(t *testing.T) {
	c := start(t, options(t, "sh", "-c", "while :; do printf '\\033[3%dmline 漢字 %s\\033[0m\\r\\n' $((i=(i+1)%8)) \"$(stty size)\"; done"))
	a, b := look(t, c), look(t, c)
	a.sees(t, "line")
	b.sees(t, "line")
	for i := range 200 {
		if err := c.Resize(within(t), 1+i*37%150, 1+i*11%60); err != nil {
			t.Fatal(err)
		}
		if i%5 == 0 {
			if err := a.step(within(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Resize(within(t), 90, 25); err != nil {
		t.Fatal(err)
	}
	a.sees(t, "25 90")
	if _, err := c.Stop(within(t), time.Second); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*eye{a, b} {
		for !e.ended {
			if err := e.step(within(t)); err != nil {
				t.Fatalf("waiting for the end: %v", err)
			}
		}
	}
	ga, gb := a.screen.Grid(), b.screen.Grid()
	if d := cmp.Diff(ga, gb); d != "" || ga.Cols != 90 || ga.Rows != 25 {
		t.Errorf("grids differ, or are %dx%d (-a +b):\n%s", ga.Cols, ga.Rows, d)
	}
}

func term1() *term.Screen { return term.New(1, 1) }
