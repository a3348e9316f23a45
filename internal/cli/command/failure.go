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
	f := FailureOf(err)
	if e.JSON {
		if werr := e.writeJSON(e.Stderr, f); werr != nil {
			return wire.CodeInternal.Exit()
		}
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

// Interrupted reports whether err only says that the person or the system asked the command to end.
func Interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled) || wire.CodeOf(err) == wire.CodeCancelled)
}
