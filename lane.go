package cotal

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// role is a service of one space as a lane sees it: Run serves until ctx ends, Ready closes when it serves, and Instance
// is the name under which it answers.
type role interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{}
	Instance() string
}

// epochal is a role whose instances share a name, and differ in their epoch.
type epochal interface{ Epoch() string }

// serviceLifetime is how long the credential of a role lives; it is replaced at three quarters of it.
const serviceLifetime = 24 * time.Hour

// handOverLimit bounds how long a successor may take until it is proved. The instance before it serves meanwhile.
const handOverLimit = 30 * time.Second

// lane keeps one role of one space serving: it starts it again when it dies and hands over to a fresh instance
// with a fresh credential before the old one expires. Both instances serve during the hand-over, and the old one ends only
// once the new one is proved: it is connected, it serves, and it answers.
type lane struct {
	space wire.Space
	log   *slog.Logger
	// creds mints the credential of the next instance, nil in open mode; build makes the role on a connection.
	creds func(ctx context.Context) (*trust.Credentials, error)
	// refused is called when the broker no longer accepts the credential of the connection.
	dial  func(ctx context.Context, creds *trust.Credentials, refused func()) (*nats.Conn, error)
	build func(nc *nats.Conn, creds *trust.Credentials) role
	// prove says what is wrong with an instance that is to take the place of another; nil in open mode, where nothing is
	// renewed.
	prove func(ctx context.Context, next, old string) error
	// stand makes sure of what an instance stands on, before one is made; nil: nothing.
	stand func(ctx context.Context) error
	// told is told what is wrong with the lane, nil for nothing, at each try, and must not wait; nil: nobody.
	told func(err error)

	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex // guards the fields below
	state string
	since time.Time
	err   error
}

// States of a lane.
const (
	laneStarting = "starting"
	laneServing  = "serving"
	laneBackoff  = "backoff"
	laneStopped  = "stopped"

	laneElsewhere = "elsewhere"
)

// instance is one run of the role.
type instance struct {
	name    string // under which it answers
	cancel  context.CancelFunc
	done    chan struct{}
	err     error         // set before done is closed
	renew   time.Time     // zero: never
	refused chan struct{} // its credential is no longer accepted
}

func (in *instance) refuse() {
	select {
	case in.refused <- struct{}{}:
	default:
	}
}

func (in *instance) stop() {
	in.cancel()
	<-in.done
}

// begin starts the lane and returns when its first instance serves or ctx ends.
func (l *lane) begin(parent, ctx context.Context) error {
	run, cancel := context.WithCancel(parent)
	l.cancel, l.done = cancel, make(chan struct{})
	l.set(laneStarting, nil)
	first, err := l.start(run, ctx)
	if err != nil {
		cancel()
		close(l.done)
		l.set(laneStopped, err)
		return err
	}
	l.set(laneServing, nil)
	go func() {
		defer close(l.done)
		l.keep(run, first)
		l.set(laneStopped, nil)
	}()
	return nil
}

// beginAnyhow starts the lane and returns when its first instance serves or could not: then the lane goes on trying.
func (l *lane) beginAnyhow(parent, ctx context.Context) {
	run, cancel := context.WithCancel(parent)
	l.cancel, l.done = cancel, make(chan struct{})
	l.set(laneStarting, nil)
	first, err := l.start(run, ctx)
	if err != nil {
		l.log.Warn("role not started", logkey.Space, l.space, logkey.Error, err)
		l.set(laneBackoff, err)
	} else {
		l.set(laneServing, nil)
	}
	go func() {
		defer close(l.done)
		l.keep(run, first)
		l.set(laneStopped, nil)
	}()
}

// end stops the lane and waits for it.
func (l *lane) end() {
	l.cancel()
	<-l.done
}

