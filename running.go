package cotal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// errStopAsked ends Run without an error when a stop was asked over the system account.
var errStopAsked = errors.New("stop was asked")

// running is what exists between boot and shutdown.
type running struct {
	n    *Node
	ctx  context.Context // ends with Run; lanes and the node's own service live under it
	stop context.CancelCauseFunc
	srv  *broker.Server
	mint *mint.Authority
	auth *auth.Authority
	ctl  *broker.Control
	wg   sync.WaitGroup // the node's own service, and what heals the broker

	hurt  chan struct{} // the broker cannot store any more
	asked chan struct{} // somebody asked to have it healed now

	booted bool // boot went through; set before Run waits
}

// boot starts the broker, then what needs it, and publishes each part in the node as soon as it stands.
func (r *running) boot(ctx context.Context) error {
	n := r.n
	if n.opts.StateDir == "" {
		return wire.Errorf(wire.CodeBadRequest, "options: StateDir is required")
	}
	if err := os.MkdirAll(n.opts.StateDir, 0o700); err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "create state folder: %w", err)
	}
	if n.opts.Open {
		return r.bootOpen(ctx)
	}
	var err error
	if r.mint, err = mint.Init(ctx, n.store, nil); err != nil {
		return err
	}
	known, err := r.records(ctx)
	if err != nil {
		return err
	}
	if err := r.mint.CheckSeeds(ctx); err != nil {
		return err
	}
	t, err := r.trust(ctx, known)
	if err != nil {
		return err
	}
	if err := r.startBroker(ctx, t); err != nil {
		return err
	}
	r.ctl, err = r.srv.Control(ctx, systemSource(r.mint, trust.SystemControl), &broker.DialOptions{Logger: n.opts.Logger})
	if err != nil {
		return err
	}
	r.auth = auth.New(r.mint, r.ctl, n.Dial, &auth.Options{Logger: n.opts.Logger, Space: n.opts.Space})
	n.publish(r)
	orderly, err := r.takeMark()
	if err != nil {
		return err
	}
	for _, s := range known {
		if err := r.auth.Provision(ctx, s); err != nil {
			return err
		}
		if !orderly {
			if _, err := r.auth.Restore(ctx, s); err != nil {
				return err
			}
		}
		if err := r.serve(ctx, s); err != nil {
			return err
		}
	}
	if err := r.serveNode(ctx); err != nil {
		return err
	}
	r.booted = true
	return nil
}

// records makes sure of the wanted spaces in the records and returns all of them. What an earlier build signed is
// signed anew: without the profiles and rights of this build its roles could not serve.
func (r *running) records(ctx context.Context) ([]wire.Space, error) {
	before, err := r.mint.Spaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range r.n.opts.Spaces {
		s, err := wire.ParseSpace(name)
		if err != nil {
			return nil, err
		}
		if _, err := r.mint.AddSpace(ctx, s, r.n.opts.Limits); err != nil {
			return nil, err
		}
		if pin := r.n.opts.People.Provider; pin != nil {
			if err := r.recordPeople(ctx, s, *pin, slices.Contains(before, s)); err != nil {
				return nil, err
			}
		}
	}
	known, err := r.mint.Spaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range known {
		if slices.Contains(r.n.opts.Spaces, string(s)) {
			continue
		}
		if _, err := r.mint.AddSpace(ctx, s, nil); err != nil {
			return nil, err
		}
	}
	return known, nil
}

