package cotal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// SupervisorOptions says how the agents of spaces are run.
type SupervisorOptions struct {
	// Dir returns the absolute folder that keeps the agents of a space. One process works on a folder at a time, and adopts what runs
	// there. Required.
	Dir func(space string) string
	// CAFile is what agents check the broker's certificate by; empty means the roots of the system.
	CAFile string
	// Away is called by [NodeClient.ServeSupervisor] when the space cannot be reached any more, with the reason, for each other reason once
	// more, and with nil when it is served again. It must not wait. May be nil.
	Away func(reason error)
	// Keeper shapes the keeper of each space; Program and Seats are required there. Dir, Server and Logger are filled in.
	Keeper supervisor.Options
}

// supervised is the supervisor of one space: a keeper that lives as long as it can, and a lane of services over it.
type supervised struct {
	space wire.Space
	opts  supervisor.Options
	log   *slog.Logger
	lane  *lane

	run    context.Context // of the keeper
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	keeper *supervisor.Keeper
	ended  chan struct{} // of the keeper
	err    error         // set before ended is closed
}

// supervisorOf is how a process makes the supervisor of a space.
type supervisorOf struct {
	auth   *auth.Authority
	dial   func(ctx context.Context, creds *trust.Credentials, refused func()) (*nats.Conn, error)
	server func() supervisor.Server
	log    *slog.Logger
}

// make returns a supervisor that does not run yet.
func (o supervisorOf) make(parent context.Context, s wire.Space, opts SupervisorOptions) (*supervised, error) {
	if opts.Dir == nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "options of the supervisor: Dir is required")
	}
	v := &supervised{space: s, opts: opts.Keeper, log: o.log}
	v.opts.Dir, v.opts.Server, v.opts.Logger = opts.Dir(string(s)), o.server, o.log
	// The keeper outlives its services, which say goodbye through it.
	v.run, v.cancel = context.WithCancel(context.WithoutCancel(parent))
	v.lane = &lane{
		space: s, log: o.log.With(logkey.Component, "node"), dial: o.dial, stand: v.stand,
		creds: func(ctx context.Context) (*trust.Credentials, error) {
			v.mu.Lock()
			k := v.keeper // which stand has seen to
			v.mu.Unlock()
			return o.auth.SupervisorCredential(ctx, s, k.Instance(), serviceLifetime)
		},
		build: v.service,
	}
	v.lane.prove = (&prover{space: s, endpoint: wire.ManagerEndpoint, log: v.lane.log, dial: o.dial, creds: func(ctx context.Context) (*trust.Credentials, error) {
		return o.auth.ServiceCredential(ctx, s, trust.Probe, 0)
	}}).prove
	return v, nil
}

// begin starts the supervisor. What keeps it from serving is in its status, and tried again.
func (v *supervised) begin(parent, ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	v.lane.beginAnyhow(parent, limited)
}

// end stops the services, then the keeper, and waits for both. The agents go on.
func (v *supervised) end() {
	v.lane.end()
	v.cancel()
	v.wg.Wait()
}

// stand makes sure of a keeper that runs.
func (v *supervised) stand(ctx context.Context) error {
	v.mu.Lock()
	k, ended := v.keeper, v.ended
	v.mu.Unlock()
	if k == nil || isClosed(ended) {
		var err error
		if k, err = supervisor.NewKeeper(v.space, &v.opts); err != nil {
			return err
		}
		ended = make(chan struct{})
		v.mu.Lock()
		v.keeper, v.ended, v.err = k, ended, nil
		v.mu.Unlock()
		v.wg.Go(func() {
			err := k.Run(v.run)
			v.mu.Lock()
			v.err = err
			v.mu.Unlock()
			close(ended)
		})
	}
	select {
	case <-k.Ready():
		return nil
	case <-ended:
		v.mu.Lock()
		defer v.mu.Unlock()
		return fmt.Errorf("keep agents: %w", orStopped(v.err))
	case <-ctx.Done():
		return fmt.Errorf("keep agents: %w", ctx.Err())
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// service makes the service of a connection. It hears what the broker refuses on it.
func (v *supervised) service(nc *nats.Conn, creds *trust.Credentials) role {
	v.mu.Lock()
	k, ended := v.keeper, v.ended
	v.mu.Unlock()
	s := supervisor.New(nc, creds.Identity().Lifecycle, k, &supervisor.ServiceOptions{Logger: v.log})
	before := nc.ErrorHandler()
	nc.SetErrorHandler(func(c *nats.Conn, sub *nats.Subscription, err error) {
		if subject, ok := control.DeniedSubject(err); ok {
			s.Denied(subject)
		}
		if before != nil {
			before(c, sub, err)
		}
	})
	return overKeeper{s, ended}
}

// overKeeper is a service that ends with its keeper.
type overKeeper struct {
	*supervisor.Service
	ended <-chan struct{}
}

// Run implements role.
func (o overKeeper) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		select {
		case <-o.ended:
			cancel(errKeeperEnded)
		case <-ctx.Done():
		}
	})
	err := o.Service.Run(ctx)
	if err == nil && errors.Is(context.Cause(ctx), errKeeperEnded) {
		err = errKeeperEnded
	}
	cancel(nil)
	return err
}

