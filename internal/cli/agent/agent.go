package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/wire"
)

// find locates an agent, and adds to a failure what else may be meant.
func find(ctx context.Context, t *target.Target, m *manager.Client, name string) (wire.AgentStatus, error) {
	a, err := m.Find(ctx, strings.TrimPrefix(name, "@"))
	switch {
	case err == nil:
		return a, nil
	case errors.Is(err, wire.ErrNotFound):
		return a, target.UnknownAgent(ctx, m, name, err)
	case errors.Is(err, wire.ErrConflict):
		return a, command.Hint(err, "name one by its principal")
	}
	return a, t.Explain(err)
}

// complete proposes agents for every operand up to the last of a command that takes so many; 0 is any number.
func complete(most int) func(context.Context, *command.Env, []string) []string {
	return func(ctx context.Context, e *command.Env, args []string) []string {
		if most > 0 && len(args) >= most {
			return nil
		}
		return target.CompleteAgents(ctx, e)
	}
}

// named takes one operand or more, the agents that are meant.
func named(into *[]string) func([]string) error {
	return func(args []string) error {
		if len(args) == 0 {
			return command.Usagef("want at least one operand <agent>")
		}
		*into = args
		return target.Named(args...)
	}
}

// each does something for one agent after the other. A failure does not keep it from the next; the first one is returned, the others are told.
func each(ctx context.Context, e *command.Env, names []string, do func(name string) error) error {
	var first error
	for _, name := range names {
		err := do(name)
		switch {
		case err == nil:
		case first == nil:
			first = err
		default:
			e.Note("cotal: %s", command.SafeBody(err.Error(), "  "))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return first
}
