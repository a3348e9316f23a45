package team

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/supervisor/manifest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// How often and how long a supervisor is waited for that starts with the mesh.
const (
	beginPause = 250 * time.Millisecond
	beginWait  = 20 * time.Second
)

// space is what a command at a deploy has joined; either may be nil where the deploy has no use for it.
type space struct {
	channels *endpoint.Endpoint // to change settings
	agents   *endpoint.Endpoint // to ask supervisors
	manager  *manager.Client
}

func (s *space) leave() {
	for _, ep := range []*endpoint.Endpoint{s.channels, s.agents} {
		if ep != nil {
			_ = ep.Close() // what a command does is confirmed before it ends
		}
	}
}

// join joins the space for what the deploy has.
func (w *work) join(ctx context.Context, channels, agents bool) (*space, error) {
	s := &space{}
	var err error
	if channels {
		if s.channels, err = w.target.Endpoint(ctx, target.Configuring); err != nil {
			return nil, err
		}
	}
	if agents {
		if s.agents, err = w.target.Endpoint(ctx, target.Managing); err != nil {
			s.leave()
			return nil, err
		}
		s.manager = manager.New(s.agents)
	}
	return s, nil
}

// look finds out what there is. All supervisors must answer: what a silent one keeps may be of the deploy.
func (w *work) look(ctx context.Context, s *space, begun bool) (manifest.Current, error) {
	var now manifest.Current
	if s.channels != nil {
		list, err := s.channels.Channels(ctx)
		if err != nil {
			return now, w.target.Explain(err)
		}
		now.Channels, now.Account = list.Channels, s.channels.Account()
	}
	if s.manager == nil {
		return now, nil
	}
	census, err := census(ctx, s.manager, begun)
	if err == nil {
		err = census.Complete("what of the deploy is there")
	}
	if err != nil {
		return now, w.target.Explain(err)
	}
	now.Agents = census.Agents()
	return now, nil
}

// held are the names that credential files, persons and the space itself hold. They are known from the records of the project alone, and
// in a space of people agents are named below the person who starts them.
func (w *work) held(ctx context.Context) (map[string]manifest.Holder, error) {
	if _, err := w.target.Store(); err != nil || w.target.Foreign() {
		return nil, nil
	}
	if people, err := w.target.People(ctx); err != nil || people != nil {
		return nil, err
	}
	node, err := w.target.Node(ctx)
	if err != nil {
		return nil, err
	}
	all, err := node.Authority().List(ctx, w.target.Space())
	if err != nil {
		return nil, w.target.Explain(err)
	}
	out := map[string]manifest.Holder{trust.Supervisor.Principal().Actor: {Why: "the name is that of the supervisors of the space"}}
	for _, g := range all {
		h := manifest.Holder{Free: auth.RevokeCommand(g)}
		switch {
		case g.Owner != wire.LocalOwner, g.State == trust.GrantRetired:
			continue
		case g.Kind == trust.KindStatic:
			h.Why = "the name is granted as static, to who has its credential file"
		case g.Kind == trust.KindInteractive:
			h.Why = "the name is granted as interactive, to a person"
		default: // of agents, which the supervisors know
			continue
		}
		out[g.Actor] = h
	}
	return out, nil
}

// census asks the supervisors. One that began with the mesh may need a moment until it answers.
func census(ctx context.Context, m *manager.Client, begun bool) (manager.Census, error) {
	within, cancel := context.WithTimeout(ctx, beginWait)
	defer cancel()
	for {
		c, err := m.Census(ctx, wire.AgentsRequest{Ended: true})
		if !begun || !errors.Is(err, wire.ErrUnavailable) {
			return c, err
		}
		pause := time.NewTimer(beginPause)
		select {
		case <-pause.C:
		case <-within.Done():
			pause.Stop()
			return c, err
		}
	}
}

// persona is an agent file of the supervisors. What it allows is nil where they do not tell it, or do not agree: then it follows from which of
// them makes the agent.
//
// Errors: not-found; those of the mesh.
func (s *space) persona(ctx context.Context, name string) (wire.Persona, error) {
	replies, err := s.manager.Personas(ctx, name)
	if err != nil {
		return wire.Persona{}, err
	}
	var out *wire.Persona
	for _, r := range replies {
		for _, p := range r.Personas {
			switch {
			case p.Name != name || p.Invalid != "":
			case out == nil:
				out = &p
			case !slices.EqualFunc(allowed(*out), allowed(p), slices.Equal[[]string]):
				out.Capabilities, out.Subscribe, out.AllowSubscribe, out.AllowPublish = nil, nil, nil, nil
			}
		}
	}
	if out == nil {
		return wire.Persona{}, wire.Errorf(wire.CodeNotFound, "there is no agent file %q, here or at a supervisor", name)
	}
	return *out, nil
}

func allowed(p wire.Persona) [][]string {
	return [][]string{p.Capabilities, p.Subscribe, p.AllowSubscribe, p.AllowPublish}
}

// find is the agent of an entry of the ledger among those that there are.
func find(l *manifest.Ledger, e manifest.LedgerAgent, all []wire.AgentStatus) (wire.AgentStatus, bool) {
	i := slices.IndexFunc(all, func(a wire.AgentStatus) bool { return l.Made(e, a) })
	if i < 0 {
		return wire.AgentStatus{}, false
	}
	return all[i], true
}
