package persona

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

const newLong = `
Makes an agent file. The text that the agent is told is --prompt, or that of the file --from (- is standard input); with neither, at a
terminal, your editor opens, and without a save there is no file. A file --from that begins with a line --- is taken as a whole agent file, and the flags change it.

An agent that is made from a text alone hears the channel general and may post there. What else it may do is said in the file:
cotal persona edit. Which keys there are: cotal persona --help. A name that is taken is refused.
`

const newExample = `
  cotal persona new scout --prompt "You look things up and say where you found them." --model haiku
  cotal persona new planner --from planner.md --agent codex --role planner
`

// create makes a file.
type create struct {
	name, prompt, from               string
	role, description, agent, models string
	changed                          func(flag string) bool
}

func newNew(t *command.Tree) *cobra.Command {
	n := &create{}
	c := t.Add(command.Spec{
		Use: "new <persona> [flags]", Short: "Make an agent file", Long: newLong, Example: newExample, Target: command.TargetNone,
		Args: command.One("persona", &n.name),
	}, n)
	f := c.Flags()
	n.changed = f.Changed
	f.StringVar(&n.prompt, "prompt", "", "what the agent is told")
	f.StringVar(&n.from, "from", "", "file with what the agent is told, or with a whole agent file; - reads standard input")
	f.StringVar(&n.role, "role", "", "role that it answers for")
	f.StringVar(&n.description, "description", "", "what it is for, at most 200 characters")
	f.StringVar(&n.agent, "agent", "", "what runs it: claude, codex, opencode, gemini, script or command")
	f.StringVar(&n.models, "model", "", "model that it runs with")
	_ = c.RegisterFlagCompletionFunc("agent", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"claude", "codex", "opencode", "gemini", "script", "command"}, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// WriteResult is what `cotal persona new --json` and `cotal persona edit --json` print.
type WriteResult struct {
	command.V
	Line
	Changed bool `json:"changed"`
}

// Run makes the file.
func (n *create) Run(ctx context.Context, e *command.Env) error {
	if err := own(e, "make", n.name); err != nil {
		return err
	}
	s, err := store(e)
	if err != nil {
		return err
	}
	if err := n.check(e, s); err != nil {
		return err
	}
	p, err := n.persona(e)
	if err != nil {
		return view.Problems(err)
	}
	if n.changed("prompt") || n.from != "" {
		if err := s.Create(p); err != nil {
			return view.Problems(err)
		}
		return written(e, s, n.name, true)
	}
	p.Text = "You are " + n.name + "."
	d := &draft{env: e, store: s, name: n.name, was: persona.Render(p), made: true}
	return d.edit(ctx)
}

func (n *create) check(e *command.Env, s *persona.Store) error {
	if err := persona.ValidateName(n.name); err != nil {
		return err
	}
	if n.changed("prompt") && n.from != "" {
		return command.Usagef("--prompt and --from exclude each other")
	}
	if !n.changed("prompt") && n.from == "" && (e.JSON || !e.Interactive()) {
		return command.Hint(command.Usagef("nothing says what %q is told", n.name), "name one of: --prompt, --from")
	}
	if n.agent != "" {
		if _, err := connector.Find(connector.Builtin(), n.agent); err != nil {
			return wire.Errorf(wire.CodeBadRequest, "make agent file %q: --agent: %v", n.name, err)
		}
	}
	_, err := s.Source(n.name)
	if errors.Is(err, wire.ErrNotFound) {
		return nil
	}
	taken := wire.Errorf(wire.CodeAlreadyExists, "make agent file %q: there is one already", n.name)
	return command.Hint(taken, "change it: cotal persona edit "+n.name)
}

// persona is the file as the flags say.
func (n *create) persona(e *command.Env) (persona.Persona, error) {
	p := persona.Persona{Name: n.name, Text: n.prompt, Subscribe: general(), AllowSubscribe: general(), AllowPublish: general()}
	if n.from != "" {
		data, err := source(e, n.from)
		if err != nil {
			return p, err
		}
		data = persona.TrimMark(data)
		if p.Text = string(data); bytes.HasPrefix(data, []byte("---")) {
			if p, err = persona.Parse(n.from, n.name, data); err != nil {
				return p, err
			}
			p.Owner = "" // this file is the host's
		}
	}
	for flag, field := range map[string]struct{ to, from *string }{
		"role": {&p.Role, &n.role}, "description": {&p.Description, &n.description}, "agent": {&p.Agent, &n.agent}, "model": {&p.Model, &n.models},
	} {
		if n.changed(flag) {
			*field.to = *field.from
		}
	}
	p.Text = strings.Trim(strings.ReplaceAll(p.Text, "\r\n", "\n"), "\n")
	return p, nil
}

func general() []string { return []string{persona.DefaultChannel} }

// source reads a file of the command line, or standard input, up to what an agent file may have.
func source(e *command.Env, path string) ([]byte, error) {
	in := e.Stdin
	if path != "-" {
		if !filepath.IsAbs(path) {
			path = filepath.Join(e.Dir, path)
		}
		f, err := os.Open(path)
		if err != nil {
			code := wire.CodeFailedPrecondition
			if errors.Is(err, os.ErrNotExist) {
				code = wire.CodeNotFound
			}
			return nil, wire.Errorf(code, "read %q: %v", path, err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, persona.MaxFile+1))
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read %q: %v", path, err)
	}
	if len(data) > persona.MaxFile {
		return nil, wire.Errorf(wire.CodeBadRequest, "read %q: more than %d bytes", path, persona.MaxFile)
	}
	return data, nil
}

// written prints what stands now.
func written(e *command.Env, s *persona.Store, name string, changed bool) error {
	p, err := s.Load(name)
	if err != nil {
		return view.Problems(err)
	}
	res := WriteResult{V: command.V1, Line: lineOf(s, persona.Entry{Name: name, Persona: p}), Changed: changed}
	return e.Print(res, func(pr *command.Printer) {
		if !changed {
			pr.Line("%s is as it was", command.Safe(res.Path))
			return
		}
		pr.Line("wrote %s", command.Safe(res.Path))
		pr.Line("start it: cotal spawn %s", name)
	})
}
