package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/wire"
)

// The catalog as the style guide publishes it.
var catalog = map[wire.Code]struct {
	exit, http int
	retry      wire.Retry
}{
	wire.CodeBadRequest:         {2, 400, wire.RetryNo},
	wire.CodeUnsupportedVersion: {2, 400, wire.RetryNo},
	wire.CodeOpMismatch:         {2, 400, wire.RetryNo},
	wire.CodeClassMismatch:      {2, 400, wire.RetryNo},
	wire.CodeTargetMismatch:     {2, 400, wire.RetryNo},
	wire.CodeSenderMismatch:     {2, 400, wire.RetryNo},
	wire.CodeContractMismatch:   {2, 400, wire.RetryNo},
	wire.CodeUnauthenticated:    {3, 401, wire.RetryRenewed},
	wire.CodeExpired:            {3, 401, wire.RetryRenewed},
	wire.CodePermissionDenied:   {3, 403, wire.RetryNo},
	wire.CodeNotFound:           {4, 404, wire.RetryNo},
	wire.CodeAlreadyExists:      {5, 409, wire.RetryReread},
	wire.CodeConflict:           {5, 409, wire.RetryReread},
	wire.CodeFailedPrecondition: {5, 409, wire.RetryReread},
	wire.CodeResourceExhausted:  {6, 429, wire.RetryLater},
	wire.CodeUnavailable:        {7, 503, wire.RetryYes},
	wire.CodeDeadlineExceeded:   {8, 504, wire.RetryChecked},
	wire.CodeCancelled:          {8, 504, wire.RetryChecked},
	wire.CodeUnimplemented:      {2, 501, wire.RetryNo},
	wire.CodeInternal:           {1, 500, wire.RetryNo},
}

func TestCatalog(t *testing.T) {
	if got, want := len(wire.Codes()), len(catalog); got != want {
		t.Errorf("catalog has %d codes, want %d", got, want)
	}
	sentences := make(map[string]wire.Code)
	for code, want := range catalog {
		if code.Exit() != want.exit || code.HTTP() != want.http || code.Retry() != want.retry || !code.Known() {
			t.Errorf("%s: exit %d, http %d, retry %q, known %t; want %+v", code, code.Exit(), code.HTTP(), code.Retry(), code.Known(), want)
		}
		if s := code.Sentence(); s == "" || sentences[s] != "" {
			t.Errorf("%s: sentence %q is empty or also that of %s", code, s, sentences[s])
		} else {
			sentences[s] = code
		}
	}
	for _, code := range []wire.Code{"teapot", "com.acme.too-hot"} {
		if code.Known() || code.Exit() != 1 || code.HTTP() != 500 || code.Retry() != wire.RetryNo {
			t.Errorf("%s: exit %d, http %d, retry %q; want those of internal", code, code.Exit(), code.HTTP(), code.Retry())
		}
	}
	if none := wire.Code(""); none.Exit() != 0 || none.HTTP() != 200 || none.Retry() != wire.RetryNo {
		t.Errorf("no code: exit %d, http %d, retry %q", none.Exit(), none.HTTP(), none.Retry())
	}
}

func TestSentinels(t *testing.T) {
	sentinels := map[wire.Code]error{
		wire.CodeBadRequest: wire.ErrBadRequest, wire.CodeUnauthenticated: wire.ErrUnauthenticated, wire.CodeExpired: wire.ErrExpired,
		wire.CodePermissionDenied: wire.ErrPermissionDenied, wire.CodeNotFound: wire.ErrNotFound, wire.CodeAlreadyExists: wire.ErrExists,
		wire.CodeConflict: wire.ErrConflict, wire.CodeFailedPrecondition: wire.ErrPrecondition, wire.CodeResourceExhausted: wire.ErrExhausted,
		wire.CodeUnavailable: wire.ErrUnavailable, wire.CodeDeadlineExceeded: wire.ErrDeadline, wire.CodeUnimplemented: wire.ErrUnimplemented,
		wire.CodeInternal: wire.ErrInternal,
	}
	for code := range catalog {
		err := fmt.Errorf("join channel %q: %w", "general", wire.Errorf(code, "not today"))
		for other, sentinel := range sentinels {
			if got, want := errors.Is(err, sentinel), code == other; got != want {
				t.Errorf("errors.Is(%s, sentinel of %s) = %t, want %t", code, other, got, want)
			}
		}
		if got := wire.CodeOf(err); got != code {
			t.Errorf("CodeOf = %q, want %q", got, code)
		}
	}
	if errors.Is(wire.Errorf(wire.CodeNotFound, "a"), wire.Errorf(wire.CodeNotFound, "b")) {
		t.Error("two different refusals of one code are the same error")
	}
}

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want wire.Code
	}{
		{nil, ""},
		{io.EOF, wire.CodeInternal},
		{context.Canceled, wire.CodeCancelled},
		{fmt.Errorf("call: %w", context.DeadlineExceeded), wire.CodeDeadlineExceeded},
		{wire.Errorf(wire.CodeExpired, "x: %w", context.Canceled), wire.CodeExpired},
	} {
		if got := wire.CodeOf(c.err); got != c.want {
			t.Errorf("CodeOf(%v) = %q, want %q", c.err, got, c.want)
		}
	}
}

