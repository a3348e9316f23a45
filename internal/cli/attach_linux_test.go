package cli_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cotal-go/cotal/internal/cli"
	"github.com/cotal-go/cotal/internal/term"
)

// glass follows what a terminal was sent, as a person sees it.
type glass struct {
	*terminal
	mu     sync.Mutex
	screen *term.Screen
}

// attachOn runs cotal attach on a terminal of a size.
func attachOn(t *testing.T, w *world, cols, rows int, args ...string) (*glass, func() int) {
	t.Helper()
	g := &glass{screen: term.New(cols, rows)}
	tm, cmd := openTerminal(t, w, append([]string{"attach"}, args...)...)
	g.terminal = tm
	g.size(cols, rows)
	return g, func() int { return exitCode(cmd.Wait()) }
}

// size changes the size of the terminal.
func (g *glass) size(cols, rows int) {
	g.t.Helper()
	if err := unix.IoctlSetWinsize(int(g.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)}); err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.screen.Resize(cols, rows)
}

// shows waits until the person sees all of the texts.
func (g *glass) shows(texts ...string) string {
	g.t.Helper()
	limit := time.After(patience)
	for {
		g.terminal.mu.Lock()
		all := g.seen.String()
		g.seen.Reset()
		g.terminal.mu.Unlock()
		g.mu.Lock()
		_, _ = g.screen.Write([]byte(all))
		seen := g.screen.Grid().Text()
		g.mu.Unlock()
		ok := true
		for _, s := range texts {
			ok = ok && strings.Contains(seen, s)
		}
		if ok {
			return seen
		}
		select {
		case <-g.more:
		case <-limit:
			g.t.Fatalf("the person does not see %q but\n%s", texts, seen)
		}
	}
}

// cooked fails unless the terminal was given back.
func (g *glass) cooked() {
	g.t.Helper()
	state, err := unix.IoctlGetTermios(int(g.master.Fd()), unix.TCGETS)
	if err != nil || state.Lflag&unix.ECHO == 0 || state.Lflag&unix.ICANON == 0 {
		g.t.Errorf("terminal flags %x, %v: want echo and line mode given back", state.Lflag, err)
	}
}

// shell starts an agent that is a shell with a short prompt, and returns what ends it.
func (w *world) shell(name string) (stop func()) {
	w.t.Helper()
	w.must("spawn", "--agent", "command", "--restart", "never", "--name", name, "--", "/bin/sh", "-c", "PS1='$ '; export PS1; stty sane; exec /bin/sh -i")
	return func() { w.run("", "stop", name, "--force") } // it may have ended
}

// TestP15CtrlCGoesToTheAgent is a person at a shell: what is typed, Ctrl-C, the size, leaving and coming back.
func TestP15CtrlCGoesToTheAgent(t *testing.T) {
	w := newWorld(t)
	w.up()
	defer w.shell("sh1")()
	g, wait := attachOn(t, w, 90, 20, "sh1")
	g.shows("$", "ctrl-] leaves, and sh1 goes on")
	g.send("echo one$((1+1))\r")
	g.shows("one2")
	g.send("sh -c 'trap \"echo cau\"\"ght; exit\" INT; echo re\"\"ady; while :; do sleep 1; done'\r")
	g.shows("ready")
	g.send("\x03")
	g.shows("caught")
	g.send("echo still$((3+4))\r")
	g.shows("still7")
	g.send("\x1d")
	if code := wait(); code != 0 {
		t.Errorf("attach ended with %d", code)
	}
	g.shows("left sh1, which goes on")
	g.cooked()
	// P11: the size is the driver's, also when it has not changed and after it has.
	for _, size := range [][2]int{{90, 20}, {90, 20}, {70, 25}} {
		g, wait := attachOn(t, w, size[0], size[1], "sh1")
		g.shows("$")
		g.send("clear; stty size\r")
		g.shows(fmt.Sprintf("%d %d", size[1], size[0]))
		g.size(100, 30)
		// The signal of the size and the keys reach the program in any order, so the agent waits for the size.
		g.send("until [ \"$(stty size)\" = \"$((29+1)) 100\" ]; do sleep 0.05; done; clear; stty size\r")
		g.shows("30 100")
		g.send("\x1d")
		if code := wait(); code != 0 {
			t.Errorf("attach ended with %d", code)
		}
	}
	// A terminal of another size that looks sees the part around the cursor.
	look, waitLook := attachOn(t, w, 40, 8, "sh1", "--view")
	look.shows("$")
	look.send("exit\r")
	again, waitAgain := attachOn(t, w, 100, 30, "sh1", "--detach-key", "ctrl-b")
	again.shows("$")
	again.send("clear; echo both\x1d see\r") // not the key any more
	again.shows("both", "see")
	look.shows("both", "see")
	look.send("\x1d")
	again.send("\x02")
	for _, wait := range []func() int{waitLook, waitAgain} {
		if code := wait(); code != 0 {
			t.Errorf("attach ended with %d", code)
		}
	}
	look.cooked()
	again.cooked()
	// The end of the agent ends the visit.
	last, waitLast := attachOn(t, w, 80, 24, "sh1")
	last.shows("$")
	last.send("exit 3\r")
	last.shows("sh1 is gone: it exited with code 3")
	if code := waitLast(); code != 0 {
		t.Errorf("attach ended with %d", code)
	}
	last.cooked()
}

