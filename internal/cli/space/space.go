package space

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth/oidc"
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

With --idp people sign in at the space, as with cotal up --idp: it hands out no credential files, and those of a space that
was there before are refused from then on.
`

const addExample = `
  cotal space add lab
  cotal space add lab --json
  cotal space add team --idp https://idp.example
`

type add struct {
	name     string
	provider target.Provider
}

func newAdd(t *command.Tree) *cobra.Command {
	a := &add{}
	c := t.Add(command.Spec{Use: "add <space> [flags]", Short: "Add a space to the running mesh", Long: addLong, Example: addExample, Args: command.One("space", &a.name), Changes: true}, a)
	a.provider.AddFlags(c)
	return c
}

// ChangeResult is what `cotal space add` and `cotal space rm` print with --json.
type ChangeResult struct {
	command.V
	Space   string   `json:"space"`
	Done    string   `json:"done"` // added, existed, removed
	Spaces  []string `json:"spaces"`
	Removed *Content `json:"removed,omitempty"`
	// SignIn is where people sign in, when that was asked for.
	SignIn *SignIn `json:"signIn,omitempty"`
}

// SignIn is the identity provider of a space.
type SignIn struct {
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"clientId"`
	Audience string   `json:"audience"`
	Warnings []string `json:"warnings,omitempty"`

	register string
}

func (s *SignIn) human(p *command.Printer) {
	p.Line("  people sign in at %s as client %s", command.Safe(s.Issuer), p.Bold(command.Safe(s.ClientID)))
	if s.register != "" {
		p.Line("  %s", command.Safe(s.register))
	}
	for _, w := range s.Warnings {
		p.Line("  warning: %s", command.Safe(w))
	}
}

// pin is where people are to sign in, nil when that was not asked for. Nothing is changed by it.
func (a *add) pin(ctx context.Context, e *command.Env, t *target.Target) (*oidc.Pin, *SignIn, error) {
	if a.provider.Address == "" {
		return nil, nil, nil
	}
	if err := a.allowed(ctx, e, t); err != nil {
		return nil, nil, err
	}
	store, err := t.Store()
	if err != nil {
		return nil, nil, err
	}
	pin, fresh, err := a.provider.Pin(ctx, store, wire.Space(a.name))
	if err != nil {
		return nil, nil, err
	}
	s := &SignIn{Issuer: pin.Issuer, ClientID: pin.ClientID, Audience: pin.Audience, Warnings: target.Warnings(pin)}
	if fresh {
		s.register = target.Register(pin)
	}
	return &pin, s, nil
}

// allowed asks before credential files end, and refuses what one space alone can have.
func (a *add) allowed(ctx context.Context, e *command.Env, t *target.Target) error {
	store, err := t.Store()
	if err != nil {
		return err
	}
	people, exists, err := target.SignsIn(ctx, store, wire.Space(a.name))
	if err != nil || people {
		return err
	}
	s, err := t.Config.Project.Settings()
	if err != nil {
		return err
	}
	if s.People.Port != 0 || s.People.PublicPort != 0 {
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "the exchange of this mesh has a port of its own, which one space of people alone can have"),
			"start another mesh for the space in a folder of its own")
	}
	if !exists {
		return nil
	}
	return a.provider.EndsFiles(ctx, e, a.name)
}

// Run adds the space.
func (a *add) Run(ctx context.Context, e *command.Env) error {
	if _, err := wire.ParseSpace(a.name); err != nil {
		return err
	}
	if err := a.provider.Check(); err != nil {
		return err
	}
	t, node, err := target.OpenNode(ctx, e, "space")
	if err != nil {
		return err
	}
	defer t.Close()
	pin, signIn, err := a.pin(ctx, e, t)
	if err != nil {
		return err
	}
	before, err := node.Status(ctx)
	if err != nil {
		return t.Explain(err)
	}
	if err := node.AddSpace(ctx, a.name); err != nil {
		return t.Explain(err)
	}
	if pin != nil {
		if err := node.SignIn(ctx, a.name, *pin); err != nil {
			return t.Explain(err)
		}
	}
	names, err := t.NoteSpaces(ctx, node)
	if err != nil {
		return err
	}
	res := ChangeResult{V: command.V1, Space: a.name, Done: "added", Spaces: names, SignIn: signIn}
	if slices.ContainsFunc(before.Spaces, func(s cotal.SpaceStatus) bool { return s.Name == a.name }) {
		res.Done = "existed"
	}
	return e.Print(res, func(p *command.Printer) {
		if res.Done == "existed" {
			p.Line("space %s is there already and served", p.Bold(a.name))
		} else {
			p.Line("added space %s; work in it with --space %s", p.Bold(a.name), a.name)
		}
		if signIn != nil {
			signIn.human(p)
		}
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
	Name  string `json:"name"`
	State string `json:"state"`
	// Mode is open; credentials: whoever holds a credential file; people: who signs in. Absent when it is not known.
	Mode    string `json:"mode,omitempty"`
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
			res.Spaces = append(res.Spaces, Line{Name: s.Name, State: s.Delivery, Mode: s.Mode, Error: s.Error, Default: s.Name == t.Config.Space.Value})
		}
	case errors.Is(err, wire.ErrUnavailable) && t.Config.Project != nil && !t.Config.Server.Explicit():
		names, err := t.Config.Project.Spaces()
		if err != nil {
			return err
		}
		for _, n := range names {
			res.Spaces = append(res.Spaces, Line{Name: n, State: stateStopped, Mode: recorded(ctx, t, n), Default: n == t.Config.Space.Value})
		}
	default:
		return err
	}
	return e.Print(res, res.human)
}

// recorded is the mode of a space by the records of the project, empty when they do not say.
func recorded(ctx context.Context, t *target.Target, name string) string {
	store, err := t.Store()
	if err != nil {
		return ""
	}
	people, exists, err := target.SignsIn(ctx, store, wire.Space(name))
	switch {
	case err != nil || !exists:
		return ""
	case people:
		return "people"
	}
	return "credentials"
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
		rows[i] = []string{s.Name, s.State, cmp.Or(s.Mode, "-"), mark, s.Error}
	}
	p.Table([]string{"space", "state", "mode", "", ""}, rows)
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
