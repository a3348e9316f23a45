package target

import (
	"context"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// agentEnded is the refusal of the name of an agent whose grant is over: not-found. The grant does not say whether the agent was stopped,
// ended by itself or was revoked.
type agentEnded struct {
	life wire.Lifecycle
	is   string // ended, or being ended
}

func overAgent(g trust.Grant) *agentEnded {
	e := &agentEnded{life: g.Lifecycle(), is: "has ended"}
	if g.State == trust.GrantRetiring {
		e.is = "is being ended"
	}
	return e
}

func (e *agentEnded) Error() string { return e.Unwrap().Error() }

func (e *agentEnded) Unwrap() error { return e.because("") }

func (e *agentEnded) because(reason string) error {
	if reason != "" {
		reason = ": " + reason
	}
	return wire.Errorf(wire.CodeNotFound, "agent %q %s%s", e.life.Principal, e.is, reason)
}

// explain adds what its supervisor says, when that answers: why the agent ended, and what begins it anew.
func (e *agentEnded) explain(ctx context.Context, m *manager.Client) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	census, err := m.Census(ctx, wire.AgentsRequest{Name: e.life.Principal.String(), Ended: true})
	if err != nil {
		return command.Hint(e, "who is there: cotal roster --all")
	}
	for _, a := range census.Agents() {
		if a.UID == e.life.UID {
			return command.Hint(e.because(a.Reason), Anew(ctx, m, a))
		}
	}
	return command.Hint(e, "who is there: cotal roster --all")
}

// Anew is the hint how an agent whose life is over is begun again: by its agent file, where a supervisor has that, else by what it was
// started with, which nobody kept.
func Anew(ctx context.Context, m *manager.Client, a wire.AgentStatus) string {
	name := a.Name
	if p, err := wire.ParsePrincipal(a.Principal); err == nil {
		name = p.Actor
	}
	if a.Persona != "" && hasPersona(ctx, m, a.Persona) {
		line := "cotal spawn " + command.Quote(a.Persona)
		if a.Persona != name {
			line += " --name " + command.Quote(name)
		}
		return "begin it anew, as its agent file says: " + line
	}
	return "begin it anew with what it was started with before: cotal spawn --name " + command.Quote(name) + " …"
}

// hasPersona reports whether a supervisor has an agent file of that name which can be used.
func hasPersona(ctx context.Context, m *manager.Client, name string) bool {
	replies, err := m.Personas(ctx, name)
	if err != nil {
		return false
	}
	for _, r := range replies {
		for _, p := range r.Personas {
			if p.Name == name && p.Invalid == "" {
				return true
			}
		}
	}
	return false
}
