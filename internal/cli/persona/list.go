package persona

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/persona"
)

const listLong = `
Lists the agent files of the project: what runs each, what it hears and where it may post. A file that is not valid is listed with
what is wrong with it, by file, line and column. Defined by tells the file that somebody wrote here, host, from one that a peer
defined through the mesh.
`

const listExample = `
  cotal persona list
  cotal persona list --json
`

type list struct{}

func newList(t *command.Tree) *cobra.Command {
	return t.Add(command.Spec{Use: "list [flags]", Short: "List the agent files of the project", Long: listLong, Example: listExample, Target: command.TargetNone}, list{})
}

// ListResult is what `cotal persona list --json` prints.
type ListResult struct {
	command.V
	Folder   string `json:"folder"`
	Personas []Line `json:"personas"`
}

// Run lists.
func (list) Run(_ context.Context, e *command.Env) error {
	s, err := store(e)
	if err != nil {
		return err
	}
	all, err := s.List()
	if err != nil {
		return err
	}
	res := ListResult{V: command.V1, Folder: s.Dir(), Personas: []Line{}}
	for _, entry := range all {
		res.Personas = append(res.Personas, lineOf(s, entry))
	}
	return e.Print(res, res.human)
}

func (r ListResult) human(p *command.Printer) {
	if len(r.Personas) == 0 {
		p.Line("no agent files in %s; make one: cotal persona new <name> --prompt <text>", command.Safe(r.Folder))
		return
	}
	var rows [][]string
	for _, l := range r.Personas {
		if l.Invalid == "" {
			rows = append(rows, []string{l.Name, cmp.Or(l.Agent, connector.Builtin()[0].Name()), dash(l.Model), dash(l.Role), words(l.Subscribe), words(l.AllowPublish), words(l.Capabilities), l.DefinedBy, l.Description})
		}
	}
	if len(rows) > 0 {
		p.Table([]string{"persona", "agent", "model", "role", "hears", "posts to", "may", "defined by", "description"}, rows)
	}
	for _, l := range r.Personas {
		switch {
		case l.Invalid == "":
		case len(l.Problems) == 0:
			p.Line("%s: %s", p.Bold("not valid"), command.Safe(l.Invalid))
		default:
			for _, problem := range l.Problems {
				p.Line("%s: %s", p.Bold("not valid"), command.Safe(problem.String()))
			}
		}
	}
}

func dash(s string) string { return cmp.Or(s, "-") }

func words(list []string) string { return dash(strings.Join(list, ",")) }

const showLong = `
Prints an agent file as it is, and on standard error who defined it. With --json it prints what the file says, with what it leaves out
filled in. A file that is not valid is refused with everything that is wrong with it.
`

const showExample = `
  cotal persona show reviewer
  cotal persona show default --json
`

type show struct{ name string }

func newShow(t *command.Tree) *cobra.Command {
	s := &show{}
	return t.Add(command.Spec{
		Use: "show <persona> [flags]", Short: "Show an agent file", Long: showLong, Example: showExample, Target: command.TargetNone,
		Args: command.One("persona", &s.name), Complete: names,
	}, s)
}

// ShowResult is what `cotal persona show --json` prints.
type ShowResult struct {
	command.V
	Line
	Text string `json:"text"`
}

// Run shows.
func (c *show) Run(_ context.Context, e *command.Env) error {
	s, err := store(e)
	if err != nil {
		return err
	}
	data, err := s.Source(c.name)
	if err != nil {
		return unknown(s, c.name, err, makeIt(c.name))
	}
	p, err := s.Load(c.name)
	if err != nil {
		return command.Hint(view.Problems(err), "correct it: cotal persona edit "+command.Quote(c.name))
	}
	res := ShowResult{V: command.V1, Line: lineOf(s, persona.Entry{Name: c.name, Persona: p}), Text: p.Text}
	if err := e.Print(res, func(pr *command.Printer) { pr.Line("%s", command.SafeBody(string(data), "")) }); err != nil {
		return err
	}
	if by := p.Owner; by != "" {
		e.Note("defined by %s, through the mesh", command.Safe(by))
	} else {
		e.Note("a file of the host")
	}
	return nil
}
