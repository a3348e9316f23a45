// Package cotal is the embeddable whole: a [Node] boots a broker with its trust, serves the roles of every space
// and lets spaces come and go while it runs.
//
// Start one with [New] and [Node.Run]:
//
//	n := cotal.New(store, &cotal.Options{StateDir: dir, Transport: broker.Plaintext(), Spaces: []string{"main"}})
//	go n.Run(ctx)
//	<-n.Ready()
//
// A node promises: nothing it accepted is lost when the process is killed; a role that dies is started again with
// growing pauses and its state is visible in [Node.Status]; credentials of its own roles are renewed before they
// expire without a gap; several spaces on one node see nothing of each other; after its disk was full it says so
// until there is room, and then stores again. It does not promise to heal a broker whose disk is gone.
//
// All methods are safe for concurrent use. The package only assembles; each part has its own package.
package cotal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// ErrNotReady is returned by methods that need a running node.
var ErrNotReady = errors.New("node is not running")

// Options shapes a [Node]. StateDir and Transport are required; the rest has defaults.
type Options struct {
	// StateDir keeps the broker's JetStream files and account JWTs. Required.
	StateDir string
	// Host is the listening address. Default 127.0.0.1. A wider one needs TLS.
	Host string
	// Port is the listening port. Default 4222; -1 lets the system choose.
	Port int
	// NoListen opens no socket; only [Node.InProcess] connects.
	NoListen bool
	// Transport says plaintext or TLS; the zero value refuses. Unused with NoListen.
	Transport broker.Transport
	// SyncInterval is how long an acknowledged message may wait until a power cut cannot take it. Default 250 ms.
	// Nothing is lost to a killed process whatever it is.
	SyncInterval time.Duration
	// Strict syncs every write to disk before it is acknowledged; see docs/operations.md for the price.
	Strict bool
	// Spaces are made sure of at start, besides those of the records.
	Spaces []string
	// Limits bounds each space that the node creates. Nil means the documented defaults.
	Limits *trust.Limits
	// Space shapes streams and buckets. Nil means the defaults of package space.
	Space *space.Options
	// Open serves one space without any authentication: outside every security claim. Loopback only.
	Open bool
	// People says how spaces sign people in.
	People PeopleOptions
	// DeliveryElsewhere leaves the delivery role of every space to other processes, see [NodeClient.ServeDelivery].
	DeliveryElsewhere bool
	// Supervisor says how the agents of every space are run in this process; nil: none are. An open node runs none.
	Supervisor *SupervisorOptions
	// SupervisorElsewhere leaves running agents to other processes, see [NodeClient.ServeSupervisor].
	SupervisorElsewhere bool
	// Logger may be nil.
	Logger *slog.Logger
}

// Node runs the broker and the roles of its spaces. Make one with [New]; it runs once.
type Node struct {
	store secret.Store
	opts  Options
	log   *slog.Logger
	ready chan struct{}

	changes sync.Mutex // one change of the set of spaces at a time; taken before mu

	mu      sync.Mutex // guards the fields below
	started time.Time
	srv     *broker.Server
	auth    *auth.Authority
	lanes   map[wire.Space]*lane // of delivery
	desks   map[wire.Space]*lane // of the endpoint auth
	gates   map[wire.Space]*gate // of the spaces of people
	agents  map[wire.Space]*supervised
	run     *running
}

// New returns a node over the trust records of store, which it creates when absent. It panics when store is nil
// and the node is not open.
func New(store secret.Store, opts *Options) *Node {
	n := &Node{store: store, ready: make(chan struct{}), lanes: map[wire.Space]*lane{}, desks: map[wire.Space]*lane{}, gates: map[wire.Space]*gate{},
		agents: map[wire.Space]*supervised{}}
	if opts != nil {
		n.opts = *opts
	}
	if store == nil && !n.opts.Open {
		panic("cotal: New needs a secret store")
	}
	n.log = n.opts.Logger
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	return n
}

// Ready is closed when the broker and every space serve.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Run boots, serves until ctx ends and returns after all it started has stopped. It returns nil when ctx ended,
// and the cause when the node could not start.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &running{n: n, ctx: ctx, stop: cancel, hurt: make(chan struct{}, 1), asked: make(chan struct{}, 1)}
	if err := r.boot(ctx); err != nil {
		r.shutdown()
		return fmt.Errorf("start node: %w", err)
	}
	close(n.ready)
	n.log.Info("node ready", logkey.URL, n.URL(), logkey.Count, len(n.Spaces()))
	<-ctx.Done()
	r.shutdown()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, errStopAsked) {
		return fmt.Errorf("run node: %w", cause)
	}
	return nil
}

