package person

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const joinLong = `
Takes part in the space from this terminal: others see you in the roster, what is posted to the channels you join is printed
as it comes, and so are direct messages to you. A line you type is posted to the current channel, the first that is named.

Joining makes you a member of the channels. What is posted to a durable channel while you are away waits for you: the next
join shows it first, marked as missed. Ending the session keeps the membership; cotal leave ends it.

  /who                who is here
  /dm <peer> <text>   send a direct message
  /ask <role> <text>  ask anyone with a role
  /status <s> [text]  say what you are doing: idle, waiting or working
  /channel <name>     join a channel and make it the current one
  /leave <channel>    end your membership of a channel
  /quit               end the session (also Ctrl-D)

Without a terminal the lines come from standard input, and the command ends when that has ended and everything missed is
shown. An operand cotal://host/space (cotals:// for TLS) names the mesh instead of the flags; a link carries no more than an
open mesh needs.
`

const joinExample = `
  cotal join
  cotal join team.backend 'alerts.>'
  printf 'build %s is done\n' 42 | cotal join general
`

// join takes part in a space.
type join struct {
	link     string
	channels []string
	history  int
}

const (
	defaultChannel = "general"
	defaultHistory = 10
)

// NewJoin adds `cotal join`.
func NewJoin(t *command.Tree) *cobra.Command {
	j := &join{}
	var operands []string
	c := t.Add(command.Spec{
		Use: "join [link] [channel...] [flags]", Short: "Take part from this terminal", Long: joinLong, Example: joinExample, Changes: true,
		Args: func(args []string) error {
			for _, a := range args {
				switch {
				case !strings.Contains(a, "://"):
					operands = append(operands, a)
				case j.link != "":
					return command.Usagef("want at most one link")
				default:
					j.link = a
				}
			}
			return nil
		},
		Target:   command.TargetPerson,
		Complete: func(ctx context.Context, e *command.Env, _ []string) []string { return target.CompleteChannels(ctx, e) },
	}, j)
	f := c.Flags()
	f.StringSliceVar(&j.channels, "channel", nil, "channel or pattern to join, the same as an operand, may be repeated (default general)")
	f.IntVar(&j.history, "history", defaultHistory, "how many stored messages of the current channel to show to who was no member yet")
	c.PreRun = func(*cobra.Command, []string) { j.channels = append(operands, j.channels...) }
	_ = c.RegisterFlagCompletionFunc("channel", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return target.CompleteChannels(c.Context(), t.Env), cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// Run joins, talks, leaves.
func (j *join) Run(ctx context.Context, e *command.Env) error {
	if j.history < 0 {
		return command.Usagef("--history must not be negative")
	}
	var link *wire.Link
	if j.link != "" {
		l, err := wire.ParseLink(j.link)
		if err != nil {
			return err
		}
		link = &l
	}
	patterns, current, err := j.follow(link)
	if err != nil {
		return err
	}
	t, err := target.OpenLink(e, link)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.TakesPart("joins no channel"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &session{t: t, broken: make(chan struct{}), peers: map[string]target.Peer{}, missed: map[string]int{}, late: map[string][]view.Entry{}}
	defer func() { cancel(); s.wg.Wait() }()
	if s.ep, err = t.Endpoint(ctx, target.Joining, target.WithEvents(s.event)); err != nil {
		return err
	}
	defer func() { _ = s.ep.Close() }()
	sc, err := openScreen(ctx, e)
	if err != nil {
		return err
	}
	s.attach(sc)
	defer s.leave()
	defer func() { _ = s.ep.Close() }() // before the screen goes: what was handled was shown
	if err := s.begin(ctx, patterns, current, j.history); err != nil {
		return t.Explain(err)
	}
	return s.loop(ctx)
}

// follow is what to subscribe to, and the first concrete channel of it.
func (j *join) follow(link *wire.Link) (patterns []string, current string, err error) {
	patterns = j.channels
	if len(patterns) == 0 && link != nil {
		patterns = link.Channels
	}
	if len(patterns) == 0 {
		patterns = []string{defaultChannel}
	}
	out := make([]string, len(patterns))
	for i, p := range patterns {
		out[i] = strings.TrimPrefix(p, "#")
		if err := wire.ValidatePattern(out[i]); err != nil {
			return nil, "", err
		}
		if current == "" && wire.ValidateChannel(out[i]) == nil {
			current = out[i]
		}
	}
	return out, current, nil
}

// end is how a session ends at the person's wish.
func (s *session) end() error {
	s.farewell()
	return s.outcome()
}

// loop does what each line asks for, until the person leaves.
func (s *session) loop(ctx context.Context) error {
	for {
		s.showPrompt()
		select {
		case <-ctx.Done():
			return nil
		case <-s.broken:
			return s.outputError()
		case l := <-s.screen.lines:
			if errors.Is(l.err, io.EOF) {
				if !s.screen.interactive {
					s.catchUp(ctx)
				}
				return s.end()
			}
			if l.err != nil {
				return l.err
			}
			a, err := parse(l.text)
			if err == nil {
				err = s.do(ctx, a)
			}
			if errors.Is(err, errQuit) {
				return s.end()
			}
			if err != nil {
				s.refuse(ctx, err)
			}
		}
	}
}
