package target

import (
	"context"

	"github.com/cotal-go/cotal/trust"
)

// Holders counts the names that are granted a role. Known is false when the command has no records to look into.
func (t *Target) Holders(ctx context.Context, role string) (n int, known bool, err error) {
	if t.node == nil {
		return 0, false, nil
	}
	grants, err := t.node.Authority().List(ctx, t.Space())
	if err != nil {
		return 0, false, t.Explain(err)
	}
	for _, g := range grants {
		if g.Role == role && g.State == trust.GrantActive {
			n++
		}
	}
	return n, true, nil
}
