package message

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const tailLong = `
Prints messages as they come, until Ctrl-C: those of every channel, or of the channels and patterns that are named.
Messages that were missed, for example while the connection was away, are reported with their range.

With --dm your own direct messages are printed too. A direct message is handed out once: printed here, it counts as
handled and is not shown again elsewhere.
`

const tailExample = `
  cotal tail
  cotal tail general 'team.>'
  cotal tail --dm --json
`

// tail prints live messages.
type tail struct {
	patterns []string
	dm       bool
	count    int
}

// NewTail adds `cotal tail`.
func NewTail(t *command.Tree) *cobra.Command {
	tl := &tail{}
	var named []string
	c := t.Add(command.Spec{
		Use: "tail [channel]… [flags]", Short: "Print messages as they come", Long: tailLong, Example: tailExample, Target: command.TargetPerson,
		Args:     func(args []string) error { named = args; return nil },
		Complete: func(ctx context.Context, e *command.Env, _ []string) []string { return target.CompleteChannels(ctx, e) },
	}, tl)
	c.PreRun = func(*cobra.Command, []string) { tl.patterns = append(named, tl.patterns...) }
	f := c.Flags()
	f.StringSliceVar(&tl.patterns, "channel", nil, "channel or pattern to follow, the same as an operand; may be repeated (default: every channel)")
	f.BoolVar(&tl.dm, "dm", false, "also your own direct messages, which then count as handled")
	f.IntVarP(&tl.count, "count", "n", 0, "end after this many messages")
	_ = c.RegisterFlagCompletionFunc("channel", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return target.CompleteChannels(c.Context(), t.Env), cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// printer writes messages and notices of several goroutines in turn.
type printer struct {
	calm view.Calm // guarded by mu
	e    *command.Env
	stop context.CancelFunc

	mu   sync.Mutex // guards the fields below and the output
	left int        // messages until the end; negative: no end
	err  error
}

// entry prints one message. It reports false when the message was not printed: the output ended.
func (p *printer) entry(en view.Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.left == 0 {
		return false
	}
	if p.err = p.e.Each(en, en.Text); p.err != nil {
		p.stop()
		return false
	}
	if p.left--; p.left == 0 {
		p.stop()
	}
	return true
}

// event prints what happened to the connection. Per-message refusals are for the log.
func (p *printer) event(ev endpoint.Event) {
	name := view.EventName(ev)
	if name == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.e.JSON {
		if err := p.e.Each(view.NoticeOf(ev), nil); err != nil && p.err == nil {
			p.err = err
			p.stop()
		}
		return
	}
	if text := p.calm.Spoken(ev); text != "" {
		p.e.Note("-- %s", command.Safe(text))
	}
}

// live reports whether a subject is of live copies: cotal.<space>.live.…
func live(subject string) bool {
	tokens := strings.SplitN(subject, ".", 4)
	return len(tokens) == 4 && tokens[2] == wire.KindLive.String()
}

// fail ends it all with err.
func (p *printer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.stop()
}

// Run follows until the person ends it, or until it may not read any more what it follows.
func (tl *tail) Run(ctx context.Context, e *command.Env) error {
	for i, pt := range tl.patterns {
		tl.patterns[i] = strings.TrimPrefix(pt, "#")
		if err := wire.ValidatePattern(tl.patterns[i]); err != nil {
			return err
		}
	}
	if tl.count < 0 {
		return command.Usagef("--count must not be negative")
	}
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	if tl.dm {
		if err := t.TakesPart(noInbox); err != nil {
			return err
		}
	}
	parent := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &printer{e: e, stop: cancel, left: -1}
	if tl.count > 0 {
		p.left = tl.count
	}
	why := target.Looking
	if tl.dm {
		why = target.Listening
	}
	var following atomic.Bool // before, the call that begins it says what is denied
	ep, err := t.Endpoint(ctx, why, target.WithEvents(func(ev endpoint.Event) {
		if denied, ok := ev.(endpoint.EventDenied); ok && live(denied.Subject) && following.Load() {
			p.fail(command.Hint(t.Explain(denied.Err), "what you may read was narrowed; cotal tail follows what is left"))
			return
		}
		p.event(ev)
	}))
	if err != nil {
		return err
	}
	patterns := tl.wanted(ep.Identity())
	if err := tl.follow(ctx, ep, patterns, p); err != nil {
		_ = ep.Close()
		return t.Explain(err)
	}
	following.Store(true)
	e.Note("following %s in space %s; Ctrl-C ends", tl.what(patterns), ep.Space())
	select {
	case <-time.After(target.Quiet):
		tl.hint(ctx, e, ep)
		<-ctx.Done()
	case <-ctx.Done():
	}
	_ = ep.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil && parent.Err() == nil {
		return p.err
	}
	return nil
}

// hint tells which channels may have been meant of those that were named and are not there yet.
func (tl *tail) hint(ctx context.Context, e *command.Env, ep *endpoint.Endpoint) {
	for _, pt := range tl.patterns {
		if e.JSON {
			return
		}
		if meant := target.Mistyped(ctx, ep, pt); meant != "" {
			e.Note("hint: %s", meant)
		}
	}
}

// wanted is what to follow: what was named, else everything that the identity may read.
func (tl *tail) wanted(id trust.Identity) []string {
	switch {
	case len(tl.patterns) > 0:
		return tl.patterns
	case id.Profile == trust.Agent && id.UserKey != "": // an open mesh gives no key and asks for none
		return id.Subscribe
	}
	return []string{">"}
}

func (tl *tail) what(patterns []string) string {
	if slices.Contains(patterns, ">") {
		patterns = []string{"every channel"}
	}
	if tl.dm {
		patterns = append(slices.Clone(patterns), "direct messages")
	}
	if len(patterns) == 0 {
		return "nothing: the credential reads no channel"
	}
	return strings.Join(patterns, ", ")
}

func (tl *tail) follow(ctx context.Context, ep *endpoint.Endpoint, patterns []string, p *printer) error {
	for _, pt := range patterns {
		if _, err := ep.Listen(ctx, pt, func(d *endpoint.Delivery) { p.entry(view.EntryOf(d)) }); err != nil {
			return err
		}
	}
	if !tl.dm {
		return nil
	}
	return ep.HandleDirect(ctx, func(d *endpoint.Delivery) {
		if p.entry(view.EntryOf(d)) {
			_ = d.Ack(context.WithoutCancel(ctx))
		} else {
			_ = d.Nak(context.WithoutCancel(ctx), 0)
		}
	})
}
