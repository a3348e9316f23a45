package person

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// screen is where a person types and reads.
type screen struct {
	env     *command.Env // writes results in a way that does not disturb the line being typed
	lines   <-chan line
	prompt  func(string)
	restore func()

	interactive bool // a person types
}

// line is one line typed, or why there are no more.
type line struct {
	text string
	err  error
}

// openScreen takes the terminal over if there is one.
func openScreen(ctx context.Context, e *command.Env) (*screen, error) {
	in, ok := e.Stdin.(*os.File)
	if !ok || !e.Interactive() || e.JSON {
		return &screen{env: e, lines: pump(ctx, headless(e.Stdin)), prompt: func(string) {}, restore: func() {}}, nil
	}
	fd := int(in.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "take over the terminal: %v", err)
	}
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.Stdin, e.Stdout}, "> ")
	out, _ := e.Stdout.(*os.File)
	read := func() (string, error) {
		if w, h, err := term.GetSize(int(out.Fd())); err == nil {
			_ = t.SetSize(size(w, 80), size(h, 24))
		}
		s, err := t.ReadLine()
		if errors.Is(err, term.ErrPasteIndicator) {
			err = nil
		}
		return s, err
	}
	return &screen{
		env: e.WithOutput(t, e.Colour(e.Stdout)), lines: pump(ctx, read),
		interactive: true, prompt: redraw(t), restore: func() { _ = term.Restore(fd, old); fmt.Fprintln(e.Stdout) },
	}, nil
}

// size is a measure of the terminal; one that says 0 does not know its own.
func size(n, unknown int) int {
	if n <= 0 {
		return unknown
	}
	return n
}

// redraw sets the prompt, and draws the line being typed again when it changed.
func redraw(t *term.Terminal) func(string) {
	last := ""
	return func(s string) {
		if s == last {
			return
		}
		last = s
		t.SetPrompt(s)
		_, _ = t.Write(nil) // moves the line below nothing, which draws it again
	}
}

// headless reads lines of any length that a message may have.
func headless(r io.Reader) func() (string, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), wire.MaxMessage)
	return func() (string, error) {
		if sc.Scan() {
			return sc.Text(), nil
		}
		switch err := sc.Err(); {
		case err == nil:
			return "", io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			return "", wire.Errorf(wire.CodeBadRequest, "a line of standard input has more than %d bytes, the limit of a message", wire.MaxMessage)
		default:
			return "", wire.Errorf(wire.CodeInternal, "read standard input: %v", err)
		}
	}
}

// pump hands lines over until there are no more or ctx ends. A read that waits for a key cannot be called back, so
// its goroutine ends with the next key, the end of the input or the process.
func pump(ctx context.Context, read func() (string, error)) <-chan line {
	ch := make(chan line)
	go func() {
		for {
			s, err := read()
			select {
			case ch <- line{s, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return ch
}

// note prints text of ours, each line marked so that no message can look like it.
func (s *screen) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.env.Note("-- %s", strings.ReplaceAll(text, "\n", "\n-- "))
}
