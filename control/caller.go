package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// DefaultTimeout bounds a call whose context has no deadline.
const DefaultTimeout = 5 * time.Second

// CallerOptions adjusts a [Caller]. The zero value works.
type CallerOptions struct {
	// Timeout bounds a call whose context has no deadline. Default 5 s.
	Timeout time.Duration
	// Logger receives, at debug level, what was dropped and why. Nil discards.
	Logger *slog.Logger
}

// Caller calls endpoints as one lifecycle. It keeps one subscription per connection, on the reply rail of that
// lifecycle, and needs no inbox. All methods are safe for concurrent use.
//
// The broker refuses a publish that the credential does not permit only by an asynchronous error, which the client
// library hands to the connection's error handler: pass the subject it names to [Caller.Denied], else such a call waits
// for its deadline.
type Caller struct {
	space   wire.Space
	self    wire.Lifecycle
	filter  string
	timeout time.Duration
	log     *slog.Logger
	routes  *routes

	idPrefix string
	idCount  atomic.Uint64
	flights  sync.Pool // of finished *flight

	mu      sync.Mutex // guards what follows
	closed  bool
	deaf    *wire.Error        // why no reply can arrive, when the broker denied the subscription
	lines   []*line            // newest last; calls leave on the newest
	waiting map[string]*flight // by nonce
}

// line is one connection that a caller uses.
type line struct {
	nc      *nats.Conn
	sub     *nats.Subscription
	calls   int           // in flight on this connection
	leaving chan struct{} // non-nil once detached; closed when calls is 0
}

// NewCaller returns a caller of a space as self. From is the sender that requests state; its ID is set to self, its
// name to the actor when empty. It subscribes on nc without waiting: the broker orders the subscription before every
// call on that connection. It panics on a nil nc.
//
// Errors: bad-request for a space, lifecycle or sender that cannot be; unavailable when nc is closed.
func NewCaller(nc *nats.Conn, space wire.Space, self wire.Lifecycle, from wire.EndpointRef, opts *CallerOptions) (*Caller, error) {
	if nc == nil {
		panic("control: NewCaller needs a connection")
	}
	c := &Caller{space: space, self: self, timeout: DefaultTimeout, log: discard, waiting: map[string]*flight{}}
	if opts != nil && opts.Timeout > 0 {
		c.timeout = opts.Timeout
	}
	if opts != nil && opts.Logger != nil {
		c.log = opts.Logger
	}
	var err error
	if c.filter, err = wire.ReplyFilter(space, self); err != nil {
		return nil, fmt.Errorf("make caller: %w", err)
	}
	if c.routes, err = newRoutes(space, self, from); err != nil {
		return nil, fmt.Errorf("make caller: %w", err)
	}
	c.idPrefix = wire.NewID()[:10] + "-"
	l, err := c.subscribe(nc)
	if err != nil {
		return nil, fmt.Errorf("make caller: %w", err)
	}
	c.lines = []*line{l}
	return c, nil
}

func (c *Caller) subscribe(nc *nats.Conn) (*line, error) {
	l := &line{nc: nc}
	sub, err := nc.Subscribe(c.filter, c.receive)
	if err != nil {
		return nil, connError(err)
	}
	l.sub = sub
	sub.SetClosedHandler(func(string) { c.hangUp(l) })
	return l, nil
}

// Attach sends later calls over nc. It returns once the broker has accepted the subscription there, so that a renewed
// credential can be proved before it is used. Calls in flight are answered on the connection they left on, or on this
// one. Errors: permission-denied, naming the subscription; unavailable; failed-precondition when nc is attached.
func (c *Caller) Attach(ctx context.Context, nc *nats.Conn) error {
	l, err := c.subscribe(nc)
	if err != nil {
		return fmt.Errorf("attach caller: %w", err)
	}
	if err = flush(ctx, nc); err == nil {
		err = refused(nc, c.filter)
	}
	if err == nil {
		err = c.install(l)
	}
	if err != nil {
		_ = l.sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
		return fmt.Errorf("attach caller: %w", err)
	}
	return nil
}

func (c *Caller) install(l *line) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || slices.ContainsFunc(c.lines, func(o *line) bool { return o.nc == l.nc }) {
		return wire.Errorf(wire.CodeFailedPrecondition, "the caller is closed or has the connection already")
	}
	c.lines = append(slices.Clone(c.lines), l)
	c.deaf = nil
	return nil
}

// Detach stops using nc: it waits until the calls in flight on it are done, or ctx ends, and ends its subscription.
// The connection may be closed afterwards. Errors: not-found when nc is not attached; deadline-exceeded when ctx ends
// first; calls that are still in flight may then miss only the broker's word that nobody listens.
func (c *Caller) Detach(ctx context.Context, nc *nats.Conn) error {
	c.mu.Lock()
	i := slices.IndexFunc(c.lines, func(l *line) bool { return l.nc == nc })
	if i < 0 {
		c.mu.Unlock()
		return wire.Errorf(wire.CodeNotFound, "detach caller: the connection is not attached")
	}
	l := c.lines[i]
	c.lines = slices.Delete(slices.Clone(c.lines), i, i+1)
	l.leaving = make(chan struct{})
	if l.calls == 0 {
		close(l.leaving)
	}
	c.mu.Unlock()

	var err error
	select {
	case <-l.leaving:
	case <-ctx.Done():
		err = wire.Errorf(wire.CodeDeadlineExceeded, "detach caller: %w", ctx.Err())
	}
	_ = l.sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
	return err
}

