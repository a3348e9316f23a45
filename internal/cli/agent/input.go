package agent

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const inputLong = `
Types a line into the terminal of an agent, as if somebody sat there, and Enter after it. For operators. What the agent makes of it
is seen with cotal attach.

Flags of this command stand before the agent or after the text, so that a text may begin with a dash.
`

const inputExample = `
  cotal input reviewer "look at the failing test first"
  cotal input reviewer -1 --no-enter
`

// input types a line.
type input struct {
	name, text string
	noEnter    bool
}

// NewInput adds `cotal input`.
func NewInput(t *command.Tree) *cobra.Command {
	in := &input{}
	var c *cobra.Command
	c = t.Add(command.Spec{
		Use: "input <agent> <text> [flags]", Short: "Type a line into an agent's terminal", Long: inputLong, Example: inputExample,
		Target: command.TargetPerson, Changes: true, Complete: complete(1),
		Args: func(args []string) error {
			if len(args) > 2 { // flags that stand after the text
				f := c.Flags()
				f.SetInterspersed(true)
				if err := f.Parse(args[2:]); err != nil {
					return command.Usagef("%v", err)
				}
				args = append(args[:2:2], f.Args()...)
			}
			if len(args) != 2 {
				err := command.Usagef("want two operands, the agent and the text in quotes, got %d", len(args))
				if len(args) > 2 && strings.HasPrefix(args[1], "-") {
					return command.Hint(err, "flags stand before the agent or after the text")
				}
				return err
			}
			in.name, in.text = args[0], args[1]
			return target.Named(in.name)
		},
	}, in)
	c.Flags().SetInterspersed(false)
	c.Flags().BoolVar(&in.noEnter, "no-enter", false, "type the text alone, without Enter")
	return c
}

// InputResult is what `cotal input --json` prints.
type InputResult struct {
	command.V
	Principal string   `json:"principal"`
	UID       wire.UID `json:"uid"`
	Bytes     int      `json:"bytes"` // typed, Enter included
}

// Run types.
func (in *input) Run(ctx context.Context, e *command.Env) error {
	if len(in.text) > wire.MaxPrompt {
		return wire.Errorf(wire.CodeResourceExhausted, "text: %d bytes, at most %d", len(in.text), wire.MaxPrompt)
	}
	t, m, leave, err := target.EnterManager(ctx, e)
	if err != nil {
		return err
	}
	defer leave()
	a, err := find(ctx, t, m, in.name)
	if err != nil {
		return err
	}
	n, err := m.Input(ctx, a, in.text, !in.noEnter)
	if err != nil {
		return t.Explain(err)
	}
	res := InputResult{V: command.V1, Principal: a.Principal, UID: a.UID, Bytes: n}
	return e.Print(res, func(p *command.Printer) {
		p.Line("typed %s into the terminal of %s", view.Plural(uint64(n), "byte"), p.Bold(command.Safe(target.AgentName(a))))
	})
}
