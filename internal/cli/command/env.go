package command

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"

	"github.com/cotal-go/cotal/internal/config"
)

// Env is all a command may touch of the world outside its flags.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Getenv reads one environment variable.
	Getenv func(string) string
	// Dir is the working folder, absolute.
	Dir string

	// JSON, Verbose and Flags are set by the flags that every command has.
	JSON    bool
	Verbose bool
	Flags   config.Flags
	// Records is set for a command that works from the trust records of a project: no credential stands for them.
	Records bool
	// Changes is set for a command that changes something in the mesh, which it therefore names when nobody else did.
	Changes bool

	colour *bool // set by WithOutput
}

// WithOutput is a copy of e that writes results to w, coloured if colour says so.
func (e *Env) WithOutput(w io.Writer, colour bool) *Env {
	c := *e
	c.Stdout, c.Stderr, c.colour = w, w, &colour
	return &c
}

// Config resolves which mesh, space and credential the command means.
func (e *Env) Config() (*config.Config, error) {
	return config.Resolve(config.Input{Flags: e.Flags, Getenv: e.Getenv, Dir: e.Dir})
}

// Logger logs to standard error: everything from level down when --verbose is given, nothing below it otherwise.
func (e *Env) Logger(level slog.Level) *slog.Logger {
	if e.Verbose {
		level = slog.LevelDebug
	}
	opts := &slog.HandlerOptions{Level: level}
	if e.JSON {
		return slog.New(slog.NewJSONHandler(e.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(e.Stderr, opts))
}

// Quiet is a logger for short commands: silent unless --verbose is given.
func (e *Env) Quiet() *slog.Logger {
	if !e.Verbose {
		return slog.New(slog.DiscardHandler)
	}
	return e.Logger(slog.LevelDebug)
}

// Interactive reports whether a person types at a terminal and sees the output.
func (e *Env) Interactive() bool { return isTerminal(e.Stdin) && isTerminal(e.Stdout) }

// Shown reports whether what is printed goes to a terminal.
func (e *Env) Shown() bool { return isTerminal(e.Stdout) }

// Typed reports whether standard input is a terminal, wherever the output goes.
func (e *Env) Typed() bool { return isTerminal(e.Stdin) }

// Colour reports whether w is a terminal that may be coloured. NO_COLOR set to anything, or a terminal called
// "dumb", says no.
func (e *Env) Colour(w io.Writer) bool {
	if e.colour != nil {
		return *e.colour
	}
	return isTerminal(w) && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"
}

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
