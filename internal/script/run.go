package script

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/wire"
)

const (
	// maxTyped bounds a line that is typed into the terminal, in bytes.
	maxTyped = 64 << 10
	// sendWithin bounds what a statement asks of the space, and for spawn of a supervisor.
	sendWithin = 40 * time.Second
)

// Options say how an agent runs.
type Options struct {
	Name      string    // how {name} reads; required
	Subscribe []string  // channels to join; what is typed goes to the first
	Prompt    string    // taken as the first line that is typed
	Terminal  io.Reader // where lines are typed; nil for nowhere
	Print     func(line string)
}

// Run does what the script says until ctx ends, the script says exit or the endpoint is closed, and returns the exit code. Options.Print
// is called from one goroutine at a time with a line that may hold anything.
//
// Errors: those of listening at the start; unavailable when the endpoint ended by itself.
func Run(ctx context.Context, ep *endpoint.Endpoint, p *Program, o Options) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &agent{ep: ep, p: p, o: o, stop: cancel}
	defer a.wg.Wait()
	if err := a.listen(ctx); err != nil {
		return 0, err
	}
	a.wg.Go(func() { a.begin(ctx) })
	if o.Terminal != nil {
		go a.read(ctx) // a read that waits for a key cannot be called back
	}
	select {
	case <-ctx.Done():
	case <-ep.Done():
		if ctx.Err() == nil {
			cancel() // what the script is at must not hold this up
			return 0, wire.Errorf(wire.CodeUnavailable, "the connection to the space has ended")
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.code, nil
}

// agent is one run.
type agent struct {
	ep   *endpoint.Endpoint
	p    *Program
	o    Options
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex // guards the printing and the rest
	code int
}

func (a *agent) print(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.o.Print(line)
}

// listen joins the channels and takes what is sent to the agent.
func (a *agent) listen(ctx context.Context) error {
	channels := slices.Concat(a.o.Subscribe, a.p.channels())
	slices.Sort(channels)
	for _, ch := range slices.Compact(channels) {
		_, err := a.ep.Join(ctx, ch, func(d *endpoint.Delivery) { a.heard(ctx, d) }, nil)
		if errors.Is(err, wire.ErrPermissionDenied) {
			a.print("! may not read #" + ch)
			continue
		}
		if err != nil {
			return err
		}
	}
	if err := a.ep.HandleDirect(ctx, func(d *endpoint.Delivery) { a.heard(ctx, d) }); err != nil {
		return err
	}
	if err := a.ep.HandleMentions(ctx, func(d *endpoint.Delivery) { a.heard(ctx, d) }); err != nil {
		return err
	}
	if a.ep.Identity().Role == "" {
		return nil
	}
	return a.ep.HandleRole(ctx, func(d *endpoint.Delivery) { a.heard(ctx, d) })
}

// begin runs what the script says from the start.
func (a *agent) begin(ctx context.Context) {
	if a.o.Prompt != "" {
		a.typed(ctx, a.o.Prompt)
	}
	for _, s := range a.p.main {
		if ctx.Err() != nil {
			return
		}
		a.do(ctx, s, nil)
	}
}

// heard reacts to a message.
func (a *agent) heard(ctx context.Context, d *endpoint.Delivery) {
	if d.Sender == a.ep.Principal() {
		a.settle(ctx, d)
		return
	}
	where := map[wire.Kind]string{wire.KindChannel: "#" + d.Channel, wire.KindDirect: "(direct)", wire.KindRole: "(role " + d.Role + ")"}[d.Kind]
	a.print("< " + where + " " + d.Sender.String() + ": " + d.Message.Text())
	for _, r := range a.p.react {
		if a.fits(r, d) && ctx.Err() == nil {
			a.do(ctx, r.do, d)
		}
	}
	a.settle(ctx, d)
}

// settle says that a message was handled, unless the agent was stopped while it did: then it comes again.
func (a *agent) settle(ctx context.Context, d *endpoint.Delivery) {
	if d.Kind == wire.KindChannel || ctx.Err() != nil {
		return
	}
	if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
		a.print("! acknowledge: " + err.Error())
	}
}

func (a *agent) fits(r reaction, d *endpoint.Delivery) bool {
	switch r.on {
	case onDirect:
		return d.Kind == wire.KindDirect
	case onRole:
		return d.Kind == wire.KindRole
	case onChannel:
		return d.Kind == wire.KindChannel && d.Channel == r.channel
	}
	return d.Kind == wire.KindChannel && (d.Mentioned || slices.Contains(d.Message.Mentions, strings.ToLower(a.o.Name)))
}

// do runs one statement; d is the message that it reacts to, nil for none.
func (a *agent) do(ctx context.Context, s statement, d *endpoint.Delivery) {
	text := a.filled(s.text, d)
	within, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	var err error
	switch s.verb {
	case verbSay:
		a.print("> #" + s.target + ": " + text)
		_, err = a.ep.Post(within, s.target, endpoint.Text(text))
	case verbReply:
		err = a.reply(within, d, text)
	case verbPrint:
		a.print(text)
	case verbStatus:
		a.print(strings.TrimSpace("= " + string(s.status) + " " + text))
		err = a.ep.SetStatus(within, s.status, text)
	case verbWait:
		_ = pause.For(ctx, s.wait)
	case verbSpawn:
		err = a.spawn(within, s.target)
	case verbExit:
		a.print("= exit")
		a.mu.Lock()
		a.code = s.code
		a.mu.Unlock()
		if d != nil {
			a.settle(ctx, d)
		}
		a.stop()
	}
	if err != nil && ctx.Err() == nil {
		a.print("! " + s.verb + ": " + err.Error())
	}
}

// filled puts what a message says in place of the words that stand for it.
func (a *agent) filled(text string, d *endpoint.Delivery) string {
	pairs := []string{"{name}", a.o.Name}
	if d != nil {
		pairs = append(pairs, "{text}", d.Message.Text(), "{from}", d.Sender.String())
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// reply answers a message where it came from, unless it is an answer itself.
func (a *agent) reply(ctx context.Context, d *endpoint.Delivery, text string) error {
	if d.Message.ReplyTo != "" || text == "" {
		return nil
	}
	draft := endpoint.Text(text)
	draft.ReplyTo, draft.ContextID = d.Message.ID, d.Message.ContextID
	if d.Kind == wire.KindChannel {
		a.print("> #" + d.Channel + ": " + text)
		_, err := a.ep.Post(ctx, d.Channel, draft)
		return err
	}
	a.print("> " + d.Sender.String() + ": " + text)
	_, err := a.ep.Direct(ctx, d.Sender, draft)
	return err
}

func (a *agent) spawn(ctx context.Context, persona string) error {
	reply, err := manager.New(a.ep).Spawn(ctx, wire.SpawnRequest{Persona: persona}, "")
	if err == nil {
		a.print("= started " + reply.Agent.Principal)
	}
	return err
}

// read takes the lines that are typed into the terminal.
func (a *agent) read(ctx context.Context) {
	in := bufio.NewScanner(a.o.Terminal)
	in.Buffer(nil, maxTyped)
	for in.Scan() && ctx.Err() == nil {
		if line := strings.TrimSpace(in.Text()); line != "" {
			a.typed(ctx, line)
		}
	}
}

// typed posts a line to the first channel of the agent.
func (a *agent) typed(ctx context.Context, line string) {
	if len(a.o.Subscribe) == 0 {
		a.print("typed: " + line)
		return
	}
	a.do(ctx, statement{verb: verbSay, target: a.o.Subscribe[0], text: line}, nil)
}
