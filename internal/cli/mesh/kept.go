package mesh

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// keptFolder is a folder of a supervisor that keeps agents of a space.
type keptFolder struct {
	space, dir string
	state      string   // what --state names; empty for the mesh's own supervisor
	agents     []string // those that are not known to have ended
}

// serve is the command that takes the agents of the folder up again.
func (f keptFolder) serve() string {
	out := "cotal serve supervisor"
	if f.state != "" {
		out += " --state " + command.Quote(f.state)
	}
	return out + " --space " + command.Quote(f.space)
}

// spoken names the agents, and the supervisor where it is not the mesh's own.
func (f keptFolder) spoken() string {
	names := strings.Join(f.agents, ", ")
	if f.state != "" {
		names += " of the supervisor of " + f.state
	}
	return names
}

// ownFolders are the folders of the mesh's own supervisors that keep agents.
func ownFolders(p *config.Project) ([]keptFolder, error) {
	all := target.AllAgentsDir(p)
	spaces, err := os.ReadDir(all)
	if err != nil {
		return nil, nil // there is no such folder, and so no agent
	}
	var out []keptFolder
	for _, s := range spaces {
		name, err := hex.DecodeString(s.Name())
		if err != nil {
			name = []byte(s.Name())
		}
		out = append(out, keptFolder{space: string(name), dir: filepath.Join(all, s.Name())})
	}
	return withAgents(out)
}

// keptFolders are the folders of all supervisors of a project that keep agents: its own, and those of cotal serve supervisor --state.
func keptFolders(p *config.Project) ([]keptFolder, error) {
	out, err := ownFolders(p)
	if err != nil {
		return nil, err
	}
	noted, err := p.Supervisors()
	if err != nil {
		return nil, err
	}
	var apart []keptFolder
	for _, s := range noted {
		f := keptFolder{space: s.Space, dir: filepath.Join(s.State, hex.EncodeToString([]byte(s.Space))), state: s.State}
		if !slices.ContainsFunc(out, func(o keptFolder) bool { return o.dir == f.dir }) {
			apart = append(apart, f)
		}
	}
	apart, err = withAgents(apart)
	return append(out, apart...), err
}

// withAgents reads which agents the folders keep, and leaves those that keep some.
func withAgents(all []keptFolder) ([]keptFolder, error) {
	var out []keptFolder
	for _, f := range all {
		var err error
		if f.agents, err = supervisor.Kept(f.dir); err != nil {
			return nil, err
		}
		if len(f.agents) > 0 {
			out = append(out, f)
		}
	}
	return out, nil
}

func spokenFolders(all []keptFolder) string {
	said := make([]string, len(all))
	for i, f := range all {
		said[i] = command.Safe(f.spoken())
	}
	return strings.Join(said, "; ")
}

// noneKept is nil when the project keeps no agents. While the mesh does not run nobody can tell what became of those that it keeps.
func noneKept(p *config.Project) error {
	if p.Original() != "" {
		return nil
	}
	kept, err := keptFolders(p)
	if err != nil || len(kept) == 0 {
		return err
	}
	again := "cotal up --detach, then "
	for _, f := range kept {
		if f.state != "" {
			again += f.serve() + ", then "
		}
	}
	return command.Hint(wire.Errorf(wire.CodeUnavailable, "the mesh of %s does not run and keeps agents that may go on (%s); nobody can end them with proof",
		p.Root, spokenFolders(kept)), "take them up again, then end them: "+again+"cotal down --with-agents")
}

// noneForgotten is nil when no folder of a supervisor of the spaces has an agent that is not known to have ended, after all supervisors
// that are known said that they have none: one that none of them knows may have some.
func noneForgotten(p *config.Project, spaces []string) error {
	kept, err := keptFolders(p)
	kept = slices.DeleteFunc(kept, func(f keptFolder) bool { return !slices.Contains(spaces, f.space) })
	if err != nil || len(kept) == 0 {
		return err
	}
	hints := make([]string, len(kept))
	for i, f := range kept {
		hints[i] = "take them up again, then end them: " + f.serve() + ", then cotal down --with-agents"
	}
	return command.Hint(wire.Errorf(wire.CodeUnavailable, "the mesh of %s keeps agents whose supervisor does not run and that may go on (%s)", p.Root, spokenFolders(kept)), hints...)
}

// unknown adds to an error of ending the agents of a space what to do about supervisors that are silent: to start those of this project
// again, or, where a host is gone for good, to take from its agents what they hold.
func (d *down) unknown(ctx context.Context, t *target.Target, node *cotal.NodeClient, space string, err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return err
	}
	silent, _ := e.Details[manager.DetailSilent].([]wire.ManagerPeer)
	if len(silent) == 0 {
		return err
	}
	is := func(instance string) bool {
		return slices.ContainsFunc(silent, func(p wire.ManagerPeer) bool { return p.Instance == instance })
	}
	var hints []string
	if t.Config.Project != nil {
		kept, _ := keptFolders(t.Config.Project) // what cannot be read is no help
		for _, f := range kept {
			if instance, err := supervisor.InstanceOf(f.dir); err == nil && f.space == space && is(instance) {
				hints = append(hints, "start the supervisor again that keeps "+command.Safe(strings.Join(f.agents, ", "))+": "+f.serve())
			}
		}
	}
	grants, _ := node.Authority().List(ctx, wire.Space(space)) // the same
	for _, p := range silent {
		var names []string
		for _, g := range grants {
			if g.State != trust.GrantRetired && strings.HasPrefix(g.Label, p.Instance+":") {
				names = append(names, auth.RevokeCommand(g))
			}
		}
		if len(names) > 0 {
			when := "from then on nothing waits for it"
			if !p.Left {
				when = "nothing waits for it then, an hour after it was last heard"
			}
			hints = append(hints, "if the host "+p.Host+" is gone for good: "+strings.Join(names, "; ")+"; "+when)
		}
	}
	return command.Hint(err, hints...)
}
