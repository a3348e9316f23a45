// Package team is what `cotal up -f`, `cotal spawn -f` and `cotal down -f` do: it makes what a team file declares, and takes down what was
// made of it.
//
// Start with [Load], which reads the file and refuses all that is wrong with it before anything is done; then [Deploy] or [DryRun].
// [Remove] takes a deploy down by its ledger alone. All of them print what they do as they do it and return the error of the command.
//
// It promises that a file deployed twice makes nothing twice: each agent has a fixed name, the requests for it carry the same id, and
// what was made is in the ledger before it is asked for. Only what the ledger names, and what is still as the deploy made it, is ever
// taken down. Two commands that work at one deploy exclude each other.
package team

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/supervisor/manifest"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

// Help explains team files where a command takes one.
const Help = `
A team file declares channels and agents that belong together:

  apiVersion: cotal/v1
  kind: Team
  space: main                      # optional
  agent: claude                    # what runs agents whose files do not say it
  defaults: {replayWindow: 7d}     # replay, replayWindow, deliveryClass
  channels:
    work:
      description: what is under way
      subscribe: [lead, worker]    # hear it from the start
      allowPublish: [lead, worker] # may post; allowSubscribe: may read
  agents:
    lead: agents/lead.md           # an agent file, by path or by name
    worker: {persona: reviewer, count: 2, prompt: "Say hello in work."}

An entry of agents may have persona, count, agent, model, variant, cwd, role, prompt, restart, capabilities and env. With channels in
the file its agents hear, read and post exactly there; without, their own files say where.

What is made is written down in .cotal/deploys. The same file again makes what is missing and nothing twice; cotal down -f takes down
what was made of it and nothing else. An agent that runs and that the file, or its agent file, says otherwise now goes on as it was
made, unless --replace is given: then it is stopped, with what it started, and started again. One that is no longer in the file stays
until the deploy is taken down or, with --replace, is stopped too.
`

// DefaultWait is how long a deploy waits for its agents.
const DefaultWait = time.Minute

// Options are the flags of a deploy.
type Options struct {
	// File is the team file, as the person named it; empty for none.
	File string
	// DryRun only shows what would be done.
	DryRun bool
	// Replace ends agents that the file says otherwise now, with what they started, and makes them anew; those that are no longer in it, it
	// ends.
	Replace bool
	// Wait is how long to wait until all agents are ready; 0 does not wait.
	Wait time.Duration
	// On is the supervisor that the agents are asked of, as for cotal spawn; empty takes any.
	On string
	// Begun says that the mesh was started a moment ago: then a supervisor that does not answer yet is waited for.
	Begun bool
}

// AddFlags adds --file and --dry-run to a command.
func (o *Options) AddFlags(c *cobra.Command, file string) {
	f := c.Flags()
	f.StringVarP(&o.File, "file", "f", "", file)
	f.BoolVar(&o.DryRun, "dry-run", false, "with --file, show what would be done and who could read and post where; nothing is changed")
}

// AddReplace adds --replace to a command that deploys.
func (o *Options) AddReplace(c *cobra.Command) {
	c.Flags().BoolVar(&o.Replace, "replace", false, "with --file, stop agents that the file says otherwise now, with what they started, and start them again; stop those no longer in it")
}

// plan compares the team with what there is, and says what the options make of it.
func (t *Team) plan(l *manifest.Ledger, now manifest.Current, o Options) []manifest.Step {
	steps := t.Plan(l, now, t.files)
	if o.Replace {
		return manifest.Replacing(steps)
	}
	return steps
}

// Check refuses flags that need a team file without one.
func (o *Options) Check() error {
	if o.Replace && o.File == "" {
		return command.Usagef("--replace goes with --file")
	}
	if o.DryRun && o.File == "" {
		return command.Usagef("--dry-run goes with --file")
	}
	return nil
}

// Team is a team file with the agent files that it names.
type Team struct {
	manifest.Team
	path  string // absolute
	local bool   // agent files of the project are those of the supervisor

	store   *persona.Store
	files   map[string][]byte          // content of the agent file, by agent
	known   map[string]persona.Persona // by agent
	untold  map[string]bool            // agents of which it is not known what their files allow
	imports map[string][]byte          // agent files to put into the project, by persona
}

