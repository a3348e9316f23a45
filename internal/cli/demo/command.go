package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
)

const demoLong = `
Plays a short scene on a real mesh in this process: an authenticated space on the embedded broker, peers that find each
other, talk on a channel, send a direct message and hand a job to whoever serves a role; one tries what was not granted,
which the broker refuses; one leaves, misses something and gets it when it comes back; another comes late. Each line is printed when it happens, with the
sender that the broker vouches for. The last line says what was proved, counted while it happened.

It needs no network, no account and no project, takes about a second, and leaves nothing behind.
`

const demoExample = `
  cotal demo
  cotal demo --json
`

type play struct{}

// New adds `cotal demo`.
func New(t *command.Tree) *cobra.Command {
	return t.Add(command.Spec{Use: "demo [flags]", Short: "Play a short scene on a real mesh", Long: demoLong, Example: demoExample, Target: command.TargetNone}, play{})
}

// Result is the last line of `cotal demo --json`.
type Result struct {
	command.V
	Summary Summary `json:"summary"`
}

// Run plays the scene.
func (play) Run(ctx context.Context, e *command.Env) error {
	var broken error
	sum, err := Run(ctx, func(l Line) {
		if err := e.Each(l, func(p *command.Printer) { print1(p, l) }); err != nil && broken == nil {
			broken = err
		}
	})
	if err != nil {
		return err
	}
	if broken != nil {
		return broken
	}
	return e.Print(Result{V: command.V1, Summary: sum}, func(p *command.Printer) { p.Line("\n%s", p.Bold(sum.String())) })
}

// print1 writes one line for a person.
func print1(p *command.Printer, l Line) {
	at := p.Dim(fmt.Sprintf("%6s", l.At.Round(time.Millisecond)))
	switch l.What {
	case "scene":
		p.Line("\n%s  %s", at, p.Bold(l.Text))
	case "refused":
		p.Line("%s    refused by the broker: %s", at, l.Text)
	case "presence":
		p.Line("%s    %s %s", at, l.Who, l.Text)
	case "missed":
		p.Line("%s    %s → %s, which was away: %s", at, l.Who, l.To, l.Text)
	case "history":
		p.Line("%s    %s in the history of %s: %s", at, l.Who, l.To, l.Text)
	default:
		p.Line("%s    %s → %s: %s", at, l.Who, l.To, l.Text)
	}
}
