package term_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/internal/term"
)

// random writes what full-screen programs write, at random. Left out is where tmux differs from xterm: it wraps backwards on backspace,
// keeps to other rules in origin and insert mode, and captures line drawing as letters.
func random(r *rand.Rand, steps int) []byte {
	var b bytes.Buffer
	words := []string{"hello", "a longer run of words that wraps at the end of the line", "漢字", "x漢", "e\u0301a\u0308", "\t", "\r\n", "\n", "\r", "│─┼"}
	for range steps {
		x, y, n := 1+r.IntN(42), 1+r.IntN(14), 1+r.IntN(5)
		switch r.IntN(18) {
		case 0, 1, 2, 3, 4:
			b.WriteString(words[r.IntN(len(words))])
		case 5, 6:
			fmt.Fprintf(&b, "\x1b[%d;%dH", y, x)
		case 7:
			fmt.Fprintf(&b, "\x1b[%dK", r.IntN(3))
		case 8:
			fmt.Fprintf(&b, "\x1b[%dJ", r.IntN(2))
		case 9:
			// Inside the region, and with a place for the cursor: elsewhere terminals differ.
			fmt.Fprintf(&b, "\x1b[5;%dH\x1b[%d%c\r", x, n, "LM"[r.IntN(2)])
		case 10:
			fmt.Fprintf(&b, "\x1b[%d%c", n, "@PX"[r.IntN(3)])
		case 11:
			fmt.Fprintf(&b, "\x1b[%d;%dr", 1+r.IntN(4), 6+r.IntN(7))
		case 12:
			b.WriteString("\x1bM")
		case 13:
			fmt.Fprintf(&b, "\x1b[%d%c", n, "ABCD"[r.IntN(4)])
		case 14:
			b.WriteString([]string{"\x1b7", "\x1b8", "\x1b[r", "\x1bD", "\x1bE"}[r.IntN(5)])
		case 15:
			fmt.Fprintf(&b, "\x1b[%d%c", n, "ST"[r.IntN(2)])
		case 16:
			b.WriteString([]string{"\x1b[?7l", "\x1b[?7h"}[r.IntN(2)])
		case 17:
			fmt.Fprintf(&b, "\x1b[%d%c", n, "GEF"[r.IntN(3)])
		}
	}
	b.WriteString("\x1b[?7h\x1b[4l")
	return b.Bytes()
}

// The screen shows what tmux shows for the same output.
func TestScreenAgreesWithTmux(t *testing.T) {
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		archtest.Skip(t, "tmux is not installed")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(tmux, append([]string{"-S", socket, "-f", "/dev/null"}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm-256color")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v %s", args, err, out)
		}
		return string(out)
	}
	run("-u", "new-session", "-d", "-x", "40", "-y", "12", "sleep 1000")
	t.Cleanup(func() { run("kill-server") })
	run("set", "-g", "status", "off")
	run("set", "-g", "default-size", "40x12")
	wrong := 0
	for seed := range uint64(70) {
		out := random(rand.New(rand.NewPCG(seed, 7)), 5+int(seed)*2)
		file := filepath.Join(dir, fmt.Sprint(seed))
		if err := os.WriteFile(file, out, 0o600); err != nil {
			t.Fatal(err)
		}
		win := fmt.Sprintf("w%d", seed)
		run("new-session", "-d", "-s", win, "-x", "40", "-y", "12",
			fmt.Sprintf("stty raw; cat %s; %s -S %s wait-for -S %s; sleep 1000", file, tmux, socket, win))
		run("wait-for", win)
		lines := strings.Split(run("capture-pane", "-p", "-t", win), "\n")
		cursor := strings.TrimSpace(run("display", "-p", "-t", win, "#{cursor_x},#{cursor_y}"))
		run("kill-session", "-t", win)
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		s := term.New(40, 12)
		_, _ = s.Write(out)
		g := s.Grid()
		x := g.CursorX
		if strings.Contains(g.State, "wrap=true") {
			x++ // tmux counts the place behind the last column
		}
		if d := cmp.Diff(strings.TrimRight(strings.Join(lines, "\n"), "\n"), g.Text()); d != "" || cursor != fmt.Sprintf("%d,%d", x, g.CursorY) {
			wrong++
			t.Errorf("seed %d: cursor %s in tmux, %d,%d here; (-tmux +screen):\n%s\n%q", seed, cursor, x, g.CursorY, d, out)
		}
		if wrong > 2 {
			break
		}
	}
}
