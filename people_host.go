package cotal

import (
	"context"
	"io"
	"net/http"

	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/wire"
)

// Vouch gives a bearer for somebody whom this program has signed in by its own means; see [exchange.Server.Bridge].
//
// Errors: those of it; not-found for a space that this node does not serve; failed-precondition for one whose people are signed
// in elsewhere, or that has none; unavailable while signing in is down; [ErrNotReady] before Ready.
func (n *Node) Vouch(ctx context.Context, space string, v exchange.Vouched) (exchange.Bridged, error) {
	server, err := n.exchange(space)
	if err != nil {
		return exchange.Bridged{}, err
	}
	return server.Bridge(ctx, v)
}

// ExchangeHandler serves the public face of the exchange of a space, for a program that has a listener of its own: GET /health,
// GET /jwks, POST /exchange and GET /.well-known/cotal-mesh. It may be made before the node runs, and outlives restarts of the
// exchange; while there is none it answers 503. The address under which it is served is that of [PeopleOptions.MountedURL]: proofs
// of keys are bound to it.
func (n *Node) ExchangeHandler(space string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server, err := n.exchange(space)
		if err != nil {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":"signing in is down at the moment; try again","code":"unavailable","retryAfter":1}`)
			return
		}
		server.PublicHandler().ServeHTTP(w, r)
	})
}

// exchange returns the exchange of a space while it serves.
func (n *Node) exchange(space string) (*exchange.Server, error) {
	s, err := wire.ParseSpace(space)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	run, lane, g := n.run, n.lanes[s], n.gates[s]
	n.mu.Unlock()
	switch {
	case run == nil:
		return nil, ErrNotReady
	case lane == nil:
		return nil, wire.Errorf(wire.CodeNotFound, "no space %q on this node", space)
	case g == nil || g.away:
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "space %q signs nobody in on this node", space)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.server == nil {
		return nil, wire.Errorf(wire.CodeUnavailable, "signing in at space %q is down: %v", space, g.err)
	}
	return g.server, nil
}
