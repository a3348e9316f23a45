package cotal

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// CredentialSource mints the credential of the next instance of a role.
type CredentialSource = func(ctx context.Context) (*trust.Credentials, error)

// TamperCredentials puts something between the lane of a space and its credentials. Call it while nothing is renewed.
func TamperCredentials(n *Node, space wire.Space, wrap func(CredentialSource) CredentialSource) {
	l := laneOf(n, space)
	l.creds = wrap(l.creds)
}

// MuteSuccessors makes the next instances of a space's delivery say that they serve and do not answer, while mute is set.
func MuteSuccessors(n *Node, space wire.Space, mute *atomic.Bool) {
	l := laneOf(n, space)
	build := l.build
	l.build = func(nc *nats.Conn, creds *trust.Credentials) role {
		if mute.Load() {
			return muteRole{build(nc, creds)}
		}
		return build(nc, creds)
	}
}

// Prove asks the instances of a space's delivery as the node does before one takes the place of another.
func Prove(ctx context.Context, n *Node, space wire.Space, next, old string) error {
	return laneOf(n, space).prove(ctx, next, old)
}

// BrokerAccounts is what the broker of a node would be started with for a space.
func BrokerAccounts(ctx context.Context, n *Node, s wire.Space) (map[string]string, error) {
	return n.running().accounts(ctx, []wire.Space{s})
}

func laneOf(n *Node, space wire.Space) *lane {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lanes[space]
}

type muteRole struct{ role }

func (muteRole) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (muteRole) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}
