package near_test

import (
	"testing"

	"github.com/cotal-go/cotal/internal/near"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"role", "roel", 1}, {"modle", "model", 1}, {"modle", "role", 2}, {"ca", "abc", 3}, {"general", "generel", 1}, {"abc", "xabc", 1}, {"kitten", "sitting", 3}} {
		if got := near.Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
