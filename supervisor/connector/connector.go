package connector

import (
	"context"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// Request is what an agent is to be started with.
type Request struct {
	Dir        string // folder of the agent's files: absolute, 0700, the agent's alone, the same at each start of it
	Program    string // absolute path of cotal, for tools and hooks
	LaunchFile string // absolute path of the launch file

	Name        string   // actor
	Role        string   // may be empty
	Model       string   // empty: the host's own default
	Variant     string   // empty: the host's own default. How hard the model thinks, in the host's words
	Prompt      string   // the first thing to do; empty for nothing
	PersonaText string   // added to the system prompt; may be empty
	Cwd         string   // working folder, absolute
	Command     []string // the program and its arguments, of connector command alone

	// LookPath finds a program. Default [exec.LookPath].
	LookPath func(string) (string, error)
	// Getenv reads the environment of the supervisor, by which the user's own settings of a host are found. Nil: nothing is set,
	// which hosts that need a home folder refuse.
	Getenv func(string) string
}

// File is one file of a launch.
type File struct {
	Path string      // absolute, below Request.Dir
	Data []byte      // of a plain file
	Mode fs.FileMode // default 0600
	// Link makes it a symbolic link to this absolute path instead: to something of the user's that the host must find in a home
	// of the agent's own, such as a login that is renewed in place.
	Link string
	// Keep leaves a file alone that is there: the host writes to it, and a later start must not undo that.
	Keep bool
}

// Launch is how the host is started.
type Launch struct {
	Argv []string          // Argv[0] is an absolute path
	Env  map[string]string // set for the agent; no secret
	// PassEnv are names whose values the agent gets from the supervisor's environment if they are set there, such as keys of
	// model providers.
	PassEnv []string
	Files   []File // for [Write]
	// Model is what the host was told to use; empty when that is left to the host.
	Model string
	// Wakes says that a line typed into the terminal is taken as a new task.
	Wakes bool
	// Joins says that the agent takes part in the space, so that it is ready when the roster shows it; else it is ready when
	// its process runs.
	Joins bool
	// Slow is how long a start may take before it is worth a word.
	Slow time.Duration
}

// Connector starts agents in one kind of host.
type Connector interface {
	// Name is what an agent file, a team file and cotal spawn --agent call it: [a-z]+.
	Name() string
	// Info says what the host can be given.
	Info() Info
	// Prepare decides how an agent is started. It makes nothing. The same request again, once the agent has run, continues its
	// conversation where Info says that the host can.
	//
	// Errors: bad-request for an operand that no host could take; unimplemented for an option that this one cannot;
	// not-found when its program is not installed, with how to install it; failed-precondition when the host's own settings are
	// in the way. The message ends with what to do instead.
	Prepare(ctx context.Context, r Request) (Launch, error)
}

// Info is what a host can be given.
type Info struct {
	Name    string // of the connector
	Title   string // of the host, such as Claude Code
	Program string // what must be installed; empty for none
	Install string // how to install it, one line
	Tried   string // version of the program that the tests run
	// Model says that a model can be chosen, Variants what Request.Variant can be; nil for nothing.
	Model    bool
	Variants []string
	Persona  bool // takes a persona
	Prompt   bool // takes a first task
	Tools    bool // has the tools of the space
	Hooks    bool // reports its turns, so that its presence is right and messages come at the next one
	Resumes  bool // continues its conversation when it is started again
	// Home is whose settings and login the host uses and what of it is the agent's own, one line.
	Home string
	// Approvals is who says yes to what the agent wants to do, one line.
	Approvals string
}

// Builtin returns the connectors, in the order in which help lists them. The first is the default.
func Builtin() []Connector {
	return []Connector{claude{}, codex{}, opencode{}, gemini{}, script{}, command{}}
}

// DetailConnectors is the detail of the error of [Find] that has the names of those that there are.
const DetailConnectors = "connectors"

// Find returns the connector of a name.
//
// Errors: not-found, which names those that there are.
func Find(all []Connector, name string) (Connector, error) {
	var names []string
	for _, c := range all {
		if c.Name() == name {
			return c, nil
		}
		names = append(names, c.Name())
	}
	e := wire.Errorf(wire.CodeNotFound, "find connector %q: there are %s", name, strings.Join(names, ", "))
	e.Details = map[string]any{DetailConnectors: names}
	return nil, e
}

// lookPath finds a program by the request's means.
func (r Request) lookPath(program string) (string, error) {
	if r.LookPath != nil {
		return r.LookPath(program)
	}
	return exec.LookPath(program)
}

// getenv reads a variable by the request's means.
func (r Request) getenv(name string) string {
	if r.Getenv == nil {
		return ""
	}
	return r.Getenv(name)
}

// hasVariant reports whether the host takes a variant.
func (i Info) hasVariant(v string) bool { return slices.Contains(i.Variants, v) }