// hangUp runs when a subscription has ended. If nobody asked for it, the connection has closed for good; when it was
// the last one, no answer can come any more.
func (c *Caller) hangUp(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.lines, l)
	if i < 0 {
		return
	}
	c.lines = slices.Delete(slices.Clone(c.lines), i, i+1)
	if len(c.lines) == 0 {
		c.failAll("the connection closed before an answer came")
	}
}

// failAll ends every call in flight. The lock is held.
func (c *Caller) failAll(why string) {
	for _, f := range c.waiting {
		f.push(reply{err: wire.Errorf(wire.CodeCancelled, "%s", why)})
	}
}

// Close ends the subscriptions and fails the calls in flight as cancelled, outcome unknown. It does not close the
// connections. It is idempotent.
func (c *Caller) Close() error {
	c.mu.Lock()
	lines := c.lines
	c.closed, c.lines = true, nil
	c.failAll("the caller was closed before an answer came")
	c.mu.Unlock()
	for _, l := range lines {
		_ = l.sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
	}
	return nil
}

// receive is the message handler of every reply subscription. The subject is read again, since a broker can be made to
// deliver anything to a subscription, and a reply counts only from whom the call was sent to.
func (c *Caller) receive(msg *nats.Msg) {
	from, err := wire.ParseReplySubject(msg.Subject)
	if err != nil || from.Space != c.space || from.Caller != c.self {
		c.drop(msg, "not a reply to this caller")
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.waiting[from.Nonce]
	if f == nil || f.endpoint != from.Endpoint {
		return // late, or the other copy of a reply that two connections received
	}
	switch {
	case from.Instance == sentinelInstance:
		if !nobodyListens(msg, f.subject) {
			c.drop(msg, "not the broker's own answer")
			return
		}
		f.push(reply{err: f.unheard()})
	case isStatus(msg):
		c.drop(msg, "a status where a reply belongs")
	case f.instance != "" && f.instance != from.Instance:
		c.drop(msg, "another instance than the one called")
	default:
		f.push(reply{from: from, data: msg.Data})
	}
}

func (c *Caller) drop(msg *nats.Msg, why string) {
	c.log.Debug("reply dropped", logkey.Subject, msg.Subject, logkey.Reason, why)
}

// nobodyListens recognises the broker's answer to a publish that reached no subscription. It is trusted on the sentinel
// subject only, where no endpoint answers.
func nobodyListens(msg *nats.Msg, subject string) bool {
	if len(msg.Data) != 0 || msg.Header.Get("Status") != "503" {
		return false
	}
	about := msg.Header.Get("Nats-Subject")
	return about == "" || about == subject
}

// Denied fails the call in flight whose request the broker refused, and reports whether there was one. Call it from the
// error handler of each attached connection with the subject that a permission violation names, see [DeniedSubject].
// The call ends with permission-denied, naming the subject, the principal and the missing grant, outcome not-executed.
//
// A denied reply subscription fails every call in flight and every later one, until another connection is attached.
func (c *Caller) Denied(subject string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if subject == c.filter {
		c.deaf = wire.Errorf(wire.CodePermissionDenied, "subscribe %q: the credential of %q lacks its reply rail", subject, c.self.Principal)
		c.deaf.Details = map[string]any{"subject": subject, "principal": c.self.Principal.String(), "grant": subject}
		c.deaf.Outcome = wire.OutcomeUnknown
		for _, f := range c.waiting {
			f.push(reply{err: c.deaf})
		}
		return true
	}
	r, err := wire.ParseRequestSubject(subject)
	if err != nil {
		return false
	}
	f := c.waiting[r.Nonce]
	if f == nil || f.subject != subject {
		return false
	}
	f.push(reply{err: c.denial(subject, &r)})
	return true
}

func (c *Caller) denial(subject string, r *wire.RequestSubject) *wire.Error {
	pattern := strings.TrimSuffix(subject, r.Nonce) + "*"
	grant := r.Endpoint + "." + r.Command
	if r.Mode != wire.ModeNone {
		grant += " (" + string(r.Mode) + ")"
	}
	e := wire.Errorf(wire.CodePermissionDenied, "publish %q: %q lacks the grant %q", pattern, c.self.Principal, grant)
	e.Details = map[string]any{"subject": pattern, "principal": c.self.Principal.String(), "grant": grant}
	e.Outcome = wire.OutcomeNotExecuted
	return e
}

// DeniedSubject returns the subject that a permission violation of the broker names, for a publish or a subscription.
func DeniedSubject(err error) (subject string, ok bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	_, rest, ok := strings.Cut(err.Error(), ` to "`)
	if !ok {
		return "", false
	}
	subject, _, ok = strings.Cut(rest, `"`)
	return subject, ok
}

func (c *Caller) nextID() string {
	return c.idPrefix + strconv.FormatUint(c.idCount.Add(1), 36)
}
