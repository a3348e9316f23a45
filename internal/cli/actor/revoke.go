package actor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const revokeLong = `
Takes a grant away with everything held under it: nothing new is let in from that moment, connections end, and the queues, memberships
and positions of the name go. When the command returns none of it is left; the name can be granted again, and is then a new identity
that inherits nothing.

On a terminal it asks; elsewhere it needs --yes and otherwise ends with exit code 5. One that was interrupted is finished by running
it again.
`

const revokeExample = `
  cotal actor revoke ada
  cotal actor revoke helper --owner u_g5mclrofwa6pirb3p4yeigemze --yes
`

type revoke struct {
	whose
	name string
	yes  bool
}

func newRevoke(t *command.Tree) *cobra.Command {
	r := &revoke{}
	c := t.Add(command.Spec{
		Use: "revoke <name> [flags]", Short: "Take a grant away, with everything held under it", Long: revokeLong, Example: revokeExample,
		Args: command.One("name", &r.name), Complete: names,
	}, r)
	r.whose.flags(t, c)
	c.Flags().BoolVar(&r.yes, "yes", false, "without asking")
	return c
}

// RevokeResult is what `cotal actor revoke --json` prints.
type RevokeResult struct {
	command.V
	Space     wire.Space `json:"space"`
	Principal string     `json:"principal"`
	Keys      int        `json:"keys"`              // credentials that are refused from now on
	Kicked    int        `json:"kicked"`            // connections that were ended
	Waiting   uint64     `json:"waiting,omitempty"` // direct messages that nobody gets any more
	Below     []string   `json:"below,omitempty"`   // who was held under it and is revoked too
}

// Run asks and revokes.
func (r *revoke) Run(ctx context.Context, e *command.Env) error {
	name, err := checkName(r.name, &r.whose)
	if err != nil {
		return err
	}
	operands := []string{"revoke", name}
	for _, f := range []struct{ flag, value string }{{"--sub", r.sub}, {"--owner", r.owner}} {
		if f.value != "" {
			operands = append(operands, f.flag, f.value)
		}
	}
	t, node, err := target.OpenNode(ctx, e, "actor", operands...)
	if err != nil {
		return err
	}
	defer t.Close()
	g, _, err := r.chosen(ctx, t, node, name, "revoke")
	switch {
	case err != nil:
		return t.Explain(err)
	case g.State == trust.GrantRetired:
		return command.Hint(wire.Errorf(wire.CodeNotFound, "%q of owner %s is revoked already", name, g.Owner), "who is granted something: cotal actor list")
	}
	if !r.yes {
		in, err := node.Authority().Inspect(ctx, t.Space(), g.Principal())
		if err != nil {
			return t.Explain(err)
		}
		if err := confirm(ctx, e, t.Space(), g, in.Below); err != nil {
			return err
		}
	}
	done, err := node.Authority().Revoke(ctx, t.Space(), g.Principal())
	if errors.Is(err, wire.ErrNotFound) {
		return command.Hint(err, "who is granted something: cotal actor list")
	}
	if err != nil {
		return t.Explain(err)
	}
	res := RevokeResult{V: command.V1, Space: t.Space(), Principal: g.Principal().String(), Keys: done.Keys, Kicked: done.Kicked, Waiting: done.Waiting}
	for _, p := range done.Below {
		res.Below = append(res.Below, p.String())
	}
	return e.Print(res, res.human)
}

func confirm(ctx context.Context, e *command.Env, s wire.Space, g trust.Grant, below []trust.Grant) error {
	what := fmt.Sprintf("%s in space %q", rowOf(g).who(), s)
	var under []string
	for _, b := range below {
		if b.State != trust.GrantRetired {
			under = append(under, b.Actor)
		}
	}
	if len(under) > 0 {
		what += " with " + strings.Join(under, ", ") + " under it"
	}
	refusal := wire.Errorf(wire.CodeFailedPrecondition, "revoke %s: not confirmed; nothing was done", what)
	refusal.Outcome, refusal.Details = wire.OutcomeNotExecuted, map[string]any{"below": len(under)}
	return e.Confirm(ctx, command.Hint(refusal, "to do it without being asked: --yes"), "revoke "+what)
}

func (r RevokeResult) human(p *command.Printer) {
	p.Line("revoked %s in space %s", p.Bold(r.Principal), r.Space)
	if r.Keys > 0 {
		p.Line("  %s refused from now on", plural(r.Keys, "credential"))
	}
	if r.Kicked > 0 {
		p.Line("  %s ended", plural(r.Kicked, "connection"))
	}
	if r.Waiting > 0 {
		p.Line("  %s that waited will not be delivered", plural(int(min(r.Waiting, 1<<31-1)), "direct message"))
	}
	if len(r.Below) > 0 {
		p.Line("  revoked with it: %s", strings.Join(r.Below, ", "))
	}
}
