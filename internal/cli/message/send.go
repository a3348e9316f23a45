package message

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const sendLong = `
Sends one message as you: to a channel, to one peer, or to anyone with a role. What is printed says under which sequence
the broker stored it and who is there to read it. What became of it later: cotal receipt.
`

// NewSend adds `cotal send`.
func NewSend(t *command.Tree) *cobra.Command {
	return t.Group("send", "Send a message to a channel, a peer or a role", sendLong,
		newSend(t, command.Spec{Use: "msg <channel> <text|-> [flags]", Short: "Post to a channel", Long: msgLong, Example: msgExample, Complete: command.First(target.CompleteChannels)}, view.KindChannel),
		newSend(t, command.Spec{Use: "dm <peer> <text|-> [flags]", Short: "Send a direct message", Long: dmLong, Example: dmExample, Complete: command.First(target.CompleteNames)}, view.KindDirect),
		newSend(t, command.Spec{Use: "ask <role> <text|-> [flags]", Short: "Ask anyone with a role", Long: askLong, Example: askExample, Complete: command.First(target.CompleteRoles)}, view.KindRole),
	)
}

const textLong = `
With - the text is read from standard input, up to its end. A name written as @name in the text is a mention.
`

const msgLong = `
Posts to a channel. Every member gets it: those who are there at once and, when the channel is durable, those who are
away when they come back. Everybody else finds it in the history. A channel is made by the first message; when its name is near that of
another one, a note says so.
` + textLong

const msgExample = `
  cotal send msg general "build is green"
  git log -1 | cotal send msg team.backend -
`

const dmLong = `
Sends a direct message to one peer, named by its principal (local.nova) or by its name when only one peer has it. It is
kept for a peer that is away. To a peer that does not exist, was revoked or has ended nothing is sent.
` + textLong

const dmExample = `
  cotal send dm nova "can you look at the failing test?"
  cotal send dm local.nova --reply-to 01J9Z2 "yes"
`

const askLong = `
Asks a role. Exactly one of its holders takes the message, now or when one comes. A role that nobody is granted yet is
told; the message then waits.
` + textLong

const askExample = `
  cotal send ask reviewer "please review the change on branch fix-42"
  cotal send ask reviewer - < request.txt
`

// send sends one message.
type send struct {
	kind     string
	to, text string

	id       string
	replyTo  string
	context  string
	mentions []string
	data     string
}

