package message

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const clearLong = `
Removes every stored message of a channel. There is no way back. On a terminal it says how many messages of how many
senders would go, and asks; elsewhere it only says so and ends with exit code 5, unless --force is given.

Members of the channel that had not read all of it are told which part of it is gone. Settings and memberships stay.
`

const clearExample = `
  cotal history clear general
  cotal history clear team.backend --force --json
`

// clearing removes the history of a channel.
type clearing struct {
	channel string
	force   bool
}

func newClear(t *command.Tree) *cobra.Command {
	c := &clearing{}
	cmd := t.Add(command.Spec{
		Use: "clear <channel> [flags]", Short: "Remove the stored messages of a channel", Long: clearLong, Example: clearExample,
		Args: command.One("channel", &c.channel), Complete: command.First(target.CompleteChannels),
	}, c)
	cmd.Flags().BoolVar(&c.force, "force", false, "remove without asking")
	return cmd
}

// ClearResult is what `cotal history clear --json` prints.
type ClearResult struct {
	command.V
	Space   wire.Space `json:"space"`
	Channel string     `json:"channel"`
	Removed uint64     `json:"removed"`
}

// Run counts, asks, and removes.
func (c *clearing) Run(ctx context.Context, e *command.Env) error {
	channel := strings.TrimPrefix(c.channel, "#")
	if err := wire.ValidateChannel(channel); err != nil {
		return err
	}
	t, node, err := target.OpenNode(ctx, e, "history", "clear", channel)
	if err != nil {
		return err
	}
	defer t.Close()
	messages, senders, err := stored(ctx, node, t.Space(), channel)
	if err != nil {
		return t.Explain(err)
	}
	if messages == 0 {
		return command.Hint(wire.Errorf(wire.CodeNotFound, "channel %q of space %q holds no messages", channel, t.Space()), "which channels hold some: cotal channels list")
	}
	if !c.force {
		holds := fmt.Sprintf("channel %q of space %q holds %s of %s", channel, t.Space(), view.Plural(messages, "message"), view.Plural(uint64(senders), "sender"))
		refusal := wire.Errorf(wire.CodeFailedPrecondition, "%s; nothing was removed", holds)
		refusal.Outcome, refusal.Details = wire.OutcomeNotExecuted, map[string]any{"messages": messages, "senders": senders}
		err := e.Confirm(ctx, command.Hint(refusal, "to remove them for good: cotal history clear "+command.Quote(channel)+" --force"), holds+"; remove them for good")
		if err != nil {
			return err
		}
	}
	gone, err := node.Authority().ClearHistory(ctx, t.Space(), channel)
	if err != nil {
		return t.Explain(err)
	}
	res := ClearResult{V: command.V1, Space: t.Space(), Channel: channel, Removed: gone}
	return e.Print(res, func(p *command.Printer) {
		p.Line("removed %s of %s in space %s", view.Plural(gone, "message"), p.Bold("#"+channel), res.Space)
	})
}

// stored counts the messages of a channel and who sent them.
func stored(ctx context.Context, node *cotal.NodeClient, s wire.Space, channel string) (messages uint64, senders int, err error) {
	filter, err := wire.ChannelFilter(s, channel)
	if err != nil {
		return 0, 0, err
	}
	creds, err := node.Authority().ServiceCredential(ctx, s, trust.Purger, 0)
	if err != nil {
		return 0, 0, err
	}
	nc, err := node.Dial(ctx, creds)
	if err != nil {
		return 0, 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, 0, fmt.Errorf("open JetStream of space %q: %w", s, err)
	}
	unanswered := func(err error) error {
		return wire.Errorf(wire.CodeUnavailable, "count messages of channel %q: %v", channel, err)
	}
	st, err := js.Stream(ctx, wire.ChatStream(s))
	if err != nil {
		return 0, 0, unanswered(err)
	}
	info, err := st.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return 0, 0, unanswered(err)
	}
	for _, n := range info.State.Subjects {
		messages += n
	}
	return messages, len(info.State.Subjects), nil
}
