package team

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/supervisor/manifest"
	"github.com/cotal-go/cotal/wire"
)

// deploy is one deploy of a team.
type deploy struct {
	*work
	team *Team
	opts Options
	in   *space

	first  error // what went wrong first
	failed int
	down   int // stopped to be made anew, and not made
	made   []accepted
	tally  Result
}

// accepted is an agent that was asked for and is not ready yet.
type accepted struct {
	name  string
	agent wire.AgentStatus
}

// Deploy makes what the team declares and is not there yet, and waits for its agents. It prints one line for each thing, and what
// stands at the end. What the deploy did not make is left as it is.
//
// Errors: those of the mesh; conflict, with nothing done, when the name of an agent is in use or another command works at the deploy; of
// a deploy that was made in part the first thing that went wrong: what stands is in the ledger, and the same command makes the rest.
func Deploy(ctx context.Context, e *command.Env, t *Team, o Options) error {
	w, err := begin(e, t.path)
	if err != nil {
		return err
	}
	defer w.close()
	d := &deploy{work: w, team: t, opts: o, tally: Result{V: command.V1, Event: "deployed", Deploy: w.id, File: w.path}}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	defer d.in.leave()
	now, err := d.look(ctx, d.in, o.Begun)
	if err != nil {
		return err
	}
	if now.Held, err = d.held(ctx); err != nil {
		return err
	}
	steps := t.plan(d.ledger, now, o)
	if err := d.refuse(steps, t.File); err != nil {
		return err
	}
	if err := d.putFiles(ctx); err != nil {
		return err
	}
	for _, s := range steps {
		if !d.step(ctx, s) {
			break
		}
	}
	d.settle(ctx)
	return d.end()
}

// prepare joins the space, begins the ledger and resolves the agent files.
func (d *deploy) prepare(ctx context.Context) error {
	if d.ledger == nil {
		d.ledger = manifest.NewLedger(d.file, d.target.Space(), time.Now().UnixMilli())
	}
	if d.ledger.Space != d.target.Space() {
		err := wire.Errorf(wire.CodeConflict, "deploy %q was made in space %q, and this is for %q; nothing was done", d.ledger.ID, d.ledger.Space, d.target.Space())
		return command.Hint(err, "take it down there first: cotal down -f "+command.Quote(d.team.File)+" --space "+string(d.ledger.Space))
	}
	if err := d.team.resolve(ctx, d.dir, d.local, nil); !errors.Is(err, wire.ErrNotFound) && err != nil {
		return err
	}
	agents := len(d.team.Agents)+len(d.ledger.Agents) > 0
	var err error
	if d.in, err = d.join(ctx, len(d.team.Channels)+len(d.ledger.Channels) > 0, agents); err != nil {
		return err
	}
	if !agents {
		return nil
	}
	if _, err = census(ctx, d.in.manager, d.opts.Begun); err == nil {
		err = d.team.resolve(ctx, d.dir, d.local, d.in.persona)
	}
	if err != nil {
		d.in.leave()
		return d.target.Explain(err)
	}
	return nil
}

// refuse ends a deploy before it begins when a name is taken: half a team is of no use.
func (w *work) refuse(steps []manifest.Step, file string) error {
	for _, s := range steps {
		if s.Kind != manifest.KindAgent || s.Do != manifest.Exists {
			continue
		}
		err := wire.Errorf(wire.CodeConflict, "deploy %q: %s: %s; nothing was done", w.ledger.ID, s.Name, s.Why)
		err.Outcome = wire.OutcomeNotExecuted
		return command.Hint(err, w.freeing(s, file)...)
	}
	return nil
}