func TestErrorfKeepsCauseOffTheWire(t *testing.T) {
	err := wire.Errorf(wire.CodeUnavailable, "reach %q: %w", "broker", io.ErrUnexpectedEOF)
	if !errors.Is(err, io.ErrUnexpectedEOF) || err.Error() != `reach "broker": unexpected EOF` || err.Outcome != wire.OutcomeNotExecuted {
		t.Errorf("Errorf = %v (outcome %q), cause kept %t", err, err.Outcome, errors.Is(err, io.ErrUnexpectedEOF))
	}
	if plain := wire.Errorf(wire.CodeNotFound, "no %d", 7); errors.Unwrap(plain) != nil || plain.Outcome != "" {
		t.Errorf("Errorf without cause unwraps to %v, outcome %q", errors.Unwrap(plain), plain.Outcome)
	}
	for _, code := range []wire.Code{wire.CodeDeadlineExceeded, wire.CodeCancelled, wire.CodeInternal} {
		if got := wire.Errorf(code, "x").Outcome; got != wire.OutcomeUnknown {
			t.Errorf("outcome of %s = %q, want unknown", code, got)
		}
	}
	b, jsonErr := json.Marshal(err)
	if want := `{"code":"unavailable","message":"reach \"broker\": unexpected EOF","outcome":"not-executed"}`; jsonErr != nil || string(b) != want {
		t.Errorf("encoded %s, %v; want %s", b, jsonErr, want)
	}
}

// Whatever a peer writes into an error, printing it moves no cursor, starts no line and shows no details.
func TestErrorPrintsSafely(t *testing.T) {
	hostile := &wire.Error{
		Code:    "in\x1b[31mternal",
		Message: "bad\r\n\x1b]0;owned\x07\u202e\u009b2J\x7f" + string([]byte{0xff}) + strings.Repeat("A", 1<<20),
		Details: map[string]any{"token": "s3cret"},
		Outcome: "\x1b[2J",
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("refused", "error", hostile)
	texts := []string{hostile.Error(), fmt.Sprint(*hostile), log.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		texts = append(texts, fmt.Sprintf(verb, hostile), fmt.Sprintf(verb, *hostile), fmt.Sprintf(verb, struct{ E *wire.Error }{hostile}))
	}
	for _, text := range texts {
		body := strings.TrimSuffix(text, "\n")
		if !utf8.ValidString(body) || strings.ContainsAny(body, "\r\n\x1b\x07\x7f\u202e\u009b") || strings.Contains(text, "s3cret") || len(text) > 8192 {
			t.Errorf("unsafe text of %d bytes: %.200q", len(text), text)
		}
	}
	if got := (&wire.Error{Code: wire.CodeNotFound}).Error(); got != "no such thing" {
		t.Errorf("error without message = %q", got)
	}
	if got := wire.Errorf(wire.CodeNotFound, "find %q: Größe €", "x").Error(); got != `find "x": Größe €` {
		t.Errorf("harmless text changed to %q", got)
	}
	var none *wire.Error
	if got := none.LogValue().String(); got != "<nil>" {
		t.Errorf("LogValue of nil = %q", got)
	}
}

func TestErrorEqual(t *testing.T) {
	a := wire.Errorf(wire.CodeNotFound, "x: %w", io.EOF)
	b := &wire.Error{Code: wire.CodeNotFound, Message: "x: EOF"}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("cause counts (-a +b):\n%s", diff)
	}
	var none *wire.Error
	for _, other := range []*wire.Error{nil, {Code: wire.CodeConflict, Message: "x: EOF"}, {Code: wire.CodeNotFound}, {Code: wire.CodeNotFound, Message: "x: EOF", Outcome: "unknown"},
		{Code: wire.CodeNotFound, Message: "x: EOF", Details: map[string]any{"a": 1}}} {
		if a.Equal(other) {
			t.Errorf("%+v equals %+v", a, other)
		}
	}
	if !none.Equal(nil) {
		t.Error("nil does not equal nil")
	}
}

func TestReasonOf(t *testing.T) {
	_, subject := wire.ParseSubject("x")
	_, payload := wire.DecodeMessage(nil)
	for _, c := range []struct {
		err  error
		want wire.Reason
	}{
		{nil, ""}, {io.EOF, ""}, {wire.Errorf(wire.CodeBadRequest, "x"), ""},
		{fmt.Errorf("drop: %w", subject), wire.ReasonSubject}, {payload, wire.ReasonJSON},
		{&wire.Error{Details: map[string]any{"reason": 7}}, ""},
	} {
		if got := wire.ReasonOf(c.err); got != c.want {
			t.Errorf("ReasonOf(%v) = %q, want %q", c.err, got, c.want)
		}
	}
}
