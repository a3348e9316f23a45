// Package serve is `cotal serve`: one role of a space in a process of its own.
package serve

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/wire"
)

const groupLong = `
cotal up runs every role of a mesh in one process. These commands run a role beside it, in a process of its own, so that
more than one serves a space: they share the work, and when one of them dies the others go on.
`

// New adds `cotal serve`.
func New(t *command.Tree) *cobra.Command {
	return t.Group("serve", "Run one role in a process of its own", groupLong, newAuthority(t), newDelivery(t), newSupervisor(t))
}

const deliveryLong = `
Serves the delivery role of the space until it is interrupted: the roster, history, what members missed, receipts. It takes its
credential from the records of the project and replaces it before it expires.
`

const deliveryExample = `
  cotal serve delivery
  cotal serve delivery --space main
`

type delivery struct{}

func newDelivery(t *command.Tree) *cobra.Command {
	return t.Add(command.Spec{
		Use: "delivery [flags]", Short: "Serve the delivery role of a space", Long: deliveryLong, Example: deliveryExample,
	}, &delivery{})
}

// Serving is the line that `cotal serve delivery --json` prints once it serves.
type Serving struct {
	command.V
	Space wire.Space `json:"space"`
	Role  string     `json:"role"`
}

// Run serves until ctx ends.
func (*delivery) Run(ctx context.Context, e *command.Env) error {
	t, node, err := target.OpenNode(ctx, e, "delivery")
	if err != nil {
		return err
	}
	defer t.Close()
	var printed error
	err = node.ServeDelivery(ctx, string(t.Space()), func() {
		printed = e.Print(Serving{V: command.V1, Space: t.Space(), Role: wire.DeliveryEndpoint}, func(p *command.Printer) {
			p.Line("serving delivery of space %s; Ctrl-C stops", t.Space())
		})
	})
	if err != nil {
		return t.Explain(err)
	}
	return printed
}
