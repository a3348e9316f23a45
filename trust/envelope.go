package trust

import (
	"slices"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// Excess is what a grant holds beyond the one that it is held under.
type Excess struct {
	Scope, Subscribe, Publish []string
	// Role is set when the parent may not hand it on.
	Role string
}

// Empty reports whether there is none.
func (e Excess) Empty() bool {
	return len(e.Scope)+len(e.Subscribe)+len(e.Publish) == 0 && e.Role == ""
}

// String names what is too much, for a sentence.
func (e Excess) String() string {
	var parts []string
	for _, l := range []struct {
		name string
		list []string
	}{{"scope", e.Scope}, {"subscribe", e.Subscribe}, {"publish", e.Publish}} {
		if len(l.list) > 0 {
			parts = append(parts, l.name+" "+strings.Join(l.list, ","))
		}
	}
	if e.Role != "" {
		parts = append(parts, "role "+e.Role)
	}
	return strings.Join(parts, "; ")
}

// Within returns what child holds beyond parent. A parent with scope admin holds everything. Otherwise each entry of the
// child's scope must be in the parent's, each channel pattern must be covered by one single pattern of the parent, and a role
// needs role:<role> in the parent's scope.
func Within(child, parent Grant) Excess {
	if slices.Contains(parent.Scope, ScopeAdmin) {
		return Excess{}
	}
	var out Excess
	for _, s := range child.Scope {
		if !slices.Contains(parent.Scope, s) {
			out.Scope = append(out.Scope, s)
		}
	}
	out.Subscribe = uncovered(child.AllowSubscribe, parent.AllowSubscribe)
	out.Publish = uncovered(child.AllowPublish, parent.AllowPublish)
	if child.Role != "" && !slices.Contains(parent.Scope, ScopeRole(child.Role)) {
		out.Role = child.Role
	}
	return out
}

func uncovered(patterns, by []string) []string {
	var out []string
	for _, p := range patterns {
		if !wire.PatternsCover(by, p) {
			out = append(out, p)
		}
	}
	return out
}
