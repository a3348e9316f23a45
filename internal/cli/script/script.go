// Package script is the hidden command `cotal script`: the process of an agent whose agent file says "agent: script".
package script

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/internal/script"
	"github.com/cotal-go/cotal/wire"
)

const scriptLong = `
Is the agent without a model, as a supervisor starts it: it reads who it is from the launch file, joins, and follows the script of its
agent file. It is not meant to be called.
`

const scriptExample = `
  cotal spawn scribe
  cotal script
`

// agent is the agent of this process.
type agent struct{}

// New adds `cotal script`.
func New(t *command.Tree) *cobra.Command {
	c := t.Add(command.Spec{Use: "script", Short: "Be an agent without a model", Long: scriptLong, Example: scriptExample, Target: command.TargetNone}, agent{})
	c.Hidden = true
	return c
}

// Run follows the script until it is stopped.
func (agent) Run(ctx context.Context, e *command.Env) error {
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	f := t.Launch()
	if f == nil {
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "there is no launch file: %s is not set", launch.Env), "a supervisor starts this: cotal spawn scribe")
	}
	p, err := script.Parse(f.PersonaText)
	if err != nil {
		return err
	}
	ctx, done := untilTold(ctx)
	defer done()      // after the goodbye
	var mu sync.Mutex // the agent and its connection print
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		_ = e.Each(struct { // a terminal that is gone ends nothing
			command.V
			Line string `json:"line"`
		}{command.V1, line}, func(p *command.Printer) { p.Line("%s", command.SafeBody(line, "  ")) })
	}
	ep, err := t.Endpoint(ctx, target.Joining, func(o *endpoint.Options) { o.Kind, o.Name, o.OnEvent = "agent", f.Name, told(say) })
	if err != nil {
		return err
	}
	defer func() { _ = ep.Close() }()
	say(f.Name + " is in space " + string(f.Space) + " as " + f.Principal)
	code, err := script.Run(ctx, ep, p, script.Options{Name: f.Name, Subscribe: f.Subscribe, Prompt: f.Prompt, Terminal: e.Stdin, Print: say})
	if err != nil {
		return t.Explain(err)
	}
	return command.Exit(code)
}

// untilTold ends ctx at a request to stop, and keeps the process from being ended by the next one before it has said goodbye: a
// seat sends two at once. Done lets go of that.
func untilTold(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTERM, syscall.SIGHUP)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-stops:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		signal.Stop(stops)
		cancel()
		wg.Wait()
	}
}

// told says what happens to the connection.
func told(say func(string)) func(endpoint.Event) {
	var calm view.Calm
	return func(ev endpoint.Event) {
		if view.EventName(ev) == "" {
			return
		}
		if text := calm.Spoken(ev); text != "" {
			say("-- " + text)
		}
	}
}
