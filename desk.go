package cotal

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// newDesk is the lane of the endpoint auth of a space, by which supervisors ask for the grants of agents.
func newDesk(a *auth.Authority, s wire.Space, dial func(context.Context, *trust.Credentials, func()) (*nats.Conn, error), log *slog.Logger) *lane {
	l := &lane{
		space: s, log: log.With(logkey.Component, "node"), dial: dial,
		creds: func(ctx context.Context) (*trust.Credentials, error) {
			return a.ServiceCredential(ctx, s, trust.Authority, serviceLifetime)
		},
		build: func(nc *nats.Conn, _ *trust.Credentials) role {
			return auth.NewService(a, nc, s, &auth.ServiceOptions{Logger: log})
		},
	}
	l.prove = (&prover{space: s, endpoint: wire.AuthorityEndpoint, log: l.log, dial: dial, creds: func(ctx context.Context) (*trust.Credentials, error) {
		return a.ServiceCredential(ctx, s, trust.Probe, 0)
	}}).prove
	return l
}

// serveDesk starts answering supervisors at s unless that runs already. In a space of people whose authority runs elsewhere, it
// answers there.
func (r *running) serveDesk(ctx context.Context, s wire.Space) error {
	n := r.n
	n.mu.Lock()
	_, ok := n.desks[s]
	n.mu.Unlock()
	if ok || n.opts.Open {
		return nil
	}
	l := newDesk(r.auth, s, n.dial, n.log)
	rec, err := r.mint.Account(ctx, s)
	if err != nil {
		return fmt.Errorf("serve space %q: %w", s, err)
	}
	if rec.Callout != nil && n.opts.People.Elsewhere {
		l = elsewhere(s)
	} else if err := l.begin(r.ctx, ctx); err != nil {
		return fmt.Errorf("serve authority of space %q: %w", s, err)
	}
	n.mu.Lock()
	n.desks[s] = l
	n.mu.Unlock()
	return nil
}
