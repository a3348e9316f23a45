package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

func newEnv() (*command.Env, *bytes.Buffer, *bytes.Buffer) {
	var out, errs bytes.Buffer
	return &command.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}, &out, &errs
}

func TestReport(t *testing.T) {
	inner := wire.Errorf(wire.CodePermissionDenied, "post to channel %q: not permitted", "x")
	inner.Details = map[string]any{"subject": "s"}
	err := command.Hint(fmt.Errorf("send: %w", command.Hint(inner, "b", "a")), "a")

	e, out, errs := newEnv()
	if got := command.Report(e, err); got != 3 {
		t.Errorf("exit = %d, want 3", got)
	}
	want := "cotal: send: post to channel \"x\": not permitted\nhint: a\nhint: b\n"
	if diff := cmp.Diff(want, errs.String()); diff != "" || out.Len() > 0 {
		t.Errorf("stderr (-want +got):\n%s\nstdout: %q, want none", diff, out)
	}

	e, out, errs = newEnv()
	e.JSON = true
	command.Report(e, err)
	var got command.Failure
	if jerr := json.Unmarshal(errs.Bytes(), &got); jerr != nil {
		t.Fatalf("stderr with --json = %q: %v", errs, jerr)
	}
	wantJSON := command.Failure{V: command.V1, Error: command.FailureBody{
		Code: wire.CodePermissionDenied, Message: err.Error(), Retry: wire.RetryNo, Exit: 3,
		Details: map[string]any{"subject": "s"}, Hints: []string{"a", "b"},
	}}
	if diff := cmp.Diff(wantJSON, got); diff != "" || out.Len() > 0 {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
}

// full is an output that takes nothing, like that of a full disk.
type full struct{}

func (full) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/dev/full", Err: errors.New("no room")}
}

// TestPrintNowhere is about results that nobody gets: that is no bug of ours, and says that the work may be done.
func TestPrintNowhere(t *testing.T) {
	for name, print := range map[string]func(e *command.Env) error{
		"line": func(e *command.Env) error { return e.Print(nil, func(p *command.Printer) { p.Line("x") }) },
		"table": func(e *command.Env) error {
			return e.Print(nil, func(p *command.Printer) { p.Table([]string{"x"}, nil) })
		},
		"json": func(e *command.Env) error {
			e.JSON = true
			return e.Print(command.V1, nil)
		},
	} {
		e, _, errs := newEnv()
		e.Stdout = full{}
		err := print(e)
		e.JSON = false
		want := "cotal: write result: no room\nhint: the command may have done its work all the same: look before you repeat it\n"
		if got := command.Report(e, err); got != 5 || errs.String() != want {
			t.Errorf("%s: exit %d with %q, want 5 with %q", name, got, errs, want)
		}
	}
	e, _, _ := newEnv()
	e.JSON, e.Stderr = true, full{}
	if got := command.Report(e, wire.Errorf(wire.CodeNotFound, "x")); got != 4 {
		t.Errorf("a failure that nobody gets: exit %d, want 4", got)
	}
}

func TestReportCodes(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		exit int
	}{
		"nil": {nil, 0}, "usage": {command.Usagef("x"), 2}, "plain": {errors.New("x"), 1},
		"deadline": {context.DeadlineExceeded, 8}, "unavailable": {wire.Errorf(wire.CodeUnavailable, "x"), 7},
	} {
		e, _, _ := newEnv()
		if got := command.Report(e, tt.err); got != tt.exit {
			t.Errorf("%s: exit = %d, want %d", name, got, tt.exit)
		}
	}
}

func TestHintOfNilIsNil(t *testing.T) {
	if err := command.Hint(nil, "x"); err != nil {
		t.Errorf("Hint(nil) = %v, want nil", err)
	}
}

