package actor

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const listLong = `
Lists who is granted what in the space, as the authority's records say now: whose each name is, how it came to it, what it may
read, post to and start, under whom it is held and when the grant ends. With --tree those held under somebody stand below them.
Names that were revoked are shown with --all.
`

const listExample = `
  cotal actor list
  cotal actor list --owner u_g5mclrofwa6pirb3p4yeigemze --tree
`

type lister struct {
	whose
	all, tree bool
}

func newList(t *command.Tree) *cobra.Command {
	l := &lister{}
	c := t.Add(command.Spec{Use: "list [flags]", Short: "List who is granted what, and under whom", Long: listLong, Example: listExample}, l)
	l.whose.flags(t, c)
	c.Flags().BoolVar(&l.all, "all", false, "also names that were revoked")
	c.Flags().BoolVar(&l.tree, "tree", false, "those held under somebody below them")
	return c
}

// ListResult is what `cotal actor list --json` prints. With --tree the order is that of the tree.
type ListResult struct {
	command.V
	Space wire.Space `json:"space"`
	// People says that the space signs people in, instead of handing out credential files.
	People bool  `json:"people"`
	Actors []Row `json:"actors"`

	depth []int // of each in the tree; nil without
}

// Run lists.
func (l *lister) Run(ctx context.Context, e *command.Env) error {
	if err := l.check(); err != nil {
		return err
	}
	t, node, err := target.OpenNode(ctx, e, "actor")
	if err != nil {
		return err
	}
	defer t.Close()
	res := ListResult{V: command.V1, Space: t.Space(), Actors: []Row{}}
	if res.People, err = node.Authority().People(ctx, t.Space()); err != nil {
		return t.Explain(err)
	}
	all, err := node.Authority().List(ctx, t.Space())
	if err != nil {
		return t.Explain(err)
	}
	owner, err := l.resolve(ctx, t, res.People, all)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(g trust.Grant) bool {
		return owner != "" && g.Owner != owner || g.State == trust.GrantRetired && !l.all
	})
	slices.SortFunc(all, func(x, y trust.Grant) int {
		return cmp.Or(cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.Actor, y.Actor))
	})
	if l.tree {
		all, res.depth = tree(all)
	}
	for _, g := range all {
		row := rowOf(g)
		row.Refused = res.People && g.Kind == trust.KindStatic && g.State == trust.GrantActive
		res.Actors = append(res.Actors, row)
	}
	return e.Print(res, res.human)
}

// tree puts each grant below the one that it is held under, and says how deep. One whose parent is not among them is at the top.
func tree(all []trust.Grant) (out []trust.Grant, depth []int) {
	below := map[wire.UID][]trust.Grant{}
	there := map[wire.UID]bool{}
	for _, g := range all {
		there[g.UID] = true
	}
	var top []trust.Grant
	for _, g := range all {
		if g.Parent != "" && there[g.ParentUID] {
			below[g.ParentUID] = append(below[g.ParentUID], g)
		} else {
			top = append(top, g)
		}
	}
	var walk func(list []trust.Grant, at int)
	walk = func(list []trust.Grant, at int) {
		for _, g := range list {
			out, depth = append(out, g), append(depth, at)
			kids := below[g.UID]
			delete(below, g.UID) // a circle ends here
			walk(kids, at+1)
		}
	}
	walk(top, 0)
	for _, g := range all { // whatever stands in a circle
		if kids := below[g.UID]; len(kids) > 0 {
			delete(below, g.UID)
			walk(kids, 0)
		}
	}
	return out, depth
}

func (r ListResult) human(p *command.Printer) {
	if len(r.Actors) == 0 {
		p.Line("nobody is granted anything in space %s", r.Space)
		return
	}
	rows := make([][]string, len(r.Actors))
	for i, g := range r.Actors {
		name := g.Name
		if r.depth != nil && r.depth[i] > 0 {
			name = strings.Repeat("  ", r.depth[i]-1) + "└ " + name
		}
		parent := "-"
		if p, err := wire.ParsePrincipal(g.Parent); err == nil {
			parent = p.Actor
		}
		rows[i] = []string{name, short(g.Owner), g.Kind, g.state(), list(g.Scope), list(g.Subscribe), list(g.Publish), parent, g.expires()}
	}
	p.Table([]string{"name", "owner", "kind", "state", "scope", "read list", "post list", "under", "expires"}, rows)
	if slices.ContainsFunc(r.Actors, func(g Row) bool { return g.Refused }) {
		p.Line("refused: people sign in at space %s now, and a static grant, of a credential file, lets nobody in any more", r.Space)
	}
}

func plural(n int, what string) string { return view.Plural(uint64(max(n, 0)), what) }
