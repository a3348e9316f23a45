package attach

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// console is where the person sits: a terminal, or what stands for one.
type console struct {
	show interface {
		take(endpoint.SessionEvent)
		status(text string)
	}
	glass *glass // the same, of a terminal; else nil
	plain *plain // of anything else
	out   *os.File

	typed   chan []byte // what was typed or piped; nil when nothing is
	piped   bool        // it may wait for a connection
	pipe    flow        // of what is piped in
	failed  chan error  // of reading, capacity 1
	resized <-chan os.Signal
	noted   <-chan time.Time // when what note said goes; nil when it is not there
	restore func()
}

// openConsole takes the terminal over, if there is one. What is typed is read for as long as ctx, unless only looking is meant and no
// terminal is there. Restore gives the terminal back; it may be called more than once.
func openConsole(ctx context.Context, e *command.Env, look bool) (*console, error) {
	c := &console{failed: make(chan error, 1), restore: func() {}}
	if !e.Interactive() {
		c.plain = &plain{out: e.Stdout, notes: e.Stderr}
		c.show = c.plain
		if c.piped = pipedIn(e, look); c.piped {
			c.read(ctx, e.Stdin)
		}
		return c, nil
	}
	in := e.Stdin.(*os.File)
	c.out = e.Stdout.(*os.File)
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "take over the terminal: %v", err)
	}
	cols, rows := c.size()
	c.glass = newGlass(c.out, cols, rows)
	c.show = c.glass
	changes, stop := sizeChanges()
	c.resized = changes
	c.glass.write([]byte(saveTitle))
	done := false
	c.restore = func() {
		if done {
			return
		}
		done = true
		stop()
		cols, _ := c.size()
		_, _ = io.WriteString(c.out, leaving(cols)+loadTitle) // a terminal that is gone needs it no more
		_ = term.Restore(int(in.Fd()), old)
	}
	c.read(ctx, in)
	return c, nil
}

// pipedIn reports whether input comes from something that is no terminal, and is to be typed.
func pipedIn(e *command.Env, look bool) bool {
	if look || e.Stdin == nil || e.Interactive() {
		return false
	}
	in, ok := e.Stdin.(*os.File)
	return !ok || !term.IsTerminal(int(in.Fd()))
}

// given reports whether standard input is something that was made to be read: a pipe, or a file that is not empty.
func given(e *command.Env) bool {
	in, ok := e.Stdin.(*os.File)
	if !ok {
		return e.Stdin != nil
	}
	info, err := in.Stat()
	return err == nil && (info.Mode()&os.ModeNamedPipe != 0 || info.Mode().IsRegular() && info.Size() > 0)
}

// noteTime is how long a terminal shows a note.
const noteTime = 3 * time.Second

// note says something at the bottom of a terminal for a moment.
func (c *console) note(text string) {
	c.glass.status(text)
	c.noted = time.After(noteTime)
}

// noteOver takes away what note said.
func (c *console) noteOver() {
	if c.noted == nil {
		return
	}
	if c.noted = nil; c.glass.screen != nil {
		c.glass.repaint()
	}
}

// size is that of the terminal, 0 by 0 without one.
func (c *console) size() (cols, rows int) {
	if c.out == nil {
		return 0, 0
	}
	return measure(c.out)
}

// sizeOf is the size that a console would have.
func sizeOf(e *command.Env) (cols, rows int) {
	out, ok := e.Stdout.(*os.File)
	if !ok || !e.Interactive() {
		return 0, 0
	}
	return measure(out)
}

func measure(f *os.File) (cols, rows int) {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		cols, rows = 80, 24
	}
	return min(cols, wire.MaxTerminalSide), min(rows, wire.MaxTerminalSide)
}

// read hands on what is typed. Nothing interrupts the reading of a terminal or a pipe, so it ends with those or with the process.
func (c *console) read(ctx context.Context, from io.Reader) {
	c.typed = make(chan []byte)
	go func() {
		defer func() {
			if v := recover(); v != nil { // the terminal is given back before anything else
				c.failed <- panicked("read what is typed", v)
			}
		}()
		for {
			buf := make([]byte, pieceSize)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case c.typed <- buf[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				if err != io.EOF {
					err = fmt.Errorf("read what is typed: %w", err)
				}
				c.failed <- err
				return
			}
		}
	}()
}

// err is the first failure of showing.
func (c *console) err() error {
	if c.glass != nil {
		return c.glass.err
	}
	return c.plain.err
}