// A peer's text must not reach the terminal as anything but text.
func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 日本 👩‍💻":       "plain é 日本 👩‍💻",
		"\x1b[2Jgone":          `\x1b[2Jgone`,
		"a\rb\nc":              `a\x0db\x0ac`,
		"\u202egnp.exe":        `\u202egnp.exe`,
		"zero\u200bwidth":      `zero\u200bwidth`,
		"c1\u009b31m":          `c1\u009b31m`,
		"line\u2028separator":  `line\u2028separator`,
		"tag\U000e0041":        `tag\U000e0041`,
		"bad\xff":              `bad\ufffd`,
		"bell\a and del\x7f":   `bell\x07 and del\x7f`,
		"isolate\u2066\u2069.": `isolate\u2066\u2069.`,
	} {
		if got := command.Safe(in); got != want {
			t.Errorf("Safe(%q) = %q, want %q", in, got, want)
		}
	}
	got := command.SafeBody("one\r\n12:00:00 #general boss: forged\n\x1b]0;title\a\n\n", "  | ")
	want := "one\n  | 12:00:00 #general boss: forged\n  | \\x1b]0;title\\x07"
	if got != want {
		t.Errorf("SafeBody = %q, want %q", got, want)
	}
}

func FuzzSafe(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b[31mred\n\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range command.Safe(s) {
			if r < ' ' || r == 0x7f || (r >= 0x80 && r <= 0x9f) {
				t.Errorf("Safe(%q) leaves %q", s, r)
			}
		}
		for i, line := range strings.Split(command.SafeBody(s, "  | "), "\n") {
			if i > 0 && !strings.HasPrefix(line, "  | ") {
				t.Errorf("SafeBody(%q) line %d = %q", s, i, line)
			}
		}
	})
}

func TestPrint(t *testing.T) {
	type result struct {
		command.V
		Name string `json:"name"`
	}
	e, out, _ := newEnv()
	human := func(p *command.Printer) {
		p.Line("%s", p.Bold("x"))
		p.Table([]string{"a", "b"}, [][]string{{"1\x1b", "2"}})
	}
	if err := e.Print(result{command.V1, "n"}, human); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "x\na      b\n1\\x1b  2\n"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
	out.Reset()
	e.JSON = true
	if err := e.Print(result{command.V1, "n"}, human); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `{"v":1,"name":"n"}`+"\n"; got != want {
		t.Errorf("JSON = %q, want %q", got, want)
	}
}

// TestJSONIsHarmless prints the same value, without a character that acts on a terminal.
func TestJSONIsHarmless(t *testing.T) {
	e, out, _ := newEnv()
	e.JSON = true
	want := map[string]string{"a\u202e": "\u202etxt.exe \u0085\x7f\x1b[2J \u2028\u2066 \U000e0041 été 👩\u200d💻 <a>"}
	if err := e.Print(want, nil); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("value changed (-want +got):\n%s", diff)
	}
	if strings.ContainsAny(out.String(), "\u202e\u0085\x7f\x1b\u2028\u2066\U000e0041") || !strings.Contains(out.String(), "été 👩\u200d💻 <a>") {
		t.Errorf("printed %q", out.String())
	}
}

// Without a terminal nobody is asked: a script says --force.
func TestConfirmWithoutTerminal(t *testing.T) {
	e, out, _ := newEnv()
	e.Stdin = strings.NewReader("y\n")
	refusal := wire.Errorf(wire.CodeFailedPrecondition, "x")
	if err := e.Confirm(t.Context(), refusal, "remove it"); !errors.Is(err, refusal) || out.Len() > 0 {
		t.Errorf("Confirm = %v, printed %q; want the refusal and no question", err, out)
	}
}

func TestNear(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"nvoa", "nova", true}, {"nov", "nova", true}, {"nova", "nova", true}, {"bob", "nova", false}, {"x", "y", false}, {"reviwer", "reviewer", true}} {
		if got := command.Near(tt.a, tt.b); got != tt.want {
			t.Errorf("Near(%q, %q) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestMeant(t *testing.T) {
	for _, c := range []struct {
		typed string
		names []string
		want  string
	}{
		{"scrib", []string{"default", "Scribe", "Scribe", "scribes"}, "did you mean: Scribe, scribes"},
		{"scrib", []string{"default"}, ""},
		{"scrib", nil, ""},
		{"one-of-the-many", []string{"one_of_the_many", "one"}, "did you mean: one_of_the_many"},
	} {
		if got := command.Meant(c.typed, c.names); got != c.want {
			t.Errorf("Meant(%q, %q) = %q, want %q", c.typed, c.names, got, c.want)
		}
	}
}
