package endpoint

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Connect connects to a broker as the principal that src's credential is for. The server is one or more comma-separated
// addresses, nats://host:port or tls://host:port, and "" with Options.InProcess. A nil src needs Options.Open.
//
// ctx bounds connecting; [Endpoint.Close] ends the endpoint. When Connect returns nil the broker has accepted the
// credential and, unless the endpoint is quiet, stored its presence. When it returns an error nothing was published
// unless the error says otherwise, and nothing is left running.
//
// Errors, all [*wire.Error]: bad-request for options, address or credentials that are malformed; failed-precondition
// for plaintext outside loopback, for a credential of another principal or space than Options demand, and for TLS that
// does not fit; unauthenticated or expired when the credential is not accepted; permission-denied when it lacks what
// every endpoint needs; not-found when its file does not exist; unavailable when nothing answers, or the space has no
// presence bucket.
func Connect(ctx context.Context, server string, src Source, opts *Options) (*Endpoint, error) {
	o, err := opts.settled(src)
	if err != nil {
		return nil, err
	}
	addr, err := parseServer(server, &o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()
	creds, id, err := identify(ctx, src, &o)
	if err != nil {
		return nil, err
	}
	e, err := newEndpoint(o, src, addr, id)
	if err != nil {
		return nil, err
	}
	e.events = newEvents(o.Logger, o.OnEvent)
	if err := e.begin(ctx, creds); err != nil {
		<-e.events.close()
		return nil, err
	}
	return e, nil
}

// FromLink connects to where a link points. With a nil src the link's token, or user and password, are used in open
// mode, whose actor and role Options.Open gives; with a src the link only says where to go, and its space must be the
// credential's. The link's channels are for the caller to join. Errors are those of Connect.
func FromLink(ctx context.Context, link wire.Link, src Source, opts *Options) (*Endpoint, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Space != "" && o.Space != link.Space {
		return nil, wire.Errorf(wire.CodeBadRequest, "connect to link %q: options name space %q", link, o.Space)
	}
	o.Space = link.Space
	switch {
	case src != nil && (link.User != "" || link.Token() != ""):
		return nil, wire.Errorf(wire.CodeBadRequest, "connect to link %q: a credential and the secret of a link exclude each other", link)
	case src == nil && o.Open == nil:
		return nil, wire.Errorf(wire.CodeUnauthenticated, "connect to link %q: neither a credential nor Open", link)
	case src == nil:
		open := *o.Open
		open.Space, open.Token, open.User, open.Password = link.Space, link.Token(), link.User, link.Password()
		o.Open = &open
	}
	return Connect(ctx, link.URL(), src, &o)
}

// identify finds out who connects, and refuses here, before anything is dialled, what must not.
func identify(ctx context.Context, src Source, o *Options) (*trust.Credentials, trust.Identity, error) {
	if src == nil {
		uid := wire.NewUID()
		who := wire.Principal{Owner: wire.LocalOwner, Actor: o.Open.Actor}
		return nil, trust.Identity{
			Space: o.Open.Space, Profile: trust.Agent, Role: o.Open.Role, Inbox: string(uid),
			Lifecycle: wire.Lifecycle{Principal: who, UID: uid},
		}, checkPrincipal(o, who)
	}
	creds, err := src.Credentials(ctx)
	if err != nil {
		return nil, trust.Identity{}, sourceError(err)
	}
	if creds == nil {
		return nil, trust.Identity{}, wire.Errorf(wire.CodeUnauthenticated, "read credentials: the source has none")
	}
	id := creds.Identity()
	switch {
	case creds.Expired(time.Now()):
		return nil, id, wire.Errorf(wire.CodeExpired, "connect as %s: the credential expired at %s", id.Principal, id.Expires.UTC().Format(time.RFC3339))
	case id.Space == "":
		return nil, id, wire.Errorf(wire.CodeFailedPrecondition, "connect as %s: the credential is for no space", id.Principal)
	case o.Space != "" && o.Space != id.Space:
		return nil, id, wire.Errorf(wire.CodeFailedPrecondition, "connect to space %q: the credential is for space %q", o.Space, id.Space)
	}
	return creds, id, checkPrincipal(o, id.Principal)
}

func checkPrincipal(o *Options, who wire.Principal) error {
	if o.Principal != nil && *o.Principal != who {
		return wire.Errorf(wire.CodeFailedPrecondition, "connect as %s: the credential is for %s", o.Principal, who)
	}
	return nil
}

// sourceError gives a program's own error a code and keeps its text.
func sourceError(err error) error {
	var we *wire.Error
	if errors.As(err, &we) {
		return err
	}
	return wire.Errorf(wire.CodeUnauthenticated, "read credentials: %w", err)
}

func newEndpoint(o Options, src Source, addr server, id trust.Identity) (*Endpoint, error) {
	name := o.Name
	if name == "" {
		name = id.Actor
	}
	e := &Endpoint{
		opts: o, src: src, server: addr, identity: id,
		from:       wire.EndpointRef{ID: id.Principal.String(), Name: name, Role: id.Role},
		chatStream: wire.ChatStream(id.Space), directStream: wire.DirectStream(id.Space), roleStream: wire.RoleStream(id.Space),
		dedupKey: newDedupKey(), kick: make(chan struct{}, 1), closed: make(chan struct{}), quit: make(chan struct{}),
		joins: make(map[*Subscription]struct{}), members: make(map[string]*Membership), sessions: make(map[*Session]struct{}), queues: make(map[wire.Kind]*queue),
	}
	var err error
	if e.notices, err = newNotices(id); err != nil {
		return nil, err
	}
	if o.Quiet || id.Profile != trust.Agent && id.Profile != trust.Operator {
		return e, nil
	}
	p, err := e.newPresence()
	if err != nil {
		return nil, err
	}
	if _, err := encodePresence(&p.record); err != nil {
		return nil, err
	}
	e.presence = p
	return e, nil
}

// begin connects, announces the endpoint and starts what runs beside it.
func (e *Endpoint) begin(ctx context.Context, creds *trust.Credentials) error {
	l, err := e.dial(ctx, creds)
	if err != nil {
		return err
	}
	e.link.Store(l)
	if err := e.announce(ctx); err != nil {
		e.closing.Store(true)
		l.close()
		return err
	}
	run, stop := context.WithCancel(noContext)
	e.stop = stop
	if e.presence != nil {
		e.wg.Go(func() { e.presence.heartbeat(run) })
	}
	e.wg.Go(func() { e.renewal(run) })
	return nil
}

// announce enrols an endpoint of an open space and writes the first presence record.
func (e *Endpoint) announce(ctx context.Context) error {
	if e.opts.Open != nil {
		if err := e.enrol(ctx); err != nil {
			return err
		}
	}
	if e.presence == nil {
		return nil
	}
	return e.presence.set(ctx, func(*wire.Presence) {})
}

// dial opens a link with creds and proves that it can receive answers.
func (e *Endpoint) dial(ctx context.Context, creds *trust.Credentials) (*link, error) {
	l := &link{
		e: e, waiters: make(map[string]*waiter),
		closed: make(chan struct{}), replaced: make(chan struct{}), idle: make(chan struct{}),
	}
	l.creds.Store(creds)
	opts := l.options()
	if e.opts.InProcess != nil {
		opts = append(opts, dial.InProcess(e.opts.InProcess))
	} else {
		l.at = dial.NewLocator(e.server.urls, e.opts.Locate)
		l.dialer = newDialer(ctx, e.opts.ConnectTimeout, l.at)
		opts = append(opts, nats.SetCustomDialer(l.dialer))
	}
	nc, err := nats.Connect(e.server.urls, opts...)
	if l.dialer != nil {
		l.dialer.connected()
	}
	if err != nil {
		if l.dialer != nil {
			l.dialer.cancel()
		}
		if ctx.Err() != nil && wire.CodeOf(connectError("", err)) == wire.CodeUnavailable {
			err = ctx.Err()
		}
		return nil, connectError(e.server.text, err)
	}
	l.nc = nc
	if l.at != nil {
		l.looking.Go(func() { l.at.Watch(nc) })
	}
	l.inbox = nc.NewInbox() + "."
	var denied []string
	if _, err = nc.Subscribe(l.inbox+"*", l.onAnswer); err == nil {
		err = l.hear()
	}
	if err == nil {
		denied, err = l.confirm(ctx, l.inbox+"*")
	}
	if err == nil && len(denied) == 0 {
		return l, nil
	}
	l.close()
	a := act{"connect to broker", e.server.text, l.inbox + "*", "its own inbox"}
	if err != nil {
		return nil, e.failure(a, err, false)
	}
	return nil, e.denied(a)
}

// options are those of every connection of an endpoint: it never gives up, its name never changes, its inbox is its
// own, it never presents an expired credential, and nothing is kept for later behind the caller's back.
func (l *link) options() []nats.Option {
	e := l.e
	opts := []nats.Option{
		nats.Name(e.from.ID), nats.CustomInboxPrefix(wire.InboxPrefix(e.identity.Inbox)), nats.Timeout(e.opts.ConnectTimeout),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.CustomReconnectDelay(l.delay), nats.ReconnectBufSize(-1),
		nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { l.onError(sub, err) }),
		nats.DisconnectErrHandler(l.onDisconnect), nats.ReconnectHandler(l.onReconnect), nats.ClosedHandler(l.onClosed),
	}
	if l.creds.Load() != nil {
		opts = append(opts, l.present()...)
	}
	if open := e.opts.Open; open != nil {
		switch {
		case open.Token != "":
			opts = append(opts, nats.Token(open.Token))
		case open.User != "":
			opts = append(opts, nats.UserInfo(open.User, open.Password))
		}
	}
	if e.server.tls != nil {
		opts = append(opts, nats.Secure(e.server.tls))
	}
	if e.server.fixed {
		opts = append(opts, nats.IgnoreDiscoveredServers())
	}
	return opts
}

