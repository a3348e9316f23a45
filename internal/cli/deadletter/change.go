package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const requeueLong = `
Puts dead letters back into their queue, as if they had just been sent by their senders: their recipients are shown them even
if they have seen them before. With --all every one, or with --to every one for a recipient; then it asks on a terminal, and
needs --force elsewhere. What is no longer stored is left out.
`

const requeueExample = `
  cotal deadletter requeue 3
  cotal deadletter requeue --all --to reviewer --force
`

const dropLong = `
Removes dead letters and their messages. There is no way back: on a terminal it asks, elsewhere it needs --force and otherwise
ends with exit code 5. With --all every one, or with --to every one for a recipient.
`

const dropExample = `
  cotal deadletter drop 3 4 --force
  cotal deadletter drop --all --to local.nova
`

// change puts dead letters back or drops them.
type change struct {
	verb, done string // requeue, put back; drop, dropped
	numbers    []uint64
	all        bool
	to         string
	force      bool
	careful    bool // also a named one is confirmed
	one        func(ctx context.Context, node *cotal.NodeClient, s wire.Space, number uint64) (sequence uint64, err error)
}

func newRequeue(t *command.Tree) *cobra.Command {
	return newChange(t, command.Spec{
		Use: "requeue [number...] [flags]", Short: "Put dead letters back", Long: requeueLong, Example: requeueExample,
	}, &change{verb: "requeue", done: "put back", one: func(ctx context.Context, node *cotal.NodeClient, s wire.Space, n uint64) (uint64, error) {
		return node.Authority().Requeue(ctx, s, n)
	}})
}

func newDrop(t *command.Tree) *cobra.Command {
	return newChange(t, command.Spec{
		Use: "drop [number...] [flags]", Short: "Remove dead letters", Long: dropLong, Example: dropExample,
	}, &change{verb: "drop", done: "dropped", careful: true, one: func(ctx context.Context, node *cotal.NodeClient, s wire.Space, n uint64) (uint64, error) {
		return 0, node.Authority().DropDead(ctx, s, n)
	}})
}

func newChange(t *command.Tree, spec command.Spec, c *change) *cobra.Command {
	spec.Args = func(args []string) (err error) {
		c.numbers, err = numbers(args)
		return err
	}
	spec.Complete = letters
	cmd := t.Add(spec, c)
	f := cmd.Flags()
	f.BoolVar(&c.all, "all", false, "every dead letter")
	f.StringVar(&c.to, "to", "", "with --all: "+toHelp)
	f.BoolVar(&c.force, "force", false, "without asking")
	recipients(t, cmd)
	return cmd
}

// ChangeResult is what `cotal deadletter requeue --json` and `drop --json` print.
type ChangeResult struct {
	command.V
	Space wire.Space `json:"space"`
	Done  string     `json:"done"` // requeue or drop
	// Letters are those that were put back or dropped, Left how many were not because they are no longer stored.
	Letters []Changed `json:"letters"`
	Left    int       `json:"left,omitempty"`

	to string // "" for everybody
}

// Changed is one dead letter that is none any more.
type Changed struct {
	Number uint64 `json:"number"`
	// Sequence is where a message that was put back is stored now.
	Sequence uint64 `json:"sequence,omitempty"`
}

