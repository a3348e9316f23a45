package team

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/manifest"
	"github.com/cotal-go/cotal/wire"
)

// States of an event that are not those of an agent.
const (
	stateDone     = "done"
	stateLeft     = "left"     // as it was
	stateAccepted = "accepted" // the supervisor makes it
	stateFailed   = "failed"
	stateGone     = "gone" // it was not there any more
	// stateRemovable is of a dry run.
	stateRemovable = "would be removed"
)

const kindFile = "file"

// Event is one line of --json while a team is set up or taken down.
type Event struct {
	command.V
	Event string            `json:"event"` // step
	Kind  string            `json:"kind"`  // channel, agent or file
	Name  string            `json:"name"`
	Do    string            `json:"do"` // create, keep, exists, update, stale, again, replace, dropped, wait, remove
	State string            `json:"state"`
	Why   string            `json:"why,omitempty"`
	Agent *wire.AgentStatus `json:"agent,omitempty"`
	Error string            `json:"error,omitempty"`
}

// Result is the last line of --json: what the ledger has now.
type Result struct {
	command.V
	Event    string     `json:"event"` // deployed or removed
	Deploy   string     `json:"deploy"`
	File     string     `json:"file"`
	Space    wire.Space `json:"space,omitempty"`
	Ledger   string     `json:"ledger"` // folder of the ledgers
	Channels int        `json:"channels"`
	Agents   int        `json:"agents"`
	Failed   int        `json:"failed"`
	Stale    int        `json:"stale,omitempty"`
	Dropped  []string   `json:"dropped,omitempty"` // agents that go on and that the file does not have
}

func (w *work) tell(ev Event) error {
	ev.V, ev.Event = command.V1, "step"
	return w.env.Each(ev, ev.human)
}

func (ev Event) human(p *command.Printer) {
	name := command.Safe(ev.Name)
	if ev.Kind == manifest.KindChannel {
		name = "#" + name
	}
	line := fmt.Sprintf("%-7s  %s  %s", ev.Kind, p.Bold(name), ev.words())
	if ev.Why != "" {
		line += ": " + command.Safe(ev.Why)
	}
	if ev.Error != "" {
		line += ": " + command.Safe(ev.Error)
	}
	p.Line("%s", line)
	if ev.Agent != nil && ev.State != stateAccepted && ev.Error != "" {
		view.LastLines(p, ev.Agent.Process.LastLines)
	}
}

// words say what was done.
func (ev Event) words() string {
	if ev.Kind == manifest.KindChannel && ev.Do == "remove" {
		switch ev.State {
		case stateDone:
			return "settings removed; its messages stay"
		case stateRemovable:
			return "settings would be removed; its messages stay"
		}
	}
	switch ev.State {
	case stateDone:
		return map[string]string{"create": "made", "update": "changed", "replace": "stopped", "remove": "removed"}[ev.Do]
	case stateLeft:
		return map[string]string{"keep": "there already", "exists": "left as it is", "stale": "goes on as it was made", "dropped": "no longer in the file; it stays until the deploy is taken down", "remove": "left"}[ev.Do]
	case stateGone:
		return "was not there any more"
	case stateFailed:
		return "failed"
	}
	return ev.State
}

func (r Result) human(file, replacing string) func(p *command.Printer) {
	return func(p *command.Printer) {
		if r.Channels+r.Agents == 0 && r.Failed > 0 {
			return
		}
		p.Line("%s: %s and %s of %s stand; take them down: cotal down -f %s", p.Bold(r.Deploy), count(r.Agents, "agent"), count(r.Channels, "channel"),
			command.Safe(file), command.Quote(file))
		surplus(p, r.Dropped, replacing)
	}
}

// surplus names the agents that go on and that the file does not have, and what stops them.
func surplus(p *command.Printer, names []string, replacing string) {
	switch len(names) {
	case 0:
	case 1:
		p.Line("%s goes on, and the file does not have it; stop it: %s", p.Bold(command.Safe(names[0])), replacing)
	default:
		p.Line("%s go on, and the file does not have them; stop them: %s", p.Bold(command.Safe(strings.Join(names, ", "))), replacing)
	}
}

