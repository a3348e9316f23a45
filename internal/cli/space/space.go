package space

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/wire"
)

const groupLong = `
A space is one isolated mesh: nothing of it is visible to another space on the same broker, and each has its own keys,
grants, channels and limits. These commands add, list and remove spaces while the mesh runs.
`

// New adds `cotal space`.
func New(t *command.Tree) *cobra.Command {
	return t.Group("space", "Add, list and remove spaces", groupLong, newAdd(t), newList(t), newRemove(t))
}

const addLong = `
Adds a space to the running mesh and serves it at once. A space that exists already is completed and served; nothing
in it is changed.
`

const addExample = `
  cotal space add lab
  cotal space add lab --json
`

type add struct{ name string }

func newAdd(t *command.Tree) *cobra.Command {
	a := &add{}
	return t.Add(command.Spec{Use: "add <space> [flags]", Short: "Add a space to the running mesh", Long: addLong, Example: addExample, Args: command.One("space", &a.name)}, a)
}

// ChangeResult is what `cotal space add` and `cotal space rm` print with --json.
type ChangeResult struct {
	command.V
	Space   string   `json:"space"`
	Done    string   `json:"done"` // added, existed, removed
	Spaces  []string `json:"spaces"`
	Removed *Content `json:"removed,omitempty"`
}

// Run adds the space.
func (a *add) Run(ctx context.Context, e *command.Env) error {
	if _, err := wire.ParseSpace(a.name); err != nil {
		return err
	}
	t, node, err := target.OpenNode(ctx, e, "space")
	if err != nil {
		return err
	}
	defer t.Close()
	before, err := node.Status(ctx)
	if err != nil {
		return t.Explain(err)
	}
	if err := node.AddSpace(ctx, a.name); err != nil {
		return t.Explain(err)
	}
	names, err := t.NoteSpaces(ctx, node)
	if err != nil {
		return err
	}
	res := ChangeResult{V: command.V1, Space: a.name, Done: "added", Spaces: names}
	if slices.ContainsFunc(before.Spaces, func(s cotal.SpaceStatus) bool { return s.Name == a.name }) {
		res.Done = "existed"
	}
	return e.Print(res, func(p *command.Printer) {
		if res.Done == "existed" {
			p.Line("space %s is there already and served", p.Bold(a.name))
			return
		}
		p.Line("added space %s; work in it with --space %s", p.Bold(a.name), a.name)
	})
}

const listLong = `
Lists the spaces of the mesh. While the mesh runs, the state of each is its own answer; otherwise the spaces of the
project's records are listed as stopped.
`

const listExample = `
  cotal space list
  cotal space list --json
`

type list struct{}

func newList(t *command.Tree) *cobra.Command {
	return t.Add(command.Spec{Use: "list [flags]", Short: "List the spaces of the mesh", Long: listLong, Example: listExample}, &list{})
}

// ListResult is what `cotal space list --json` prints.
type ListResult struct {
	command.V
	Running bool   `json:"running"`
	Spaces  []Line `json:"spaces"`
}

// Line is one space.
type Line struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Default bool   `json:"default,omitempty"`
	Error   string `json:"error,omitempty"`
}

const stateStopped = "stopped"

// Run lists the spaces.
func (l *list) Run(ctx context.Context, e *command.Env) error {
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	res := ListResult{V: command.V1, Spaces: []Line{}}
	node, err := t.Node(ctx)
	switch {
	case err == nil:
		st, err := node.Status(ctx)
		if err != nil {
			return t.Explain(err)
		}
		res.Running = true
		for _, s := range st.Spaces {
			res.Spaces = append(res.Spaces, Line{Name: s.Name, State: s.Delivery, Error: s.Error, Default: s.Name == t.Config.Space.Value})
		}
	case errors.Is(err, wire.ErrUnavailable) && t.Config.Project != nil && !t.Config.Server.Explicit():
		names, err := t.Config.Project.Spaces()
		if err != nil {
			return err
		}
		for _, n := range names {
			res.Spaces = append(res.Spaces, Line{Name: n, State: stateStopped, Default: n == t.Config.Space.Value})
		}
	default:
		return err
	}
	return e.Print(res, res.human)
}

func (r ListResult) human(p *command.Printer) {
	if len(r.Spaces) == 0 {
		p.Line("no spaces")
		return
	}
	rows := make([][]string, len(r.Spaces))
	for i, s := range r.Spaces {
		mark := ""
		if s.Default {
			mark = "default"
		}
		rows[i] = []string{s.Name, s.State, mark, s.Error}
	}
	p.Table([]string{"space", "state", "", ""}, rows)
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