// present are the options that show the credential at every connect. The client asks for the JWT, the signature and the token
// in this order and under its lock, so all three are of one credential, also when another takes its place meanwhile.
func (l *link) present() []nats.Option {
	shown := l.creds.Load()
	opts := []nats.Option{nats.UserJWT(
		func() (string, error) {
			shown = l.creds.Load()
			return presentJWT(shown)
		},
		dial.Signing(l.e.from.ID, func(nonce []byte) ([]byte, error) { return shown.Sign(nonce) }),
	)}
	if shown.Token() != "" {
		opts = append(opts, nats.TokenHandler(func() string { return shown.Token() }))
	}
	return opts
}

// presentJWT refuses to show what has expired.
func presentJWT(creds *trust.Credentials) (string, error) {
	if id := creds.Identity(); creds.Expired(time.Now()) {
		return "", wire.Errorf(wire.CodeExpired, "connect as %s: the credential expired at %s", id.Principal, id.Expires.UTC().Format(time.RFC3339))
	}
	return creds.JWT(), nil
}

// Pauses between reconnect attempts double from the first to the last, each give or take a half so that the endpoints
// of a broker do not return all at once. After refused credentials the last is longer.
const (
	delayFirst   = 50 * time.Millisecond
	delayLast    = 4 * time.Second
	delayRefused = 30 * time.Second
)

