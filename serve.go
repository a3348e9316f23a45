package cotal

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// ServeDelivery runs the delivery role of a space in this process, beside the node's own or, with
// [Options.DeliveryElsewhere], in its place. Any number of processes may serve one space; they share the requests. It
// calls ready once the role serves, starts the role again when it dies, replaces its credential before that expires,
// and returns nil after ctx ended.
//
// Errors: not-found for an unknown space; unavailable when the broker cannot be reached at the start.
func (c *NodeClient) ServeDelivery(ctx context.Context, name string, ready func()) error {
	s, err := wire.ParseSpace(name)
	if err != nil {
		return err
	}
	opts := &delivery.Options{Logger: c.opts.Logger}
	watcher, err := c.watch(ctx, s)
	if err != nil {
		return fmt.Errorf("serve delivery of space %q: %w", s, err)
	}
	defer func() { _ = watcher.control.Close() }()
	opts.Broker = watcher
	l := &lane{
		space: s, log: c.opts.Logger.With(logkey.Component, "delivery"),
		creds: func(ctx context.Context) (*trust.Credentials, error) {
			return c.auth.ServiceCredential(ctx, s, trust.Delivery, serviceLifetime)
		},
		dial:  c.dialRole,
		build: func(nc *nats.Conn, _ *trust.Credentials) role { return delivery.New(nc, s, opts) },
	}
	l.prove = (&prover{space: s, endpoint: wire.DeliveryEndpoint, log: l.log, dial: l.dial, creds: func(ctx context.Context) (*trust.Credentials, error) {
		return c.auth.ServiceCredential(ctx, s, trust.Probe, 0)
	}}).prove
	if err := l.begin(ctx, ctx); err != nil {
		return fmt.Errorf("serve delivery of space %q: %w", s, err)
	}
	ready()
	<-l.done
	return nil
}

// dialRole opens the connection of a role; refused is called when the broker stops accepting the credential.
func (c *NodeClient) dialRole(ctx context.Context, creds *trust.Credentials, refused func()) (*nats.Conn, error) {
	return dial.Connect(ctx, c.dialing(creds, creds.Identity().Principal.String(), onRefused(refused)))
}

// watch opens a control that lists and follows the connections of a space's account, and reaches nothing else.
func (c *NodeClient) watch(ctx context.Context, s wire.Space) (*connections, error) {
	rec, err := c.mint.Account(ctx, s)
	if err != nil {
		return nil, err
	}
	source := func(ctx context.Context) (*trust.Credentials, error) {
		return c.mint.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemWatcher, Account: rec.Public})
	}
	ctl, err := broker.Dial(ctx, c.url, source, &broker.DialOptions{TLS: c.opts.TLS, Locate: c.opts.Locate, Name: "delivery", Logger: c.opts.Logger})
	if err != nil {
		return nil, err
	}
	return &connections{control: ctl, account: rec.Public}, nil
}

// elsewhere is the lane of a space whose role other processes run.
func elsewhere(s wire.Space) *lane {
	l := &lane{space: s, cancel: func() {}, done: make(chan struct{})}
	close(l.done)
	l.set(laneElsewhere, nil)
	return l
}