// replacing is the command that has the agents of a team as its file says.
func (w *work) replacing(t *Team) string {
	line := "cotal spawn -f " + command.Quote(t.File)
	for _, f := range []struct{ name, value string }{{"space", w.env.Flags.Space}, {"server", w.env.Flags.Server}} {
		if f.value != "" && f.value != string(t.Space) {
			line += " --" + f.name + " " + command.Quote(f.value)
		}
	}
	return line + " --replace"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// DryResult is what --dry-run --json prints.
type DryResult struct {
	command.V
	Event  string     `json:"event"` // plan
	Deploy string     `json:"deploy"`
	File   string     `json:"file"`
	Space  wire.Space `json:"space,omitempty"`
	// Running is false when nobody could be asked what there is: then everything is taken to be missing.
	Running bool            `json:"running"`
	Steps   []manifest.Step `json:"steps"`
	Access  manifest.Access `json:"access"`
	// Missing are programs that agents to be made live in and that are not found on this machine, where the supervisor of the project is
	// taken to run; nothing of a mesh elsewhere.
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is a program that is not found.
type Missing struct {
	Program string   `json:"program"`
	Install string   `json:"install"` // how to install it
	Agents  []string `json:"agents"`  // that live in it
}

// missing looks for the programs of the agents that are to be made.
func missing(steps []manifest.Step, agents []manifest.AgentAccess) []Missing {
	var out []Missing
	for _, a := range agents {
		made := slices.ContainsFunc(steps, func(s manifest.Step) bool {
			return s.Kind == manifest.KindAgent && s.Name == a.Name && (s.Do == manifest.Create || s.Do == manifest.Again || s.Do == manifest.Replace)
		})
		all := connector.Builtin()
		c, err := connector.Find(all, cmp.Or(a.Agent, all[0].Name()))
		if !made || err != nil || c.Info().Program == "" { // what there is no connector of is refused by the supervisor
			continue
		}
		info := c.Info()
		i := slices.IndexFunc(out, func(m Missing) bool { return m.Program == info.Program })
		if i >= 0 {
			out[i].Agents = append(out[i].Agents, a.Name)
		} else if _, err := exec.LookPath(info.Program); err != nil {
			out = append(out, Missing{Program: info.Program, Install: info.Install, Agents: []string{a.Name}})
		}
	}
	return out
}

// DryRun shows what Deploy would do and who could read and post where. It changes nothing, and needs no mesh that runs.
//
// Errors: those of the mesh, but that none runs; conflict as of Deploy, after all was shown.
func DryRun(ctx context.Context, e *command.Env, t *Team, o Options) error {
	w, err := begin(e, t.path)
	if err != nil {
		return err
	}
	defer w.close()
	res := DryResult{V: command.V1, Event: "plan", Deploy: w.id, File: w.path, Space: w.target.Space()}
	if w.ledger == nil {
		w.ledger = manifest.NewLedger(w.file, w.target.Space(), 0)
	}
	now, err := w.now(ctx, t)
	switch {
	case err == nil:
		res.Running = true
	case errors.Is(err, wire.ErrUnavailable):
		if err := t.resolve(ctx, w.dir, w.local, nil); err != nil {
			return err
		}
	default:
		return err
	}
	res.Steps, res.Access = t.plan(w.ledger, now, o), t.graph()
	if w.local {
		res.Missing = missing(res.Steps, res.Access.Agents)
	}
	if err := e.Print(res, res.human(w.replacing(t))); err != nil {
		return err
	}
	return w.refuse(res.Steps, t.File)
}

// now is what there is.
func (w *work) now(ctx context.Context, t *Team) (manifest.Current, error) {
	if err := w.target.Running(); err != nil {
		return manifest.Current{}, err
	}
	in, err := w.join(ctx, len(t.Channels)+len(w.ledger.Channels) > 0, len(t.Agents)+len(w.ledger.Agents) > 0)
	if err != nil {
		return manifest.Current{}, err
	}
	defer in.leave()
	now, err := w.look(ctx, in, false)
	if err == nil && in.manager != nil {
		err = t.resolve(ctx, w.dir, w.local, in.persona)
	}
	if err == nil {
		now.Held, err = w.held(ctx)
	}
	return now, err
}

func (r DryResult) human(replacing string) func(p *command.Printer) {
	return func(p *command.Printer) {
		r.show(p, replacing)
	}
}

func (r DryResult) show(p *command.Printer, replacing string) {
	if !r.Running {
		p.Line("nobody could be asked what there is; with an empty space it would be so:")
	}
	for _, s := range r.Steps {
		ev := Event{Kind: s.Kind, Name: s.Name, Do: string(s.Do), Why: s.Why, State: string(s.Do)}
		switch s.Do {
		case manifest.Create:
			ev.State = "would be made"
		case manifest.Again:
			ev.State = "would be made anew"
		case manifest.Update:
			ev.State = "would be changed"
		case manifest.Replace:
			ev.State = "would be stopped and made anew"
		case manifest.Remove:
			ev.State = "would be stopped"
		default:
			ev.State = stateLeft
		}
		ev.human(p)
	}
	surplus(p, r.dropped(), replacing)
	for _, m := range r.Missing {
		p.Line("%s is not found on this machine, and %s would not start without it; install it: %s", p.Bold(m.Program), command.Safe(strings.Join(m.Agents, ", ")), m.Install)
	}
	accessTable(p, r.Access)
}

// dropped are the agents that would go on and that the file does not have.
func (r DryResult) dropped() []string {
	var out []string
	for _, s := range r.Steps {
		if s.Surplus() {
			out = append(out, s.Name)
		}
	}
	return out
}

// accessTable writes the graph: one row an agent, one column a channel.
func accessTable(p *command.Printer, a manifest.Access) {
	if len(a.Agents) == 0 {
		return
	}
	header := []string{"agent", "agent file", "runs", "role", "may"}
	for _, c := range a.Channels {
		header = append(header, "#"+c.Channel)
	}
	var rows [][]string
	for _, ag := range a.Agents {
		may := dash(strings.Join(ag.Capabilities, ","))
		if ag.Capabilities == nil {
			may = unknownHere
		}
		row := []string{ag.Name, dash(ag.Persona), dash(ag.Agent), dash(ag.Role), may}
		for _, c := range a.Channels {
			if ag.Subscribe == nil || ag.AllowSubscribe == nil || ag.AllowPublish == nil {
				row = append(row, unknownHere)
				continue
			}
			row = append(row, cell(c, ag.Name))
		}
		rows = append(rows, row)
	}
	p.Line("")
	p.Table(header, rows)
}

// unknownHere stands for what the agent file of a supervisor says that does not tell it.
const unknownHere = "not known here"

func cell(c manifest.ChannelAccess, agent string) string {
	var out []string
	switch {
	case slices.Contains(c.Hears, agent):
		out = append(out, "hears")
	case slices.Contains(c.MayRead, agent):
		out = append(out, "may read")
	}
	if slices.Contains(c.MayPost, agent) {
		out = append(out, "posts")
	}
	return dash(strings.Join(out, ", "))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
