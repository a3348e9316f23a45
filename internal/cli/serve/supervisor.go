package serve

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/wire"
)

const supervisorLong = `
Runs agents of the space until it is interrupted: starts them for cotal spawn, looks after them, and gives out their terminals. It works
beside the mesh's own supervisor, in a folder of its own that --state names, or in its place when the mesh was started with
--no-supervisor. Each agent belongs to the supervisor that started it.

When it ends, its agents go on; the next one over the same folder adopts them. It takes its credential from the records of the project
and replaces it before it expires. It holds no key that signs. While it cannot reach the mesh it says so, with the reason, and goes on trying.
`

const supervisorExample = `
  cotal serve supervisor
  cotal serve supervisor --space main --state ~/agents
`

type supervisor struct {
	state string
	most  int // agents; 0: as the project remembers
}

func newSupervisor(t *command.Tree) *cobra.Command {
	s := &supervisor{}
	c := t.Add(command.Spec{
		Use: "supervisor [flags]", Short: "Run agents of a space", Long: supervisorLong, Example: supervisorExample,
	}, s)
	c.Flags().StringVar(&s.state, "state", "", "folder that keeps the agents (default .cotal/run/agents)")
	c.Flags().IntVar(&s.most, "max-agents", 0, "most agents that run here at a time (default: that of the project, 64)")
	return c
}

// Supervising is the line that `cotal serve supervisor --json` prints once it serves.
type Supervising struct {
	Serving
	Instance string `json:"instance"`
}

// Run serves until ctx ends.
func (s *supervisor) Run(ctx context.Context, e *command.Env) error {
	t, node, err := target.OpenNode(ctx, e, wire.ManagerEndpoint)
	if err != nil {
		return err
	}
	defer t.Close()
	p := t.Config.Project
	if p == nil {
		_, err := t.Store()
		return err
	}
	settings, err := p.Settings()
	if err != nil {
		return err
	}
	if s.most < 0 {
		return command.Usagef("--max-agents %d: want at least 1", s.most)
	}
	dir := s.state
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(e.Dir, dir)
	}
	opts, err := target.SupervisorOptions(p, dir, t.Config.CA.Value)
	if err != nil {
		return err
	}
	opts.Away = func(reason error) {
		if reason == nil {
			e.Note("the mesh is there again; running agents of space %s", t.Space())
			return
		}
		e.Note("cannot reach the mesh at %s (%s); it is tried until it is there, and agents go on", t.Config.Server.Value, command.Safe(reason.Error()))
	}
	opts.Keeper.MaxAgents = cmp.Or(s.most, settings.MaxAgents)
	space := string(t.Space())
	if dir != "" {
		if err := p.NoteSupervisor(space, dir); err != nil {
			return err
		}
	}
	var printed error
	err = node.ServeSupervisor(ctx, space, opts, cotal.CapabilityFile(p.StateOf(settings), space), func(instance string) {
		line := Supervising{Serving: Serving{V: command.V1, Space: t.Space(), Role: "supervisor"}, Instance: instance}
		printed = e.Print(line, func(p *command.Printer) {
			p.Line("running agents of space %s as %s; Ctrl-C stops, and they go on", t.Space(), instance)
		})
	})
	if err != nil {
		return t.Explain(err)
	}
	return printed
}
