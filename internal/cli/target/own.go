package target

import (
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// Own refuses, for a command that ends or removes something, a mesh that is only guessed: neither that of the working
// folder nor named with --server or --space. The refusal says which it would have been and what does it; verb and operands
// are the command line.
//
// Errors: failed-precondition.
func (t *Target) Own(verb string, operands ...string) error {
	c := t.Config
	if !c.Guessed { // a credential names a space and no mesh
		return nil
	}
	line := "cotal " + verb
	for _, o := range operands {
		line += " " + command.Quote(o)
	}
	line += " --server " + command.Quote(c.Server.Value)
	refusal := wire.Errorf(wire.CodeFailedPrecondition, "no project at or above %q; nothing was done to the mesh of %q, which was not named", t.env.Dir, c.Project.Root)
	refusal.Outcome = wire.OutcomeNotExecuted
	refusal.Details = map[string]any{"root": c.Project.Root, "server": c.Server.Value}
	return command.Hint(refusal, "if that mesh is meant: "+line, "or run the command inside the project it is about")
}
