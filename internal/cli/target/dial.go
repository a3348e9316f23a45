package target

import (
	"context"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// OpenNode opens the target of a command and connects to its node; the caller closes the target. For a command that
// removes something, verb and operands are its command line, and a mesh that is only guessed is refused, see
// [Target.Own]; without them nothing is checked.
func OpenNode(ctx context.Context, e *command.Env, verb string, operands ...string) (*Target, *cotal.NodeClient, error) {
	t, err := Open(e)
	if err != nil {
		return nil, nil, err
	}
	if len(operands) > 0 {
		if err := t.Own(verb, operands...); err != nil {
			t.Close()
			return nil, nil, err
		}
	}
	node, err := t.Node(ctx)
	if err != nil {
		t.Close()
		return nil, nil, err
	}
	return t, node, nil
}

// Known refuses a space that the records of the project do not have. Without such records it says nothing.
//
// Errors: not-found with the command that lists the spaces; those of reading the records.
func (t *Target) Known(ctx context.Context) error {
	if t.Config.Open || t.Config.Remote != nil || !t.trusted() {
		return nil
	}
	store, err := t.Store()
	if err != nil {
		return err
	}
	_, exists, err := SignsIn(ctx, store, t.Space())
	if err == nil && !exists {
		err = t.noSpace()
	}
	return err
}

func (t *Target) noSpace() error {
	return command.Hint(wire.Errorf(wire.CodeNotFound, "no space %q in the mesh at %s", t.Space(), t.Config.Server.Value),
		"which spaces there are: cotal space list", "add it: cotal space add "+string(t.Space()))
}
