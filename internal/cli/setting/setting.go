// Package setting holds `cotal config`: what a command would use, and from where each value comes.
package setting

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

const groupLong = `
Every command resolves the mesh, space and identity it means in the same order; the first that says something wins:

  1. a flag: --space, --server, --creds, --ca, --name
  2. the environment: COTAL_SPACE, COTAL_SERVER, COTAL_CREDS, COTAL_CA, COTAL_NAME
  3. the project: the nearest .cotal folder at or above the working folder, and its running mesh
  4. a mesh of this machine: the current one, or the only one (listed in ~/.cotal, or COTAL_HOME)
  5. the default: space main at nats://127.0.0.1:4222, under your login name

A space or server that was named narrows the rest: --space finds the project or mesh that holds that space, --server
the one that listens there. A credential brings its own space.
`

// New adds `cotal config`.
func New(t *command.Tree) *cobra.Command {
	return t.Group("config", "Show what commands use, and from where", groupLong, newShow(t), newUse(t))
}

const showLong = `
Prints each value that a command run here would use, with its source. Secrets are never printed: a credential is shown
as the path of its file. Nothing is connected to.
`

const showExample = `
  cotal config show
  cotal config show --space lab --json
`

type show struct{}

func newShow(t *command.Tree) *cobra.Command {
	return t.Add(command.Spec{Use: "show [flags]", Short: "Print each value with its source", Long: showLong, Example: showExample, Target: command.TargetPerson}, &show{})
}

// ShowResult is what `cotal config show --json` prints.
type ShowResult struct {
	command.V
	Values []config.Value `json:"values"`
	Open   bool           `json:"open"`
}

// Run resolves and prints.
func (*show) Run(_ context.Context, e *command.Env) error {
	cfg, err := e.Config()
	if err != nil {
		return err
	}
	res := ShowResult{V: command.V1, Values: cfg.Values(), Open: cfg.Open}
	return e.Print(res, func(p *command.Printer) {
		rows := make([][]string, len(res.Values))
		for i, v := range res.Values {
			shown := v.Value
			if shown == "" {
				shown = "-"
			}
			rows[i] = []string{v.Key, shown, string(v.Source)}
		}
		p.Table([]string{"key", "value", "source"}, rows)
	})
}

const useLong = `
Makes a mesh of this machine the current one: the one that commands mean when they run outside a project and no flag
or variable says otherwise. Name it by its project folder or by one of its spaces, one elsewhere where you signed in by its
address or its space.
`

const useExample = `
  cotal config use ~/mesh
  cotal config use lab
`

type use struct{ which string }

func newUse(t *command.Tree) *cobra.Command {
	u := &use{}
	return t.Add(command.Spec{
		Use: "use <folder|space> [flags]", Short: "Choose the current mesh of this machine", Long: useLong, Example: useExample,
		Args: command.One("folder|space", &u.which), Target: command.TargetNone,
		Complete: func(_ context.Context, _ *command.Env, args []string) []string {
			if len(args) > 0 {
				return nil
			}
			return t.Spaces()
		},
	}, u)
}

// UseResult is what `cotal config use --json` prints.
type UseResult struct {
	command.V
	Root  string `json:"root"` // of a mesh elsewhere its address
	URL   string `json:"url"`
	Space string `json:"space"`
}

// Run picks the mesh.
func (u *use) Run(_ context.Context, e *command.Env) error {
	cfg, err := config.Named(config.Input{Getenv: e.Getenv, Dir: e.Dir})
	if err != nil {
		return err
	}
	meshes, err := cfg.Machine.Meshes()
	if err != nil {
		return err
	}
	folder := u.which
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(e.Dir, folder)
	}
	remote, err := elsewhere(cfg.Machine, u.which)
	if err != nil {
		return err
	}
	var hits []config.Mesh
	for _, m := range meshes {
		if m.Root == config.NewProject(folder).Root || slices.Contains(m.Spaces, u.which) {
			hits = append(hits, m)
		}
	}
	switch len(hits) + len(remote) {
	case 1:
		if len(remote) == 1 {
			return u.useRemote(e, cfg.Machine, remote[0])
		}
	case 0:
		return command.Hint(wire.Errorf(wire.CodeNotFound, "no mesh of this machine has folder or space %q", u.which), "meshes are listed while they run; start it: cotal up --detach")
	default:
		var roots []string
		for _, m := range hits {
			roots = append(roots, m.Root)
		}
		for _, s := range remote {
			roots = append(roots, s.URL)
		}
		return wire.Errorf(wire.CodeConflict, "space %q is in several meshes, so name the folder or address: %s", u.which, strings.Join(roots, ", "))
	}
	if err := cfg.Machine.Use(hits[0]); err != nil {
		return err
	}
	res := UseResult{V: command.V1, Root: hits[0].Root, URL: hits[0].URL, Space: hits[0].Space}
	return e.Print(res, func(p *command.Printer) { p.Line("current mesh: %s at %s", p.Bold(res.Root), res.URL) })
}

// elsewhere are the meshes elsewhere that somebody signed in at and that have the address or space.
func elsewhere(m config.Machine, which string) ([]config.SignIn, error) {
	all, err := m.SignIns()
	return slices.DeleteFunc(all, func(s config.SignIn) bool {
		return !s.Remote() || s.Space != which && s.URL != strings.TrimRight(which, "/")
	}), err
}

func (u *use) useRemote(e *command.Env, m config.Machine, s config.SignIn) error {
	if err := m.UseSignIn(s); err != nil {
		return err
	}
	res := UseResult{V: command.V1, Root: s.URL, URL: s.Server, Space: s.Space}
	return e.Print(res, func(p *command.Printer) { p.Line("current mesh: %s", p.Bold(s.URL)) })
}
