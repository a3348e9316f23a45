// Package cotaltest boots a whole mesh inside a test in one line.
//
//	m := cotaltest.New(t, nil)
//	ada := m.Endpoint(t, "ada", nil)
//	bob := m.Endpoint(t, "bob", &cotaltest.Peer{Role: "reviewer"})
//
// The mesh is real: embedded broker, operator trust, one space, its delivery role. Nothing listens on a socket
// unless [Options.Listen] is set, so meshes run in parallel, and inside [Bubble] all of expiry, leases
// and redelivery follow the fake clock. Everything stops at the end of the test.
package cotaltest

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cotal "github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// SpaceName is the name of the space that [New] creates.
const SpaceName = "test"

// syncInterval is long: no test loses its power, and days of fake time would be spent in real disk syncs.
const syncInterval = time.Hour

// Options shapes a mesh. The zero value is an authenticated, in-process mesh with one space.
type Options struct {
	// Listen opens a plaintext loopback port chosen by the system.
	Listen bool
	// Store keeps the trust records. Default a fresh memory store.
	Store secret.Store
	// StateDir keeps the broker's files. Default a folder of the test.
	StateDir string
	// Spaces are created besides [SpaceName].
	Spaces []string
	// Limits bounds each space.
	Limits *trust.Limits
	// Space shapes the streams of each space.
	Space *space.Options
	// Strict syncs every write.
	Strict bool
	// DeliveryElsewhere leaves the delivery role to the test.
	DeliveryElsewhere bool
	// People says how the spaces sign people in. Its Provider makes all of them spaces of people.
	People cotal.PeopleOptions
	// Logger receives what the node logs. Default discards.
	Logger *slog.Logger
}

// Mesh is a running node. All methods fail the test they are given instead of returning an error.
type Mesh struct {
	node atomic.Pointer[cotal.Node] // replaced by Restart while endpoints reconnect
	opts Options
	stop func()
}

// New boots a mesh; opts may be nil. It stops when the test ends, or when [Mesh.Stop] is called before.
func New(t testing.TB, opts *Options) *Mesh {
	t.Helper()
	m := &Mesh{}
	if opts != nil {
		m.opts = *opts
	}
	if m.opts.Store == nil {
		m.opts.Store = memstore.New()
	}
	if m.opts.StateDir == "" {
		m.opts.StateDir = t.TempDir()
	}
	m.boot(t)
	t.Cleanup(func() { m.Stop() })
	return m
}

func (m *Mesh) boot(t testing.TB) {
	t.Helper()
	node := cotal.New(m.opts.Store, &cotal.Options{
		StateDir: m.opts.StateDir, NoListen: !m.opts.Listen, Port: -1, Transport: broker.Plaintext(), Strict: m.opts.Strict, SyncInterval: syncInterval,
		Spaces: append([]string{SpaceName}, m.opts.Spaces...), Limits: m.opts.Limits, Space: m.opts.Space, Logger: m.opts.Logger,
		DeliveryElsewhere: m.opts.DeliveryElsewhere, People: m.opts.People,
	})
	m.node.Store(node)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	select {
	case <-node.Ready():
	case err := <-done:
		cancel()
		m.stop = func() {}
		t.Fatalf("boot mesh: %v", err)
	}
}

// Stop stops the mesh and waits until everything it started has ended. It is idempotent.
func (m *Mesh) Stop() { m.stop() }

// Restart stops the mesh and boots it again over the same records and files.
func (m *Mesh) Restart(t testing.TB) {
	t.Helper()
	m.Stop()
	m.boot(t)
}

// Node is the running node.
func (m *Mesh) Node() *cotal.Node { return m.node.Load() }

// Store keeps the trust records of the mesh.
func (m *Mesh) Store() secret.Store { return m.opts.Store }

// Space is the space of the mesh.
func (m *Mesh) Space() wire.Space { return wire.Space(SpaceName) }

// URL is the broker's address with [Options.Listen], else "".
func (m *Mesh) URL() string { return m.Node().URL() }

// InProcess connects to the broker whichever boot of it is running.
func (m *Mesh) InProcess() *Provider { return &Provider{m: m} }

