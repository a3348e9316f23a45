package persona

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/supervisor/internal/yamldoc"
	"github.com/cotal-go/cotal/wire"
)

// Bounds of an agent file.
const (
	// MaxFrontMatter bounds the keys, and MaxFile the file, in bytes. The text is bounded by wire.MaxPersonaText.
	MaxFrontMatter = 16 << 10
	MaxFile        = MaxFrontMatter + wire.MaxPersonaText + 16
	// MaxFiles is how many files of a folder are looked at.
	MaxFiles = 512

	maxName     = wire.MaxToken
	maxWord     = 120 // characters of model, variant, an entry of tags and skills
	maxPath     = 4096
	maxValue    = 4096
	maxEntries  = 64
	maxChannels = 128
)

// DefaultChannel is what an agent hears whose file says nothing about it.
const DefaultChannel = "general"

// When an agent is started again after it ended.
const (
	RestartNever     = "never"
	RestartOnFailure = "on-failure"
	RestartAlways    = "always"
)

// CapabilitySpawn lets an agent start others. Besides it a capability is role:<role>, a role that the agent may hand on.
const CapabilitySpawn = "spawn"

// ConnectorCommand is the connector that runs the program of Command.
const ConnectorCommand = "command"

// Persona is one agent file. [Parse] fills in the defaults of the three channel lists; everything else that the file leaves out is
// empty.
type Persona struct {
	// Name is that of the file, without .md: [A-Za-z0-9_-]{1,64}.
	Name string
	// Role is the role that the agent answers for, Description at most 200 characters of what it is for, Tags free words.
	Role        string
	Description string
	Tags        []string
	// Agent is the connector, such as claude or script; empty takes the default of whoever starts it. Model and Variant are what that
	// connector is told.
	Agent, Model, Variant string
	// Cwd is the folder it works in, relative to the project; empty is the project.
	Cwd string
	// Env is added to its environment. It holds no secrets.
	Env map[string]string
	// Subscribe are the channels that it hears from the start, within AllowSubscribe, the patterns that it may read. AllowPublish
	// are the patterns that it may post to.
	Subscribe, AllowSubscribe, AllowPublish []string
	// Capabilities are spawn and role:<role>.
	Capabilities []string
	// Skills are names for the connector, Meta is for whoever asks; neither means anything here.
	Skills []string
	Meta   map[string]string
	// Command is the program of connector command with its arguments; set exactly when Agent is command.
	Command []string
	// Restart is never, on-failure or always; empty takes the default.
	Restart string
	// Owner is the principal that defined it through the mesh; empty for files of the host.
	Owner string
	// Text is what the agent is told, without blank lines around it.
	Text string
}

// Wire is the persona as peers see it, with its text if text says so.
func (p Persona) Wire(text bool) wire.Persona {
	out := wire.Persona{Name: p.Name, Role: p.Role, Description: p.Description, Connector: p.Agent, Model: p.Model, Owner: p.Owner}
	if text {
		out.Text = p.Text
	}
	return out
}

// Equal reports whether two files say the same.
func (p Persona) Equal(o Persona) bool {
	lists := func(p Persona) [][]string {
		return [][]string{p.Tags, p.Subscribe, p.AllowSubscribe, p.AllowPublish, p.Capabilities, p.Skills, p.Command}
	}
	words := func(p Persona) []string {
		return []string{p.Name, p.Role, p.Description, p.Agent, p.Model, p.Variant, p.Cwd, p.Restart, p.Owner, p.Text}
	}
	return slices.Equal(words(p), words(o)) && slices.EqualFunc(lists(p), lists(o), slices.Equal[[]string]) &&
		maps.Equal(p.Env, o.Env) && maps.Equal(p.Meta, o.Meta)
}

// Actor is the name of an agent that is made of a persona and not given one: actors have no dashes.
func (p Persona) Actor() string { return ActorName(p.Name) }

// ActorName is the actor that the name of a persona stands for: dashes become underscores.
func ActorName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c == '-' {
			b[i] = '_'
		}
	}
	return string(b)
}

// ValidateName reports whether s can name a persona. README, in any case, cannot: that file of a folder is for people. Its error has code
// bad-request.
func ValidateName(s string) error {
	if readme(s) {
		return wire.Errorf(wire.CodeBadRequest, "check persona %q: a file of that name is for people, and no agent file; take another", s)
	}
	if !nameOK(s) {
		return wire.Errorf(wire.CodeBadRequest, "check persona %q: not [A-Za-z0-9_-]{1,%d}", yamldoc.Clip(s), maxName)
	}
	return nil
}

func readme(name string) bool { return strings.EqualFold(name, "README") }

func nameOK(s string) bool { return wire.ValidateRole(s) == nil }

// Problem is one thing that is wrong with an agent file: where (File, Line, Column), What, and the Fix.
type Problem = yamldoc.Problem

// ProblemsOf returns everything that an error of this package says is wrong with a file; nil for other errors.
func ProblemsOf(err error) []Problem {
	if all, ok := errors.AsType[yamldoc.Problems](err); ok {
		return all
	}
	return nil
}
