package bench

import (
	"testing"
)

// TestRun runs every case once at its smallest, so that a broken case is not found by who measures.
func TestRun(t *testing.T) {
	rep, err := Run(t.Context(), &Options{Rounds: 1, Scale: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rep.Results {
		if (Median(r.Ours) <= 0 || Median(r.Raw) <= 0) && r.Unit != "MB" { // so few messages may fit what the heap has
			t.Errorf("%s measured nothing: %+v", r.Name, r)
		}
		t.Logf("%-18s %12.0f %12.0f %-12s %.2f", r.Name, Median(r.Ours), Median(r.Raw), r.Unit, r.Ratio)
	}
}
