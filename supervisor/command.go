package supervisor

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

// reach are the modes in which an agent that is named may be reached.
var (
	reach    = []wire.Mode{wire.ModeNone, wire.ModeOwner, wire.ModeAny}
	withSelf = []wire.Mode{wire.ModeNone, wire.ModeSelf, wire.ModeOwner, wire.ModeAny}
	operator = []wire.Mode{wire.ModeAny}
)

// register adds every command and check.
func (s *Service) register() {
	k := s.k
	control.Handle(s.serve, control.Command{
		Name: wire.CommandSpawn, Effect: control.Write, Modes: reach, Description: "Accepts an agent and starts it. The same request id again is answered with what the first one made.",
	}, func(ctx context.Context, req *control.Request, in wire.SpawnRequest) (wire.SpawnReply, error) {
		return k.Spawn(ctx, callerOf(req), in)
	})
	control.Handle(s.serve, control.Command{
		Name: wire.CommandAgents, Effect: control.Read, Modes: reach, Description: "The agents of this supervisor that the caller may know of, and the supervisors that it knows of.",
	}, func(ctx context.Context, req *control.Request, in *wire.AgentsRequest) (wire.AgentsReply, error) {
		if req.Mode == wire.ModeAny {
			s.releasePeers(ctx)
		}
		return k.Agents(callerOf(req), value(in)), nil
	})
	control.Handle(s.serve, control.Command{
		Name: wire.CommandAwait, Effect: control.Read, Modes: reach, Description: "Waits until an agent has left one of the states.",
	}, func(ctx context.Context, req *control.Request, in wire.AwaitRequest) (wire.AgentStatus, error) {
		return k.Await(ctx, callerOf(req), in, req.Deadline)
	})
	control.Handle(s.serve, control.Command{
		Name: wire.CommandStop, Effect: control.Write, Modes: withSelf, Description: "Ends an agent with proof and retires its grant.",
	}, func(ctx context.Context, req *control.Request, in *wire.StopRequest) (wire.StopReply, error) {
		return k.Stop(ctx, callerOf(req), value(in))
	})
	control.Handle(s.serve, control.Command{
		Name: wire.CommandRestart, Effect: control.Write, Modes: reach, Description: "Starts an agent that has ended, or ends one and starts it again, in the same life.",
	}, func(ctx context.Context, req *control.Request, in wire.RestartRequest) (wire.AgentStatus, error) {
		return k.Restart(ctx, callerOf(req), in)
	})
	control.Handle(s.serve, control.Command{
		Name: wire.CommandDrain, Effect: control.Write, Modes: operator, Description: "Takes no agents for a while, so that all can be ended, and answers with those that have not ended.",
	}, func(ctx context.Context, req *control.Request, in wire.DrainRequest) (wire.AgentsReply, error) {
		s.releasePeers(ctx)
		return k.Drain(ctx, callerOf(req), in)
	})
	s.registerTerminal()
	s.registerPersonas()
	s.serve.Check("agents", k.checkAgents)
	s.serve.Check("state", k.checkState)
	s.serve.Check("roster", k.checkRoster)
	s.serve.Check("authority", k.checkAuthority)
}

// releasePeers looks after supervisors that are gone: somebody may have just revoked what their agents hold.
func (s *Service) releasePeers(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	s.k.releasePeers(limited)
}

func (s *Service) registerTerminal() {
	k := s.k
	control.Handle(s.serve, control.Command{
		Name: wire.CommandAttach, Effect: control.Write, Modes: reach, Description: "Offers a session at the terminal of an agent.",
	}, func(ctx context.Context, req *control.Request, in wire.AttachRequest) (wire.AttachReply, error) {
		return k.Attach(ctx, callerOf(req), in)
	})
	control.Handle(s.serve, control.Command{
		Name: wire.CommandInput, Effect: control.Write, Modes: operator, Description: "Types a line into the terminal of an agent.",
	}, func(ctx context.Context, req *control.Request, in wire.InputRequest) (wire.InputReply, error) {
		return k.Input(ctx, callerOf(req), in)
	})
}

func (s *Service) registerPersonas() {
	k := s.k
	control.Handle(s.serve, control.Command{
		Name: wire.CommandPersonas, Effect: control.Read, Modes: reach, Description: "The agent files of this host; with a name, that one with its text and, with mode owner or any, what it allows.",
	}, func(_ context.Context, req *control.Request, in *wire.PersonasRequest) (wire.PersonasReply, error) {
		out := wire.PersonasReply{Instance: k.instance, Host: k.opts.Host, Personas: []wire.Persona{}}
		if k.opts.Personas == nil {
			return out, nil
		}
		list, err := k.opts.Personas.Catalog(value(in).Name)
		for _, p := range list {
			if req.Mode == wire.ModeNone { // a peer does not learn from files which channels there are
				p.Capabilities, p.Subscribe, p.AllowSubscribe, p.AllowPublish = nil, nil, nil, nil
			}
			out.Personas = append(out.Personas, p)
		}
		return out, err
	})
	control.Handle(s.serve, control.Command{
		Name: wire.CommandPersona, Effect: control.Write, Modes: reach, Description: "Defines an agent file, or changes text and model of one that the caller defined.",
	}, func(ctx context.Context, req *control.Request, in wire.PersonaRequest) (wire.PersonaReply, error) {
		return k.definePersona(ctx, callerOf(req), in)
	})
}

// callerOf is who asks, as the broker vouches for it.
func callerOf(req *control.Request) Caller {
	return Caller{Life: req.Caller, Mode: req.Mode, Owner: req.Target.Owner}
}

// value is *v, or nothing when the caller sent no arguments.
func value[T any](v *T) T {
	var zero T
	if v == nil {
		return zero
	}
	return *v
}

// answerRoom is how long before a request's deadline its answer leaves at the latest.
const answerRoom = 250 * time.Millisecond