func (r *running) accounts(ctx context.Context, spaces []wire.Space) (map[string]string, error) {
	out := make(map[string]string, len(spaces))
	for _, s := range spaces {
		rec, err := r.mint.Account(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, a := range rec.Accounts() {
			out[a.Public] = a.JWT
		}
	}
	return out, nil
}

func (r *running) startBroker(ctx context.Context, t broker.Trust) error {
	o := r.n.opts
	srv, err := broker.Start(ctx, t, &broker.Options{
		Host: o.Host, Port: o.Port, NoListen: o.NoListen, StoreDir: filepath.Clean(o.StateDir),
		Transport: o.Transport, SyncInterval: o.SyncInterval, SyncAlways: o.Strict, Logger: o.Logger, Open: o.Open,
		OnImpaired: r.ill,
	})
	if err != nil {
		return err
	}
	r.srv = srv
	r.n.mu.Lock()
	r.n.srv, r.n.started = srv, time.Now()
	r.n.mu.Unlock()
	r.wg.Go(r.keepStoring)
	return nil
}

func (r *running) bootOpen(ctx context.Context) error {
	n := r.n
	if len(n.opts.Spaces) != 1 {
		return wire.Errorf(wire.CodeBadRequest, "options: an open node serves exactly one space, got %d", len(n.opts.Spaces))
	}
	s, err := wire.ParseSpace(n.opts.Spaces[0])
	if err != nil {
		return err
	}
	if err := r.startBroker(ctx, broker.Trust{}); err != nil {
		return err
	}
	nc, err := n.Dial(ctx, nil)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	if err := space.Ensure(ctx, js, s, n.opts.Space); err != nil {
		return err
	}
	n.publish(r)
	return r.serve(ctx, s)
}

// serve starts what serves s unless it runs already.
func (r *running) serve(ctx context.Context, s wire.Space) error {
	if err := r.serveDelivery(ctx, s); err != nil {
		return err
	}
	if err := r.serveDesk(ctx, s); err != nil {
		return err
	}
	if err := r.servePeople(ctx, s); err != nil {
		return err
	}
	return r.serveAgents(ctx, s)
}

func (r *running) serveDelivery(ctx context.Context, s wire.Space) error {
	n := r.n
	n.mu.Lock()
	_, ok := n.lanes[s]
	n.mu.Unlock()
	if ok {
		return nil
	}
	if n.opts.DeliveryElsewhere {
		n.mu.Lock()
		n.lanes[s] = elsewhere(s)
		n.mu.Unlock()
		return nil
	}
	opts := &delivery.Options{Logger: n.opts.Logger, Open: n.opts.Open}
	l := &lane{space: s, log: n.log.With(logkey.Component, "node"), dial: n.dial, build: func(nc *nats.Conn, _ *trust.Credentials) role {
		return delivery.New(nc, s, opts)
	}}
	if !n.opts.Open {
		rec, err := r.mint.Account(ctx, s)
		if err != nil {
			return fmt.Errorf("serve space %q: %w", s, err)
		}
		opts.Broker = &connections{control: r.ctl, account: rec.Public}
		l.creds = func(ctx context.Context) (*trust.Credentials, error) {
			return r.auth.ServiceCredential(ctx, s, trust.Delivery, serviceLifetime)
		}
		l.prove = (&prover{space: s, endpoint: wire.DeliveryEndpoint, log: l.log, dial: l.dial, creds: func(ctx context.Context) (*trust.Credentials, error) {
			return r.auth.ServiceCredential(ctx, s, trust.Probe, 0)
		}}).prove
	}
	if err := l.begin(r.ctx, ctx); err != nil {
		return fmt.Errorf("serve space %q: %w", s, err)
	}
	n.mu.Lock()
	n.lanes[s] = l
	n.mu.Unlock()
	return nil
}

// shutdown stops in reverse order: roles, then the authority's connections, then the broker.
func (r *running) shutdown() {
	n := r.n
	r.stop(nil)
	n.changes.Lock()
	defer n.changes.Unlock()
	n.mu.Lock()
	lanes, gates := slices.Collect(maps.Values(n.lanes)), slices.Collect(maps.Values(n.gates))
	desks := slices.Collect(maps.Values(n.desks))
	agents := slices.Collect(maps.Values(n.agents))
	clear(n.desks)
	clear(n.lanes)
	clear(n.gates)
	n.run = nil
	n.mu.Unlock()
	for _, v := range agents {
		v.end()
	}
	for _, g := range gates {
		g.end()
	}
	for _, l := range slices.Concat(desks, lanes) {
		l.end()
	}
	r.wg.Wait()
	if r.auth != nil {
		_ = r.auth.Close()
	}
	if r.ctl != nil {
		_ = r.ctl.Close()
	}
	if r.srv != nil {
		r.srv.Shutdown()
		r.leaveMark()
	}
	n.log.Info("node stopped")
}

// orderlyMark is the file that says that the node over this folder ended in order, under which boot of the machine and
// with queues of which shape. Without it, or after another boot, queues may be missing; of another build they may
// have another shape.
func (r *running) orderlyMark() string { return filepath.Join(r.n.opts.StateDir, "orderly") }

// bootID tells one boot of the machine from the next, "" where the system does not say.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// mark is what the file holds, "" where one boot cannot be told from the next.
func mark() string {
	boot := bootID()
	if boot == "" {
		return ""
	}
	return boot + " " + space.Schema
}

// takeMark removes the mark of the run before and reports whether nothing can have been lost since.
func (r *running) takeMark() (bool, error) {
	b, err := os.ReadFile(r.orderlyMark())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = os.Remove(r.orderlyMark())
	}
	if err != nil {
		return false, wire.Errorf(wire.CodeFailedPrecondition, "take mark of an orderly end: %w", err)
	}
	return len(b) > 0 && string(b) == mark(), nil
}

func (r *running) leaveMark() {
	if !r.booted {
		return
	}
	if err := os.WriteFile(r.orderlyMark(), []byte(mark()), 0o600); err != nil {
		r.n.log.Warn("orderly end not marked; the next start looks for lost queues", logkey.Error, err)
	}
}

func (n *Node) publish(r *running) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.run, n.auth = r, r.auth
}

func sortedNames(lanes map[wire.Space]*lane) []string {
	out := make([]string, 0, len(lanes))
	for s := range lanes {
		out = append(out, string(s))
	}
	slices.Sort(out)
	return out
}
