package member

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

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
		Args: command.One("channel", &l.pattern), Target: command.TargetPerson, Complete: channels,
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
	reply, err := ep.LeaveChannel(ctx, pattern, l.discard)
	if wire.CodeOf(err) == wire.CodeNotFound {
		return command.Hint(wire.Errorf(wire.CodeNotFound, "%s is no member of %q in space %q", ep.Principal(), pattern, ep.Space()), "who is a member of what: cotal members")
	}
	if err != nil {
		return t.Explain(err)
	}
	res := LeaveResult{V: command.V1, Space: ep.Space(), Principal: ep.Principal().String(), LeaveReply: reply, Discarded: l.discard}
	return e.Print(res, func(p *command.Printer) {
		kept := "what you have not read is still given to you"
		if l.discard {
			kept = "what you had not read is dropped"
		}
		p.Line("left %s; %s", p.Bold(view.Channel(pattern)), kept)
	})
}
