package cotal

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// DialOptions adjusts [DialNode]. The zero value works on loopback.
type DialOptions struct {
	// TLS is used with tls:// addresses; nil means the system's roots.
	TLS *tls.Config
	// Space shapes streams and buckets that AddSpace of the client's Authority creates.
	Space *space.Options
	// Locate says where the broker listens now, nats://host:port or tls://host:port and "" for nowhere. It is asked before every attempt to
	// connect, so that the client finds a broker that was started again on another port. It may be nil; it must not use the client, may be
	// called once more after Close, and what it says is held to the rules of endpoint.Options.Locate.
	Locate func() string
	// By names who asks, for the grant records.
	By string
	// Logger may be nil.
	Logger *slog.Logger
}

// NodeClient speaks with a node that runs in another process, with short credentials that it mints from the
// same trust records.
type NodeClient struct {
	url  string
	opts DialOptions
	mint *mint.Authority
	// store holds the trust records.
	store secret.Store
	ctl   *broker.Control
	auth  *auth.Authority

	mu sync.Mutex // guards nc
	nc *nats.Conn // system account
}

// DialNode connects to the broker at url with the trust records of store.
//
// Errors: not-found when store has no records; unauthenticated when the broker at url trusts another operator;
// unavailable when nothing answers.
func DialNode(ctx context.Context, url string, store secret.Store, opts *DialOptions) (*NodeClient, error) {
	c := &NodeClient{url: url, store: store}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.mint, err = mint.Open(ctx, store, nil); err != nil {
		return nil, err
	}
	if _, err = c.system(ctx); err != nil {
		return nil, err
	}
	c.ctl, err = broker.Dial(ctx, url, systemSource(c.mint, trust.SystemControl), &broker.DialOptions{
		TLS: c.opts.TLS, Locate: c.opts.Locate, OperatorJWT: c.mint.OperatorJWT(), Logger: c.opts.Logger,
	})
	if err != nil {
		c.hangUp()
		return nil, err
	}
	c.auth = auth.New(c.mint, c.ctl, c.Dial, &auth.Options{Logger: c.opts.Logger, Space: c.opts.Space, By: c.opts.By})
	return c, nil
}

func (c *NodeClient) connect(ctx context.Context, creds *trust.Credentials, name string) (*nats.Conn, error) {
	return dial.Connect(ctx, c.dialing(creds, name, nil))
}

// dialing are the options of a connection; onError may be nil.
func (c *NodeClient) dialing(creds *trust.Credentials, name string, onError func(*nats.Conn, error)) dial.Options {
	return dial.Options{URL: c.url, Locate: c.opts.Locate, Creds: creds, Name: name, TLS: c.opts.TLS, Logger: c.opts.Logger, OnError: onError}
}

// server is the address of the broker.
func (c *NodeClient) server() string {
	return dial.NewLocator(c.url, c.opts.Locate).Now(c.url)
}

// Dial opens a connection to the broker with the given credentials.
func (c *NodeClient) Dial(ctx context.Context, creds *trust.Credentials) (*nats.Conn, error) {
	return c.connect(ctx, creds, creds.Identity().Principal.String())
}

// Authority mints and revokes against the broker of the client.
func (c *NodeClient) Authority() *auth.Authority { return c.auth }

// Status asks the node about itself.
func (c *NodeClient) Status(ctx context.Context) (Status, error) {
	var st Status
	data, err := c.call(ctx, verbStatus, "")
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(data, &st); err != nil {
		return st, fmt.Errorf("read status: %w", err)
	}
	return st, nil
}

// Deliveries counts the processes that are connected to serve the delivery role of a space, whether they answer or not, as the
// broker sees them: the node itself, and those of [NodeClient.ServeDelivery].
//
// Errors: not-found for a space that the records do not have; those of [broker.Control.Connections].
func (c *NodeClient) Deliveries(ctx context.Context, name string) (int, error) {
	return c.connected(ctx, name, trust.Delivery)
}

// connected counts the connections of a profile at a space.
func (c *NodeClient) connected(ctx context.Context, name string, p trust.Profile) (int, error) {
	account, err := c.mint.Account(ctx, wire.Space(name))
	if err != nil {
		return 0, err
	}
	all, err := c.ctl.Connections(ctx, account.Public)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, conn := range all {
		if profile, _, err := trust.Holder(conn.Tags); err == nil && profile == p {
			n++
		}
	}
	return n, nil
}

// AddSpace is [Node.AddSpace] of the remote node.
func (c *NodeClient) AddSpace(ctx context.Context, name string) error {
	_, err := c.call(ctx, verbSpaceAdd, name)
	return err
}

// SignIn is [Node.SignIn] of the remote node.
func (c *NodeClient) SignIn(ctx context.Context, name string, pin oidc.Pin) error {
	_, err := c.ask(ctx, verbSignIn, nodeRequest{V: 1, Name: name, Provider: &pin})
	return err
}

// RemoveSpace is [Node.RemoveSpace] of the remote node.
func (c *NodeClient) RemoveSpace(ctx context.Context, name string) error {
	_, err := c.call(ctx, verbSpaceRemove, name)
	return err
}

