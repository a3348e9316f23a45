// Package deadletter is `cotal deadletter`: the messages that nobody could handle, and what an operator does about them.
package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const groupLong = `
A direct message or a piece of role work that was handed over many times and never handled becomes a dead letter: it is not
handed over any more, and stays until an operator puts it back or drops it. Its sender was told.
`

// New adds `cotal deadletter`.
func New(t *command.Tree) *cobra.Command {
	return t.Group("deadletter", "See, put back and drop what nobody could handle", groupLong, newList(t), newShow(t), newRequeue(t), newDrop(t))
}

const listLong = `
Lists the dead letters of the space, oldest first: its number, who it was for and from, how often it was handed over and why
that was given up. The number is what show, requeue and drop take.
`

const listExample = `
  cotal deadletter list
  cotal deadletter list --to local.nova --json
`

// page is how many dead letters are read at a time.
const page = 200

type list struct {
	to string
}

func newList(t *command.Tree) *cobra.Command {
	l := &list{}
	c := t.Add(command.Spec{Use: "list [flags]", Short: "List dead letters", Long: listLong, Example: listExample}, l)
	c.Flags().StringVar(&l.to, "to", "", toHelp)
	recipients(t, c)
	return c
}

const toHelp = "only those for this principal or role"

// ListResult is what `cotal deadletter list --json` prints.
type ListResult struct {
	command.V
	Space   wire.Space `json:"space"`
	Letters []Letter   `json:"letters"`

	to string // "" for everybody
}

// Letter is one dead letter as commands show it. Who it is for, who sent it and where it lies is vouched for by the broker.
type Letter struct {
	Number    uint64    `json:"number"`
	Kind      string    `json:"kind"` // direct or role
	Recipient string    `json:"recipient"`
	Sender    string    `json:"sender,omitempty"`
	ID        string    `json:"id,omitempty"`
	Sequence  uint64    `json:"sequence"` // of the message in its stream
	Size      int       `json:"size"`
	Attempts  int       `json:"attempts"`
	Reason    string    `json:"reason,omitempty"`
	At        time.Time `json:"at"` // when it was given up
	// Gone says that the message itself is no longer stored: it can only be dropped.
	Gone bool `json:"gone,omitempty"`
}

func letterOf(d space.DeadLetter) Letter {
	return Letter{
		Number: d.ID, Kind: d.Kind, Recipient: d.Recipient, Sender: d.Sender, ID: d.MessageID, Sequence: d.Sequence,
		Size: d.Size, Attempts: d.Deliveries, Reason: d.Reason, At: d.At.UTC(), Gone: d.Gone,
	}
}

// to is the recipient with what kind of address it is.
func (l Letter) to() string {
	if l.Kind == view.KindRole {
		return "role " + l.Recipient
	}
	return l.Recipient
}

func (l Letter) why() string {
	why, _ := view.Why(l.Reason, l.Attempts)
	why = cmp.Or(why, "no reason given")
	if l.Gone {
		why += "; no longer stored"
	}
	return why
}

// none says that there are no dead letters, for to or for anybody.
func none(to string, s wire.Space) string {
	if to != "" {
		return "no dead letters for " + command.Safe(to) + " in space " + string(s)
	}
	return "no dead letters in space " + string(s)
}

// read returns the dead letters of the space, or those for one recipient.
func read(ctx context.Context, t *target.Target, node *cotal.NodeClient, to string) ([]Letter, error) {
	all := []Letter{}
	for after := uint64(0); ; {
		letters, next, err := node.Authority().DeadLetters(ctx, t.Space(), after, page)
		if err != nil {
			return nil, t.Explain(err)
		}
		for _, d := range letters {
			if to == "" || d.Recipient == to || d.Recipient == wire.LocalOwner+"."+to {
				all = append(all, letterOf(d))
			}
		}
		if next == 0 || next <= after {
			return all, nil
		}
		after = next
	}
}

// Run lists.
func (l *list) Run(ctx context.Context, e *command.Env) error {
	t, node, err := target.OpenNode(ctx, e, "deadletter")
	if err != nil {
		return err
	}
	defer t.Close()
	letters, err := read(ctx, t, node, l.to)
	if err != nil {
		return err
	}
	res := ListResult{V: command.V1, Space: t.Space(), Letters: letters, to: l.to}
	return e.Print(res, res.human)
}

