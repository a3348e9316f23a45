package persona

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

const removeLong = `
Removes an agent file, valid or not. At a terminal you are asked first; elsewhere --force says yes. Agents that were started with it go
on, and cannot be started anew.
`

const removeExample = `
  cotal persona rm scout
  cotal persona rm scout --force --json
`

// remove removes a file.
type remove struct {
	name  string
	force bool
}

func newRemove(t *command.Tree) *cobra.Command {
	r := &remove{}
	c := t.Add(command.Spec{
		Use: "rm <persona> [flags]", Short: "Remove an agent file", Long: removeLong, Example: removeExample, Target: command.TargetNone,
		Args: command.One("persona", &r.name), Complete: names,
	}, r)
	c.Flags().BoolVar(&r.force, "force", false, "do not ask")
	return c
}

// RemoveResult is what `cotal persona rm --json` prints.
type RemoveResult struct {
	command.V
	Name string `json:"name"`
	Path string `json:"path"`
}

// Run removes.
func (r *remove) Run(ctx context.Context, e *command.Env) error {
	if err := own(e, "remove", r.name); err != nil {
		return err
	}
	s, err := store(e)
	if err != nil {
		return err
	}
	if _, err := s.Source(r.name); wire.CodeOf(err) == wire.CodeNotFound || wire.CodeOf(err) == wire.CodeBadRequest {
		return unknown(s, r.name, err)
	}
	if !r.force {
		refusal := wire.Errorf(wire.CodeFailedPrecondition, "removing agent file %q cannot be undone; nothing was done", r.name)
		refusal.Outcome = wire.OutcomeNotExecuted
		if err := e.Confirm(ctx, command.Hint(refusal, "say so: --force"), "remove "+s.Path(r.name)); err != nil {
			return err
		}
	}
	if err := s.Remove(r.name); err != nil {
		return unknown(s, r.name, err)
	}
	res := RemoveResult{V: command.V1, Name: r.name, Path: s.Path(r.name)}
	return e.Print(res, func(p *command.Printer) { p.Line("removed %s", command.Safe(res.Path)) })
}