func (l *lane) keep(ctx context.Context, in *instance) {
	attempt := 0
	for {
		var renew <-chan time.Time
		var t *time.Timer
		if in != nil && !in.renew.IsZero() {
			t = time.NewTimer(time.Until(in.renew))
			renew = t.C
		}
		switch {
		case in == nil:
			if dial.Wait(ctx, attempt) != nil {
				return
			}
			in = l.again(ctx, &attempt)
		default:
			select {
			case <-ctx.Done():
				in.stop()
				return
			case <-in.done:
				l.log.Warn("role stopped", logkey.Space, l.space, logkey.Error, in.err)
				l.set(laneBackoff, in.err)
				in = nil
			case <-renew:
				in = l.handOver(ctx, in, &attempt)
			case <-in.refused:
				in = l.handOver(ctx, in, &attempt)
			}
		}
		if t != nil {
			t.Stop()
		}
	}
}

func (l *lane) again(ctx context.Context, attempt *int) *instance {
	in, err := l.start(ctx, ctx)
	if err != nil {
		*attempt++
		if ctx.Err() == nil {
			l.log.Warn("role not started", logkey.Space, l.space, logkey.Attempt, *attempt, logkey.Error, err)
			l.set(laneBackoff, err)
		}
		return nil
	}
	*attempt = 0
	l.set(laneServing, nil)
	return in
}

// handOver starts the successor, and only then stops the instance before it. Without a successor the old one
// goes on until its credential expires, its status says why, and the next try comes after a pause.
func (l *lane) handOver(ctx context.Context, old *instance, attempt *int) *instance {
	next, err := l.successor(ctx, old)
	if err != nil {
		if ctx.Err() == nil {
			*attempt++
			l.log.Warn("role not renewed", logkey.Space, l.space, logkey.Attempt, *attempt, logkey.Error, err)
			l.note(fmt.Errorf("renew credential: %w", err))
		}
		old.renew = time.Now().Add(min(time.Minute, time.Duration(*attempt)*time.Second))
		return old
	}
	*attempt = 0
	l.note(nil)
	old.stop()
	l.log.Info("role renewed", logkey.Space, l.space)
	return next
}

// successor starts an instance and proves it.
func (l *lane) successor(ctx context.Context, old *instance) (*instance, error) {
	limited, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	next, err := l.start(ctx, limited)
	if err != nil || l.prove == nil {
		return next, err
	}
	if err := l.prove(limited, next.name, old.name); err != nil {
		next.stop()
		return nil, fmt.Errorf("prove instance: %w", err)
	}
	return next, nil
}

// start runs a new instance under parent and waits, bounded by ctx, until it serves.
func (l *lane) start(parent, ctx context.Context) (*instance, error) {
	var creds *trust.Credentials
	in := &instance{done: make(chan struct{}), refused: make(chan struct{}, 1)}
	if l.stand != nil {
		if err := l.stand(ctx); err != nil {
			return nil, err
		}
	}
	if l.creds != nil {
		var err error
		if creds, err = l.creds(ctx); err != nil {
			return nil, fmt.Errorf("get credential: %w", err)
		}
		in.renew = creds.RenewAt()
	}
	nc, err := l.dial(ctx, creds, in.refuse)
	if err != nil {
		return nil, err
	}
	r := l.build(nc, creds)
	if in.name = r.Instance(); in.name != "" {
		if e, ok := r.(epochal); ok {
			in.name = nameOf(in.name, e.Epoch())
		}
	}
	run, cancel := context.WithCancel(parent)
	in.cancel = cancel
	go func() {
		defer close(in.done)
		defer nc.Close()
		in.err = r.Run(run)
	}()
	select {
	case <-r.Ready():
		return in, nil
	case <-in.done:
		cancel()
		return nil, fmt.Errorf("start role: %w", orStopped(in.err))
	case <-ctx.Done():
		in.stop()
		return nil, fmt.Errorf("start role: %w", ctx.Err())
	}
}

func (l *lane) set(state string, err error) {
	l.mu.Lock()
	l.state, l.err, l.since = state, err, time.Now()
	l.mu.Unlock()
	if l.told != nil && (state == laneServing || state == laneBackoff && err != nil) {
		l.told(err)
	}
}

// note tells in the status what is wrong with a lane that serves; nil: nothing.
func (l *lane) note(err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	if l.told != nil {
		l.told(err)
	}
}

func (l *lane) status() (state string, since time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.since, l.err
}

func orStopped(err error) error {
	if err == nil {
		return wire.Errorf(wire.CodeUnavailable, "role stopped before it served")
	}
	return err
}