// Load reads a team file. The space that it names is the command's from then on.
//
// Errors: those of manifest.Load; bad-request when the command names another space.
func Load(e *command.Env, file string) (*Team, error) {
	path := absolute(e.Dir, file)
	t, err := manifest.Load(path, file)
	if err != nil {
		return nil, view.Problems(err)
	}
	if own := string(t.Space); own != "" {
		if said := e.Flags.Space; said != "" && said != own {
			return nil, command.Usagef("team file %q is for space %q, not %q", file, own, said)
		}
		e.Flags.Space = own
	}
	return &Team{Team: t, path: path, files: map[string][]byte{}, known: map[string]persona.Persona{}, untold: map[string]bool{}, imports: map[string][]byte{}}, nil
}

func absolute(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	path = filepath.Clean(path)
	rest := ""
	for at := path; ; { // one deploy, whatever leads to its file, also when that is gone
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		up := filepath.Dir(at)
		if up == at {
			return path
		}
		at, rest = up, filepath.Join(filepath.Base(at), rest)
	}
}

// home is the folder that holds agent files and ledgers: that of the project, or of this machine for a mesh elsewhere.
func home(t *target.Target) (dir string, local bool, err error) {
	c := t.Config
	switch {
	case t.Launch() != nil:
		return "", false, wire.Errorf(wire.CodePermissionDenied, "a team is set up by a person, not from the shell of agent %s", t.Launch().Principal)
	case c.Project != nil && c.Remote == nil:
		return c.Project.Dir, true, nil
	case c.Machine.Dir != "":
		return c.Machine.Dir, false, nil
	}
	return "", false, wire.Errorf(wire.CodeNotFound, "no project at or above the working folder, and nowhere to write down what is made")
}

// work is one command at one deploy.
type work struct {
	env     *command.Env
	target  *target.Target
	path    string // of the team file, absolute
	file    string // how ledgers name it
	dir     string // holds agent files and ledgers, see home
	local   bool
	root    string // folder of the project; empty for a mesh elsewhere
	id      string // of the deploy
	ledgers *manifest.Ledgers
	ledger  *manifest.Ledger
	release func()
}

// begin opens the target and takes the lock of a deploy. Its ledger is nil when there is none.
func begin(e *command.Env, path string) (*work, error) {
	t, err := target.Open(e)
	if err != nil {
		return nil, err
	}
	dir, local, err := home(t)
	if err != nil {
		t.Close()
		return nil, err
	}
	w := &work{env: e, target: t, path: path, dir: dir, local: local, ledgers: manifest.OpenLedgers(filepath.Join(dir, manifest.LedgerFolder))}
	if local {
		w.root = filepath.Dir(dir)
	}
	w.file = manifest.FileName(w.root, path)
	if err := w.lock(); err != nil {
		t.Close()
		return nil, err
	}
	return w, nil
}

// lock takes the lock of the deploy and reads its ledger. One of a build before has the path of its file also where that is in the project, and
// goes on as it is; then there are two ids, both locked, so that such a build is kept out as well.
func (w *work) lock() error {
	w.id, w.release = manifest.DeployID(w.file), func() {}
	err := w.take(w.id)
	if err == nil && w.file != w.path {
		err = w.take(manifest.DeployID(w.path))
	}
	if err != nil {
		w.release()
	}
	return err
}

// take takes the lock of one id, and the ledger if there is none yet.
func (w *work) take(id string) error {
	release, ok, err := lock(w.ledgers.Dir(), id)
	if err != nil {
		return err
	}
	if !ok {
		return command.Hint(wire.Errorf(wire.CodeConflict, "another command works at deploy %q; nothing was done", id), "wait until it has ended, and repeat")
	}
	before := w.release
	w.release = func() { release(); before() }
	if w.ledger != nil {
		return nil
	}
	switch l, err := w.ledgers.Load(id); {
	case err == nil:
		w.ledger, w.id = l, id
	case !errors.Is(err, wire.ErrNotFound):
		return command.Hint(err, "nothing was done; look at the file, and move it away if you did not write it")
	}
	return nil
}

func (w *work) close() {
	w.release()
	w.target.Close()
}

// save writes the ledger down.
func (w *work) save() error { return w.ledgers.Save(w.ledger) }

