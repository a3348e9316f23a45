package message

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const inboxLong = `
Shows the direct messages that wait for you, oldest first, and takes them: a message that was shown is handled and does not
come again. Who is not connected misses none, so an answer to what cotal send sent is found here. At most 50 are shown at a
time, with --all every one.

With --peek, and for somebody else's name, it lists what waits and takes nothing: id, sender, size and how far each message
has come, never what it says. That is for operators; an agent is told how many messages wait for itself.
`

const inboxExample = `
  cotal inbox
  cotal inbox --peek
  cotal inbox nova --json
`

// inboxPage is how many messages are shown at a time.
const inboxPage = 50

// noInbox ends the refusal of a credential that takes no part.
const noInbox = "has no inbox"

// inbox shows direct messages that wait.
type inbox struct {
	who  string
	peek bool
	all  bool
}

// NewInbox adds `cotal inbox`.
func NewInbox(t *command.Tree) *cobra.Command {
	in := &inbox{}
	c := t.Add(command.Spec{
		Use: "inbox [peer] [flags]", Short: "Show the direct messages that wait", Long: inboxLong, Example: inboxExample,
		Args: command.Maybe("peer", &in.who), Target: command.TargetPerson, Complete: command.First(target.CompleteNames),
	}, in)
	f := c.Flags()
	f.BoolVar(&in.peek, "peek", false, "list them without taking them")
	f.BoolVar(&in.all, "all", false, "every message, not 50 or one page")
	return c
}

// InboxEnd is the last line of `cotal inbox --json`.
type InboxEnd struct {
	command.V
	End bool `json:"end"`
	// Count is how many were shown. Waiting were handed to nobody yet, Held are with another client of the same name.
	Count   int    `json:"count"`
	Waiting uint64 `json:"waiting"`
	Held    uint64 `json:"held"`
}

// InboxList is what `cotal inbox <peer> --json` and --peek print.
type InboxList struct {
	command.V
	Space wire.Space `json:"space"`
	wire.InboxReply
	// Withheld says that the messages are only counted: to list them without taking is for operators.
	Withheld bool `json:"withheld,omitempty"`
}

// Run takes one's own messages, or lists somebody's.
func (in *inbox) Run(ctx context.Context, e *command.Env) error {
	if in.peek || in.who != "" {
		return in.list(ctx, e)
	}
	e.Changes = true
	t, ep, leave, err := target.Enter(ctx, e, target.Listening)
	if err != nil {
		return err
	}
	defer leave()
	if err := t.TakesPart(noInbox); err != nil {
		return err
	}
	return t.Explain(in.take(ctx, e, ep))
}

// take shows what waits, page by page, and takes what it has shown.
func (in *inbox) take(ctx context.Context, e *command.Env, ep *endpoint.Endpoint) error {
	end := InboxEnd{V: command.V1, End: true}
	for more := true; more && (in.all || end.Count == 0); {
		var page []*endpoint.Delivery
		var err error
		if page, more, err = ep.ReadDirect(ctx, inboxPage); err != nil {
			return err
		}
		for i, d := range page {
			if err := one(ctx, e, d); err != nil {
				giveBack(ctx, page[i:])
				return err
			}
			end.Count++
		}
	}
	var err error
	if end.Waiting, end.Held, err = ep.Waiting(ctx); err != nil {
		return err
	}
	if e.JSON {
		return e.Each(end, nil)
	}
	switch {
	case end.Waiting > 0:
		e.Note("%d more; go on with: cotal inbox", end.Waiting)
	case end.Held > 0:
		e.Note("%s with another client that speaks as %s", view.Plural(end.Held, "message"), ep.Principal())
	case end.Count == 0:
		e.Note("nothing waits for %s in space %s", ep.Principal(), ep.Space())
	}
	return nil
}

// one shows a message and takes it for good.
func one(ctx context.Context, e *command.Env, d *endpoint.Delivery) error {
	en := view.EntryOf(d)
	if err := e.Each(en, en.Text); err != nil {
		return err
	}
	return d.Confirm(context.WithoutCancel(ctx))
}

// giveBack returns what was fetched and not shown. What cannot be returned comes again after the ack wait.
func giveBack(ctx context.Context, page []*endpoint.Delivery) {
	for _, d := range page {
		_ = d.Nak(context.WithoutCancel(ctx), 0)
	}
}

// list shows what waits for somebody without taking it.
func (in *inbox) list(ctx context.Context, e *command.Env) error {
	why := target.Speaking
	if in.who != "" {
		why = target.Auditing
	}
	t, ep, leave, err := target.Enter(ctx, e, why)
	if err != nil {
		return err
	}
	defer leave()
	who := ep.Principal().String()
	if in.who != "" {
		peer, err := t.FindPeer(ctx, ep, strings.TrimPrefix(in.who, "@"))
		if err != nil {
			return err
		}
		who = peer.Principal
	}
	res := InboxList{V: command.V1, Space: ep.Space()}
	for req := (wire.InboxRequest{Principal: who}); ; {
		page, err := ep.Inbox(ctx, req)
		if wire.CodeOf(err) == wire.CodePermissionDenied && who == ep.Principal().String() {
			if err := t.TakesPart(noInbox); err != nil {
				return err
			}
			return t.Explain(count(ctx, e, ep))
		}
		if err != nil {
			return t.Explain(err)
		}
		all := append(res.Messages, page.Messages...)
		res.InboxReply = page
		res.Messages = all
		if page.Next == 0 || !in.all {
			break
		}
		req.After = page.Next
	}
	if res.Messages == nil {
		res.Messages = []wire.InboxMessage{}
	}
	if err := e.Print(res, res.human); err != nil {
		return err
	}
	if res.Next > 0 {
		e.Note("there are more; all of them with: --all")
	}
	return nil
}

// count says how much waits for who asks, which everybody may know of its own queue.
func count(ctx context.Context, e *command.Env, ep *endpoint.Endpoint) error {
	res := InboxList{V: command.V1, Space: ep.Space(), Withheld: true, InboxReply: wire.InboxReply{
		Principal: ep.Principal().String(), UID: ep.Identity().UID, Messages: []wire.InboxMessage{},
	}}
	var err error
	if res.Waiting, res.Held, err = ep.Waiting(ctx); err != nil {
		return err
	}
	if err := e.Print(res, res.human); err != nil {
		return err
	}
	if res.Waiting+res.Held > 0 {
		e.Note("to list them without taking is for operators; shown and taken they are with: cotal inbox")
	}
	return nil
}

func (l InboxList) human(p *command.Printer) {
	if l.Waiting == 0 && l.Held == 0 {
		p.Line("nothing waits for %s in space %s", l.Principal, l.Space)
		return
	}
	p.Line("%s for %s: %d not handed over, %d with its client", view.Plural(l.Waiting+l.Held, "message"), p.Bold(l.Principal), l.Waiting, l.Held)
	if l.Withheld {
		return
	}
	rows := make([][]string, len(l.Messages))
	for i, m := range l.Messages {
		rows[i] = []string{view.When(time.UnixMilli(m.TimeMS)), m.Sender, view.Plural(uint64(m.Size), "byte"), string(m.Stage), m.ID}
	}
	p.Table([]string{"stored", "sender", "size", "stage", "id"}, rows)
}
