package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal with the program on its other side.
type terminal struct {
	t      *testing.T
	master *os.File

	mu   sync.Mutex
	seen bytes.Buffer
	more chan struct{}
}

// openTerminal runs a command of the program on a terminal of its own.
func openTerminal(t *testing.T, w *world, args ...string) (*terminal, *exec.Cmd) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slave.Close() }()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Args[0], cmd.Dir = "cotal", w.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm", "GORACE=atexit_sleep_ms=10"}
	for k, v := range w.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tm := &terminal{t: t, master: master, more: make(chan struct{}, 1)}
	go tm.read()
	return tm, cmd
}

func (tm *terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := tm.master.Read(buf)
		tm.mu.Lock()
		tm.seen.Write(buf[:n])
		tm.mu.Unlock()
		select {
		case tm.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// expect waits until the terminal has shown s after what was expected before.
func (tm *terminal) expect(s string) {
	tm.t.Helper()
	limit := time.After(patience)
	for {
		tm.mu.Lock()
		all := tm.seen.String()
		if i := strings.Index(all, s); i >= 0 {
			tm.seen.Next(i + len(s))
			tm.mu.Unlock()
			return
		}
		tm.mu.Unlock()
		select {
		case <-tm.more:
		case <-limit:
			tm.t.Fatalf("terminal does not show %q; it shows %q", s, all)
		}
	}
}

func (tm *terminal) send(keys string) {
	tm.t.Helper()
	if _, err := tm.master.WriteString(keys); err != nil {
		tm.t.Fatal(err)
	}
}

// TestJoinOnATerminal types like a person: lines are edited, what arrives does not disturb the line being typed, and the
// terminal is given back.
func TestJoinOnATerminal(t *testing.T) {
	w := newWorld(t)
	w.up()
	tm, cmd := openTerminal(t, w, "join")
	tm.expect("you are local.ada in space main")
	tm.expect("#general> ")
	tm.send("helo\x7flo wrold")          // a backspace
	tm.send("\x17world\r")               // Ctrl-W deletes the last word
	tm.expect("→ #general stored seq 1") // the receipt, above the prompt
	tm.send("half a line")               // not finished when a message arrives
	tm.expect("half a line")             // echoed by the editor
	w.must("send", "msg", "general", "\x1b[31mred\x1b[0m", "--name", "bob")
	tm.expect(`local.bob`)          // bold, so the name alone
	tm.expect(`\x1b[31mred\x1b[0m`) // as text, not as colour
	tm.expect("half a line")        // the line is drawn again
	tm.send("\x15/who\r")           // Ctrl-U empties it
	tm.expect("local.ada")
	tm.send("/quit\r")
	if err := cmd.Wait(); err != nil {
		t.Errorf("join ended with %v, want success", err)
	}
	if got := w.must("read", "general", "--json"); !strings.Contains(got, `"text":"hello world"`) {
		t.Errorf("history = %s, want the edited line", got)
	}
	state, err := unix.IoctlGetTermios(int(tm.master.Fd()), unix.TCGETS)
	if err != nil || state.Lflag&unix.ECHO == 0 || state.Lflag&unix.ICANON == 0 {
		t.Errorf("terminal flags %x, %v: want echo and line mode given back", state.Lflag, err)
	}
}

// TestJoinOnATerminalWithoutSize: some terminals say that they are 0 by 0; lines are not broken after each letter there.
func TestJoinOnATerminalWithoutSize(t *testing.T) {
	w := newWorld(t)
	w.up()
	tm, cmd := openTerminal(t, w, "join")
	tm.expect("#general> ")
	if err := unix.IoctlSetWinsize(int(tm.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{}); err != nil {
		t.Fatal(err)
	}
	tm.send("/who\r") // the size is looked at before each line
	tm.expect("local.ada")
	tm.send("/help\r")
	tm.expect("end the session")
	tm.send("abcdefgh")
	tm.expect("abcdefgh")
	tm.send("\x15/quit\r")
	if err := cmd.Wait(); err != nil {
		t.Errorf("join ended with %v, want success", err)
	}
}

// TestJoinLeavesOnCtrlC: the terminal is in raw mode then, so the key is ours to understand.
func TestJoinLeavesOnCtrlC(t *testing.T) {
	w := newWorld(t)
	w.up()
	for _, key := range []string{"\x03", "\x04"} {
		tm, cmd := openTerminal(t, w, "join")
		tm.expect("#general> ")
		tm.send(key)
		if err := cmd.Wait(); err != nil {
			t.Errorf("key %q: join ended with %v, want success", key, err)
		}
	}
}

// TestHistoryClearAsks: on a terminal the person is told what would go, and decides.
func TestHistoryClearAsks(t *testing.T) {
	w := newWorld(t)
	w.up()
	w.must("send", "msg", "general", "x")
	const question = `channel "general" of space "main" holds 1 message of 1 sender; remove them for good? [y/N] `
	for _, tt := range []struct {
		answer, want string
		code         int
	}{
		{"\r", "not confirmed; nothing was done", 5},
		{"nes\r", "not confirmed; nothing was done", 5},
		{"y\r", "removed 1 message of ", 0},
	} {
		tm, cmd := openTerminal(t, w, "history", "clear", "general")
		tm.expect(question)
		tm.send(tt.answer)
		tm.expect(tt.want)
		if err := cmd.Wait(); exitCode(err) != tt.code {
			t.Errorf("answer %q: exit %d, want %d", tt.answer, exitCode(err), tt.code)
		}
	}
}

// TestAPersonaThatNobodySaved: who leaves the editor without saving has made nothing, and who saves what it began with has made that.
func TestAPersonaThatNobodySaved(t *testing.T) {
	w := newWorld(t)
	agents := filepath.Join(w.dir, ".cotal", "agents")
	if err := os.MkdirAll(agents, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		editor, want string
		code         int
		left         bool
	}{
		{"true", `cotal: make agent file "scout": the editor was left without saving; nothing was done`, 5, false},
		{"touch", "start it: cotal spawn scout", 0, true},
	} {
		w.env["EDITOR"] = tt.editor
		tm, cmd := openTerminal(t, w, "persona", "new", "scout")
		tm.expect(tt.want)
		if err := cmd.Wait(); exitCode(err) != tt.code {
			t.Errorf("editor %s: exit %d, want %d", tt.editor, exitCode(err), tt.code)
		}
		if _, err := os.Stat(filepath.Join(agents, "scout.md")); (err == nil) != tt.left {
			t.Errorf("editor %s: the file: %v", tt.editor, err)
		}
	}
}