// Heal asks a node whose broker cannot store any more, or whose spaces cannot sign people in, to start that again now, which the
// node otherwise does by itself: for the broker within half a minute after the disk has room. It returns before that has happened; see Status. It does nothing in good health.
//
// Errors: resource-exhausted while the disk is full.
func (c *NodeClient) Heal(ctx context.Context) error {
	_, err := c.call(ctx, verbHeal, "")
	return err
}

// Stop asks the node to stop and returns when it has agreed; the process ends shortly after.
func (c *NodeClient) Stop(ctx context.Context) error {
	_, err := c.call(ctx, verbStop, "")
	return err
}

// Close ends the client's connections. It is idempotent.
func (c *NodeClient) Close() error {
	_ = c.auth.Close()
	_ = c.ctl.Close()
	c.hangUp()
	return nil
}

// system returns a connection of the system account. One that was lost, because the broker is another or because its credential ended, is
// replaced by one with a new credential.
func (c *NodeClient) system(ctx context.Context) (*nats.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc != nil && c.nc.IsConnected() {
		return c.nc, nil
	}
	creds, err := c.mint.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl})
	if err != nil {
		return nil, err
	}
	nc, err := c.connect(ctx, creds, "cotal")
	if err != nil {
		return nil, err
	}
	if c.nc != nil {
		c.nc.Close()
	}
	c.nc = nc
	return nc, nil
}

func (c *NodeClient) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc != nil {
		c.nc.Close()
	}
}

// call asks the node. Errors: unavailable with outcome not-executed when the broker runs but no node serves it;
// deadline-exceeded with outcome unknown when ctx or the call limit ended first; else what the node answered.
func (c *NodeClient) call(ctx context.Context, verb, name string) (json.RawMessage, error) {
	return c.ask(ctx, verb, nodeRequest{V: 1, Name: name})
}

func (c *NodeClient) ask(ctx context.Context, verb string, req nodeRequest) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeCallLimit)
	defer cancel()
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	nc, err := c.system(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask node for %s: %w", verb, err)
	}
	m, err := askOnce(ctx, nc, trust.NodeSubject(verb), body)
	if err != nil {
		return nil, c.unanswered(verb, err)
	}
	var reply wire.Reply
	if err := wire.Decode(m.Data, &reply, 1<<20); err != nil {
		return nil, fmt.Errorf("read answer of node: %w", err)
	}
	if !reply.OK {
		if reply.Error == nil {
			return nil, wire.Errorf(wire.CodeInternal, "node refused %s without a reason", verb)
		}
		return nil, reply.Error
	}
	return reply.Data, nil
}

// askOnce asks on nc, for as long as that is connected. An answer counts though the connection was lost since, as by a node that stops: what
// came before the loss is in the channel when the loss is told, which a request of nats.go does not promise.
func askOnce(ctx context.Context, nc *nats.Conn, subject string, body []byte) (*nats.Msg, error) {
	lost := nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(lost)
	if !nc.IsConnected() {
		return nil, errConnectionLost
	}
	inbox, answers := nc.NewInbox(), make(chan *nats.Msg, 1)
	sub, err := nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // of a connection that is lost nothing is left
	if err := nc.PublishRequest(subject, inbox, body); err != nil {
		return nil, err
	}
	var m *nats.Msg
	select {
	case m = <-answers:
	case <-ctx.Done():
		err = ctx.Err()
	case <-lost:
		err = errConnectionLost
	}
	if m == nil {
		select {
		case m = <-answers:
		default:
			return nil, err
		}
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return nil, nats.ErrNoResponders
	}
	return m, nil
}

// unanswered says why no answer came.
func (c *NodeClient) unanswered(verb string, err error) error {
	var e *wire.Error
	switch {
	case errors.Is(err, errConnectionLost):
		e = wire.Errorf(wire.CodeUnavailable, "ask node for %s: %w: ask what is there before asking again", verb, errConnectionLost)
		e.Outcome = wire.OutcomeUnknown
	case errors.Is(err, nats.ErrNoResponders):
		e = wire.Errorf(wire.CodeUnavailable, "ask node for %s: the broker at %q runs without a node of these records", verb, c.server())
		e.Outcome = wire.OutcomeNotExecuted
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		e = wire.Errorf(wire.CodeDeadlineExceeded, "ask node for %s: no answer in time", verb)
		e.Outcome = wire.OutcomeUnknown
	default:
		e = wire.Errorf(wire.CodeUnavailable, "ask node for %s: %v", verb, err)
	}
	return e
}

// errConnectionLost ends a call whose answer cannot come any more.
var errConnectionLost = errors.New("the connection was lost before the answer came")

// wireError carries an error over the wire: our own codes as they are, anything else as internal.
func wireError(err error) *wire.Error {
	var we *wire.Error
	if errors.As(err, &we) {
		out := *we
		out.Message = err.Error()
		return &out
	}
	return wire.Errorf(wire.CodeOf(err), "%v", err)
}

// notRunning is the provider of a node that does not run.
type notRunning struct{}

// InProcessConn implements [nats.InProcessConnProvider].
func (notRunning) InProcessConn() (net.Conn, error) { return nil, ErrNotReady }
