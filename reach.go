package cotal

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// reach tells whether a role reaches its space: what its lane says of it, and what becomes of its connections.
type reach struct {
	tell func(reason error)

	mu   sync.Mutex      // guards said, and keeps what is told in order
	said map[string]bool // reasons of this absence; nil while the space is reached
}

// is takes what is wrong, or nil.
func (r *reach) is(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case reason == nil && r.said != nil:
		r.said = nil
		r.tell(nil)
	case reason != nil && !r.said[reason.Error()]:
		if r.said == nil {
			r.said = map[string]bool{}
		}
		r.said[reason.Error()] = true
		r.tell(reason)
	}
}

type dialFunc = func(ctx context.Context, creds *trust.Credentials, refused func()) (*nats.Conn, error)

// follow is dial for connections whose loss counts. One that its role closes is not lost.
func (r *reach) follow(dial dialFunc) dialFunc {
	return func(ctx context.Context, creds *trust.Credentials, refused func()) (*nats.Conn, error) {
		nc, err := dial(ctx, creds, refused)
		if err != nil {
			return nil, err
		}
		nc.SetDisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() {
				r.is(lost(err))
			}
		})
		nc.SetReconnectHandler(func(*nats.Conn) { r.is(nil) })
		return nc, nil
	}
}

// lost is why a connection went away.
func lost(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return wire.Errorf(wire.CodeUnavailable, "the broker ended the connection")
	}
	return wire.Errorf(wire.CodeUnavailable, "the connection was lost: %v", err)
}
