// Package persona is `cotal persona`: the agent files of the project, read and written on this machine.
//
// Nothing here speaks with the mesh. What an agent file says takes effect at the next spawn.
package persona

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

const groupLong = `
An agent file says who an agent is: .cotal/agents/<name>.md holds a few keys between two lines --- and below them the text that the
agent is told. cotal spawn <name> starts one. These commands list, show, make, change and remove the files of the project; they ask
nobody, and what they change takes effect at the next spawn. The shell of an agent makes, changes and removes none: the tool
cotal_persona defines one as that agent.

The keys, all optional:

  role            the role that it answers for
  description     what it is for, at most 200 characters
  tags            words about it
  agent           what runs it: claude, codex, opencode, gemini, script (no model) or command
  model, variant  what that is told
  command         of agent: command, the program and its arguments as a list
  cwd             folder that it works in, below the project
  env             names and values added to its environment; no secrets
  subscribe       channels that it hears from the start (default: general)
  allowSubscribe  channels that it may read (default: those)
  allowPublish    channels that it may post to (default: none)
  capabilities    spawn, to start others; role:<role>, to hand that role on
  skills          names of skills, for what runs it
  restart         never, on-failure (default) or always
  meta            names and values for whoever asks
  owner           who defined it through the mesh; set by the supervisor

A channel is a name such as team.backend; "*" stands for one part and a last ">" for all that follow.
`

// New adds `cotal persona`.
func New(t *command.Tree) *cobra.Command {
	c := t.Group("persona", "List, show, make and change agent files", groupLong, newList(t), newShow(t), newNew(t), newEdit(t), newRemove(t))
	c.Aliases = []string{"personas"}
	return c
}

// store is the folder of agent files of the project at or above the working folder.
//
// Errors: not-found outside a project.
func store(e *command.Env) (*persona.Store, error) {
	cfg, err := config.Named(config.Input{Getenv: e.Getenv, Dir: e.Dir})
	if err != nil {
		return nil, err
	}
	p, err := config.FindProject(e.Dir, cfg.Machine)
	if err != nil {
		return nil, err
	}
	if p == nil {
		err := wire.Errorf(wire.CodeNotFound, "no project at or above %q, and agent files belong to one", e.Dir)
		return nil, command.Hint(err, "run this inside a project, or start one here: cotal up --detach")
	}
	return persona.Open(filepath.Join(p.Dir, persona.Folder)), nil
}

// own refuses the shell of an agent to write files, which would be the host's whoever wrote them. Verb is what was to be done.
func own(e *command.Env, verb, name string) error {
	if e.Getenv(launch.Env) == "" {
		return nil
	}
	err := wire.Errorf(wire.CodePermissionDenied, "%s agent file %q: this is the shell of an agent, and a file that is written here would be the host's; nothing was done", verb, name)
	err.Outcome = wire.OutcomeNotExecuted
	return command.Hint(err, "an agent that may start others defines one, or changes its own, with its tool cotal_persona",
		"a person does it in a shell of their own, without "+launch.Env)
}

// names proposes the names of files.
func names(_ context.Context, e *command.Env, args []string) []string {
	if len(args) > 0 {
		return nil
	}
	s, err := store(e)
	if err != nil {
		return nil
	}
	all, err := s.List()
	if err != nil {
		return nil
	}
	var out []string
	for _, entry := range all {
		about := entry.Persona.Description
		if entry.Err != nil {
			about = "not valid"
		}
		out = append(out, entry.Name+"\t"+about)
	}
	return out
}

// unknown adds to an error about a file that is not there the names that are near or, when none is, hints.
func unknown(s *persona.Store, name string, err error, hints ...string) error {
	if wire.CodeOf(err) != wire.CodeNotFound {
		return err
	}
	all, lerr := s.Names()
	if lerr != nil {
		return err
	}
	if meant := command.Meant(name, all); meant != "" {
		return command.Hint(err, meant)
	}
	return command.Hint(err, append([]string{"which there are: cotal persona list"}, hints...)...)
}

// makeIt is the hint of who looks for a file to be there.
func makeIt(name string) string {
	return "make it: cotal persona new " + command.Quote(name) + " --prompt <text>"
}

// Line is one agent file.
type Line struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// DefinedBy is "host" for a file that somebody wrote here, else the principal that defined it through the mesh.
	DefinedBy      string            `json:"definedBy,omitempty"`
	Role           string            `json:"role,omitempty"`
	Description    string            `json:"description,omitempty"`
	Tags           []string          `json:"tags,omitempty"`
	Agent          string            `json:"agent,omitempty"`
	Model          string            `json:"model,omitempty"`
	Variant        string            `json:"variant,omitempty"`
	Command        []string          `json:"command,omitempty"`
	Cwd            string            `json:"cwd,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Subscribe      []string          `json:"subscribe"`
	AllowSubscribe []string          `json:"allowSubscribe"`
	AllowPublish   []string          `json:"allowPublish"`
	Capabilities   []string          `json:"capabilities"`
	Skills         []string          `json:"skills,omitempty"`
	Restart        string            `json:"restart,omitempty"`
	Meta           map[string]string `json:"meta,omitempty"`
	Owner          string            `json:"owner,omitempty"`
	// Invalid is what is wrong with the file, and Problems each of it with its place; then nothing but Name and Path is known.
	Invalid  string            `json:"invalid,omitempty"`
	Problems []persona.Problem `json:"problems,omitempty"`
}

const byHost = "host"

func lineOf(s *persona.Store, e persona.Entry) Line {
	p := e.Persona
	l := Line{
		Name: e.Name, Path: s.Path(e.Name), Role: p.Role, Description: p.Description, Tags: p.Tags, Agent: p.Agent, Model: p.Model, Variant: p.Variant,
		Command: p.Command, Cwd: p.Cwd, Env: p.Env, Subscribe: orEmpty(p.Subscribe), AllowSubscribe: orEmpty(p.AllowSubscribe),
		AllowPublish: orEmpty(p.AllowPublish), Capabilities: orEmpty(p.Capabilities), Skills: p.Skills, Restart: p.Restart, Meta: p.Meta, Owner: p.Owner,
	}
	l.DefinedBy = cmp.Or(p.Owner, byHost)
	if e.Err != nil {
		l.DefinedBy = ""
		l.Invalid, l.Problems = e.Err.Error(), persona.ProblemsOf(e.Err)
	}
	return l
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
