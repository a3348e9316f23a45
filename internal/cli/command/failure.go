package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cotal-go/cotal/wire"
)

// hinted carries what a person may do about an error.
type hinted struct {
	err   error
	hints []string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }

// Hint adds lines that say what to do about err. The hints of an error further in come after. Hint of nil is nil.
func Hint(err error, hints ...string) error {
	if err == nil {
		return nil
	}
	return &hinted{err: err, hints: hints}
}

// Usagef says that the command line is wrong.
func Usagef(format string, args ...any) error {
	return wire.Errorf(wire.CodeBadRequest, format, args...)
}

// Hints returns all hints of err, the outermost first, each once.
func Hints(err error) []string {
	var out []string
	for err != nil {
		if h, ok := err.(*hinted); ok {
			for _, s := range h.hints {
				if !slices.Contains(out, s) {
					out = append(out, s)
				}
			}
		}
		err = errors.Unwrap(err)
	}
	return out
}

// Failure is the JSON form of an error.
type Failure struct {
	V
	Error FailureBody `json:"error"`
}

// FailureBody says what was refused, what state was left and what to do.
type FailureBody struct {
	Code    wire.Code      `json:"code"`
	Message string         `json:"message"`
	Outcome wire.Outcome   `json:"outcome,omitempty"`
	Retry   wire.Retry     `json:"retry"`
	Exit    int            `json:"exit"`
	Details map[string]any `json:"details,omitempty"`
	Hints   []string       `json:"hints,omitempty"`
}

// FailureOf describes err for a program.
func FailureOf(err error) Failure {
	code := wire.CodeOf(err)
	body := FailureBody{Code: code, Message: err.Error(), Retry: code.Retry(), Exit: code.Exit(), Hints: Hints(err)}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		body.Outcome, body.Details = e.Outcome, e.Details
	}
	return Failure{V: V1, Error: body}
}

// Report prints err, if there is one, and returns the exit code. With --json the failure is one JSON object on
// standard error: standard output holds results only.
func Report(e *Env, err error) int {
	if err == nil {
		return 0
	}
	if code, quiet := exitOf(err); quiet {
		return code
	}
	f := FailureOf(err)
	if e.JSON {
		_ = e.writeJSON(e.Stderr, f) // nobody reads it then, and the exit code says what it was
		return f.Error.Exit
	}
	writeFailure(e.Stderr, f)
	return f.Error.Exit
}

func writeFailure(w io.Writer, f Failure) {
	fmt.Fprintf(w, "cotal: %s\n", SafeBody(f.Error.Message, "  "))
	for _, h := range f.Error.Hints {
		fmt.Fprintf(w, "hint: %s\n", SafeBody(h, "  "))
	}
}

// cancelled is an error that says already that the person ended the command, and what state that left.
type cancelled struct{ error }

func (c *cancelled) Unwrap() error { return c.error }

// Cancelledf says what state a command left that the person ended. The text begins with "cancelled".
func Cancelledf(format string, args ...any) error {
	return &cancelled{wire.Errorf(wire.CodeCancelled, format, args...)}
}

// Undonef is [Cancelledf] for a command that did nothing.
func Undonef(format string, args ...any) error {
	e := wire.Errorf(wire.CodeCancelled, format, args...)
	e.Outcome = wire.OutcomeNotExecuted
	return &cancelled{e}
}

// Stopped is err as the person reads it who ended the command, which ctx says: that, and that nothing was done where that is
// known, instead of the place where it was at work. Refusals and bugs stay what they are.
func Stopped(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if _, said := errors.AsType[*cancelled](err); said {
		return err
	}
	code := wire.CodeOf(err)
	e, ok := errors.AsType[*wire.Error](err)
	switch nothing := ok && e.Outcome == wire.OutcomeNotExecuted; {
	case code == wire.CodeUnavailable, nothing && (code == wire.CodeCancelled || code == wire.CodeDeadlineExceeded):
		done := wire.Errorf(wire.CodeCancelled, "cancelled; nothing was done")
		done.Outcome = wire.OutcomeNotExecuted
		return done
	case code == wire.CodeCancelled, code == wire.CodeDeadlineExceeded, errors.Is(err, context.Canceled):
		return Hint(wire.Errorf(wire.CodeCancelled, "cancelled"), Hints(err)...)
	}
	return err
}