// Run asks, and changes one after the other. When one fails, those before are done and printed.
func (c *change) Run(ctx context.Context, e *command.Env) error {
	if err := c.check(); err != nil {
		return err
	}
	operands := []string{c.verb}
	for _, n := range c.numbers {
		operands = append(operands, utoa(n))
	}
	if c.all {
		operands = append(operands, "--all")
	}
	t, node, err := target.OpenNode(ctx, e, "deadletter", operands...)
	if err != nil {
		return err
	}
	defer t.Close()
	res := ChangeResult{V: command.V1, Space: t.Space(), Done: c.verb, Letters: []Changed{}, to: c.to}
	if c.all {
		letters, err := read(ctx, t, node, c.to)
		if err != nil {
			return err
		}
		for _, l := range letters {
			if l.Gone && !c.careful {
				res.Left++
				continue
			}
			c.numbers = append(c.numbers, l.Number)
		}
	}
	if c.asks() {
		if err := c.exist(ctx, t, node); err != nil {
			return err
		}
		if err := c.confirm(ctx, e, t.Space()); err != nil {
			return err
		}
	}
	for _, n := range c.numbers {
		sequence, failed := c.one(ctx, node, t.Space(), n)
		if failed != nil {
			err = t.Explain(c.refused(n, failed))
			break
		}
		res.Letters = append(res.Letters, Changed{Number: n, Sequence: sequence})
		e.Progress("%s %d of %d", c.done, len(res.Letters), len(c.numbers))
	}
	if err != nil && len(res.Letters) == 0 {
		return err
	}
	if printed := e.Print(res, res.human); printed != nil {
		return printed
	}
	return err
}

func (c *change) check() error {
	switch {
	case c.all == (len(c.numbers) > 0):
		return command.Hint(command.Usagef("want numbers of dead letters or --all, one of them"), "the numbers: cotal deadletter list")
	case c.to != "" && !c.all:
		return command.Usagef("--to goes with --all")
	}
	return nil
}

// refused is why one was not changed. What the mesh says of a dead letter names it already.
func (c *change) refused(number uint64, err error) error {
	switch e, ok := errors.AsType[*wire.Error](err); {
	case ok && e.Code == wire.CodeNotFound:
		return missing(e)
	case ok && (e.Code == wire.CodeFailedPrecondition || e.Code == wire.CodeConflict):
		return e
	}
	return fmt.Errorf("%s dead letter %d: %w", c.verb, number, err)
}

// asks reports whether it is confirmed: much, or something for good, is to be done.
func (c *change) asks() bool { return !c.force && len(c.numbers) > 0 && (c.all || c.careful) }

// exist refuses a number that is none before anybody is asked about it.
func (c *change) exist(ctx context.Context, t *target.Target, node *cotal.NodeClient) error {
	if c.all { // they were listed a moment ago
		return nil
	}
	for _, n := range c.numbers {
		letters, _, err := node.Authority().DeadLetters(ctx, t.Space(), n-1, 1)
		if err != nil {
			return t.Explain(err)
		}
		if len(letters) == 0 || letters[0].ID != n {
			e := wire.Errorf(wire.CodeNotFound, "no dead letter %d in space %q", n, t.Space())
			e.Outcome = wire.OutcomeNotExecuted
			return missing(e)
		}
	}
	return nil
}

// confirm says what is about to be done, and asks.
func (c *change) confirm(ctx context.Context, e *command.Env, s wire.Space) error {
	what := fmt.Sprintf("%s of space %q", view.Plural(uint64(len(c.numbers)), "dead letter"), s)
	if c.to != "" {
		what += fmt.Sprintf(" for %q", c.to)
	}
	refusal := wire.Errorf(wire.CodeFailedPrecondition, "%s %s: not confirmed; nothing was done", c.verb, what)
	refusal.Outcome, refusal.Details = wire.OutcomeNotExecuted, map[string]any{"letters": len(c.numbers)}
	return e.Confirm(ctx, command.Hint(refusal, "to do it without being asked: --force"), c.verb+" "+what)
}

func (r ChangeResult) human(p *command.Printer) {
	done := map[string]string{"requeue": "put back", "drop": "dropped"}[r.Done]
	if len(r.Letters) == 0 && r.Left == 0 {
		p.Line("%s", none(r.to, r.Space))
		return
	}
	p.Line("%s %s in space %s", done, view.Plural(uint64(len(r.Letters)), "dead letter"), r.Space)
	if r.Left > 0 {
		p.Line("  %s left out: no longer stored", view.Plural(uint64(r.Left), "dead letter"))
	}
}
