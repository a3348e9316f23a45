package yamldoc

import (
	"fmt"
	"slices"

	"github.com/cotal-go/cotal/wire"
)

// Place is a spot in a file. Line and Column count from 1, columns in characters; 0 says nothing.
type Place struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String is file:line:column, as editors and compilers write it.
func (p Place) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one thing that is wrong with a file, and what to do about it.
type Problem struct {
	Place
	What string `json:"what"`
	Fix  string `json:"fix,omitempty"`
}

// String is the place, what is wrong and what to do.
func (p Problem) String() string {
	s := p.Place.String() + ": " + p.What
	if p.Fix != "" {
		s += "; " + p.Fix
	}
	return s
}

// Problems is everything that is wrong with a file, in the order of the file. It is never empty.
type Problems []Problem

// Error is the first problem and how many there are besides.
func (p Problems) Error() string {
	switch len(p) {
	case 0:
		return "nothing is wrong"
	case 1:
		return p[0].String()
	}
	return fmt.Sprintf("%s (and %d more)", p[0], len(p)-1)
}

// maxProblems bounds what is told about one file.
const maxProblems = 50

// Report collects what is wrong with one file. The zero value is ready.
type Report struct{ all Problems }

// Add tells one problem. The fix may be empty; operands from the file are given with %q.
func (r *Report) Add(at Place, fix, format string, args ...any) {
	if len(r.all) < maxProblems {
		r.all = append(r.all, Problem{Place: at, What: fmt.Sprintf(format, args...), Fix: fix})
	}
}

// OK reports whether nothing was told yet.
func (r *Report) OK() bool { return len(r.all) == 0 }

// Under is an error of a code whose cause is p, with all of p in the detail "problems".
func (p Problems) Under(code wire.Code) error {
	e := wire.Errorf(code, "%w", p)
	e.Details = map[string]any{"problems": p}
	return e
}

// Err is nil when nothing is wrong, else an error of code bad-request whose cause is a [Problems].
func (r *Report) Err() error {
	if r.OK() {
		return nil
	}
	all := slices.Clone(r.all)
	slices.SortStableFunc(all, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return all.Under(wire.CodeBadRequest)
}

// Clip bounds a text of a file that is about to be quoted.
func Clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
