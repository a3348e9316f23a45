package cotal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Supervisors counts the processes that are connected to run agents of a space, whether they answer or not, as the broker sees them:
// the node itself, and those of [NodeClient.ServeSupervisor].
//
// Errors: not-found for a space that the records do not have; those of [broker.Control.Connections].
func (c *NodeClient) Supervisors(ctx context.Context, name string) (int, error) {
	return c.connected(ctx, name, trust.Supervisor)
}

// SupervisorPeer is a supervisor of a space as it says itself or, where it gives no answer, as others heard it last.
type SupervisorPeer struct {
	wire.ManagerPeer
	Silent  bool   `json:"silent,omitempty"`  // it is known and did not answer
	Refused string `json:"refused,omitempty"` // why it would not say how many agents it has
}

// SupervisorPeers asks every supervisor of a space who it is. Those that are known and silent, or left while their agents went on, are among
// them.
//
// Errors: those of reaching the space; unavailable when supervisors are connected and none answers.
func (c *NodeClient) SupervisorPeers(ctx context.Context, space string) ([]SupervisorPeer, error) {
	m, end, err := c.supervisors(ctx, space)
	if err != nil {
		return nil, fmt.Errorf("list supervisors of space %q: %w", space, err)
	}
	defer end()
	census, err := m.Census(ctx, wire.AgentsRequest{UID: wire.NewUID()}) // of no agent: only who answers is wanted
	if err != nil {
		if n, uncounted := c.Supervisors(ctx, space); uncounted == nil && n == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("list supervisors of space %q: %w", space, err)
	}
	var out []SupervisorPeer
	for _, r := range census.Replies {
		p := SupervisorPeer{ManagerPeer: wire.ManagerPeer{Instance: r.Instance, Host: r.Host}}
		if i := slices.IndexFunc(r.Peers, func(p wire.ManagerPeer) bool { return p.Instance == r.Instance }); i >= 0 {
			p.ManagerPeer = r.Peers[i]
		}
		out = append(out, p)
	}
	for _, r := range census.Refused {
		out = append(out, SupervisorPeer{ManagerPeer: r.ManagerPeer, Refused: r.Err.Error()})
	}
	for _, p := range census.Silent {
		out = append(out, SupervisorPeer{ManagerPeer: p, Silent: true})
	}
	return out, nil
}

// operator asks the supervisors of a space with a short credential of its own.
type operator struct {
	*control.Caller
	id trust.Identity
}

// Identity is as whom it asks.
func (o operator) Identity() trust.Identity { return o.id }

// supervisors returns a client of the supervisors of a space that reaches everything, and what ends it.
func (c *NodeClient) supervisors(ctx context.Context, name string) (*manager.Client, func(), error) {
	s, err := wire.ParseSpace(name)
	if err != nil {
		return nil, nil, err
	}
	creds, err := c.auth.ServiceCredential(ctx, s, trust.Operator, 0)
	if err != nil {
		return nil, nil, err
	}
	nc, err := c.Dial(ctx, creds)
	if err != nil {
		return nil, nil, err
	}
	id := creds.Identity()
	caller, err := control.NewCaller(nc, s, id.Lifecycle, wire.EndpointRef{ID: id.Principal.String(), Name: id.Actor}, &control.CallerOptions{Logger: c.opts.Logger})
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return manager.New(operator{caller, id}), func() {
		_ = caller.Close()
		nc.Close()
	}, nil
}

// Agents asks every supervisor of a space for the agents that have not ended.
//
// Errors: unavailable when no supervisor answers, or one that is known does not: what it keeps is not known then.
func (c *NodeClient) Agents(ctx context.Context, space string) ([]wire.AgentStatus, error) {
	m, end, err := c.supervisors(ctx, space)
	if err != nil {
		return nil, fmt.Errorf("list agents of space %q: %w", space, err)
	}
	defer end()
	census, err := m.Census(ctx, wire.AgentsRequest{})
	return living(census, err, space)
}