func (l *link) delay(attempts int) time.Duration {
	last := delayLast
	refused := int(l.refused.Load())
	if refused > 0 {
		last = delayRefused
	}
	d := min(delayFirst<<min(max(attempts-1, refused, 0), 20), last)
	return d/2 + rand.N(d)
}

// onError sorts the asynchronous errors of the connection.
func (l *link) onError(sub *nats.Subscription, err error) {
	subject, subscribe, denied := violation(err)
	switch {
	case denied && l.e.refuseCall(subject):
	case denied && subscribe:
		if subject != l.e.notices.filter && !l.expected(subject) {
			l.e.events.emit(EventDenied{Subject: subject, Err: l.e.denied(act{"subscribe to", subject, subject, "that subscription"})})
		}
	case denied:
		if !l.refuse(subject, err) && !l.refusePull(subject) && !l.e.refuseSession(subject) {
			l.denied(subject)
		}
	case errors.Is(err, nats.ErrSlowConsumer):
		if sub != nil && sub.Type() != nats.ChanSubscription { // else a probe of confirm, which nobody reads
			l.e.overflowed(sub)
		}
	case errors.Is(err, nats.ErrBadHeaderMsg): // whoever receives it reports it
	case l.isRetired(): // nobody waits for it, and the renewal that retired it has reported
	case isAuthError(err):
		l.refused.Add(1)
		l.e.events.emit(EventRefused{Err: err})
		l.e.wake()
	default:
		l.e.opts.Logger.Warn("broker connection error", logkey.Principal, l.e.from.ID, logkey.Error, err)
	}
}