func newSend(t *command.Tree, spec command.Spec, kind string) *cobra.Command {
	s := &send{kind: kind}
	spec.Target, spec.Changes = command.TargetPerson, true
	spec.Args = func(args []string) error {
		if len(args) != 2 {
			return command.Usagef("want two operands, the addressee and the text in quotes, got %d", len(args))
		}
		if s.to, s.text = args[0], args[1]; strings.Trim(s.to, "@#") == "" {
			return command.Usagef("the addressee is empty")
		}
		return nil
	}
	c := t.Add(spec, s)
	f := c.Flags()
	f.StringVar(&s.id, "id", "", "message id; receivers show what one sender sends twice under one id once")
	f.StringVar(&s.replyTo, "reply-to", "", "id of the message that this one answers")
	f.StringVar(&s.context, "context", "", "id that ties a conversation together")
	f.StringSliceVar(&s.mentions, "mention", nil, "names to mention besides those in the text")
	f.StringVar(&s.data, "data", "", "JSON to send along as a data part")
	_ = c.RegisterFlagCompletionFunc("mention", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return target.CompleteNames(c.Context(), t.Env), cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// SendResult is what `cotal send --json` prints.
type SendResult struct {
	command.V
	ID        string     `json:"id"`
	Space     wire.Space `json:"space"`
	From      string     `json:"from"`
	Kind      string     `json:"kind"` // channel, direct, role
	To        string     `json:"to"`
	Stream    string     `json:"stream"`
	Sequence  uint64     `json:"sequence"`
	Duplicate bool       `json:"duplicate,omitempty"`
	// Receipt is the operand of `cotal receipt` for this message.
	Receipt string `json:"receipt"`
	// Tier is how far the message came at once: live, stored, nobody, or unknown when delivery did not answer; Reason
	// says why it is not live.
	Tier   string `json:"tier"`
	Reason string `json:"reason,omitempty"`
	// Live counts who is there to read it, Stored who gets it later.
	Live   int `json:"live"`
	Stored int `json:"stored"`
	// Mentions says of each name that is mentioned in a channel whom it means and whether it is told; absent when nobody
	// could say.
	Mentions []wire.MentionReach `json:"mentions,omitempty"`
	// Recipient is what the roster said about the peer of a direct message when it was sent.
	Recipient string `json:"recipient,omitempty"`
	// Holders is how many names were granted the role that was asked; absent when there were no records to look into.
	Holders *int `json:"holders,omitempty"`

	outlook string // what becomes of it, in words
}

func (r SendResult) human(p *command.Printer) {
	to := r.To
	switch r.Kind {
	case view.KindChannel:
		to = "#" + to
	case view.KindRole:
		to = "role " + to
	}
	line := "→ " + p.Bold(to) + "  stored seq " + strconv.FormatUint(r.Sequence, 10)
	if r.Duplicate {
		line += ", stored before"
	}
	p.Line("%s; %s", line, r.outlook)
	if len(r.Mentions) > 0 {
		p.Line("  %s", view.Mentioned(r.To, r.Mentions))
	}
	p.Line("  %s", p.Dim("from "+r.From+" in space "+string(r.Space)+", id "+command.Safe(r.Receipt)))
}

// Run sends.
func (s *send) Run(ctx context.Context, e *command.Env) error {
	draft, err := s.draft(e)
	if err != nil {
		return err
	}
	t, ep, leave, err := target.Enter(ctx, e, target.Speaking)
	if err != nil {
		return err
	}
	defer leave()
	res := SendResult{V: command.V1, Space: ep.Space(), From: ep.Principal().String(), Kind: s.kind, To: s.to}
	receipt, err := s.dispatch(ctx, t, ep, draft, &res)
	if err != nil {
		return s.explain(ctx, t, err)
	}
	res.ID, res.Stream, res.Sequence, res.Duplicate = receipt.ID, receipt.Stream, receipt.Sequence, receipt.Duplicate
	res.Receipt = ReceiptOperand(res.Kind, res.ID, s.to, res.Sequence)
	if err := e.Print(res, res.human); err != nil {
		return err
	}
	if meant := s.meant(ctx, e, ep, res); meant != "" {
		e.Note("note: no channel %s was known before this; %s", res.To, meant)
	}
	if res.Kind == view.KindRole && res.Tier == wire.ReachNobody {
		e.Note("note: it waits for ever; what waits for whom: cotal role list")
		if meant := s.meantRole(ctx, e, t, ep, res); meant != "" {
			e.Note("note: %s", meant)
		}
	}
	return nil
}

// meant is a hint that names other channels, when the message made the one that it went to.
func (s *send) meant(ctx context.Context, e *command.Env, ep *endpoint.Endpoint, res SendResult) string {
	if e.JSON || res.Kind != view.KindChannel || res.Tier != wire.ReachNobody || res.Duplicate {
		return ""
	}
	return target.MeantChannel(ctx, ep, res.To)
}

// meantRole is a hint that names roles that somebody holds.
func (s *send) meantRole(ctx context.Context, e *command.Env, t *target.Target, ep *endpoint.Endpoint, res SendResult) string {
	if e.JSON {
		return ""
	}
	return t.MeantRole(ctx, ep, res.To)
}

// dispatch asks who would get the message, sends it, and notes both in res.
func (s *send) dispatch(ctx context.Context, t *target.Target, ep *endpoint.Endpoint, d endpoint.Draft, res *SendResult) (endpoint.Receipt, error) {
	reached := func(r wire.ReachReply) {
		res.Tier, res.Reason, res.Live, res.Stored = r.Tier, r.Reason, r.Live, r.Stored
	}
	switch s.kind {
	case view.KindChannel:
		res.To = strings.TrimPrefix(s.to, "#")
		if err := wire.ValidateChannel(res.To); err != nil {
			return endpoint.Receipt{}, err
		}
		r := target.ReachChannel(ctx, ep, res.To, d.Mentions)
		reached(r)
		res.Mentions = r.Mentions
		res.outlook = view.ToChannel(r)
		return ep.Post(ctx, res.To, d)
	case view.KindRole:
		if err := wire.ValidateRole(res.To); err != nil {
			return endpoint.Receipt{}, err
		}
		r := target.Reach(ctx, ep, wire.ReachRequest{Role: res.To})
		reached(r)
		res.outlook = view.ToRole(res.To, r)
		receipt, err := ep.Ask(ctx, res.To, d)
		// What is stored is reported whether or not the records can be read.
		if n, known, herr := t.Holders(ctx, res.To); err == nil && known && herr == nil {
			res.Holders = &n
		}
		return receipt, err
	}
	peer, r, err := t.ReachPeer(ctx, ep, strings.TrimPrefix(s.to, "@"))
	if err != nil {
		return endpoint.Receipt{}, err
	}
	reached(r)
	res.To, res.Recipient, res.outlook = peer.Principal, peer.Status, view.ToPeer(peer, r)
	return ep.Direct(ctx, peer.ID(), d)
}

func (s *send) explain(ctx context.Context, t *target.Target, err error) error {
	err = t.ExplainSilence(ctx, err)
	switch wire.CodeOf(err) {
	case wire.CodeDeadlineExceeded, wire.CodeCancelled:
		if s.id != "" {
			return command.Hint(err, "it may be stored; sending it again with --id "+s.id+" within two minutes stores nothing twice")
		}
		return command.Hint(err, "it may be stored; look before sending it again: cotal history, cotal receipt")
	case wire.CodePermissionDenied:
		return t.Explain(err)
	}
	return err
}

func (s *send) draft(e *command.Env) (endpoint.Draft, error) {
	d := endpoint.Draft{ID: s.id, ReplyTo: s.replyTo, ContextID: s.context}
	text := s.text
	if text == "-" {
		var err error
		if text, err = readText(e.Stdin); err != nil {
			return d, err
		}
	}
	if text != "" {
		d.Parts = append(d.Parts, wire.Text(text))
	}
	if s.data != "" {
		if !json.Valid([]byte(s.data)) {
			return d, command.Usagef("--data: not JSON")
		}
		part, err := wire.Data(json.RawMessage(s.data))
		if err != nil {
			return d, err
		}
		d.Parts = append(d.Parts, part)
	}
	if len(d.Parts) == 0 {
		return d, command.Usagef("the message is empty")
	}
	d.Mentions = view.Mentions(text, s.mentions)
	return d, nil
}

// maxCounted bounds how much of a text that is too long is read to say how long it is.
const maxCounted = 64 << 20

// readText reads a message from a pipe; what is longer than a message can be is refused, not cut.
func readText(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, wire.MaxMessage+1))
	if err != nil {
		return "", wire.Errorf(wire.CodeInternal, "read text from standard input: %v", err)
	}
	if len(data) > wire.MaxMessage {
		rest, _ := io.Copy(io.Discard, io.LimitReader(r, maxCounted))
		at := ""
		if rest == maxCounted {
			at = "at least "
		}
		err := wire.Errorf(wire.CodeResourceExhausted, "text of standard input: %s%d bytes, at most %d in a message", at, int64(len(data))+rest, wire.MaxMessage)
		err.Outcome = wire.OutcomeNotExecuted
		return "", err
	}
	if !utf8.Valid(data) {
		return "", wire.Errorf(wire.CodeBadRequest, "text of standard input is not UTF-8")
	}
	return strings.TrimRight(string(data), "\n"), nil
}
