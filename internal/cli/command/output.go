package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"text/tabwriter"
	"unicode/utf16"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// Version is the value of the field "v" of everything that --json prints. Fields are added under the same version;
// a field that changes its meaning raises it.
//
// History: 1 (2026-11) first edition.
const Version = 1

// V is embedded in every result and carries the version. Write it as command.V1.
type V struct {
	V int `json:"v"`
}

// V1 is the present version.
var V1 = V{V: Version}

// Print writes one result: v as one JSON object with --json, else what human writes.
func (e *Env) Print(v any, human func(p *Printer)) error {
	if e.JSON {
		return e.writeJSON(e.Stdout, v)
	}
	p := newPrinter(e.Stdout, e.Colour(e.Stdout))
	human(p)
	return p.flush()
}

// Each writes one of many results as soon as it is there: one JSON object a line with --json, else what human
// writes. Calls from several goroutines must be serialised by the caller.
func (e *Env) Each(v any, human func(p *Printer)) error { return e.Print(v, human) }

func (e *Env) writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // patterns hold > and nobody renders this as HTML
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	_, err := w.Write(shown(b.Bytes()))
	return Unwritten(err)
}

// Unwritten is the error of a result that its reader does not get; that of nil is nil.
func Unwritten(err error) error {
	if err == nil {
		return nil
	}
	code := wire.CodeFailedPrecondition
	if errors.Is(err, syscall.ENOSPC) {
		code = wire.CodeResourceExhausted
	}
	e := wire.Errorf(code, "write result: %w", fserr.Cause(err))
	e.Outcome = wire.OutcomeUnknown
	return Hint(e, "the command may have done its work all the same: look before you repeat it")
}

// shown is JSON with the characters escaped that act on a terminal or on the order of a text: the same value, and whoever
// prints it sees what it says. They occur in strings alone.
func shown(line []byte) []byte {
	act := func(r rune) bool { return r >= 0x7f && hostile(r, true) }
	if !bytes.ContainsFunc(line, act) {
		return line
	}
	var b bytes.Buffer
	for _, r := range string(line) {
		switch high, low := utf16.EncodeRune(r); {
		case !act(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// Note tells a person something beside the result, on standard error. With --json it says nothing: what matters is
// in the result.
func (e *Env) Note(format string, args ...any) {
	if !e.JSON {
		fmt.Fprintf(e.Stderr, format+"\n", args...)
	}
}

// Progress says what a long command is doing, on standard error, when a person watches or --verbose is given.
func (e *Env) Progress(format string, args ...any) {
	if !e.JSON && (e.Verbose || isTerminal(e.Stderr)) {
		fmt.Fprintf(e.Stderr, format+"\n", args...)
	}
}

// Printer writes text for a person. Errors of the writer are kept and returned once, by the call that gave the
// printer out.
type Printer struct {
	w      *bufio.Writer
	colour bool
	err    error
}

func newPrinter(w io.Writer, colour bool) *Printer {
	return &Printer{w: bufio.NewWriter(w), colour: colour}
}

func (p *Printer) flush() error {
	if err := p.w.Flush(); err != nil {
		return Unwritten(err)
	}
	return p.err
}

// Line writes one line. Operands that came from elsewhere must be made safe by the caller.
func (p *Printer) Line(format string, args ...any) {
	fmt.Fprintf(p.w, format+"\n", args...)
}

// Table writes rows under a header in aligned columns. Cells are made safe here.
func (p *Printer) Table(header []string, rows [][]string) {
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = Safe(c)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil && p.err == nil {
		p.err = Unwritten(err)
	}
}

// Bold and Dim stress or soften s when the output is a coloured terminal. They repeat what the words say.
func (p *Printer) Bold(s string) string { return p.style("1", s) }

// Dim softens s; see Bold.
func (p *Printer) Dim(s string) string { return p.style("2", s) }

func (p *Printer) style(code, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
