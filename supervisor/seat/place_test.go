//go:build linux || darwin

package seat_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// far is below dir with a path that is too long for the address of a socket.
func far(dir string) string { return filepath.Join(dir, strings.Repeat("long/", 30), "seat") }

// A folder whose path is too long for a socket has its socket all the same, so nothing elsewhere can be lost or taken.
func TestLongFolders(t *testing.T) {
	o := options(t, "cat")
	o.Dir = far(o.Dir)
	c := start(t, o)
	send(t, c, "hello\r")
	shows(t, c, "hello")
	if info, err := os.Lstat(filepath.Join(o.Dir, "seat.sock")); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("socket in the folder: %v, %v; want one of mode 0600", info, err)
	}
	if got := c.Record().Socket; len(got) > 103 {
		t.Errorf("the record names %q, which no client of an earlier build can use", got)
	}
	v, err := c.View(within(t), seat.ViewOptions{})
	if err != nil {
		t.Fatalf("View() = %v", err)
	}
	_ = v.Close()
}

// A seat is found in its folder wherever that is moved to, and keeps there how its agent ended.
func TestMovedFolders(t *testing.T) {
	for name, place := range map[string]func(string) string{"short": func(dir string) string { return filepath.Join(dir, "seat") }, "long": far} {
		t.Run(name, func(t *testing.T) {
			o := options(t, "cat")
			root := filepath.Dir(o.Dir)
			o.Dir = place(filepath.Join(root, "before"))
			c := start(t, o)
			if err := os.Rename(filepath.Join(root, "before"), filepath.Join(root, "after")); err != nil {
				t.Fatal(err)
			}
			moved := place(filepath.Join(root, "after"))
			d, err := seat.Open(within(t), moved)
			if err != nil {
				t.Fatalf("Open() = %v", err)
			}
			defer func() { _ = d.Close() }()
			send(t, d, "hello\r")
			shows(t, d, "hello")
			if _, err := d.Stop(within(t), 0); err != nil {
				t.Errorf("Stop() = %v", err)
			}
			if e, ok := seat.ReadExit(moved); !ok {
				t.Errorf("exit in the moved folder: %v, %v", e, ok)
			}
			ended(t, c)
		})
	}
}

// A seat that nobody can reach is ended by a signal, with its tree, and by nobody who has a copy of its folder.
func TestEndWithoutASocket(t *testing.T) {
	o := options(t, self(t), "agent", "parent")
	o.Spec.Grace = 50 * time.Millisecond
	c := start(t, o)
	grandchild := deaf(t, c)
	_ = c.Close()
	if err := os.Remove(filepath.Join(o.Dir, "seat.sock")); err != nil {
		t.Fatal(err)
	}
	if d, err := seat.Open(within(t), o.Dir); wire.CodeOf(err) != wire.CodeUnavailable {
		t.Fatalf("Open() = %v, %v; want unavailable", d, err)
	}
	copied := filepath.Join(t.TempDir(), "seat")
	if err := os.CopyFS(copied, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := seat.End(copied); wire.CodeOf(err) != wire.CodeFailedPrecondition || errors.Is(err, seat.ErrGone) {
		t.Errorf("End() of a copy = %v, want failed-precondition", err)
	}
	if !runs(grandchild) {
		t.Fatal("a copy of the folder ended the agent")
	}
	if err := seat.End(o.Dir); err != nil {
		t.Fatalf("End() = %v", err)
	}
	until(t, "the seat is gone", func() bool {
		_, err := seat.Open(within(t), o.Dir)
		return errors.Is(err, seat.ErrGone)
	})
	if runs(grandchild) {
		t.Error("the seat ended before its tree")
	}
	if _, ok := seat.ReadExit(o.Dir); !ok {
		t.Error("how the agent ended was not kept")
	}
	if err := seat.End(o.Dir); !errors.Is(err, seat.ErrGone) {
		t.Errorf("End() of one that has ended = %v, want ErrGone", err)
	}
}

// A seat that is stopped, which its own agent can do, is ended by a signal too.
func TestEndWhileStopped(t *testing.T) {
	o := options(t, "sleep", "1000")
	o.Spec.Grace = 50 * time.Millisecond
	c := start(t, o)
	pid := c.Record().Seat.PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "the seat is stopped", func() bool {
		out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
	})
	if err := seat.End(o.Dir); err != nil {
		_ = syscall.Kill(pid, syscall.SIGCONT) // for the clean-up of start
		t.Fatalf("End() = %v", err)
	}
	ended(t, c)
}

// A name in the folder for temporary files that somebody else took first stops no socket of ours.
func TestShortSocketsCannotBeTaken(t *testing.T) {
	tmp, err := os.MkdirTemp("/tmp", "c")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 25))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	short := func() string {
		t.Helper()
		path, err := seat.ShortSocket(filepath.Join(dir, "host.sock"))
		info, serr := os.Lstat(filepath.Dir(path))
		if err != nil || serr != nil || info.Mode().Perm() != 0o700 || len(path) > 103 {
			t.Fatalf("ShortSocket() = %q, %v in %v, %v; want a short one in 0700", path, err, info, serr)
		}
		return path
	}
	taken := filepath.Join(tmp, fmt.Sprintf("cotal-%d", os.Getuid()))
	if got := filepath.Dir(short()); got != taken {
		t.Errorf("nobody took it: in %q, want %q", got, taken)
	}
	if err := os.Chmod(taken, 0o777); err != nil {
		t.Fatal(err)
	}
	first := short()
	if again := short(); filepath.Dir(first) == taken || again != first {
		t.Errorf("taken: %q, then %q; want one elsewhere, twice", first, again)
	}
	t.Setenv("XDG_RUNTIME_DIR", tmp)
	if got := filepath.Dir(short()); got != filepath.Join(tmp, "cotal") {
		t.Errorf("with a runtime folder: in %q", got)
	}
}

// A path that is too long even below the folder for temporary files is refused by name, not by the system.
func TestNoFolderIsShortEnough(t *testing.T) {
	tmp := filepath.Join(t.TempDir(), strings.Repeat("long", 25))
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	t.Setenv("XDG_RUNTIME_DIR", "")
	if path, err := seat.ShortSocket(filepath.Join(tmp, "seat.sock")); wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("ShortSocket() = %q, %v; want bad-request", path, err)
	}
}

// Seats of earlier builds have their socket elsewhere when the path of their folder is long. They are found there.
func TestSocketsOfEarlierBuilds(t *testing.T) {
	o := options(t, "cat")
	c := start(t, o)
	tmp, err := os.MkdirTemp("/tmp", "c")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	file := filepath.Join(o.Dir, "seat.json")
	record, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(tmp, "it.sock")
	if err := os.Rename(c.Record().Socket, there); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(record), c.Record().Socket, there, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := seat.Open(within(t), o.Dir)
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	_ = d.Close()
}
