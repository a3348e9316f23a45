package demo_test

import (
	"testing"

	"github.com/cotal-go/cotal/internal/cli/demo"
)

func TestRun(t *testing.T) {
	t.Parallel()
	var lines []demo.Line
	sum, err := demo.Run(t.Context(), func(l demo.Line) { lines = append(lines, l) })
	for _, l := range lines {
		t.Logf("%8s %-8s %-12s %-12s %s", l.At.Round(1e6), l.What, l.Who, l.To, l.Text)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(sum)
	if sum.Sent != 8 || sum.Received != 16 || sum.Missed != 2 || sum.Denied != 8 || sum.Tried != 8 {
		t.Errorf("summary = %+v, want 8 sent, 16 received, 2 of them missed before, 8 of 8 refused", sum)
	}
}