func (r ListResult) human(p *command.Printer) {
	if len(r.Letters) == 0 {
		p.Line("%s", none(r.to, r.Space))
		return
	}
	rows := make([][]string, len(r.Letters))
	for i, l := range r.Letters {
		rows[i] = []string{utoa(l.Number), l.to(), l.Sender, strconv.Itoa(l.Attempts), view.When(l.At), l.ID, l.why()}
	}
	p.Table([]string{"no", "to", "from", "attempts", "given up", "id", "reason"}, rows)
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

const showLong = `
Shows one dead letter with what it says. The content is the sender's; it is printed so that it can do nothing to the terminal.
`

const showExample = `
  cotal deadletter show 3
  cotal deadletter show 3 --json
`

type show struct {
	number uint64
}

func newShow(t *command.Tree) *cobra.Command {
	s := &show{}
	return t.Add(command.Spec{
		Use: "show <number> [flags]", Short: "Show one dead letter", Long: showLong, Example: showExample,
		Args: func(args []string) error {
			numbers, err := numbers(args)
			if err == nil && len(numbers) != 1 {
				err = command.Usagef("want one operand <number>, got %d", len(args))
			}
			if err == nil {
				s.number = numbers[0]
			}
			return err
		},
		Complete: func(ctx context.Context, e *command.Env, args []string) []string {
			if len(args) > 0 {
				return nil
			}
			return letters(ctx, e, nil)
		},
	}, s)
}

// numbers reads the numbers of dead letters.
func numbers(args []string) ([]uint64, error) {
	out := make([]uint64, len(args))
	for i, a := range args {
		n, err := strconv.ParseUint(a, 10, 64)
		if err != nil || n == 0 {
			return nil, command.Usagef("dead letter %q: want a number of the list", a)
		}
		out[i] = n
	}
	return out, nil
}

// ShowResult is what `cotal deadletter show --json` prints.
type ShowResult struct {
	command.V
	Space wire.Space `json:"space"`
	Letter
	// Message is the message as it was sent; absent when it is no longer stored. Malformed holds it when it does not keep to
	// the contract.
	Message   json.RawMessage `json:"message,omitempty"`
	Malformed string          `json:"malformed,omitempty"`

	decoded *wire.Message
}

// Run shows.
func (s *show) Run(ctx context.Context, e *command.Env) error {
	t, node, err := target.OpenNode(ctx, e, "deadletter")
	if err != nil {
		return err
	}
	defer t.Close()
	d, err := node.Authority().DeadLetter(ctx, t.Space(), s.number)
	if err != nil {
		return t.Explain(missing(err))
	}
	res := ShowResult{V: command.V1, Space: t.Space(), Letter: letterOf(d)}
	if m, err := wire.DecodeMessage(d.Message); err == nil && json.Valid(d.Message) {
		res.Message, res.decoded = d.Message, m
	} else {
		res.Malformed = string(d.Message)
	}
	return e.Print(res, res.human)
}

// missing says of a number that is none no more than that, and where numbers come from.
func missing(err error) error {
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CodeNotFound {
		return command.Hint(e, "the numbers: cotal deadletter list")
	}
	return err
}

// after is how often it was tried, and why that did not help.
func (l Letter) after() string {
	why, counted := view.Why(l.Reason, l.Attempts)
	text := ""
	if !counted {
		text = " after " + view.Plural(uint64(l.Attempts), "attempt")
	}
	if why != "" {
		text += ": " + command.Safe(why)
	}
	return text
}

func (r ShowResult) human(p *command.Printer) {
	p.Line("dead letter %s: %s → %s, id %s", p.Bold(utoa(r.Number)), command.Safe(r.Sender), command.Safe(r.to()), command.Safe(r.ID))
	p.Line("  given up %s%s", view.When(r.At), r.after())
	switch {
	case r.Gone:
		p.Line("  the message is no longer stored")
	case r.decoded != nil:
		p.Line("  │ %s", command.SafeBody(view.Content((*view.Claim)(r.decoded)), "  │ "))
	default:
		p.Line("  not a message of the contract: %q", r.Malformed)
	}
}
