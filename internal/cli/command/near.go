package command

import (
	"slices"
	"strings"

	"github.com/cotal-go/cotal/internal/near"
)

// Near reports whether few changes of one letter make a of b.
func Near(a, b string) bool { return near.Distance(a, b) <= min(2, len(b)/2) }

// folded is a name without what does not tell names apart: the case of letters, and the dash that the name of an agent does not have.
func folded(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

// Meant is the hint that names those names which are near the one that was typed, in either case of letters, with dashes or underscores, and each once; "" for none.
func Meant(typed string, names []string) string {
	var out []string
	for _, n := range names {
		if Near(folded(typed), folded(n)) && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "did you mean: " + strings.Join(out, ", ")
}
