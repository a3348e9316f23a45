package cotal

import (
	"context"
	"fmt"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/trust"
)

// connections is the account of one space as its delivery sees it: whoever serves a space learns nothing of another.
type connections struct {
	control *broker.Control
	account string
}

var _ delivery.Connections = (*connections)(nil)

// Follow implements delivery.Connections.
func (c *connections) Follow(ctx context.Context, fn func(delivery.ConnectionChange)) error {
	return c.control.Follow(ctx, c.account, func(change broker.ConnectionChange) {
		if change.Missed {
			fn(delivery.ConnectionChange{Missed: true})
			return
		}
		if conn, ok := c.connection(change.Connection); ok {
			fn(delivery.ConnectionChange{Connected: change.Connected, Moving: change.Reason == broker.ReasonShutdown, Connection: conn})
		}
	})
}

// List implements delivery.Connections.
func (c *connections) List(ctx context.Context, subscriptions bool) ([]delivery.Connection, error) {
	var opts []broker.ListOption
	if subscriptions {
		opts = append(opts, broker.WithSubscriptions())
	}
	all, err := c.control.Connections(ctx, c.account, opts...)
	if err != nil {
		return nil, err
	}
	out := make([]delivery.Connection, 0, len(all))
	for _, from := range all {
		if conn, ok := c.connection(from); ok {
			out = append(out, conn)
		}
	}
	return out, nil
}

// connection is false for a client whose credential is none of ours, which cannot take part.
func (c *connections) connection(from broker.Connection) (delivery.Connection, bool) {
	profile, life, err := trust.Holder(from.Tags)
	if err != nil || from.Account != "" && from.Account != c.account {
		return delivery.Connection{}, false
	}
	return delivery.Connection{
		ID: fmt.Sprintf("%s/%d", from.ServerID, from.CID), Profile: profile, Lifecycle: life, Subscriptions: from.Subscriptions,
	}, true
}
