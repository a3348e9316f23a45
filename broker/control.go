package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// DefaultTimeout bounds a control call whose context has no deadline.
const DefaultTimeout = 5 * time.Second

// Source hands out a system-account credential. It is asked at Dial and again at 75 % of each credential's lifetime.
type Source func(ctx context.Context) (*trust.Credentials, error)

// Static is a source of one credential. A control made with it ends its service when the credential expires.
func Static(c *trust.Credentials) Source {
	return func(context.Context) (*trust.Credentials, error) { return c, nil }
}

// DialOptions adjusts [Dial]. The zero value is right for an external broker on loopback or with TLS.
type DialOptions struct {
	// InProcess reaches a broker in this process; the server address is then not used.
	InProcess nats.InProcessConnProvider
	// Locate says where the broker listens now, nats://host:port or tls://host:port and "" for nowhere, and is asked before every attempt to
	// connect. It may be nil; it must not use the Control, may be called once more after Close, and what it says is held to the rules of
	// endpoint.Options.Locate.
	Locate func() string
	// TLS is used with tls:// addresses. Nil means the system's roots.
	TLS *tls.Config
	// AllowPlaintext permits a nats:// address that is not loopback. What is sent there can then be read and
	// changed on the way.
	AllowPlaintext bool
	// OperatorJWT lets PutAccount refuse accounts of other operators, which the broker itself does not.
	OperatorJWT string
	// Name is the connection name. Default "cotal control".
	Name string
	// Timeout bounds calls whose context has no deadline. Default 5 s.
	Timeout time.Duration
	// Logger may be nil.
	Logger *slog.Logger

	issuers    func() *issuers
	incomplete time.Duration // how long a call waits for the servers that are still missing; default incompleteAfter
}

// Control administers a broker, embedded or external, over a connection to its system account. Its methods are safe for
// concurrent use. Close ends it.
type Control struct {
	opts    DialOptions
	server  string
	source  Source
	issuers func() *issuers // whose accounts may be put; nil for any operator's
	log     *slog.Logger

	putting sync.Mutex // one account is pushed at a time: an older claim must not pass a newer one

	quit  context.CancelFunc
	tasks sync.WaitGroup
	wake  chan struct{} // the broker refuses the credential of the link: replace it now

	mu      sync.Mutex // guards everything below
	link    *link      // nil once closed
	renewal error      // why the last renewal failed
	waits   map[*wait]struct{}
}

// link is one connection with the credential it was made with.
type link struct {
	nc       *nats.Conn
	creds    *trust.Credentials
	calls    sync.WaitGroup
	replaced chan struct{} // closed once another link, or none, is in its place
}

// wait is one call that a refused publish or subscription should end early.
type wait struct {
	subject string // published
	inbox   string // where its answers come
	feed    string // subscribed without being asked for anything
	fail    context.CancelCauseFunc
}