// URL is the address that clients dial, or "" before the broker runs or with NoListen.
func (n *Node) URL() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv == nil {
		return ""
	}
	return n.srv.ClientURL()
}

// InProcess connects within this process. It refuses connections while the node does not run.
func (n *Node) InProcess() nats.InProcessConnProvider {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv == nil {
		return notRunning{}
	}
	return n.srv.InProcess()
}

// Authority mints and revokes for the spaces of this node, or is nil before Ready and in open mode.
func (n *Node) Authority() *auth.Authority {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.auth
}

// Dial opens an in-process connection with the given credentials.
func (n *Node) Dial(ctx context.Context, creds *trust.Credentials) (*nats.Conn, error) {
	return n.dial(ctx, creds, func() {})
}

// dial is Dial; refused is called when the broker stops accepting the credential.
func (n *Node) dial(ctx context.Context, creds *trust.Credentials, refused func()) (*nats.Conn, error) {
	name := "cotal"
	if creds != nil {
		name = creds.Identity().Principal.String()
	}
	return dial.Connect(ctx, dial.Options{InProcess: n.InProcess(), Creds: creds, Name: name, Logger: n.log, OnError: func(_ *nats.Conn, err error) {
		if dial.Refused(err) {
			refused()
		}
	}})
}

// Spaces lists the spaces that the node serves.
func (n *Node) Spaces() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return sortedNames(n.lanes)
}

// AddSpace creates a space and serves it, while everything else goes on. It is idempotent.
//
// Errors: bad-request for a name outside [A-Za-z0-9_-]{1,64}; failed-precondition in open mode;
// resource-exhausted when the broker has no room for it, in which case nothing of it stays;
// [ErrNotReady] before Ready.
func (n *Node) AddSpace(ctx context.Context, name string) error {
	s, err := wire.ParseSpace(name)
	if err != nil {
		return err
	}
	r := n.running()
	if r == nil {
		return ErrNotReady
	}
	if n.opts.Open {
		return wire.Errorf(wire.CodeFailedPrecondition, "add space %q: an open node serves one space", name)
	}
	n.changes.Lock()
	defer n.changes.Unlock()
	if err := r.auth.AddSpace(ctx, s, n.opts.Limits); err != nil {
		return err
	}
	return r.serve(ctx, s)
}

// RemoveSpace stops serving a space and removes everything of it: streams, account, records. Its clients are
// dropped. It is idempotent only while the space exists; a space that is not there is not-found.
func (n *Node) RemoveSpace(ctx context.Context, name string) error {
	s, err := wire.ParseSpace(name)
	if err != nil {
		return err
	}
	r := n.running()
	if r == nil {
		return ErrNotReady
	}
	if n.opts.Open {
		return wire.Errorf(wire.CodeFailedPrecondition, "remove space %q: an open node serves one space", name)
	}
	n.changes.Lock()
	defer n.changes.Unlock()
	account, err := r.mint.Account(ctx, s)
	if err != nil {
		return fmt.Errorf("remove space %q: %w", name, err)
	}
	n.endLane(s)
	if account.Callout != nil {
		defer func() { _ = r.srv.PruneAccount(account.Callout.Public) }()
	}
	if err := r.auth.RemoveSpace(ctx, s); err != nil {
		if serr := r.serve(context.WithoutCancel(ctx), s); serr != nil { // what is half removed cannot be served
			n.log.Warn("space not served after a failed removal", logkey.Space, s, logkey.Error, serr)
		}
		return err
	}
	for _, a := range account.Accounts() {
		if err := r.srv.PruneAccount(a.Public); err != nil {
			return err
		}
	}
	if account.Callout != nil {
		return n.forgetPeople(ctx, s)
	}
	return nil
}

func (n *Node) running() *running {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.run
}

// endLane stops what serves s and waits for it.
func (n *Node) endLane(s wire.Space) {
	n.mu.Lock()
	l, g, d, v := n.lanes[s], n.gates[s], n.desks[s], n.agents[s]
	delete(n.agents, s)
	delete(n.lanes, s)
	delete(n.gates, s)
	delete(n.desks, s)
	n.mu.Unlock()
	if v != nil {
		v.end()
	}
	if g != nil {
		g.end()
	}
	if d != nil {
		d.end()
	}
	if l != nil {
		l.end()
	}
}
