package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Outcome says whether the effect of a refused request happened. An error that carries none is read as unknown.
type Outcome string

// The outcomes.
const (
	OutcomeExecuted    Outcome = "executed"
	OutcomeNotExecuted Outcome = "not-executed"
	OutcomeUnknown     Outcome = "unknown"
)

// Sentinels for errors.Is. An *Error matches the sentinel of its code, whatever it says.
var (
	ErrBadRequest       error = &Error{Code: CodeBadRequest}
	ErrUnauthenticated  error = &Error{Code: CodeUnauthenticated}
	ErrExpired          error = &Error{Code: CodeExpired}
	ErrPermissionDenied error = &Error{Code: CodePermissionDenied}
	ErrNotFound         error = &Error{Code: CodeNotFound}
	ErrExists           error = &Error{Code: CodeAlreadyExists}
	ErrConflict         error = &Error{Code: CodeConflict}
	ErrPrecondition     error = &Error{Code: CodeFailedPrecondition}
	ErrExhausted        error = &Error{Code: CodeResourceExhausted}
	ErrUnavailable      error = &Error{Code: CodeUnavailable}
	ErrDeadline         error = &Error{Code: CodeDeadlineExceeded}
	ErrUnimplemented    error = &Error{Code: CodeUnimplemented}
	ErrInternal         error = &Error{Code: CodeInternal}
)

// Error is a refusal, local or received. Every field of a received one is the responder's claim. It prints and logs
// safely: control characters are escaped and the text is bounded, whoever wrote it.
type Error struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`           // for a person; never parsed
	Details map[string]any `json:"details,omitempty"` // for a program; never printed
	Outcome Outcome        `json:"outcome,omitempty"`

	cause error // for errors.Is and the log; never crosses the wire
}

// Errorf makes an error of a code. The format follows fmt.Errorf; an operand of %w becomes the cause, which errors.Is
// sees and the wire does not. The outcome is set where the code implies one: not-executed for unavailable, unknown for
// deadline-exceeded, cancelled and internal.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Message: err.Error()}
	switch err.(type) {
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
		e.cause = err
	}
	switch code {
	case CodeUnavailable:
		e.Outcome = OutcomeNotExecuted
	case CodeDeadlineExceeded, CodeCancelled, CodeInternal:
		e.Outcome = OutcomeUnknown
	}
	return e
}

// maxErrorText bounds what Error prints, in bytes before escaping.
const maxErrorText = 1024

// Error returns the message, or the fixed sentence of the code when there is none.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Sentence()
	}
	return printable(e.Message)
}

// Format prints the error text for every verb, so that no verb prints the details.
func (e Error) Format(f fmt.State, verb rune) {
	if verb == 'q' {
		fmt.Fprintf(f, "%q", e.Error())
		return
	}
	_, _ = io.WriteString(f, e.Error())
}

// LogValue returns the code, the text and the outcome.
func (e *Error) LogValue() slog.Value {
	if e == nil {
		return slog.StringValue("<nil>")
	}
	return slog.GroupValue(slog.String("code", printable(string(e.Code))), slog.String("message", e.Error()),
		slog.String("outcome", printable(string(e.Outcome))))
}

// Is reports whether target is the sentinel of e's code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// Unwrap returns the cause given to Errorf with %w, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Equal reports whether both say the same on the wire; the cause does not count, nor whether no details are nil or empty.
func (e *Error) Equal(o *Error) bool {
	if e == nil || o == nil {
		return e == o
	}
	details := len(e.Details) == 0 && len(o.Details) == 0 || reflect.DeepEqual(e.Details, o.Details)
	return details && e.Code == o.Code && e.Message == o.Message && e.Outcome == o.Outcome
}

// CodeOf returns the code of err: of the first *Error in its chain, deadline-exceeded or cancelled for the errors of
// package context, internal for anything else, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return CodeCancelled
	}
	return CodeInternal
}

// Reason says why a delivered message was dropped for good: it is terminated, never redelivered.
type Reason string

// The reasons.
const (
	ReasonSubject Reason = "malformed-subject" // the subject does not parse, or must not surface
	ReasonSender  Reason = "sender-mismatch"   // the payload's sender or address is not the subject's
	ReasonJSON    Reason = "malformed-json"    // the payload is not a message
)

const detailReason = "reason"

// ReasonOf returns why a message was refused, or "" when err is not such a refusal.
func ReasonOf(err error) Reason {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return ""
	}
	r, _ := e.Details[detailReason].(string)
	return Reason(r)
}

func malformed(reason Reason, format string, args ...any) error {
	return malformedAs(CodeBadRequest, reason, format, args...)
}

func malformedAs(code Code, reason Reason, format string, args ...any) error {
	e := Errorf(code, format, args...)
	e.Details = map[string]any{detailReason: string(reason)}
	return e
}

// printable escapes what could move a cursor or split a log line, and bounds the length.
func printable(s string) string {
	clean := utf8.ValidString(s) && len(s) <= maxErrorText
	for i := 0; clean && i < len(s); i++ {
		clean = s[i] >= ' ' && s[i] < 0x7f
	}
	if clean {
		return s
	}
	if len(s) > maxErrorText {
		s = s[:maxErrorText] + "..."
	}
	var b strings.Builder
	for _, r := range s {
		if r == '"' || r == '\\' {
			b.WriteRune(r)
			continue
		}
		q := fmt.Sprintf("%q", string(r))
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}
