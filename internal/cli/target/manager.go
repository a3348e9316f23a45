package target

import (
	"context"
	"errors"
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/wire"
)

// EnterManager opens the target of a command and joins its space to ask supervisors for agents; leave ends both. In a space of
// credential files a person asks as an operator, where people sign in for what is theirs, and an agent for what it started.
func EnterManager(ctx context.Context, e *command.Env) (t *Target, m *manager.Client, leave func(), err error) {
	t, ep, leave, err := Enter(ctx, e, Managing)
	if err != nil {
		return nil, nil, nil, err
	}
	return t, manager.New(ep), leave, nil
}

// startSupervisor is the hint of a space without a supervisor.
func (t *Target) startSupervisor() string {
	if t.Config.Open {
		return "an open mesh runs no agents: they need credentials, which one with authentication has, begun in a folder of its own: cotal up"
	}
	if t.Foreign() || !t.trusted() {
		return "who runs the mesh can start one: cotal up"
	}
	return "the mesh starts one: cotal up --detach; what runs: cotal status"
}

// CompleteAgents proposes the agents that a person may know of, or nothing when no supervisor answers at once.
func CompleteAgents(ctx context.Context, e *command.Env) []string {
	var out []string
	opened(ctx, e, func(ctx context.Context, t *Target) {
		ep, err := t.Endpoint(ctx, Managing)
		if err != nil {
			return
		}
		defer func() { _ = ep.Close() }()
		census, err := manager.New(ep).Census(ctx, wire.AgentsRequest{})
		if err != nil {
			return
		}
		for _, a := range census.Agents() {
			out = append(out, AgentName(a))
		}
	})
	return out
}

// CompletePersonas proposes the agent files of the supervisors' hosts, or nothing when none answers at once.
func CompletePersonas(ctx context.Context, e *command.Env) []string {
	var out []string
	opened(ctx, e, func(ctx context.Context, t *Target) {
		ep, err := t.Endpoint(ctx, Managing)
		if err != nil {
			return
		}
		defer func() { _ = ep.Close() }()
		replies, err := manager.New(ep).Personas(ctx, "")
		if err != nil {
			return
		}
		for _, r := range replies {
			for _, p := range r.Personas {
				if p.Invalid == "" {
					out = append(out, p.Name)
				}
			}
		}
	})
	return out
}

// AgentName is how commands name an agent: by its actor where nobody else can be meant, else by its principal.
func AgentName(a wire.AgentStatus) string {
	if p, err := wire.ParsePrincipal(a.Principal); err == nil && p.Owner == wire.LocalOwner {
		return p.Actor
	}
	return a.Principal
}

// UnknownAgent adds to an error about an agent that is not there which there are, and those whose names are near.
func UnknownAgent(ctx context.Context, m *manager.Client, name string, err error) error {
	hints := []string{"which there are: cotal ps, and with those that have ended: cotal ps --all"}
	if meant := command.Meant(name, agentNames(ctx, m)); meant != "" {
		hints = append(hints, meant)
	}
	return command.Hint(err, hints...)
}

// NoSupervisor adds to an error of [manager.Census.Missing], or another one, the supervisor or host that may have been meant.
func NoSupervisor(err error, on string) error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		names, _ := e.Details[manager.DetailSupervisors].([]string)
		if meant := command.Meant(on, names); meant != "" {
			return command.Hint(err, meant)
		}
	}
	return err
}

// agentNames are those of the agents that supervisors tell of.
func agentNames(ctx context.Context, m *manager.Client) []string {
	census, err := m.Census(ctx, wire.AgentsRequest{})
	if err != nil {
		return nil
	}
	var out []string
	for _, a := range census.Agents() {
		out = append(out, AgentName(a))
	}
	return out
}

// Named refuses the empty name of an agent, with or without its @, which could only be a mistake: a variable that was not set.
func Named(names ...string) error {
	for _, n := range names {
		if strings.TrimPrefix(n, "@") == "" {
			return command.Usagef("the name of the agent is empty")
		}
	}
	return nil
}
