//go:build linux || darwin

package seat

import (
	"os"
	"runtime"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/cotal-go/cotal/internal/term"
	"github.com/cotal-go/cotal/wire"
)

// typed is one thing to type, whole: nothing comes between its parts.
type typed struct {
	data  []byte
	pause time.Duration
	then  []byte
}

// beforeEnter is how long a typed line rests before Enter: programs that take a burst for pasted text would take Enter for part of
// it. Gemini CLI on a busy machine reads both at once when Enter comes within a few tens of milliseconds.
const beforeEnter = 400 * time.Millisecond

// enqueue adds what the agent will read. It reports false when too much is waiting already. The mutex is held.
func (s *seat) enqueue(t typed) bool {
	n := len(t.data) + len(t.then)
	if n == 0 {
		return true
	}
	if s.pending+n > MaxPending {
		return false
	}
	s.input, s.pending, s.typed = append(s.input, t), s.pending+n, s.typed+uint64(n)
	s.changed.Broadcast()
	return true
}

// typing writes to the agent's terminal, which may take as long as the agent does not read.
func (s *seat) typing() {
	rest := time.NewTimer(0)
	defer rest.Stop()
	<-rest.C
	for {
		s.mu.Lock()
		for len(s.input) == 0 && !s.closing {
			s.changed.Wait()
		}
		if s.closing {
			s.mu.Unlock()
			return
		}
		t := s.input[0]
		s.input = s.input[1:]
		if len(s.input) == 0 {
			s.input = nil
		}
		s.mu.Unlock()
		_, err := s.ptmx.Write(t.data)
		if err == nil && len(t.then) > 0 {
			rest.Reset(t.pause)
			<-rest.C
			_, err = s.ptmx.Write(t.then)
		}
		s.mu.Lock()
		n := len(t.data) + len(t.then)
		s.pending -= n
		if s.torn = s.torn || err != nil; !s.torn {
			s.written += uint64(n)
			s.changed.Broadcast()
		}
		closing := s.closing
		s.mu.Unlock()
		if err != nil && closing {
			return
		}
	}
}

// typeIn returns the end of data in the count of what was ever typed.
func (s *seat) typeIn(data []byte) (uint64, error) {
	if len(data) > MaxInput {
		return 0, wire.Errorf(wire.CodeBadRequest, "type into terminal: %d bytes, limit %d", len(data), MaxInput)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exit != nil {
		return 0, errEnded("type into terminal")
	}
	now := time.Now()
	s.lastIn = now
	if !s.enqueue(typed{data: data}) {
		return 0, wire.Errorf(wire.CodeResourceExhausted, "type into terminal: the agent has not read %d bytes, limit %d", s.pending, MaxPending)
	}
	s.unsent.typed(data, now)
	s.stir()
	return s.typed, nil
}

func errEnded(doing string) error {
	return wire.Errorf(wire.CodeFailedPrecondition, "%s: the agent has ended", doing)
}

// wake types a line and Enter if the terminal has been quiet and no line waits there, which Enter would send with it.
func (s *seat) wake(line string, quiet time.Duration) (bool, error) {
	if len(line) > MaxInput || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return false, wire.Errorf(wire.CodeBadRequest, "type line %.40q: not one line of printable characters", line)
	}
	t := typed{data: []byte(line), pause: beforeEnter, then: []byte("\r")}
	if s.screen.Pasting() {
		t.data = []byte("\x1b[200~" + line + "\x1b[201~")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exit != nil {
		return false, errEnded("type line")
	}
	now := time.Now()
	if s.pending > 0 || now.Sub(s.lastOut) < quiet || now.Sub(s.lastIn) < quiet || s.unsent.stands(now) || !s.enqueue(t) {
		return false, nil
	}
	s.lastIn, s.unsent = now, unsent{}
	return true, nil
}

// setSize sets the size of a terminal. Unlike pty.Setsize it leaves the file as unblock made it.
func setSize(f *os.File, cols, rows int) error {
	return control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(cols), Row: uint16(rows)})
	})
}

// unblock makes a terminal that package pty opened one whose Close ends a write that waits for an agent that does not read. On darwin the
// poller does not know files that were opened so, and such a write ends when the system sees fit.
func unblock(f *os.File) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	return control(f, func(fd int) error { return unix.SetNonblock(fd, true) })
}

func control(f *os.File, do func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if outer := c.Control(func(fd uintptr) { err = do(int(fd)) }); outer != nil {
		return outer
	}
	return err
}

// resize changes the size of the terminal. A zero leaves that dimension as it is.
func (s *seat) resize(cols, rows int) error {
	if cols < 0 || rows < 0 || cols > term.MaxCols || rows > term.MaxRows {
		return wire.Errorf(wire.CodeBadRequest, "resize terminal to %dx%d: limit %dx%d", cols, rows, term.MaxCols, term.MaxRows)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exit != nil {
		return errEnded("resize terminal")
	}
	oldCols, oldRows := s.screen.Size()
	if cols == 0 {
		cols = oldCols
	}
	if rows == 0 {
		rows = oldRows
	}
	// The terminal is set even if the screen has the size already: a program inside may have set another.
	if err := setSize(s.ptmx, cols, rows); err != nil {
		return wire.Errorf(wire.CodeInternal, "resize terminal to %dx%d: %v", cols, rows, err)
	}
	if cols == oldCols && rows == oldRows {
		return nil
	}
	s.screen.Resize(cols, rows)
	s.resizes++
	s.changed.Broadcast()
	return nil
}
