package member

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const leaveLong = `
Ends your membership of a channel, or of the pattern that you joined: what is posted from now on does not wait for you any
more. What was posted before and you have not read yet is still given to you by the next cotal join of it; with --discard it is
dropped.
`

const leaveExample = `
  cotal leave general
  cotal leave 'alerts.>' --discard
`

// leave ends memberships.
type leave struct {
	pattern string
	discard bool
}

// NewLeave adds `cotal leave`.
func NewLeave(t *command.Tree) *cobra.Command {
	l := &leave{}
	c := t.Add(command.Spec{
		Use: "leave <channel> [flags]", Short: "End your membership of a channel", Long: leaveLong, Example: leaveExample,
		Args: command.One("channel", &l.pattern), Target: command.TargetPerson, Changes: true, Complete: command.First(target.CompleteChannels),
	}, l)
	c.Flags().BoolVar(&l.discard, "discard", false, "drop what you have not read")
	return c
}

// LeaveResult is what `cotal leave --json` prints.
type LeaveResult struct {
	command.V
	Space     wire.Space `json:"space"`
	Principal string     `json:"principal"`
	wire.LeaveReply
	Discarded bool `json:"discarded"`
	// Unread is how many messages are still given out, or were dropped; absent when nobody could say.
	Unread *int `json:"unread,omitempty"`
}

// Run leaves.
func (l *leave) Run(ctx context.Context, e *command.Env) error {
	pattern := strings.TrimPrefix(l.pattern, "#")
	if err := wire.ValidatePattern(pattern); err != nil {
		return err
	}
	t, ep, done, err := target.Enter(ctx, e, target.Listening)
	if err != nil {
		return err
	}
	defer done()
	var unread *int
	if l.discard {
		unread = waiting(ctx, ep, pattern)
	}
	reply, err := ep.LeaveChannel(ctx, pattern, l.discard)
	if wire.CodeOf(err) == wire.CodeNotFound {
		return command.Hint(wire.Errorf(wire.CodeNotFound, "%s is no member of %q in space %q", ep.Principal(), pattern, ep.Space()), others(ctx, ep, pattern)...)
	}
	if err != nil {
		return t.Explain(err)
	}
	if !l.discard {
		unread = waiting(ctx, ep, pattern)
	}
	res := LeaveResult{V: command.V1, Space: ep.Space(), Principal: ep.Principal().String(), LeaveReply: reply, Discarded: l.discard, Unread: unread}
	return e.Print(res, func(p *command.Printer) {
		p.Line("left %s%s", p.Bold(view.Channel(pattern)), res.fate())
	})
}

// others is what somebody may do who is no member of what was named: look, and take what is near it.
func others(ctx context.Context, ep *endpoint.Endpoint, pattern string) []string {
	hints := []string{"who is a member of what: cotal members"}
	ctx, cancel := context.WithTimeout(ctx, target.AnswerWithin)
	defer cancel()
	all, _, err := target.Memberships(ctx, ep, wire.MembershipsRequest{Principal: ep.Principal().String()})
	if err != nil {
		return hints
	}
	var have []string
	for _, m := range all {
		for _, d := range m.Durable {
			if d.Left == 0 {
				have = append(have, d.Pattern)
			}
		}
	}
	if meant := command.Meant(pattern, have); meant != "" {
		hints = append(hints, meant)
	}
	return hints
}

// fate says what becomes of what was not read.
func (r LeaveResult) fate() string {
	n := "what"
	switch {
	case r.Unread != nil && *r.Unread == 0:
		return ""
	case r.Unread != nil:
		n = view.Plural(uint64(*r.Unread), "message") + " that"
	}
	are := "is"
	if r.Unread != nil && *r.Unread > 1 {
		are = "are"
	}
	if r.Discarded {
		return "; " + n + " you had not read " + are + " dropped"
	}
	return "; " + n + " you have not read " + are + " still given to you by the next cotal join"
}

// waiting counts the messages of a membership that its holder has not read and did not send; nil when nobody could say. It
// moves nothing.
func waiting(ctx context.Context, ep *endpoint.Endpoint, pattern string) *int {
	ctx, cancel := context.WithTimeout(ctx, target.AnswerWithin)
	defer cancel()
	n, own := 0, ep.Principal().String()
	for req := (wire.PullRequest{Pattern: pattern}); ; {
		var page wire.PullReply
		err := target.Ask(ctx, ep, wire.CommandPull, req, &page)
		if wire.CodeOf(err) == wire.CodeNotFound {
			return &n // nothing of it is left
		}
		if err != nil {
			return nil
		}
		for _, m := range page.Messages {
			if m.Sender != own {
				n++
			}
		}
		if page.Next == 0 || page.Next <= req.After {
			return &n
		}
		req.After = page.Next
	}
}
