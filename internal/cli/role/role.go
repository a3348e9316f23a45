// Package role is `cotal role`: what waits for each role, and the way out when it is for nobody.
package role

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const groupLong = `
A role is an address: what is sent to it waits until exactly one of those who serve it has done it, and never leaves
by itself. These commands show what waits, and clear what nobody will ever take.
`

// New adds `cotal role`.
func New(t *command.Tree) *cobra.Command {
	return t.Group("role", "See and clear what waits for roles", groupLong, newList(t), newClear(t))
}

const listLong = `
Lists the roles of the space: how many names are granted each, how many messages wait for it, and how many are dead: those are
not handed over any more (cotal deadletter). A role that nobody is granted and that has messages was probably mistyped by a
sender.
`

const listExample = `
  cotal role list
  cotal role list --json
`

type list struct{}

func newList(t *command.Tree) *cobra.Command {
	return t.Add(command.Spec{Use: "list [flags]", Short: "List roles and what waits for them", Long: listLong, Example: listExample}, &list{})
}

// ListResult is what `cotal role list --json` prints.
type ListResult struct {
	command.V
	Space wire.Space `json:"space"`
	Roles []Line     `json:"roles"`
}

// Line is one role.
type Line struct {
	Role    string `json:"role"`
	Holders int    `json:"holders"` // names that are granted it
	Waiting uint64 `json:"waiting"` // messages, those that are being worked on included
	Dead    uint64 `json:"dead"`    // messages that are not handed over any more, beside those that wait
}

// Run lists.
func (*list) Run(ctx context.Context, e *command.Env) error {
	t, node, err := target.OpenNode(ctx, e, "role")
	if err != nil {
		return err
	}
	defer t.Close()
	grants, err := node.Authority().List(ctx, t.Space())
	if err != nil {
		return t.Explain(err)
	}
	lines, err := waiting(ctx, node, t.Space())
	if err != nil {
		return t.Explain(err)
	}
	for _, g := range grants {
		if g.Role != "" && g.State == trust.GrantActive {
			l := lines[g.Role]
			l.Role, l.Holders = g.Role, l.Holders+1
			lines[g.Role] = l
		}
	}
	res := ListResult{V: command.V1, Space: t.Space(), Roles: []Line{}}
	for _, role := range slices.Sorted(maps.Keys(lines)) {
		res.Roles = append(res.Roles, lines[role])
	}
	return e.Print(res, func(p *command.Printer) {
		if len(res.Roles) == 0 {
			p.Line("no roles in space %s", res.Space)
			return
		}
		rows := make([][]string, len(res.Roles))
		for i, l := range res.Roles {
			rows[i] = []string{l.Role, fmt.Sprint(l.Holders), fmt.Sprint(l.Waiting), fmt.Sprint(l.Dead)}
		}
		p.Table([]string{"role", "holders", "waiting", "dead"}, rows)
	})
}

// waiting is what each role that has messages has of them. What died after the dead letters were listed counts as waiting.
func waiting(ctx context.Context, node *cotal.NodeClient, s wire.Space) (map[string]Line, error) {
	dead := map[string]map[uint64]bool{} // by role, the places: the queue may have noted one twice
	for after, more := uint64(0), true; more; {
		letters, next, err := node.Authority().DeadLetters(ctx, s, after, 0)
		if err != nil {
			return nil, err
		}
		for _, d := range letters {
			if d.Gone || d.Kind != wire.KindRole.String() {
				continue
			}
			if dead[d.Recipient] == nil {
				dead[d.Recipient] = map[uint64]bool{}
			}
			dead[d.Recipient][d.Sequence] = true
		}
		more, after = next > after, next
	}
	work, err := node.Authority().Work(ctx, s)
	if err != nil {
		return nil, err
	}
	lines := map[string]Line{}
	for role, n := range work { // what was dropped since is neither
		l := Line{Role: role, Dead: min(uint64(len(dead[role])), n)}
		l.Waiting = n - l.Dead
		lines[role] = l
	}
	return lines, nil
}

const clearLong = `
Removes every message that waits for a role, those that are being worked on and the dead ones included. There is no way back. Without
--force it only says how many that are, and ends with exit code 5.
`

const clearExample = `
  cotal role clear reviwer
  cotal role clear reviwer --force
`

type clearing struct {
	role  string
	force bool
}

func newClear(t *command.Tree) *cobra.Command {
	c := &clearing{}
	cmd := t.Add(command.Spec{Use: "clear <role> [flags]", Short: "Remove what waits for a role", Long: clearLong, Example: clearExample, Args: command.One("role", &c.role),
		Complete: command.First(target.CompleteRoles)}, c)
	cmd.Flags().BoolVar(&c.force, "force", false, "really remove it")
	return cmd
}

// ClearResult is what `cotal role clear --json` prints.
type ClearResult struct {
	command.V
	Space   wire.Space `json:"space"`
	Role    string     `json:"role"`
	Removed uint64     `json:"removed"`
}

// Run counts, and removes when that was confirmed.
func (c *clearing) Run(ctx context.Context, e *command.Env) error {
	if err := wire.ValidateRole(c.role); err != nil {
		return err
	}
	t, node, err := target.OpenNode(ctx, e, "role", "clear", c.role)
	if err != nil {
		return err
	}
	defer t.Close()
	work, err := node.Authority().Work(ctx, t.Space())
	if err != nil {
		return t.Explain(err)
	}
	n, ok := work[c.role]
	if !ok {
		return command.Hint(wire.Errorf(wire.CodeNotFound, "nothing waits for role %q in space %q", c.role, t.Space()), "what waits for whom: cotal role list")
	}
	if !c.force {
		refusal := wire.Errorf(wire.CodeFailedPrecondition, "%s for role %q in space %q; nothing was removed", wait(n), c.role, t.Space())
		refusal.Outcome, refusal.Details = wire.OutcomeNotExecuted, map[string]any{"waiting": n}
		return command.Hint(refusal, "to remove them for good: cotal role clear "+c.role+" --force")
	}
	gone, err := node.Authority().ClearWork(ctx, t.Space(), c.role)
	if err != nil {
		return t.Explain(err)
	}
	res := ClearResult{V: command.V1, Space: t.Space(), Role: c.role, Removed: gone}
	return e.Print(res, func(p *command.Printer) {
		p.Line("removed %s that waited for role %s in space %s", view.Plural(gone, "message"), p.Bold(c.role), res.Space)
	})
}

// wait says that messages wait, or one does.
func wait(n uint64) string {
	if n == 1 {
		return "1 message waits"
	}
	return view.Plural(n, "message") + " wait"
}
