package yamldoc_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/supervisor/internal/yamldoc"
	"github.com/cotal-go/cotal/wire"
)

// Documents that the parser takes long for are refused or bounded: each of these took seconds or minutes at twice the size. How long is counted
// in what twenty honest ones take in the same run.
func TestHostileDocumentsEndSoon(t *testing.T) {
	const most = 120 // the slowest takes forty with the race detector, twenty without
	// What a document takes is the least of some runs: others on the machine make it more, never less.
	least := func(runs, times int, data []byte) time.Duration {
		took := time.Duration(math.MaxInt64)
		for range runs {
			begun := time.Now()
			for range times {
				yamldoc.Parse("x", data, 1, &yamldoc.Report{})
			}
			took = min(took, time.Since(begun))
		}
		return took
	}
	unit := least(3, 20, []byte(strings.Repeat("key: "+strings.Repeat("words ", 10)+"\n", 500)))
	for _, pattern := range []string{"[", "{a: ", "- ", "- !t ", "<<: |\n", "|\n>\n", "\"a\\", "&a ", "*a ", "? ", "a: |\n  b\n", "\n", "\t1", "b: \t", "  - ", "#\n", "'"} {
		for _, lead := range []string{"", "a: |\n", "\"", "&a [", "!t "} {
			data := []byte(lead + strings.Repeat(pattern, yamldoc.MaxBytes))[:yamldoc.MaxBytes]
			if least(1, 1, data) <= most*unit {
				continue
			}
			if took := least(5, 1, data); took > most*unit {
				t.Errorf("%q then %q took %v, twenty honest documents %v", lead, pattern, took, unit)
			}
		}
	}
	r := &yamldoc.Report{}
	if n := yamldoc.Parse("x", make([]byte, yamldoc.MaxBytes+1), 1, r); n != nil || wire.CodeOf(r.Err()) != wire.CodeBadRequest {
		t.Errorf("a document that is too large = %v, %v", n, r.Err())
	}
}

func TestReportIsBoundedAndSorted(t *testing.T) {
	r := &yamldoc.Report{}
	if r.Err() != nil || !r.OK() {
		t.Errorf("nothing is wrong: %v", r.Err())
	}
	for line := 200; line > 0; line-- {
		r.Add(yamldoc.Place{File: "f", Line: line}, "", "wrong")
	}
	if got, want := r.Err().Error(), "f:151: wrong (and 49 more)"; got != want {
		t.Errorf("error = %q, want %q", got, want)
	}
	if got := (yamldoc.Place{File: "f"}).String(); got != "f" {
		t.Errorf("place of a file = %q", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: b\n", "- a\n", "a: [b, {c: d}]\n", "a: |\n  b\n", "a: 'b''c'\n", "\xef\xbb\xbfa: b", "a: b\n---\nc: d", "? a\n", "%YAML 1.2\n---\na: b\n", "'': ''\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &yamldoc.Report{}
		check(t, yamldoc.Parse("x", data, 1, r), 1)
		_ = r.Err()
	})
}

// check holds a node to what its kind promises.
func check(t *testing.T, n *yamldoc.Node, depth int) {
	if n == nil {
		return
	}
	if depth > 10 || n.At.Line < 1 || n.Kind != yamldoc.Map && n.Fields != nil || n.Kind != yamldoc.List && n.Items != nil {
		t.Fatalf("node %+v at depth %d", n, depth)
	}
	for _, f := range n.Fields {
		if f.Value == nil {
			t.Fatalf("field %q without a value", f.Key)
		}
		check(t, f.Value, depth+1)
	}
	for _, item := range n.Items {
		check(t, item, depth+1)
	}
}
