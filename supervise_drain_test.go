//go:build linux || darwin

package cotal_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/wire"
)

// gated is a connector whose starts wait until somebody lets them through.
type gated struct {
	connector.Connector
	reached chan struct{}
	through chan struct{}
}

func (g gated) Prepare(ctx context.Context, r connector.Request) (connector.Launch, error) {
	select {
	case g.reached <- struct{}{}:
	default:
	}
	<-g.through
	return g.Connector.Prepare(ctx, r)
}

// TestEndingAllMeetsASpawnUnderWay: a spawn that is under way while all agents are ended is refused, also when it asks again, so that none lives once
// that is said to be done.
func TestEndingAllMeetsASpawnUnderWay(t *testing.T) {
	t.Parallel()
	command, err := connector.Find(connector.Builtin(), "command")
	if err != nil {
		t.Fatal(err)
	}
	g := gated{command, make(chan struct{}, 1), make(chan struct{})}
	s := newStack(t, func(o *cotal.Options) { o.Supervisor.Keeper.Connectors = []connector.Connector{g} })
	open := sync.OnceFunc(func() { close(g.through) })
	t.Cleanup(open) // or the node of a test that failed would not stop
	op := s.operator()
	ctx := t.Context()
	spawned := make(chan error, 1)
	go func() { // it asks again for some seconds when it is refused
		_, err := op.Spawn(ctx, wire.SpawnRequest{RequestID: manager.RequestID(), Name: "late", Agent: "command", Command: []string{"sleep", "600"}}, "")
		spawned <- err
	}()
	select {
	case <-g.reached:
	case err := <-spawned:
		t.Fatalf("the spawn ended before it began: %v", err)
	}
	c := s.client()
	if ended, err := c.StopAgents(ctx, lab, 0); err != nil || len(ended) > 0 {
		t.Fatalf("StopAgents = %+v, %v", ended, err)
	}
	open()
	if err := <-spawned; !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("the spawn that was under way = %v, want unavailable", err)
	}
	if left, err := c.Agents(ctx, lab); err != nil || len(left) > 0 {
		t.Errorf("all agents were ended, and there are %+v, %v", left, err)
	}
	s.stop()
	s.start()
	s.spawned(s.operator(), "early", "sleep", "600") // the next start takes agents
	if ended, err := s.client().StopAgents(ctx, lab, 0); err != nil || len(ended) != 1 {
		t.Errorf("StopAgents = %+v, %v, want the one that was started", ended, err)
	}
}
