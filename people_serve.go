package cotal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// ServeAuthority signs people in at a space in this process, beside the node's own or, with [PeopleOptions.Elsewhere], in its
// place. Any number of processes may serve one space; they share the connections. One of them, the primary, also does the
// work that one does for all; the others take it over when it is gone. It calls ready once it serves and returns nil after
// ctx ended.
//
// It ends with an error when the secret store does not answer any more, or the space is removed: what it stands on is gone. A space of
// the same name that is made after that is another one, with other keys.
//
// Errors: not-found for an unknown space; failed-precondition for a space that does not sign people in, and, without replica,
// while another process is the primary: the error says how to join it; failed-precondition for a space that was removed meanwhile;
// unavailable when the broker cannot be reached.
func (c *NodeClient) ServeAuthority(ctx context.Context, name string, replica bool, opts PeopleOptions, ready func(PeopleStatus)) error {
	s, err := wire.ParseSpace(name)
	if err != nil {
		return err
	}
	rec, err := c.mint.Account(ctx, s)
	switch {
	case err != nil:
		return fmt.Errorf("serve authority of space %q: %w", s, err)
	case rec.Callout == nil:
		return trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode,
			"serve authority of space %q: it works with credential files and signs nobody in; make it one of people with: cotal up --idp <issuer>", s)
	}
	p := &people{
		mint: c.mint, auth: c.auth, store: c.store, server: c.server, tls: strings.HasPrefix(c.url, "tls:"),
		ids: serverIDs(c.ctl), holder: "process-" + wire.NewID(), wait: replica, opts: opts, log: c.opts.Logger,
		file: func(string) string { return "" },
		dial: func(ctx context.Context, creds *trust.Credentials, refused func()) (*nats.Conn, error) {
			return dial.Connect(ctx, c.dialing(creds, "authority", onRefused(refused)))
		},
	}
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, err := p.begin(run, ctx, s)
	if err != nil {
		return err
	}
	defer g.end()
	desk := newDesk(p.auth, s, p.dial, p.log)
	if err := desk.begin(run, ctx); err != nil {
		return fmt.Errorf("serve authority of space %q: %w", s, err)
	}
	defer desk.end()
	ready(g.status())
	watchStore(run, firstOf(haveRoot(c.store), c.sameSpace(rec)), func(err error) {
		c.opts.Logger.Error("authority stops, what it stands on is gone", logkey.Space, s, logkey.Error, err)
		stop(err)
	})
	if ctx.Err() == nil {
		return fmt.Errorf("serve authority of space %q: %w", s, context.Cause(run))
	}
	return nil
}

// onRefused calls refused when the broker stops accepting a credential.
func onRefused(refused func()) func(*nats.Conn, error) {
	return func(_ *nats.Conn, err error) {
		if dial.Refused(err) {
			refused()
		}
	}
}

// serverIDs lists the brokers that a control reaches.
func serverIDs(ctl *broker.Control) func(ctx context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		all, err := ctl.Ping(ctx)
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(all))
		for i, s := range all {
			ids[i] = s.ID
		}
		return ids, nil
	}
}

const (
	// storeEvery is how often the secret store is looked at, storeTries how often it may fail in a row.
	storeEvery = 5 * time.Second
	storeTries = 3
)

// watchStore looks at the secret store every few seconds, and calls lost, once, when look says that what it looks for is gone, with a
// failed-precondition, or has failed several times in a row.
func watchStore(ctx context.Context, look func(context.Context) error, lost func(error)) {
	t := time.NewTicker(storeEvery)
	defer t.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			continue
		case errors.Is(err, wire.ErrPrecondition):
			lost(err)
			return
		}
		if failures++; failures >= storeTries {
			lost(wire.Errorf(wire.CodeUnavailable, "the secret store does not answer: %w", err))
			return
		}
	}
}

// haveRoot looks for the root record of a store.
func haveRoot(store secret.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := store.Get(ctx, trust.BrokerKey)
		if errors.Is(err, secret.ErrNotFound) {
			return wire.Errorf(wire.CodeFailedPrecondition, "the trust records are gone from the secret store: %w", err)
		}
		return err
	}
}

// sameSpace looks whether a space is still the one of the record: a service with keys of another one answers the broker wrongly, and is
// asked all the same.
func (c *NodeClient) sameSpace(rec trust.AccountRecord) func(context.Context) error {
	return func(ctx context.Context) error {
		now, err := c.mint.Account(ctx, rec.Space)
		switch {
		case errors.Is(err, wire.ErrNotFound):
			return wire.Errorf(wire.CodeFailedPrecondition, "space %q was removed", rec.Space)
		case err != nil:
			return err
		case now.Public != rec.Public || now.Callout == nil || now.Callout.Public != rec.Callout.Public || now.Callout.XKey != rec.Callout.XKey:
			return wire.Errorf(wire.CodeFailedPrecondition, "space %q was removed and made anew; serve the new one", rec.Space)
		}
		return nil
	}
}

// firstOf looks at one thing after the other.
func firstOf(looks ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, look := range looks {
			if err := look(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}
