package cotal

import (
	"context"
	"fmt"

	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
)

// exchanging is one run of the exchange.
type exchanging struct {
	server *exchange.Server
	done   chan struct{}
	err    error // set before done is closed
}

// beginExchange starts the exchange and keeps it running: one that dies is started again with growing pauses, and the status
// says why.
func (g *gate) beginExchange(run, ctx context.Context, opts exchange.Options) error {
	first, err := startExchange(run, ctx, opts)
	if err != nil {
		return err
	}
	g.set(first.server, nil)
	g.wg.Go(func() { g.keepExchange(run, opts, first) })
	return nil
}

func (g *gate) keepExchange(run context.Context, opts exchange.Options, now *exchanging) {
	for attempt := 0; ; {
		if now != nil {
			attempt = 0
			<-now.done
			if run.Err() != nil {
				return
			}
			g.set(nil, now.err)
			g.log.Error("exchange stopped", logkey.Error, now.err)
		}
		if dial.Wait(run, attempt) != nil {
			return
		}
		var err error
		if now, err = startExchange(run, run, opts); err != nil {
			if run.Err() != nil {
				return
			}
			attempt++
			g.set(nil, err)
			g.log.Error("exchange not started", logkey.Attempt, attempt, logkey.Error, err)
			continue
		}
		g.set(now.server, nil)
	}
}

// startExchange runs an exchange under run and returns once it serves; ctx bounds the wait.
func startExchange(run, ctx context.Context, opts exchange.Options) (*exchanging, error) {
	s, err := exchange.New(opts)
	if err != nil {
		return nil, err
	}
	e := &exchanging{server: s, done: make(chan struct{})}
	own, cancel := context.WithCancel(run)
	go func() {
		defer close(e.done)
		defer cancel()
		e.err = s.Run(own)
	}()
	select {
	case <-s.Ready():
		return e, nil
	case <-e.done:
		return nil, orStopped(e.err)
	case <-ctx.Done():
		cancel()
		<-e.done
		return nil, fmt.Errorf("start exchange: %w", ctx.Err())
	}
}

func (g *gate) set(s *exchange.Server, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.server, g.err = s, err
}
