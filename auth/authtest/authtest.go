// Package authtest has agents of a space of people granted, started and stopped as a supervisor does, but for the wire. It is for tests.
package authtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/wire"
)

// Agent is a life that was granted. It may be used by several goroutines.
type Agent struct {
	wire.Lifecycle
	// Secret returns the secret of the grant, with which it starts first. Every later start has another.
	Secret func() string

	starts atomic.Uint64
}

// Grant has an agent granted. Of the request count the space, the actor, the parent, which is required, the lists, the role and By.
//
// Errors: those of [auth.Authority.GrantAgent].
func Grant(ctx context.Context, a *auth.Authority, r auth.GrantRequest) (*Agent, error) {
	proof, secret, err := newProof()
	if err != nil {
		return nil, err
	}
	req := wire.AgentGrantRequest{
		Actor: r.Actor, Parent: r.Parent.Principal.String(), ParentUID: r.Parent.UID, Subscribe: r.Subscribe, Publish: r.Publish, Scope: r.Scope, Proof: proof,
	}
	if r.Role != nil {
		req.Role = *r.Role
	}
	c, err := a.GrantAgent(ctx, r.Space, r.By, req)
	if err != nil {
		return nil, err
	}
	p, err := wire.ParsePrincipal(c.Principal)
	return &Agent{Lifecycle: wire.Lifecycle{Principal: p, UID: c.UID}, Secret: secret}, err
}

// Start has the agent started once more and returns its secret.
//
// Errors: those of [auth.Authority.StartAgent].
func (g *Agent) Start(ctx context.Context, a *auth.Authority, s wire.Space) (func() string, error) {
	proof, secret, err := newProof()
	if err != nil {
		return nil, err
	}
	_, err = a.StartAgent(ctx, s, "", wire.AgentStartRequest{Principal: g.Principal.String(), UID: g.UID, Start: g.starts.Add(1), Proof: proof})
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// Stop has the last start ended.
//
// Errors: those of [auth.Authority.StopAgent].
func (g *Agent) Stop(ctx context.Context, a *auth.Authority, s wire.Space) error {
	return a.StopAgent(ctx, s, "", wire.AgentStopRequest{Principal: g.Principal.String(), UID: g.UID, Start: g.starts.Load()})
}

func newProof() (wire.AgentProof, func() string, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return wire.AgentProof{}, nil, err
	}
	key, err := pair.PublicKey()
	token := rand.Text()
	sum := sha256.Sum256([]byte(token))
	return wire.AgentProof{UserKey: key, TokenHash: hex.EncodeToString(sum[:])}, func() string { return token }, err
}