// Peer shapes an endpoint of the mesh.
type Peer struct {
	// Space defaults to [SpaceName].
	Space wire.Space
	// Role is the role it serves.
	Role string
	// Subscribe and Publish default to all channels; an empty, non-nil list means none.
	Subscribe, Publish []string
	// Request overrides the whole credential request but Space and Actor.
	Request *auth.Request
	// Options of the endpoint; InProcess is filled in.
	Options endpoint.Options
}

// ServeDelivery runs the delivery role of a mesh that leaves it to others, until stop or the end of the test. It returns once that serves.
func (m *Mesh) ServeDelivery(t testing.TB) (stop func()) {
	t.Helper()
	creds, err := m.Node().Authority().ServiceCredential(t.Context(), m.Space(), trust.Delivery, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := m.Node().Dial(t.Context(), creds)
	if err != nil {
		t.Fatal(err)
	}
	d := delivery.New(nc, m.Space(), nil)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run delivery: %v", err)
		}
		nc.Close()
	})
	t.Cleanup(stop)
	select {
	case <-d.Ready():
	case err := <-done:
		t.Fatalf("run delivery: %v", err)
	}
	return stop
}

// Credentials issues a credential for actor; p may be nil.
func (m *Mesh) Credentials(t testing.TB, actor string, p *Peer) *trust.Credentials {
	t.Helper()
	creds, err := m.Node().Authority().Issue(t.Context(), p.request(actor))
	if err != nil {
		t.Fatalf("issue credential for %q: %v", actor, err)
	}
	return creds
}

func (p *Peer) request(actor string) auth.Request {
	req := auth.Request{Space: wire.Space(SpaceName), Actor: actor, Subscribe: []string{">"}, Publish: []string{">"}}
	if p == nil {
		return req
	}
	if p.Request != nil {
		req = *p.Request
		req.Space, req.Actor = wire.Space(SpaceName), actor
	} else {
		req.Role = p.Role
		if p.Subscribe != nil {
			req.Subscribe = slices.Clone(p.Subscribe)
		}
		if p.Publish != nil {
			req.Publish = slices.Clone(p.Publish)
		}
	}
	if p.Space != "" {
		req.Space = p.Space
	}
	return req
}

// Endpoint connects an endpoint with a fresh credential; p may be nil. It closes when the test ends.
func (m *Mesh) Endpoint(t testing.TB, actor string, p *Peer) *endpoint.Endpoint {
	t.Helper()
	return m.Connect(t, m.Credentials(t, actor, p), p)
}

// Connect connects an endpoint with a given credential; p may be nil.
func (m *Mesh) Connect(t testing.TB, creds *trust.Credentials, p *Peer) *endpoint.Endpoint {
	t.Helper()
	var opts endpoint.Options
	if p != nil {
		opts = p.Options
	}
	opts.InProcess = m.InProcess()
	if opts.Name == "" {
		opts.Name = creds.Identity().Actor
	}
	ep, err := endpoint.Connect(t.Context(), "", endpoint.Static(creds), &opts)
	if err != nil {
		t.Fatalf("connect %q: %v", creds.Identity().Principal, err)
	}
	t.Cleanup(func() {
		if err := ep.Close(); err != nil {
			t.Logf("close %q: %v", creds.Identity().Principal, err)
		}
	})
	return ep
}

// Provider connects to a mesh across restarts.
type Provider struct{ m *Mesh }

// InProcessConn implements nats.InProcessConnProvider.
func (p *Provider) InProcessConn() (net.Conn, error) { return p.m.Node().InProcess().InProcessConn() }

// Bubble runs fn in a testing/synctest bubble: all time in it is fake. What the mesh keeps for later use outside of any
// bubble is dropped before and after, since a timer of one bubble must not meet another. A mesh made inside must be
// stopped inside, which [New] does when fn returns.
func Bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	emptyPools()
	defer emptyPools()
	faketime.Test(t, fn)
}

// emptyPools drops the timers that the NATS client keeps in a sync.Pool, which is empty after two collections.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}
