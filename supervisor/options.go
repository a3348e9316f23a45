package supervisor

import (
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

// Personas are the agent files of the host.
type Personas interface {
	// Load returns one. Errors: not-found; bad-request for one that is wrong.
	Load(name string) (persona.Persona, error)
	// Catalog returns them as peers see them; with a name, that one with its text, if it is there.
	Catalog(name string) ([]wire.Persona, error)
	// Define makes or changes one for a peer.
	Define(by persona.Definer, req wire.PersonaRequest) (p persona.Persona, created bool, err error)
}

var _ Personas = (*persona.Store)(nil)

// Server is where the agents find the broker.
type Server struct {
	// URL is its address, nats://host:port or tls://host:port.
	URL string
	// TLS, CAFile and TLSName are as in the launch file.
	TLS             bool
	CAFile, TLSName string
	// CapabilityFile leads to the token exchange, in a space of people.
	CapabilityFile string
}

// DefaultMaxAgents is how many agents that have not ended a keeper has at most when nobody says otherwise.
const DefaultMaxAgents = 64

// Options shapes a [Keeper]. Dir, Program, Seats and Server are required; the rest has defaults.
type Options struct {
	// Dir is the folder of the state, absolute. It is made, of mode 0700.
	Dir string
	// Program is the absolute path of cotal, for the tools and hooks of agents.
	Program string
	// Seats starts the processes.
	Seats Seats
	// Server returns where agents find the broker. It is asked at each start and once a second, so that agents find one that moved.
	Server func() Server
	// Personas are the agent files; nil for none.
	Personas Personas
	// Connectors start the hosts. Default connector.Builtin.
	Connectors []connector.Connector
	// Project is the folder that agents work in when nobody says otherwise, and that relative ones are below. An agent that works in it is
	// started again where it is then: the folder may be moved. Default the folder of the process, of which that does not hold.
	Project string
	// Environ is the environment, NAME=value each, of which agents get an allow-listed part; PassEnv are more names to pass on.
	Environ []string
	PassEnv []string
	// Host is what this machine is called. Default its host name.
	Host string

	// MaxAgents, MaxChildren and MaxDepth bound the agents that have not ended: all of them, those of one parent, and how deep agents
	// start agents. Default [DefaultMaxAgents], 16 and 4.
	MaxAgents, MaxChildren, MaxDepth int
	// MaxStarts bounds the starts under way; further ones wait. Default twice the processors, at least 4.
	MaxStarts int
	// MinLife is how long an agent runs before anybody but itself and operators may stop it without force. Default 5 s; negative for none.
	MinLife time.Duration
	// Linger is how long an agent that ended by itself keeps its name and may be started again, unless somebody wants the name, whoever
	// started it is retired, or more than four times MaxAgents, or MaxChildren of one parent, do so: those that ended first go sooner.
	// Default 10 minutes.
	Linger time.Duration
	// KeepEnded is for how long an agent that is gone is told about, and MaxEnded how many of them. Default an hour and 256.
	KeepEnded time.Duration
	MaxEnded  int
	// Logger may be nil.
	Logger *slog.Logger
}

// withDefaults checks and completes the options. Errors have code bad-request.
func (o *Options) withDefaults() (Options, error) {
	if o == nil {
		return Options{}, wire.Errorf(wire.CodeBadRequest, "options: Dir, Program, Seats and Server are required")
	}
	opts := *o
	for _, r := range []struct {
		name    string
		missing bool
	}{{"Dir", opts.Dir == ""}, {"Program", opts.Program == ""}, {"Seats", opts.Seats == nil}, {"Server", opts.Server == nil}} {
		if r.missing {
			return Options{}, wire.Errorf(wire.CodeBadRequest, "options: %s is required", r.name)
		}
	}
	if opts.Connectors == nil {
		opts.Connectors = connector.Builtin()
	}
	if opts.Host == "" {
		opts.Host, _ = os.Hostname()
		setDefault(&opts.Host, "unknown")
	}
	if opts.Project == "" {
		var err error
		if opts.Project, err = os.Getwd(); err != nil {
			return Options{}, wire.Errorf(wire.CodeBadRequest, "options: find the working folder: %v", err)
		}
	}
	setDefault(&opts.MaxAgents, DefaultMaxAgents)
	setDefault(&opts.MaxChildren, 16)
	setDefault(&opts.MaxDepth, 4)
	setDefault(&opts.MaxStarts, max(4, 2*runtime.GOMAXPROCS(0)))
	setDefault(&opts.MinLife, 5*time.Second)
	setDefault(&opts.Linger, 10*time.Minute)
	setDefault(&opts.KeepEnded, time.Hour)
	setDefault(&opts.MaxEnded, 256)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.Logger = opts.Logger.With(logkey.Component, "supervisor")
	return opts, nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
