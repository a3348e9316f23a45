package target

import (
	"context"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
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