// deniedPause is how long the same denial, as of every heartbeat, is not told again.
const deniedPause = time.Minute

// denied tells of a publish that nothing waits for.
func (l *link) denied(subject string) {
	l.mu.Lock()
	known := subject == l.deniedSubject && time.Since(l.deniedAt) < deniedPause
	if !known {
		l.deniedSubject, l.deniedAt = subject, time.Now()
	}
	l.mu.Unlock()
	if !known {
		l.e.events.emit(EventDenied{Subject: subject, Err: l.e.denied(act{"publish to", subject, subject, "that subject"})})
	}
}

// refuseCall fails the control call whose request, or answers, the broker denied.
func (e *Endpoint) refuseCall(subject string) bool {
	c := e.caller.Load()
	return c != nil && c.Denied(subject)
}

func (l *link) onDisconnect(nc *nats.Conn, err error) {
	if l.isRetired() {
		nc.Close() // what it still waited for is on the next link, or lost and reported
		return
	}
	l.e.breaks.Add(1)
	for _, s := range l.e.looking() {
		s.lost()
	}
	l.e.events.emit(EventDisconnected{Err: err})
}

func (l *link) onReconnect(nc *nats.Conn) {
	l.refused.Store(0)
	l.resend(nc)
	for _, p := range l.pulling() {
		p.reconnected()
	}
	for _, b := range l.e.backlogs() {
		b.nudge()
	}
	for _, s := range l.e.looking() {
		s.back()
	}
	l.e.events.emit(EventConnected{Server: l.at.Server(nc.ConnectedUrlRedacted())})
	if p := l.e.presence; p != nil && !l.e.closing.Load() {
		p.beat()
	}
}

// onClosed runs last of all callbacks. The connection closes by itself when the broker says something that nats.go
// takes as final; the renewal then makes a new link.
func (l *link) onClosed(*nats.Conn) {
	l.fail(errLinkClosed)
	close(l.closed)
	l.e.wake()
}

// dialer dials for one link. Cancelling it ends an attempt in progress.
type dialer struct {
	net    net.Dialer
	at     *dial.Locator   // nil for the address that is given
	ctx    context.Context // the life of the link, not of a call: nats.go passes none
	cancel context.CancelFunc
	stop   func() bool

	mu   sync.Mutex // guards last
	last net.Conn   // the connection being set up first, closed when the caller of Connect gives up

	settled atomic.Bool
}

// newDialer returns a dialer that also stops when ctx ends, until connected is called.
func newDialer(ctx context.Context, timeout time.Duration, at *dial.Locator) *dialer {
	d := &dialer{net: net.Dialer{Timeout: timeout}, at: at}
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.stop = context.AfterFunc(ctx, func() {
		d.cancel()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.last != nil {
			_ = d.last.Close() // ends the handshake
		}
	})
	return d
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	address, err := d.at.Address(address)
	if err != nil {
		return nil, err
	}
	conn, err := d.net.DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn = dial.Greeted(conn)
	if d.settled.Load() {
		return conn, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ctx.Err(); err != nil { // it ended just now, and saw no connection to close
		_ = conn.Close()
		return nil, err
	}
	d.last = conn
	return conn, nil
}

// connected ends the influence of the context that newDialer was given.
func (d *dialer) connected() {
	d.settled.Store(true)
	d.stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = nil
}