// TestC48InvalidDetachKey is refused before anything is connected: there is no mesh here at all.
func TestC48InvalidDetachKey(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"ctrl-c", "b", "ctrl-"} {
		if code, _, errs := w.run("", "attach", "x", "--detach-key", key); code != 2 || !strings.Contains(errs, "detach key") {
			t.Errorf("%s: exit %d: %s", key, code, errs)
		}
	}
	w.env["COTAL_DETACH_KEY"] = "ctrl-["
	if code, _, errs := w.run("", "attach", "x"); code != 2 || !strings.Contains(errs, "detach key") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestP15TerminalIsGivenBack ends cotal attach in other ways than by the key.
func TestP15TerminalIsGivenBack(t *testing.T) {
	w := newWorld(t)
	w.up()
	defer w.shell("sh2")()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
		tm, cmd := openTerminal(t, w, "attach", "sh2")
		g := &glass{terminal: tm, screen: term.New(100, 24)}
		g.shows("$")
		g.send("printf '\\033[?1049h\\033[?1000h\\033[?25lfull'\r")
		g.shows("full")
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		g.shows("left sh2")
		g.cooked()
		if grid := g.screen.Grid(); grid.Alt || grid.Hidden {
			t.Errorf("after %s the alternate screen or no cursor is left", sig)
		}
	}
}

// TestAttachWithoutTerminal prints text, and types what is piped.
func TestAttachWithoutTerminal(t *testing.T) {
	w := newWorld(t)
	w.up()
	defer w.shell("sh3")()
	code, out, errs := w.run("echo piped$((5+6))\nexit 4\n", "attach", "sh3", "--follow")
	if code != 0 || !strings.Contains(out, "piped11\n") || strings.Contains(out, "\x1b") || !strings.Contains(errs, "sh3 is gone: it exited with code 4") {
		t.Errorf("exit %d, printed %q, said %q", code, out, errs)
	}
	if code, _, errs := w.run("", "attach", "sh3", "--json"); code != 2 {
		t.Errorf("--json: exit %d: %s", code, errs)
	}
	if code, _, errs := w.run("", "attach", "nobody"); code != 4 {
		t.Errorf("nobody: exit %d: %s", code, errs)
	}
}

// reader starts an agent that begins with a mode of its terminal and then reads as the script says. Before that the terminal drops what
// is more than a line.
func (w *world) reader(name, mode, script string) (stop func()) {
	w.t.Helper()
	ready := filepath.Join(w.t.TempDir(), "ready")
	w.must("spawn", "--agent", "command", "--restart", "never", "--name", name, "--", "/bin/sh", "-c", "PATH=/usr/bin:/bin; export PATH; stty "+mode+" -echo; : > '"+ready+"'; "+script)
	for limit := time.Now().Add(patience); ; {
		if _, err := os.Stat(ready); err == nil {
			return func() { w.run("", "stop", name, "--force") } // it may have ended
		}
		if time.Now().After(limit) {
			w.t.Fatalf("%s did not set the mode of its terminal:\n%s", name, w.must("ps", name))
		}
		w.must("ps", name)
	}
}