// freeing says how to get round a name that is taken.
func (w *work) freeing(s manifest.Step, file string) []string {
	switch {
	case s.Found != nil:
		hints := []string{"rename it in " + file + ", or end the other: cotal stop " + target.AgentName(*s.Found)}
		if other, err := w.ledgers.Load(s.Found.Deploy); err == nil && other.ID != w.ledger.ID {
			hints = append(hints, "or take down all of its deploy: cotal down -f "+command.Quote(other.Path(w.root)))
		}
		return hints
	case s.Free != "":
		return []string{"rename it in " + file + ", or free the name: " + s.Free}
	}
	return []string{"rename it in " + file}
}

// putFiles puts the agent files that the team brings along into the project. One that another deploy has put there is noted as well: it is
// removed with the last of them.
func (d *deploy) putFiles(ctx context.Context) error {
	if len(d.team.imports) == 0 {
		return nil
	}
	release, err := d.lockFiles(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, name := range slices.Sorted(maps.Keys(d.team.imports)) {
		data := d.team.imports[name]
		have, err := d.team.store.Source(name)
		i := slices.IndexFunc(d.ledger.Files, func(f manifest.LedgerFile) bool { return f.Persona == name })
		switch {
		case err == nil && string(have) == string(data):
			if i < 0 && !slices.ContainsFunc(d.users(name), func(l *manifest.Ledger) bool { return l.Wrote(name, have) }) {
				continue // it is the project's own
			}
		case err == nil && !d.ledger.Wrote(name, have):
			err := wire.Errorf(wire.CodeConflict, "deploy %q: the project has another agent file %q; nothing was done", d.ledger.ID, name)
			return command.Hint(err, "rename one of them, or name the project's by its name instead of a path")
		case err != nil && !errors.Is(err, wire.ErrNotFound):
			return err
		}
		if i < 0 {
			d.ledger.Files = append(d.ledger.Files, manifest.LedgerFile{Persona: name})
			i = len(d.ledger.Files) - 1
		}
		d.ledger.Files[i].SHA256 = d.ledger.FileDigest(name, data)
		if err := d.save(); err != nil {
			return err
		}
		if err == nil && string(have) == string(data) {
			continue
		}
		if err := d.team.store.Put(name, data); err != nil {
			return err
		}
		if err := d.tell(Event{Kind: kindFile, Name: name, Do: string(manifest.Create), State: stateDone}); err != nil {
			return err
		}
	}
	return nil
}

// step does one thing of the plan. It reports whether there is any use in going on.
func (d *deploy) step(ctx context.Context, s manifest.Step) bool {
	ev := Event{Kind: s.Kind, Name: s.Name, Do: string(s.Do), Why: s.Why, State: stateLeft}
	var err error
	switch {
	case s.Do == manifest.Remove, s.Do == manifest.Dropped && d.gone(s):
		if s.Do == manifest.Remove {
			err = d.stop(ctx, s)
		} else {
			ev.State = stateGone
			err = d.tell(ev)
		}
		if err == nil {
			err = d.forget(s.Name)
		}
		if err == nil {
			return true // it is told
		}
	case s.Do == manifest.Keep, s.Do == manifest.Exists, s.Do == manifest.Dropped, s.Do == manifest.Stale:
		if ev.Agent = s.Found; s.Do == manifest.Stale {
			d.tally.Stale++
		}
		if s.Surplus() {
			d.tally.Dropped = append(d.tally.Dropped, s.Name)
		}
		if s.Do == manifest.Keep {
			err = d.confirm(s)
		}
	case s.Kind == manifest.KindChannel:
		ev.State, err = stateDone, d.channel(ctx, s)
	case s.Do == manifest.Replace:
		if err = d.stop(ctx, s); err == nil {
			s.Do, s.Why = manifest.Again, "" // it has ended
			d.down++
			before := d.failed
			if on := d.step(ctx, s); !on || d.failed > before {
				return false // what one does not become the others hardly would, and they run
			}
			d.down--
			return true
		}
	default:
		ev.State = stateAccepted
		ev.Agent, err = d.agent(ctx, s)
	}
	if err != nil {
		ev.State, ev.Error = stateFailed, command.FailureOf(err).Error.Message
		d.fail(err)
	}
	if terr := d.tell(ev); terr != nil {
		d.fail(terr)
		return false
	}
	return err == nil || !lost(err)
}

// gone reports whether an agent that is no longer in the file has ended. All supervisors were asked.
func (d *deploy) gone(s manifest.Step) bool {
	e := d.ledger.Agent(s.Name)
	return s.Kind == manifest.KindAgent && e != nil && e.UID != "" && (s.Found == nil || s.Found.Ended())
}

// forget takes an agent out of the ledger.
func (d *deploy) forget(name string) error {
	d.ledger.Agents = slices.DeleteFunc(d.ledger.Agents, func(a manifest.LedgerAgent) bool { return a.Name == name })
	return d.save()
}

// stop ends an agent that is to be made anew or is in the file no longer, and what it started, whose rights hang on it.
func (d *deploy) stop(ctx context.Context, s manifest.Step) error {
	reply, err := d.in.manager.Stop(ctx, *s.Found, wire.StopRequest{Force: true, Children: true})
	if err != nil && !errors.Is(err, wire.ErrNotFound) {
		return d.target.Explain(err)
	}
	ev := Event{Kind: s.Kind, Name: s.Name, Do: string(s.Do), State: stateDone, Why: s.Why, Agent: &reply.Agent}
	if err != nil { // it is gone already
		ev.State, ev.Agent = stateGone, s.Found
	}
	return d.tell(ev)
}

// confirm writes down what an earlier command asked for and was not told of.
func (d *deploy) confirm(s manifest.Step) error {
	if c := d.ledger.Channel(s.Name); s.Kind == manifest.KindChannel && c != nil && c.Revision == 0 {
		c.Revision = s.Revision
		return d.save()
	}
	if a := d.ledger.Agent(s.Name); s.Kind == manifest.KindAgent && a != nil && a.UID == "" && s.Found != nil {
		a.Principal, a.UID = s.Found.Principal, s.Found.UID
		return d.save()
	}
	return nil
}

// lost reports whether nobody answers: what follows would fare no better.
func lost(err error) bool {
	code := wire.CodeOf(err)
	return code == wire.CodeUnavailable || code == wire.CodeDeadlineExceeded || code == wire.CodeCancelled
}

func (d *deploy) fail(err error) {
	if d.failed++; d.first == nil {
		d.first = err
	}
}

// channel writes the settings of a channel: first into the ledger, then to the space, and then what came of it.
func (d *deploy) channel(ctx context.Context, s manifest.Step) error {
	entry := d.ledger.Channel(s.Name)
	if entry == nil {
		d.ledger.Channels = append(d.ledger.Channels, manifest.LedgerChannel{Channel: s.Name})
		entry = d.ledger.Channel(s.Name)
	}
	was := *entry
	entry.Revision, entry.Account, entry.Config = 0, d.in.channels.Account(), s.Channel.Config
	if err := d.save(); err != nil {
		return err
	}
	cfg := s.Channel.Config
	reply, err := target.SetChannel(ctx, d.in.channels, wire.ChannelSetRequest{Channel: s.Name, Config: &cfg, Revision: &s.Revision})
	if err == nil {
		entry.Revision = reply.Revision
		return d.save()
	}
	if !lost(err) || notDone(err) { // the settings are as they were
		if *entry = was; s.Do == manifest.Create {
			d.ledger.Channels = slices.DeleteFunc(d.ledger.Channels, func(c manifest.LedgerChannel) bool { return c.Channel == s.Name })
		}
		if serr := d.save(); serr != nil {
			return serr
		}
	}
	return d.target.Explain(err)
}

func notDone(err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	return ok && e.Outcome == wire.OutcomeNotExecuted
}

// agent asks for an agent, in the same order. What an earlier command asked for and was not told of is found again by the request.
func (d *deploy) agent(ctx context.Context, s manifest.Step) (*wire.AgentStatus, error) {
	entry := d.ledger.Agent(s.Name)
	fresh := entry == nil
	if fresh {
		d.ledger.Agents = append(d.ledger.Agents, manifest.LedgerAgent{Name: s.Name})
		entry = d.ledger.Agent(s.Name)
	}
	was := *entry
	ask := d.in.manager.SpawnAgain // the request of before goes on
	if fresh || entry.UID != "" || s.Found != nil {
		entry.Try++
		ask = d.in.manager.Spawn
	}
	entry.RequestID, entry.Digest, entry.Principal, entry.UID = d.ledger.RequestID(s.Name, entry.Try), s.Digest, "", ""
	if err := d.save(); err != nil {
		return nil, err
	}
	reply, err := ask(ctx, s.Agent.Request(d.ledger.ID, entry.RequestID), d.opts.On)
	if err != nil {
		if !lost(err) && wire.CodeOf(err) != wire.CodeInternal || notDone(err) { // there is no such agent
			if *entry = was; fresh {
				d.ledger.Agents = slices.DeleteFunc(d.ledger.Agents, func(a manifest.LedgerAgent) bool { return a.Name == s.Name })
			}
			if serr := d.save(); serr != nil {
				return nil, serr
			}
		}
		return nil, d.target.Explain(err)
	}
	entry.Principal, entry.UID = reply.Agent.Principal, reply.Agent.UID
	if err := d.save(); err != nil {
		return &reply.Agent, err
	}
	d.made = append(d.made, accepted{name: s.Name, agent: reply.Agent})
	return &reply.Agent, nil
}

// settle waits for the agents that were asked for, all within the same time.
func (d *deploy) settle(ctx context.Context) {
	until := time.Now().Add(d.opts.Wait)
	for _, m := range d.made {
		a := m.agent
		if left := time.Until(until); d.opts.Wait > 0 && left > 0 && !a.Ended() {
			now, err := d.target.Settle(ctx, d.in.manager, a, left)
			if err != nil {
				d.fail(err)
				_ = d.tell(Event{Kind: manifest.KindAgent, Name: m.name, Do: "wait", State: stateFailed, Agent: &a, Error: err.Error()})
				continue
			}
			a = now
		}
		ev := Event{Kind: manifest.KindAgent, Name: m.name, Do: "wait", State: a.State, Agent: &a}
		if verdict := target.Verdict(a); verdict != nil {
			ev.Error = verdict.Error()
			d.fail(verdict)
		}
		if err := d.tell(ev); err != nil {
			d.fail(err)
			return
		}
	}
}

// end says what stands.
func (d *deploy) end() error {
	d.tally.Channels, d.tally.Agents, d.tally.Failed = len(d.ledger.Channels), len(d.ledger.Agents)-d.down, d.failed
	d.tally.Ledger, d.tally.Space = d.ledgers.Dir(), d.ledger.Space
	if err := d.env.Each(d.tally, d.tally.human(d.team.File, d.replacing(d.team))); err != nil {
		return err
	}
	file := command.Quote(d.team.File)
	switch {
	case d.first != nil:
		err := wire.Errorf(wire.CodeOf(d.first), "deploy %q is there in part, %d failed, the first: %w", d.ledger.ID, d.failed, d.first)
		if d.ledger.Empty() {
			err = wire.Errorf(wire.CodeOf(d.first), "deploy %q: nothing of it stands: %w", d.ledger.ID, d.first)
		}
		hints := []string{"make the rest when that is put right: the same command"}
		if !d.ledger.Empty() {
			hints = append(hints, "take down what stands: cotal down -f "+file)
		}
		return command.Hint(command.Hint(err, command.Hints(d.first)...), hints...)
	case d.tally.Stale > 0:
		err := wire.Errorf(wire.CodeFailedPrecondition, "deploy %q: %s not as the file says now, and left as made", d.ledger.ID, count(d.tally.Stale, "agent"))
		return command.Hint(err, "to have them as the file says, stopped and started again: the same command with --replace")
	}
	return nil
}
