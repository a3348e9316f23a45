package cotal

import (
	"context"
	"os"
	"time"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/buildinfo"
	"github.com/cotal-go/cotal/wire"
)

// Status is a live answer of a node about itself.
type Status struct {
	V          int           `json:"v"` // version of this shape, 1
	Version    string        `json:"version"`
	PID        int           `json:"pid"`
	Started    time.Time     `json:"started"`
	URL        string        `json:"url"`
	StateDir   string        `json:"stateDir"`
	Mode       string        `json:"mode"`       // static or open
	Durability string        `json:"durability"` // window or strict
	Broker     broker.Stats  `json:"broker"`
	Spaces     []SpaceStatus `json:"spaces"`
}

// SpaceStatus is the part of one space in [Status].
type SpaceStatus struct {
	Name     string    `json:"name"`
	Mode     string    `json:"mode"`     // open; credentials: whoever holds a credential file; people: who signs in
	Delivery string    `json:"delivery"` // starting, serving, backoff, stopped; elsewhere: other processes serve it; degraded: served, but nothing can be stored
	Since    time.Time `json:"since"`
	// Authority is what answers supervisors about the grants of agents, in the words of Delivery; empty in an open space.
	Authority string `json:"authority,omitempty"`
	// Supervisor is what runs agents; nil where nothing does.
	Supervisor *SupervisorStatus `json:"supervisor,omitempty"`
	Error      string            `json:"error,omitempty"` // why it is not serving, or what keeps its credential from being renewed
	// People is what signs people in; nil in a space of credential files.
	People *PeopleStatus `json:"people,omitempty"`
}

// Degraded is the state of a space that is served while the broker cannot store for it, because its disk is full or
// failing. The node heals it once the disk takes data again.
const Degraded = "degraded"

// Healthy reports whether every space serves and stores.
func (s Status) Healthy() bool {
	for _, sp := range s.Spaces {
		if !served(sp.Delivery) || sp.Authority != "" && !served(sp.Authority) || sp.Supervisor != nil && !served(sp.Supervisor.State) || sp.People != nil && !sp.People.healthy() {
			return false
		}
	}
	return len(s.Broker.Impaired) == 0
}

func served(state string) bool { return state == laneServing || state == laneElsewhere }

// Status asks the node about itself. Errors: [ErrNotReady] while it does not run.
func (n *Node) Status(ctx context.Context) (Status, error) {
	st, err := n.status()
	if err == nil && len(st.Broker.Impaired) > 0 {
		n.degrade(ctx, &st)
	}
	return st, err
}

// degrade says of every space that cannot store since when and why.
func (n *Node) degrade(ctx context.Context, st *Status) {
	r := n.running()
	if r == nil {
		return
	}
	for i := range st.Spaces {
		sp := &st.Spaces[i]
		account := ""
		if r.mint != nil {
			if rec, err := r.mint.Account(ctx, wire.Space(sp.Name)); err == nil {
				account = rec.Public
			}
		}
		for _, im := range st.Broker.Impaired {
			// An account that cannot be told may be that of any space.
			if account == "" || im.Account == "" || im.Account == account {
				sp.Delivery, sp.Since, sp.Error = Degraded, im.Since, "cannot store since "+im.Since.Format(time.RFC3339)+": "+im.Reason
				break
			}
		}
	}
}

func (n *Node) status() (Status, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		return Status{}, ErrNotReady
	}
	b, err := n.srv.Stats()
	if err != nil {
		return Status{}, err
	}
	st := Status{
		V: 1, Version: buildinfo.Version(), PID: os.Getpid(), Started: n.started, URL: n.srv.ClientURL(),
		StateDir: n.opts.StateDir, Mode: "static", Durability: "window", Broker: b, Spaces: []SpaceStatus{},
	}
	if n.opts.Open {
		st.Mode = "open"
	}
	if n.opts.Strict {
		st.Durability = "strict"
	}
	for _, name := range sortedNames(n.lanes) {
		state, since, err := n.lanes[wire.Space(name)].status()
		sp := SpaceStatus{Name: name, Mode: "credentials", Delivery: state, Since: since}
		if n.opts.Open {
			sp.Mode = "open"
		}
		if err != nil {
			sp.Error = err.Error()
		}
		if d := n.desks[wire.Space(name)]; d != nil {
			var derr error
			if sp.Authority, _, derr = d.status(); derr != nil && sp.Error == "" {
				sp.Error = "authority: " + derr.Error()
			}
		}
		if v := n.agents[wire.Space(name)]; v != nil {
			st := v.status()
			sp.Supervisor = &st
		}
		if g := n.gates[wire.Space(name)]; g != nil {
			people := g.status()
			sp.Mode, sp.People = "people", &people
		}
		st.Spaces = append(st.Spaces, sp)
	}
	return st, nil
}