// resolve reads the agent files, and refuses what is missing or not valid before anything is made. There, which asks the supervisors for
// a file, is asked only for those that are not here; nil asks nobody.
func (t *Team) resolve(ctx context.Context, dir string, local bool, there func(context.Context, string) (wire.Persona, error)) error {
	t.local, t.store = local, persona.Open(filepath.Join(dir, persona.Folder))
	elsewhere := map[string]wire.Persona{}
	for i := range t.Agents {
		a := &t.Agents[i]
		if a.Cwd != "" && !filepath.IsAbs(a.Cwd) {
			a.Folder = filepath.Join(filepath.Dir(t.path), a.Cwd)
		}
		p, err := t.agentFile(a)
		if errors.Is(err, wire.ErrNotFound) && a.File == "" && there != nil {
			w, asked := elsewhere[a.Persona]
			if !asked {
				if w, err = there(ctx, a.Persona); err != nil && !errors.Is(err, wire.ErrNotFound) {
					return err
				}
			}
			if asked || err == nil {
				elsewhere[a.Persona], err = w, nil
				p, t.untold[a.Name] = foreign(w)
			}
		}
		if err != nil {
			return command.Hint(view.Problems(err), a.Place+": agent "+a.Entry+" names it", "which agent files there are: cotal persona list")
		}
		if a.Agent == "" && p.Agent == "" {
			a.Agent = t.Agent
		}
		if name := cmp.Or(a.Agent, p.Agent); local && name != "" { // elsewhere the supervisor knows
			if _, err := connector.Find(connector.Builtin(), name); err != nil {
				return command.Hint(err, a.Place+": agent "+a.Entry+" is to run in it")
			}
		}
		t.known[a.Name] = p
	}
	return nil
}

// foreign is what is known of an agent file that only supervisors have, and whether they do not tell what it allows.
func foreign(p wire.Persona) (of persona.Persona, untold bool) {
	return persona.Persona{
		Name: p.Name, Role: p.Role, Agent: p.Connector, Model: p.Model,
		Capabilities: p.Capabilities, Subscribe: p.Subscribe, AllowSubscribe: p.AllowSubscribe, AllowPublish: p.AllowPublish,
	}, slices.ContainsFunc(allowed(p), func(list []string) bool { return list == nil })
}

// agentFile finds the agent file of an agent.
func (t *Team) agentFile(a *manifest.Agent) (persona.Persona, error) {
	switch {
	case a.Persona == "":
		return persona.Persona{Agent: a.Agent, Subscribe: []string{persona.DefaultChannel}, AllowSubscribe: []string{persona.DefaultChannel}}, nil
	case a.File != "":
		return t.beside(a)
	}
	data, err := t.store.Source(a.Persona)
	if err != nil {
		return persona.Persona{}, err
	}
	t.files[a.Name] = data
	return t.store.Load(a.Persona)
}

// beside reads an agent file that the team file names by its path. One that is not in the project's folder is put there by the deploy.
func (t *Team) beside(a *manifest.Agent) (persona.Persona, error) {
	path := absolute(filepath.Dir(t.path), a.File)
	data, err := readFile(path, a.File)
	if err != nil {
		return persona.Persona{}, err
	}
	p, err := persona.Parse(a.File, a.Persona, data)
	if err != nil {
		return persona.Persona{}, err
	}
	t.files[a.Name] = data
	if t.local && path == absolute(t.store.Dir(), a.Persona+".md") {
		return p, nil
	}
	if !t.local {
		return persona.Persona{}, wire.Errorf(wire.CodeFailedPrecondition, "agent file %q is here and the supervisor elsewhere: put it there, and name it without its path", a.File)
	}
	if other, twice := t.imports[a.Persona]; twice && string(other) != string(data) {
		return persona.Persona{}, wire.Errorf(wire.CodeConflict, "the team file names two agent files that are called %s.md and differ", a.Persona)
	}
	t.imports[a.Persona] = data
	return p, nil
}

func readFile(path, shown string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, wire.Errorf(wire.CodeNotFound, "there is no agent file %q", shown)
	case err != nil:
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read agent file %q: %v", shown, err)
	case !info.Mode().IsRegular() || info.Size() > persona.MaxFile:
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read agent file %q: no file of at most %d bytes", shown, persona.MaxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read agent file %q: %v", shown, err)
	}
	return data, nil
}

// graph is who could read and post where.
func (t *Team) graph() manifest.Access {
	return t.Access(func(a manifest.Agent) (manifest.AgentAccess, bool) {
		p, ok := t.known[a.Name]
		out := manifest.AgentAccess{Agent: cmp.Or(p.Agent, t.Agent), Role: p.Role}
		if !t.untold[a.Name] {
			out.Capabilities, out.Subscribe = told(p.Capabilities), told(p.Subscribe)
			out.AllowSubscribe, out.AllowPublish = told(p.AllowSubscribe), told(p.AllowPublish)
		}
		return out, ok
	})
}

// told is a list that is known, also when it is empty.
func told(list []string) []string { return append([]string{}, list...) }
