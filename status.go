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
	Delivery string    `json:"delivery"` // starting, serving, backoff, stopped
	Since    time.Time `json:"since"`
	Error    string    `json:"error,omitempty"` // why it is not serving
}

// Healthy reports whether every space serves.
func (s Status) Healthy() bool {
	for _, sp := range s.Spaces {
		if sp.Delivery != laneServing {
			return false
		}
	}
	return true
}

// Status asks the node about itself. Errors: [ErrNotReady] while it does not run.
func (n *Node) Status(_ context.Context) (Status, error) {
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
		sp := SpaceStatus{Name: name, Delivery: state, Since: since}
		if err != nil {
			sp.Error = err.Error()
		}
		st.Spaces = append(st.Spaces, sp)
	}
	return st, nil
}
