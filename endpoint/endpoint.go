package endpoint

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// noContext is for work that no call waits for.
var noContext = context.Background()

// Endpoint is one connected participant of a space. Make one with [Connect] or [FromLink], end it with
// [Endpoint.Close].
type Endpoint struct {
	opts     Options
	src      Source // nil in open mode
	server   server
	identity trust.Identity
	from     wire.EndpointRef
	events   *events

	chatStream, directStream, roleStream string

	dedupKey func(subject, id string) string

	channelSubjects subjects[string]
	roleSubjects    subjects[string]
	directSubjects  subjects[wire.Principal]

	link       atomic.Pointer[link] // what new work uses
	presence   *presence            // nil when quiet
	notices    *notices
	caller     atomic.Pointer[control.Caller] // made at the first call, under topo
	kick       chan struct{}                  // capacity 1, wakes the renewal
	quit       chan struct{}                  // closed when the endpoint begins to close
	breaks     atomic.Uint64                  // times when live messages may have been missed
	unenrolled atomic.Bool                    // a queue of an open space is gone
	closing    atomic.Bool
	handling   atomic.Int32  // handlers that run
	closed     chan struct{} // closed when nothing of the endpoint runs any more

	stop context.CancelFunc // ends the endpoint's own goroutines
	wg   sync.WaitGroup     // counts them

	// topo orders changes of what is received and where: joining, leaving, renewing, closing. It guards
	// the fields below, and the cur fields inside. It is held across a round trip to the broker, never over a handler.
	topo   sync.Mutex
	joins  map[*Subscription]struct{}
	queues map[wire.Kind]*queue
	inbox  *queue // of ReadDirect; nil before its first call

	crowd    sync.Mutex // guards the fields below; taken last
	members  map[string]*Membership
	mentions *mentions
	sessions map[*Session]struct{}

	shown shown

	closeOnce sync.Once
	closeErr  error
}

// Space is the space the endpoint takes part in.
func (e *Endpoint) Space() wire.Space { return e.identity.Space }

// Principal is who the endpoint is, as the broker enforces it.
func (e *Endpoint) Principal() wire.Principal { return e.identity.Principal }

// Lifecycle is the life of the principal that the credential is for.
func (e *Endpoint) Lifecycle() wire.Lifecycle { return e.identity.Lifecycle }

// Identity is what the credential in use says. The caller must not change its lists.
func (e *Endpoint) Identity() trust.Identity {
	if c := e.credentials(); c != nil {
		return c.Identity()
	}
	return e.identity
}

// Account is the public key of the broker account that the credential in use is of. A space that is removed and made anew under its name
// has another. It is empty in open mode, where nobody tells.
func (e *Endpoint) Account() string {
	if c := e.credentials(); c != nil {
		return c.Account()
	}
	return ""
}

// Connected reports whether the broker can be reached at the moment.
func (e *Endpoint) Connected() bool { return e.link.Load().nc.IsConnected() }

// Done is closed when the endpoint is closed and nothing of it runs any more.
func (e *Endpoint) Done() <-chan struct{} { return e.closed }

// current returns the link for new work.
func (e *Endpoint) current() (*link, error) {
	if e.closing.Load() {
		return nil, ErrClosed
	}
	return e.link.Load(), nil
}

// credentials returns the credential in use, nil in open mode.
func (e *Endpoint) credentials() *trust.Credentials { return e.link.Load().creds.Load() }

// bounded adds the default time to a context without a deadline.
func (e *Endpoint) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.opts.RequestTimeout)
}

// wake asks the renewal to look at the credential now.
func (e *Endpoint) wake() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// Close ends the endpoint gracefully: it says offline, finishes the handlers that run and gives unhandled direct and
// role messages back, lets sends that wait for the broker finish, and disconnects. Each stage is bounded by
// Options.CloseTimeout. Later calls return the same result.
//
// Close waits for the handlers that run. Called by one of them, or by OnEvent, it would wait for itself: then it begins,
// returns an error of code failed-precondition at once, and Done says when it is over.
//
// Otherwise its error has code deadline-exceeded when a handler or OnEvent did not return in time; it then still runs, and
// Done closes when it has returned.
func (e *Endpoint) Close() error {
	if (e.handling.Load() > 0 || e.events.telling.Load()) && calledByHandler() {
		go e.closeOnce.Do(func() { e.closeErr = e.shutdown() }) // ends when Done closes, or CloseTimeout after
		return wire.Errorf(wire.CodeFailedPrecondition, "close endpoint: called by a handler, which it waits for; it ends without the caller")
	}
	e.closeOnce.Do(func() { e.closeErr = e.shutdown() })
	return e.closeErr
}

