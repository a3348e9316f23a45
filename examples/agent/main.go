// Command agent is the smallest useful participant: it says hello on a channel, answers direct messages and
// mentions, and does the work that is asked of its role, also what came while it was away. The credential decides who it is, what it may read and write, and which role it
// serves; replace the file by a later one (cotal mint helper --renew --out helper.creds) while the agent runs, and it renews
// itself without missing a message.
//
//	cotal mint helper --role reviewer --allow-subscribe team --allow-publish team --out helper.creds
//	go run ./examples/agent nats://127.0.0.1:4222 helper.creds team
//	cotal send dm helper "are you there?"
//
// A name that was revoked and granted anew is another identity: its credential renews nobody, so the agent of the old one
// ends with exit code 3 and is started again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: agent <server> <credentials file> <channel>")
		os.Exit(2)
	}
	if err := serve(ctx, os.Stdout, os.Args[1], endpoint.File(os.Args[2]), os.Args[3], nil); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(wire.CodeOf(err).Exit())
	}
}

// serve takes part until ctx ends.
func serve(ctx context.Context, out io.Writer, server string, src endpoint.Source, channel string, opts *endpoint.Options) error {
	o := endpoint.Options{}
	if opts != nil {
		o = *opts
	}
	o.Description = "answers what it is asked"
	a := &agent{ctx: ctx, out: out}
	misfits := make(chan struct{}, 1) // the newest credential cannot continue the one in use
	var refused refusals
	o.OnEvent = func(e endpoint.Event) {
		if text := refused.text(e, time.Now()); text != "" {
			a.print("* %s", text)
		}
		if f, ok := e.(endpoint.EventRenewalFailed); ok && errors.Is(f.Err, wire.ErrPrecondition) {
			select {
			case misfits <- struct{}{}:
			default:
			}
		}
	}
	ep, err := endpoint.Connect(ctx, server, src, &o)
	if err != nil {
		return err
	}
	defer func() { _ = ep.Close() }() // its messages are settled or will come again
	a.ep = ep
	if err := ep.HandleDirect(ctx, a.answer); err != nil {
		return err
	}
	if err := ep.HandleMentions(ctx, a.mentioned); err != nil {
		return err
	}
	if ep.Identity().Role != "" {
		if err := ep.HandleRole(ctx, a.work); err != nil {
			return err
		}
	}
	if _, err := ep.Post(ctx, channel, endpoint.Text("hello, I am "+ep.Principal().String())); err != nil {
		return err
	}
	a.print("%s is here", ep.Principal())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-misfits:
			if err := a.replaced(ctx, src); err != nil {
				return err
			}
		}
	}
}

// agent answers messages. Its handlers run at the same time.
type agent struct {
	ctx context.Context // ends with serve; handlers are given none
	ep  *endpoint.Endpoint
	mu  sync.Mutex // guards out
	out io.Writer
}

// refusals keeps a credential that stays refused from filling the output: the endpoint tries on until it has a better one.
type refusals struct {
	count int // since one was told
	told  time.Time
}

// refusedEvery is how often it is told.
const refusedEvery = time.Minute

// text is what to print of an event, "" for nothing.
func (r *refusals) text(e endpoint.Event, now time.Time) string {
	switch e.(type) {
	case endpoint.EventConnected:
		*r = refusals{}
	case endpoint.EventRefused:
		r.count++
		if !r.told.IsZero() && now.Sub(r.told) < refusedEvery {
			return ""
		}
		n, first := r.count, r.told.IsZero()
		r.count, r.told = 0, now
		if !first {
			return fmt.Sprintf("%s (%d times since)", e, n)
		}
	}
	return e.String()
}

// replaced is an error when the newest credential is another life's: the name was revoked and granted anew, and no
// renewal will ever succeed.
func (a *agent) replaced(ctx context.Context, src endpoint.Source) error {
	c, err := src.Credentials(ctx)
	if err != nil || c.Identity().Lifecycle == a.ep.Identity().Lifecycle {
		return nil // it may get better
	}
	return wire.Errorf(wire.CodeUnauthenticated, "%q was revoked and granted anew, as another identity; start the agent again", a.ep.Principal())
}

func (a *agent) print(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintf(a.out, format+"\n", args...)
}

// answer replies to a direct message.
func (a *agent) answer(d *endpoint.Delivery) {
	a.print("%s: %q", d.Sender, d.Message.Text())
	a.reply(d, "you said: "+d.Message.Text())
}

// mentioned answers on a channel where somebody named the agent, whether it has joined that channel or not.
func (a *agent) mentioned(d *endpoint.Delivery) {
	a.print("#%s %s: %q", d.Channel, d.Sender, d.Message.Text())
	draft := endpoint.Text("here I am")
	draft.ReplyTo = d.Message.ID
	if _, err := a.ep.Post(a.ctx, d.Channel, draft); err != nil {
		a.print("* %v", err)
	}
}

// work does one job of the role. Until it is acknowledged no other job comes.
func (a *agent) work(d *endpoint.Delivery) {
	a.status(wire.StatusWorking, "a job for "+d.Sender.String())
	a.reply(d, "done: "+d.Message.Text())
	a.status(wire.StatusIdle, "")
}

func (a *agent) status(s wire.Status, activity string) {
	if err := a.ep.SetStatus(a.ctx, s, activity); err != nil {
		a.print("* %v", err)
	}
}

// reply answers a message and acknowledges it only then: what was not answered comes again.
func (a *agent) reply(d *endpoint.Delivery, text string) {
	draft := endpoint.Text(text)
	draft.ReplyTo = d.Message.ID
	if _, err := a.ep.Direct(a.ctx, d.Sender, draft); err != nil {
		a.print("* %v", err)
		return
	}
	if err := d.Ack(a.ctx); err != nil {
		a.print("* %v", err)
	}
}
