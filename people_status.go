package cotal

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// PeopleStatus is what signs people in at a space.
type PeopleStatus struct {
	// Callout and Exchange are starting, serving, backoff or stopped; elsewhere: other processes serve them.
	Callout  string `json:"callout"`
	Exchange string `json:"exchange"`
	// Issuer and ClientID are of the identity provider, as the space is pinned to it.
	Issuer   string `json:"issuer"`
	ClientID string `json:"clientId"`
	// URL is the loopback face, PublicURL where the public one is reached: as the operator says, else its own address on
	// loopback, where a proxy is to find it. Empty without a public face.
	URL       string `json:"url,omitempty"`
	PublicURL string `json:"publicUrl,omitempty"`
	// Primary says that this process does the work that one does for all.
	Primary bool   `json:"primary"`
	Error   string `json:"error,omitempty"`
}

func (g *gate) status() PeopleStatus {
	if g.away {
		return PeopleStatus{Callout: laneElsewhere, Exchange: laneElsewhere, Issuer: g.pin.Issuer, ClientID: g.pin.ClientID}
	}
	state, _, err := g.lane.status()
	g.mu.Lock()
	defer g.mu.Unlock()
	st := PeopleStatus{
		Callout: state, Exchange: laneServing, Issuer: g.pin.Issuer, ClientID: g.pin.ClientID,
		PublicURL: g.p.publicURL(string(g.space)), Primary: g.jobs.Primary(),
	}
	if g.server == nil {
		st.Exchange = laneBackoff
	} else {
		st.URL = "http://" + g.server.LoopbackAddr()
		if at := g.server.PublicAddr(); st.PublicURL == "" && at != "" {
			st.PublicURL = "http://" + at
		}
	}
	if err = errors.Join(err, g.err, g.jobs.Err()); err != nil {
		st.Error = err.Error()
	}
	return st
}

// Authorities counts the processes that are connected to decide who may come into a space of people, whether they answer or not, as
// the broker sees them: the node itself, and those of [NodeClient.ServeAuthority].
//
// Errors: not-found for a space that the records do not have; failed-precondition for one that works with credential files; those
// of [broker.Control.Connections].
func (c *NodeClient) Authorities(ctx context.Context, name string) (int, error) {
	rec, err := c.mint.Account(ctx, wire.Space(name))
	if err != nil {
		return 0, err
	}
	if rec.Callout == nil {
		return 0, trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode, "space %q works with credential files and signs nobody in", name)
	}
	all, err := c.ctl.Connections(ctx, rec.Callout.Public)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, conn := range all {
		if profile, _, err := trust.Holder(conn.Tags); err == nil && profile == trust.Callout {
			n++
		}
	}
	return n, nil
}

// healthy reports whether people can sign in.
func (st PeopleStatus) healthy() bool {
	ok := func(state string) bool { return state == laneServing || state == laneElsewhere }
	return ok(st.Callout) && ok(st.Exchange)
}

// CapabilityFile is where the exchange of a space leaves its address and capability for the user who runs the node over the
// folder dir, unless it is told otherwise.
func CapabilityFile(dir, space string) string {
	return filepath.Join(dir, "authority."+hex.EncodeToString([]byte(space))+".json")
}

// capabilityFile is CapabilityFile of one folder.
func capabilityFile(dir string) func(string) string {
	return func(space string) string { return CapabilityFile(dir, space) }
}

// leavePeople notes of a space of people that other processes sign them in.
func (r *running) leavePeople(ctx context.Context, s wire.Space) error {
	pin, err := oidc.LoadPin(ctx, r.n.store, s)
	if err != nil {
		return fmt.Errorf("serve space %q: %w", s, err)
	}
	none := func() {}
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	r.n.gates[s] = &gate{space: s, pin: pin, away: true, lane: elsewhere(s), cancel: none, stop: none, close: none}
	return nil
}

// watch returns once the gate has ended or what works under it has been stopped: the secret store is lost, or somebody asked
// to start it again.
func (g *gate) watch(store secret.Store) {
	ctx, stop := context.WithCancel(g.run)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		defer stop()
		watchStore(ctx, haveRoot(store), func(err error) {
			g.log.Error("signing in stopped", logkey.Error, err)
			g.fail(err)
		})
	})
	select {
	case <-ctx.Done():
	case <-g.again:
		stop()
		wg.Wait()
		g.log.Warn("signing in starts again, as asked")
		g.fail(wire.Errorf(wire.CodeUnavailable, "it is being started again"))
	}
}

// pause waits before an attempt, the longer the more there were. Being asked ends it early.
func (g *gate) pause(attempt int) error {
	ctx, stop := context.WithCancel(g.run)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		_ = dial.Wait(ctx, attempt)
	}()
	select {
	case <-g.again:
		stop()
	case <-ctx.Done():
	}
	<-done
	return g.run.Err()
}

// healPeople has what signs people in started again where it is down.
func (r *running) healPeople() {
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	for _, g := range r.n.gates {
		if !g.away && !g.status().healthy() {
			wake(g.again)
		}
	}
}

// forgetPeople deletes what a space that was removed knew its people by: in a space of the same name nobody is who they were.
func (n *Node) forgetPeople(ctx context.Context, s wire.Space) error {
	for _, key := range []string{oidc.PinKey(s), trust.OwnerSecretKey(s), bearer.KeysKey(s)} {
		if err := n.store.Delete(ctx, key); err != nil && !errors.Is(err, secret.ErrNotFound) {
			return wire.Errorf(wire.CodeUnavailable, "remove space %q: it is removed, and record %q is not: %w", s, key, err)
		}
	}
	return nil
}