// Functions that call handlers. A handler of another endpoint is told apart from one's own only by whether one of one's
// own runs at all; if both do, Close is taken for a call by its own handler, which does it no harm.
var handlerCallers = []string{"/endpoint.(*Endpoint).invoke", "/endpoint.(*events).call"}

// calledByHandler reports whether the calling goroutine runs a handler.
func calledByHandler() bool {
	var pcs [256]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		for _, name := range handlerCallers {
			if strings.HasSuffix(f.Function, name) {
				return true
			}
		}
		if !more {
			return false
		}
	}
}

func (e *Endpoint) shutdown() error {
	e.closing.Store(true)
	close(e.quit)
	e.stop()
	e.wg.Wait() // heartbeat and renewal; after this nobody replaces the link
	l := e.link.Load()
	if e.presence != nil {
		e.presence.farewell(l, e.opts.CloseTimeout)
	}
	handlers := e.endReceiving(l)
	timeout := time.NewTimer(e.opts.CloseTimeout)
	defer timeout.Stop()
	late := waitAll(handlers, timeout.C)
	e.lastReports(l)
	timeout.Reset(e.opts.CloseTimeout)
	waitAll([]<-chan struct{}{l.retire()}, timeout.C)
	if c := e.caller.Load(); c != nil {
		_ = c.Close() // it has no other failure than being closed
	}
	l.close()
	told := e.events.close()
	timeout.Reset(e.opts.CloseTimeout)
	late = append(late, waitAll([]<-chan struct{}{told}, timeout.C)...)
	if len(late) == 0 {
		close(e.closed)
		return nil
	}
	go func() { // ends with the program's own handlers
		waitAll(late, nil)
		close(e.closed)
	}()
	return wire.Errorf(wire.CodeDeadlineExceeded, "close endpoint: %d handlers still run after %s", len(late), e.opts.CloseTimeout)
}

// endReceiving stops every subscription and queue and returns channels that close when their handlers have returned.
func (e *Endpoint) endReceiving(l *link) []<-chan struct{} {
	e.topo.Lock()
	defer e.topo.Unlock()
	var all []<-chan struct{}
	for _, s := range e.looking() {
		all = append(all, s.end())
	}
	for s := range e.joins {
		s.left.Store(true)
		_ = s.cur.sub.Unsubscribe() // a closed connection has ended it already
		all = append(all, s.cur.done)
	}
	clear(e.joins)
	for _, q := range e.queues {
		all = append(all, q.cur.stop(true))
	}
	for _, b := range e.backlogs() {
		b.halt()
		all = append(all, b.ended())
	}
	return all
}

// lastReports says what was handled, as far as that is not known, while there is somebody to hear it.
func (e *Endpoint) lastReports(l *link) {
	if !l.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(noContext, e.opts.CloseTimeout)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, b := range e.backlogs() {
		wg.Go(func() { _ = b.report(ctx) }) // what it could not say is shown again
	}
}

// waitAll waits for every channel, until timeout fires, and returns those that are open still.
func waitAll(all []<-chan struct{}, timeout <-chan time.Time) (late []<-chan struct{}) {
	for i, ch := range all {
		select {
		case <-ch:
		case <-timeout:
			for _, ch := range all[i:] {
				select {
				case <-ch:
				default:
					late = append(late, ch)
				}
			}
			return late
		}
	}
	return nil
}

// drain ends a subscription after what was received for it has been handled.
func drain(nc *nats.Conn, sub *nats.Subscription) {
	if nc.IsConnected() {
		if err := sub.Drain(); err == nil || errors.Is(err, nats.ErrBadSubscription) {
			return
		}
	}
	_ = sub.Unsubscribe() // a closed connection has ended it already
}