// pipeReader starts an agent that reads exactly so many bytes from its terminal, half a megabyte at a time with pauses, and then shows
// their digest until somebody presses Enter.
func (w *world) pipeReader(name, mode string, bytes int) (stop func()) {
	w.t.Helper()
	return w.reader(name, mode, fmt.Sprintf(`
		head -c %d | { while head -c 524288 > piece && test -s piece; do cat piece; sleep 0.1; done; } | sha256sum
		stty sane; read x; exit 0`, bytes))
}

// TestPipedInputArrivesWhole pipes 10 MB at agents that read slowly, one of them in line mode, where the system takes lines of at most 4095
// bytes. The command ends once all of it was written, and the agent goes on.
func TestPipedInputArrivesWhole(t *testing.T) {
	w := newWorld(t)
	w.up()
	const size = 10 << 20
	r := rand.New(rand.NewPCG(7, 7))
	raw := make([]byte, size)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	lines := make([]byte, size)
	for i, left := 0, 4094; i < size; i, left = i+1, left-1 {
		lines[i] = byte('a' + r.IntN(26))
		if left == 0 || i == size-1 {
			lines[i], left = '\n', 1+r.IntN(4095)
		}
	}
	for mode, data := range map[string][]byte{"raw": raw, "sane": lines} {
		t.Run(mode, func(t *testing.T) {
			defer w.pipeReader("slow_"+mode, mode, size)()
			code, _, errs := w.run(string(data), "attach", "slow_"+mode)
			if code != 0 || !strings.Contains(errs, "left slow_"+mode+", which goes on; --follow shows what it answers\n") {
				t.Fatalf("exit %d, said %q", code, errs)
			}
			want := fmt.Sprintf("%x", sha256.Sum256(data))
			if code, out, errs := w.run("\n", "attach", "slow_"+mode, "--follow"); code != 0 || !strings.Contains(out, want) || !strings.Contains(errs, "exited with code 0") {
				t.Errorf("exit %d, want %s shown: %q, said %q", code, want, out, errs)
			}
		})
	}
}

// TestPipedInputOfAnAgentThatEnds pipes more than the agent reads before it ends.
func TestPipedInputOfAnAgentThatEnds(t *testing.T) {
	w := newWorld(t)
	w.up()
	defer w.reader("quits", "raw", "head -c 1000 >/dev/null; exit 5")()
	code, _, errs := w.run(strings.Repeat("x", 200_000), "attach", "quits")
	if code != 0 || !strings.Contains(errs, "it exited with code 5") || !strings.Contains(errs, "bytes that were piped in were not said to be written before it ended\n") {
		t.Errorf("exit %d, said %q", code, errs)
	}
}

// TestPipedInputWhoseConnectionIsCut ends the mesh under a pipe at an agent that reads nothing: what is not known to have been written is
// told, once.
func TestPipedInputWhoseConnectionIsCut(t *testing.T) {
	w := newWorld(t)
	w.must("up", "--detach", "--no-restart")
	defer func() {
		w.must("up", "--detach")
		w.takeDown()
	}()
	w.reader("deaf", "raw", "while :; do sleep 60; done")
	in, pipe := io.Pipe()
	defer func() { _ = in.Close() }()
	var sent atomic.Int64
	go func() {
		for {
			n, err := pipe.Write(make([]byte, 4096))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	var out, errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Main(t.Context(), []string{"attach", "deaf"}, w.cliEnv(in, &out, &errs))
	}()
	for was := int64(-1); sent.Load() == 0 || sent.Load() != was; { // until the agent's terminal is full
		was = sent.Load()
		w.must("ps", "deaf")
	}
	w.crash()
	code := <-ended
	if code != 8 || strings.Count(errs.String(), "nobody knows whether the last 32768 of the") != 1 || strings.Count(errs.String(), "type what is piped in") != 1 {
		t.Errorf("exit %d, said %q", code, &errs)
	}
}