var errKeeperEnded = errors.New("the keeper of the agents has ended")

// agents are those that have not ended, by the keeper.
func (v *supervised) agents() []wire.AgentStatus {
	v.mu.Lock()
	k := v.keeper
	v.mu.Unlock()
	if k == nil {
		return nil
	}
	return k.Agents(supervisor.Caller{Mode: wire.ModeAny}, wire.AgentsRequest{}).Agents
}

// SupervisorStatus is what runs the agents of a space.
type SupervisorStatus struct {
	State    string         `json:"state"` // starting, serving, backoff, stopped; elsewhere: other processes run agents
	Since    time.Time      `json:"since"`
	Instance string         `json:"instance,omitempty"`
	Agents   map[string]int `json:"agents,omitempty"` // how many there are, by state
	// Unreadable are folders of agents that it cannot read: what is theirs may run, and nobody looks after it.
	Unreadable []string `json:"unreadable,omitempty"`
	Error      string   `json:"error,omitempty"`
}

func (v *supervised) status() SupervisorStatus {
	state, since, err := v.lane.status()
	st := SupervisorStatus{State: state, Since: since}
	if err != nil {
		st.Error = err.Error()
	}
	v.mu.Lock()
	k := v.keeper
	v.mu.Unlock()
	if k != nil {
		st.Instance, st.Agents = k.Instance(), k.Stats().Agents
		for _, u := range k.Unreadable() {
			st.Unreadable = append(st.Unreadable, filepath.Join(v.opts.Dir, string(u)))
		}
	}
	return st
}

// serveAgents starts the supervisor of s unless it runs already, or none is wanted.
func (r *running) serveAgents(ctx context.Context, s wire.Space) error {
	n := r.n
	n.mu.Lock()
	_, ok := n.agents[s]
	n.mu.Unlock()
	if ok || n.opts.Open || n.opts.Supervisor == nil && !n.opts.SupervisorElsewhere {
		return nil
	}
	var v *supervised
	if n.opts.SupervisorElsewhere {
		v = &supervised{space: s, lane: elsewhere(s), cancel: func() {}}
	} else {
		var err error
		if v, err = (supervisorOf{r.auth, n.dial, n.agentServer(s), n.log}).make(r.ctx, s, *n.opts.Supervisor); err != nil {
			return err
		}
		v.begin(r.ctx, ctx)
	}
	n.mu.Lock()
	n.agents[s] = v
	n.mu.Unlock()
	return nil
}

// agentServer is where the agents of a space find the broker, and in a space of people the exchange.
func (n *Node) agentServer(s wire.Space) func() supervisor.Server {
	file := capabilityFile(n.opts.StateDir)
	if n.opts.People.CapabilityFile != nil {
		file = n.opts.People.CapabilityFile
	}
	return func() supervisor.Server {
		url := n.URL()
		return supervisor.Server{URL: url, TLS: strings.HasPrefix(url, "tls:"), CAFile: n.opts.Supervisor.CAFile, CapabilityFile: file(string(s))}
	}
}

// Agents are the agents of a space that this node runs and that have not ended; they go on when the node stops, and are told also
// after that. It is empty for a space whose agents other processes run.
func (n *Node) Agents(space string) []wire.AgentStatus {
	n.mu.Lock()
	v := n.agents[wire.Space(space)]
	n.mu.Unlock()
	if v == nil {
		return nil
	}
	return v.agents()
}

// ServeSupervisor runs agents of a space in this process, beside the node's own supervisor or, with
// [Options.SupervisorElsewhere], in its place. Any number of processes may serve one space, each with a folder of its own. It calls
// ready once the supervisor serves, with its instance, and returns nil after ctx ended; the agents go on then.
//
// Errors: not-found for an unknown space; failed-precondition when another process works on the folder; unavailable when the broker
// cannot be reached at the start.
func (c *NodeClient) ServeSupervisor(ctx context.Context, name string, opts SupervisorOptions, capability string, ready func(instance string)) error {
	s, err := wire.ParseSpace(name)
	if err != nil {
		return err
	}
	if _, err := c.mint.Account(ctx, s); err != nil {
		return fmt.Errorf("serve supervisor of space %q: %w", s, err)
	}
	of := supervisorOf{auth: c.auth, log: c.opts.Logger, server: func() supervisor.Server {
		return supervisor.Server{URL: c.server(), TLS: strings.HasPrefix(c.url, "tls:"), CAFile: opts.CAFile, CapabilityFile: capability}
	}}
	if opts.Away == nil {
		opts.Away = func(error) {}
	}
	reach := &reach{tell: opts.Away}
	of.dial = reach.follow(c.dialRole)
	v, err := of.make(ctx, s, opts)
	if err != nil {
		return err
	}
	v.lane.told = reach.is
	defer func() {
		v.cancel()
		v.wg.Wait()
	}()
	limited, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	if err := v.lane.begin(ctx, limited); err != nil {
		return fmt.Errorf("serve supervisor of space %q: %w", s, err)
	}
	ready(v.status().Instance)
	<-v.lane.done
	return nil
}
