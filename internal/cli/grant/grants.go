package grant

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const grantsLong = `
Lists who is granted what in the space, as the authority's records say now. Names that were revoked are shown with
--all.
`

const grantsExample = `
  cotal grants
  cotal grants --all --json
`

// grants lists the grants of a space.
type grants struct {
	all bool
}

// NewGrants adds `cotal grants`.
func NewGrants(t *command.Tree) *cobra.Command {
	g := &grants{}
	c := t.Add(command.Spec{Use: "grants [flags]", Short: "List who is granted what", Long: grantsLong, Example: grantsExample}, g)
	c.Flags().BoolVar(&g.all, "all", false, "also names that were revoked")
	return c
}

// GrantsResult is what `cotal grants --json` prints.
type GrantsResult struct {
	command.V
	Space  wire.Space `json:"space"`
	Grants []Line     `json:"grants"`
}

// Line is one grant.
type Line struct {
	Principal string     `json:"principal"`
	UID       wire.UID   `json:"uid"`
	Kind      string     `json:"kind"`
	State     string     `json:"state"`
	Role      string     `json:"role,omitempty"`
	Subscribe []string   `json:"allowSubscribe"`
	Publish   []string   `json:"allowPublish"`
	Commands  []string   `json:"commands"`
	Label     string     `json:"label,omitempty"`
	Created   time.Time  `json:"created"`
	Expires   *time.Time `json:"expires,omitempty"`
	By        string     `json:"by,omitempty"`
}

func (r GrantsResult) human(p *command.Printer) {
	if len(r.Grants) == 0 {
		p.Line("nobody is granted anything in space %s", r.Space)
		return
	}
	rows := make([][]string, len(r.Grants))
	for i, g := range r.Grants {
		rows[i] = []string{g.Principal, g.Kind, g.State, dash(g.Role), patterns(g.Subscribe), patterns(g.Publish), g.Created.Local().Format(time.DateTime), g.Label}
	}
	p.Table([]string{"principal", "kind", "state", "role", "reads", "posts to", "since", "label"}, rows)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func patterns(s []string) string { return dash(strings.Join(s, ",")) }

// Run lists.
func (g *grants) Run(ctx context.Context, e *command.Env) error {
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	node, err := t.Node(ctx)
	if err != nil {
		return err
	}
	all, err := node.Authority().List(ctx, t.Space())
	if err != nil {
		return t.Explain(err)
	}
	res := GrantsResult{V: command.V1, Space: t.Space(), Grants: []Line{}}
	for _, gr := range all {
		if gr.State == trust.GrantRetired && !g.all {
			continue
		}
		res.Grants = append(res.Grants, Line{
			Principal: gr.Principal().String(), UID: gr.UID, Kind: string(gr.Kind), State: string(gr.State), Role: gr.Role,
			Subscribe: orEmpty(gr.AllowSubscribe), Publish: orEmpty(gr.AllowPublish), Commands: orEmpty(gr.Scope), Label: gr.Label,
			Created: gr.CreatedAt, Expires: gr.ExpiresAt, By: gr.By,
		})
	}
	return e.Print(res, res.human)
}
