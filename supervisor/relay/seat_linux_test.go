package relay_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/internal/term"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/wire"
)

// seated starts a program on the terminal of a real seat.
func seated(t *testing.T, cols, rows int, argv ...string) relay.Terminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := supervisor.RealSeats{Program: self, Args: []string{"seat"}}.Start(t.Context(), filepath.Join(t.TempDir(), "s"), supervisor.SeatSpec{
		ID: wire.NewUID(), Space: "test", Principal: "local.prog", Argv: argv, Dir: t.TempDir(), Cols: cols, Rows: rows, Grace: time.Second,
		Env: []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", "HOME=/nonexistent", "LANG=C.UTF-8"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := s.Stop(context.Background(), 100*time.Millisecond)
		_ = s.Close(context.Background(), true)
		if err != nil {
			t.Error(err)
			return
		}
		for { // a seat that ends slowly is collected beside, and TestMain looks for who does it
			if _, err := syscall.Wait4(-1, nil, 0, nil); errors.Is(err, syscall.ECHILD) {
				return
			}
		}
	})
	return s.Terminal()
}

// equal takes events until the viewer shows what the seat shows.
func (g *glass) equal(t *testing.T, s *endpoint.Session, tm relay.Terminal) {
	t.Helper()
	limit := time.Now().Add(20 * time.Second)
	for {
		v, err := tm.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f, err := v.Next(t.Context())
		_ = v.Close()
		if err != nil {
			t.Fatal(err)
		}
		want := term.New(f.Cols, f.Rows)
		_, _ = want.Write(f.Data)
		diff := cmp.Diff(want.Grid(), g.Grid())
		if diff == "" {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("the viewer shows something else (-seat +viewer):\n%.3000s", diff)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		for {
			ev, err := s.Next(ctx)
			if err != nil {
				break
			}
			g.take(ev)
		}
		cancel()
	}
}

// TestRealFullScreenProgram edits in vim with a driver and a looker, through cuts and size changes.
func TestRealFullScreenProgram(t *testing.T) {
	vim, err := exec.LookPath("vim")
	if err != nil {
		archtest.NotHere(t, "vim is not installed")
	}
	w := newWorld(t, nil)
	ada, link := w.viewer(t, "ada")
	bob, _ := w.viewer(t, "bob")
	tm := seated(t, 80, 24, vim, "-u", "NONE", "-N", "-n")
	drive := open(t, ada, w.offer(t, ada, tm, true, 100, 30), &endpoint.SessionOptions{Cols: 100, Rows: 30})
	looks := open(t, bob, w.offer(t, bob, tm, false, 40, 10), &endpoint.SessionOptions{Cols: 40, Rows: 10})
	var a, b glass
	a.until(t, drive, "vim", func() bool { return a.Grid().Alt && strings.Contains(a.String(), "~") })
	if err := drive.Input([]byte("ihello 漢字 e\u0301 wörld\x1b")); err != nil {
		t.Fatal(err)
	}
	a.until(t, drive, "the text", func() bool { return strings.Contains(a.String(), "wörld") })
	b.until(t, looks, "the text", func() bool { return strings.Contains(b.String(), "wörld") })
	for _, size := range [][2]int{{60, 15}, {131, 41}, {100, 30}} {
		if err := drive.Resize(size[0], size[1]); err != nil {
			t.Fatal(err)
		}
		a.until(t, drive, "the size", func() bool { cols, rows := a.Size(); return cols == size[0] && rows == size[1] })
	}
	link.cut(false)
	a.until(t, drive, "the loss", func() bool { return a.lost > 0 })
	seen := a.snapshots
	a.until(t, drive, "what follows it", func() bool { return a.snapshots > seen })
	if err := drive.Input([]byte(":set number\rothis too\x1b")); err != nil {
		t.Fatal(err)
	}
	a.until(t, drive, "more text", func() bool { return strings.Contains(a.String(), "this too") })
	a.equal(t, drive, tm)
	b.equal(t, looks, tm)
}

// TestRealFlood writes 50 MB to viewers of which one takes nothing meanwhile.
func TestRealFlood(t *testing.T) {
	w := newWorld(t, nil)
	ada, _ := w.viewer(t, "ada")
	bob, _ := w.viewer(t, "bob")
	tm := seated(t, 80, 24, "/bin/sh", "-c", `read x; head -c 50000000 /dev/zero | tr '\0' 'x' | fold -w 100; printf '\033[2J\033[Hthe end'; read x`)
	fast := open(t, ada, w.offer(t, ada, tm, true, 80, 24), nil)
	slow := open(t, bob, w.offer(t, bob, tm, false, 0, 0), nil)
	if err := fast.Input([]byte("\r")); err != nil {
		t.Fatal(err)
	}
	var a, b glass
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for a.Screen == nil || !strings.Contains(a.String(), "the end") {
		ev, err := fast.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		a.take(ev)
	}
	b.until(t, slow, "the end", func() bool { return strings.Contains(b.String(), "the end") })
	a.equal(t, fast, tm)
	b.equal(t, slow, tm)
	if b.overflows == 0 || b.exit != nil || b.lost != 0 {
		t.Errorf("%d overflows, exit %v, lost %d times", b.overflows, b.exit, b.lost)
	}
}

// TestP16KilledMidResize kills the supervisor amid size changes: the next attach has its own size, and the child knows.
func TestP16KilledMidResize(t *testing.T) {
	w := newWorld(t, nil)
	ada, _ := w.viewer(t, "ada")
	tm := seated(t, 80, 24, "/bin/sh", "-c", "while read x; do stty size; done")
	first := open(t, ada, w.offer(t, ada, tm, true, 80, 24), &endpoint.SessionOptions{Cols: 80, Rows: 24})
	for i := range 50 {
		if err := first.Resize(5+i%7, 2+i%3); err != nil {
			t.Fatal(err)
		}
		if i == 25 {
			w.nc.Close() // what the kill of its process does to the space
		}
	}
	w.nc = w.supervisor(t)
	w.relay = w.serve(t, w.nc, "sup2", nil)
	for _, size := range [][2]int{{97, 31}, {97, 31}} {
		s := open(t, ada, w.offer(t, ada, tm, true, size[0], size[1]), &endpoint.SessionOptions{Cols: size[0], Rows: size[1]})
		if err := s.Input([]byte("\r")); err != nil {
			t.Fatal(err)
		}
		var g glass
		g.until(t, s, "the child's size", func() bool { return strings.Contains(g.String(), fmt.Sprintf("%d %d", size[1], size[0])) })
		g.equal(t, s, tm)
		_ = s.Close()
	}
}