// Dial connects to the system account of the broker at server and checks that every server of it answers and is recent enough.
// It panics when source is nil.
//
// Errors: unauthenticated and expired for a credential that is not accepted, unavailable when nothing answers,
// failed-precondition for a broker that is too old and for plaintext beyond loopback.
func Dial(ctx context.Context, server string, source Source, opts *DialOptions) (*Control, error) {
	if source == nil {
		panic("broker: Dial needs a source of credentials")
	}
	c := &Control{server: server, source: source, waits: map[*wait]struct{}{}, wake: make(chan struct{}, 1)}
	if err := c.configure(opts); err != nil {
		return nil, err
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	l, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.link = l
	run, quit := context.WithCancel(context.WithoutCancel(ctx))
	c.quit = quit
	c.tasks.Go(func() { c.renew(run) })
	if _, err := c.Ping(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// configure copies, completes and checks the options.
func (c *Control) configure(opts *DialOptions) error {
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Name == "" {
		c.opts.Name = "cotal control"
	}
	if c.opts.Timeout == 0 {
		c.opts.Timeout = DefaultTimeout
	}
	if c.opts.incomplete == 0 {
		c.opts.incomplete = incompleteAfter
	}
	c.log = c.opts.Logger
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.issuers = c.opts.issuers
	if c.opts.OperatorJWT != "" {
		is, err := newIssuers(c.opts.OperatorJWT, time.Now())
		if err != nil {
			return err
		}
		c.issuers = func() *issuers { return is }
	}
	if c.opts.InProcess != nil {
		return nil
	}
	return c.checkServer()
}

// checkServer refuses an address over which the control connection would be open to others.
func (c *Control) checkServer() error {
	u, err := url.Parse(c.server)
	if err != nil || u.Hostname() == "" || (u.Scheme != "nats" && u.Scheme != "tls") {
		return wire.Errorf(wire.CodeBadRequest, "control broker: %q is not a nats:// or tls:// address", c.server)
	}
	if u.Scheme == "tls" && c.opts.TLS == nil {
		c.opts.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.opts.TLS == nil && !dial.Loopback(u.Hostname()) && !c.opts.AllowPlaintext {
		return wire.Errorf(wire.CodeFailedPrecondition, "control broker at %q: plaintext reaches loopback addresses only, so use tls://", u.Redacted())
	}
	return nil
}

// connect makes a new link with a credential fresh from the source.
func (c *Control) connect(ctx context.Context) (*link, error) {
	creds, err := c.source(ctx)
	if err != nil {
		return nil, err
	}
	if creds == nil {
		return nil, wire.Errorf(wire.CodeUnauthenticated, "control broker: no system credential")
	}
	nc, err := dial.Connect(ctx, dial.Options{
		URL: c.server, Locate: c.opts.Locate, InProcess: c.opts.InProcess, Creds: creds, Name: c.opts.Name, TLS: c.opts.TLS,
		Timeout: c.opts.Timeout, OnError: c.refused, Logger: c.opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &link{nc: nc, creds: creds, replaced: make(chan struct{})}, nil
}

// Renew replaces the connection by one with a credential fresh from the source, now instead of at three quarters of the old
// one's lifetime: before the key that signed the old one is retired.
func (c *Control) Renew(ctx context.Context) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	next, err := c.connect(ctx)
	if err != nil {
		return err
	}
	return c.swap(next)
}

// swap makes next the link and closes the one before when its calls have finished.
func (c *Control) swap(next *link) error {
	c.mu.Lock()
	old := c.link
	if old != nil {
		c.link, c.renewal = next, nil
	}
	c.mu.Unlock()
	if old == nil {
		next.nc.Close()
		return wire.Errorf(wire.CodeUnavailable, "control broker: the connection is closed")
	}
	close(old.replaced)
	old.calls.Wait()
	old.nc.Close()
	return nil
}

// renew replaces the link before its credential expires, and when the broker refuses it, until ctx ends. Calls that run on
// the old one finish there.
func (c *Control) renew(ctx context.Context) {
	for failures := 0; ; {
		c.mu.Lock()
		old := c.link
		c.mu.Unlock()
		if failures == 0 && !c.sleep(ctx, old.creds.RenewAt()) {
			return
		}
		next, err := c.connect(ctx)
		if ctx.Err() != nil {
			if err == nil {
				next.nc.Close()
			}
			return
		}
		if err == nil && !next.creds.RenewAt().After(time.Now()) {
			next.nc.Close()
			err = wire.Errorf(wire.CodeExpired, "renew system credential: the new one expires at %s", next.creds.Identity().Expires.Format(time.RFC3339))
		}
		if err != nil {
			c.mu.Lock()
			c.renewal = err
			c.mu.Unlock()
			c.log.Warn("system credential not renewed", logkey.Error, err, logkey.Attempt, failures+1)
			// Calmly while there is time left, eagerly towards the end.
			left := time.Until(old.creds.Identity().Expires)
			if !sleepUntil(ctx, time.Now().Add(left/20)) || dial.Wait(ctx, failures) != nil {
				return
			}
			failures++
			continue
		}
		failures = 0
		if c.swap(next) != nil {
			return
		}
	}
}

// sleep waits until t or until the broker refuses the credential, and is false when ctx ended first.
func (c *Control) sleep(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-c.wake:
	case <-timer.C:
	}
	return true
}

// sleepUntil waits for t and is false when ctx ended first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Close ends the connection after the calls that use it. It is idempotent.
func (c *Control) Close() error {
	c.quit()
	c.tasks.Wait()
	c.mu.Lock()
	l := c.link
	c.link = nil
	c.mu.Unlock()
	if l != nil {
		close(l.replaced)
		l.calls.Wait()
		l.nc.Close()
	}
	return nil
}

// use returns the current link, connected; the caller must end the call with l.calls.Done. A link that is replaced while it is waited for,
// because the broker refuses its credential, is left for the one that took its place.
func (c *Control) use(ctx context.Context) (*link, error) {
	for {
		l, err := c.hold()
		if err != nil {
			return nil, err
		}
		if l.awaitConnected(ctx) {
			return l, nil
		}
		l.calls.Done()
		select {
		case <-l.replaced:
			if ctx.Err() == nil {
				continue
			}
		default:
		}
		return nil, wire.Errorf(wire.CodeUnavailable, "control broker: not connected")
	}
}

// awaitConnected is false when the link was replaced or closed, or ctx ended, before it was connected.
func (l *link) awaitConnected(ctx context.Context) bool {
	for !l.nc.IsConnected() {
		changed := l.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
		replaced := false
		if !l.nc.IsConnected() {
			select {
			case <-changed:
			case <-l.replaced:
				replaced = true
			case <-ctx.Done():
			}
		}
		l.nc.RemoveStatusListener(changed)
		if replaced || ctx.Err() != nil || l.nc.IsClosed() {
			return false
		}
	}
	return true
}

// hold takes part in the current link.
func (c *Control) hold() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return nil, wire.Errorf(wire.CodeUnavailable, "control broker: the connection is closed")
	}
	if c.renewal != nil && c.link.creds.Expired(time.Now()) {
		return nil, wire.Errorf(wire.CodeExpired, "control broker: the system credential expired and was not renewed: %w", c.renewal)
	}
	c.link.calls.Add(1)
	return c.link, nil
}

// bound gives ctx the default deadline when it has none.
func (c *Control) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.opts.Timeout)
}

// refused ends the call whose publish or subscription the broker refused; without it the call would wait for its
// deadline. The error of the client library carries the subject only inside its text.
func (c *Control) refused(_ *nats.Conn, err error) {
	if dial.Refused(err) {
		select {
		case c.wake <- struct{}{}:
		default:
		}
		return
	}
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	text := err.Error()
	names := func(subject string) bool { return subject != "" && strings.Contains(text, strconv.Quote(subject)) }
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.waits {
		switch {
		case names(w.subject):
			w.fail(wire.Errorf(wire.CodePermissionDenied, "control broker: the system credential may not publish %q", w.subject))
		case names(w.inbox):
			w.fail(wire.Errorf(wire.CodePermissionDenied, "control broker: the system credential may not receive answers on %q", w.inbox))
		case names(w.feed):
			w.fail(errMayNotFollow(w.feed))
		}
	}
}

// watch lets refused end what w says.
func (c *Control) watch(ctx context.Context, w *wait) (context.Context, func()) {
	ctx, fail := context.WithCancelCause(ctx)
	w.fail = fail
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits[w] = struct{}{}
	return ctx, func() {
		c.mu.Lock()
		delete(c.waits, w)
		c.mu.Unlock()
		fail(nil)
	}
}