// living are the agents of a census that have not ended, or why they are not known.
func living(census manager.Census, err error, space string) ([]wire.AgentStatus, error) {
	if err == nil {
		err = census.Complete("agents")
	}
	if err != nil {
		return nil, fmt.Errorf("list agents of space %q: %w", space, err)
	}
	return slices.DeleteFunc(census.Agents(), wire.AgentStatus.Ended), nil
}

const (
	// stopTogether bounds the agents that are ended at the same time.
	stopTogether = 32
	// stopRounds is how often those that are left are ended.
	stopRounds = 5
	// stopHold is for how long after the last look no supervisor takes agents, releaseWithin bounds the request to take them again.
	stopHold, releaseWithin = 30 * time.Second, 2 * time.Second
)

// StopAgents ends every agent of a space and retires its grant, wherever it runs, and returns those that ended, once every supervisor
// says that none is left. Meanwhile no supervisor takes agents, and a spawn that is under way is refused; nor does one for 30 s after
// that, so that the mesh can be stopped without any. An agent has grace after it is asked to end; 0 means 10 s.
//
// Errors: unavailable when no supervisor answers, or one that is known does not; those of ending an agent, which names it. What could
// not be ended goes on, agents are taken again, and what ended is returned all the same.
func (c *NodeClient) StopAgents(ctx context.Context, space string, grace time.Duration) (ended []wire.AgentStatus, err error) {
	m, end, err := c.supervisors(ctx, space)
	if err != nil {
		return nil, fmt.Errorf("stop agents of space %q: %w", space, err)
	}
	defer end()
	defer func() {
		if err != nil {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
			defer cancel()
			_, _ = m.Drain(limited, 0) // else the hold ends by itself
		}
	}()
	for range stopRounds {
		census, err := m.Drain(ctx, stopHold)
		all, err := living(census, err, space)
		if err != nil || len(all) == 0 {
			return ended, err
		}
		gone, err := stopAgents(ctx, m, all, grace)
		ended = append(ended, gone...)
		if err != nil {
			return ended, fmt.Errorf("stop agents of space %q: %w", space, err)
		}
		if err := c.awaitRetired(ctx, space, gone); err != nil {
			return ended, err
		}
	}
	return ended, wire.Errorf(wire.CodeConflict, "stop agents of space %q: agents are started as fast as they are ended; find out who starts them", space)
}

// retiredEvery is how often it is looked whether the grants of agents that ended are retired.
const retiredEvery = 50 * time.Millisecond

// awaitRetired returns once no grant of agents that ended stands: their supervisors retire them.
func (c *NodeClient) awaitRetired(ctx context.Context, space string, ended []wire.AgentStatus) error {
	tick := time.NewTicker(retiredEvery)
	defer tick.Stop()
	for len(ended) > 0 {
		grants, err := c.auth.List(ctx, wire.Space(space))
		if err != nil {
			return fmt.Errorf("stop agents of space %q: they ended, their grants may not be retired: %w", space, err)
		}
		left := slices.IndexFunc(grants, func(g trust.Grant) bool {
			return g.State != trust.GrantRetired && slices.ContainsFunc(ended, func(a wire.AgentStatus) bool { return a.UID == g.UID })
		})
		if left < 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return wire.Errorf(wire.CodeDeadlineExceeded, "stop agents of space %q: they ended, and the grant of %q is not retired yet", space, grants[left].Principal())
		}
	}
	return nil
}

func stopAgents(ctx context.Context, m *manager.Client, all []wire.AgentStatus, grace time.Duration) ([]wire.AgentStatus, error) {
	var mu sync.Mutex
	var ended []wire.AgentStatus
	var errs []error
	var wg sync.WaitGroup
	places := make(chan struct{}, stopTogether)
	for _, a := range all {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			out, err := m.Stop(ctx, a, wire.StopRequest{Grace: grace.Milliseconds(), Force: true})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, wire.ErrNotFound): // it ended by itself
			case err != nil:
				errs = append(errs, fmt.Errorf("agent %q: %w", a.Principal, err))
			default:
				ended = append(ended, out.Agent)
			}
		})
	}
	wg.Wait()
	return ended, errors.Join(errs...)
}
