// Package seat is the hidden command `cotal seat <dir>`: the body of the process that holds one agent's terminal.
//
// A supervisor starts it; see package supervisor/seat. It is no use to a person. What it logs goes to standard error, which is seat.log
// in the folder. The package has no state.
package seat

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/supervisor/seat"
)

const long = `
Holds the terminal of one agent. A supervisor starts it with the folder that it prepared; it is not for people.
`

const example = `
  cotal seat /home/ada/project/.cotal/run/agents/6qk3p2v7m5xw4c2a3b5d6e7f2g
  cotal seat "$PWD/.cotal/run/agents/6qk3p2v7m5xw4c2a3b5d6e7f2g"
`

type hold struct{ dir string }

// New adds the command, hidden.
func New(t *command.Tree) *cobra.Command {
	h := &hold{}
	c := t.Add(command.Spec{
		Use: "seat <dir>", Short: "Hold the terminal of one agent", Long: long, Example: example, Target: command.TargetNone,
		Args: command.One("dir", &h.dir),
	}, h)
	c.Hidden = true
	return c
}

// Run is the seat process. It returns when the seat has ended.
func (h *hold) Run(ctx context.Context, e *command.Env) error { return Hold(ctx, h.dir, e.Stderr) }

// Hold is what the command does. A program calls it before it builds its commands, which a process that waits for months does not need.
// The end of ctx does not end it, because a hangup of the terminal that started it would be such: the seat attends to signals itself.
func Hold(ctx context.Context, dir string, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, nil)).With(logkey.Component, "seat")
	return seat.Main(context.WithoutCancel(ctx), dir, log)
}
