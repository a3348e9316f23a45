// Command observer prints what is said in a space and who comes and goes. It links the client library only: no
// broker, nothing that could mint. internal/archtest builds it stripped and holds it to 12 MB.
//
//	cotal mint watcher --profile observer --out watcher.creds
//	go run ./examples/observer nats://127.0.0.1:4222 watcher.creds 'team.>'
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/cotal-go/cotal/endpoint"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) < 3 || len(os.Args) > 4 {
		fmt.Fprintln(os.Stderr, "usage: observer <server> <credentials file> [<channel pattern>]")
		os.Exit(2)
	}
	pattern := ">"
	if len(os.Args) == 4 {
		pattern = os.Args[3]
	}
	if err := observe(ctx, os.Stdout, os.Args[1], endpoint.File(os.Args[2]), pattern, nil); err != nil {
		fmt.Fprintln(os.Stderr, "observer:", err)
		os.Exit(1)
	}
}

// observe prints until ctx ends. It is quiet: it hears the space and does not show itself.
func observe(ctx context.Context, out io.Writer, server string, src endpoint.Source, pattern string, opts *endpoint.Options) error {
	o := endpoint.Options{}
	if opts != nil {
		o = *opts
	}
	p := &printer{out: out}
	o.Quiet = true
	o.OnEvent = func(e endpoint.Event) { p.line("* %s", e) }
	ep, err := endpoint.Connect(ctx, server, src, &o)
	if err != nil {
		return err
	}
	defer func() { _ = ep.Close() }() // it printed what it heard; there is nothing left to lose
	if _, err := ep.Listen(ctx, pattern, func(d *endpoint.Delivery) {
		// The sender is what the broker vouches for; the text is whatever that sender wrote.
		p.line("#%s %s: %q", d.Channel, d.Sender, d.Message.Text())
	}); err != nil {
		return err
	}
	p.line("watching %q in space %s", pattern, ep.Space())
	return ep.WatchRoster(ctx, func(u endpoint.RosterUpdate) {
		for _, e := range u.Entries {
			p.line("@%s is %s", e.Principal, e.Presence.Status)
		}
	})
}

// printer keeps the lines of several goroutines apart.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}
