package team

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/supervisor/manifest"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

// removal takes one deploy down.
type removal struct {
	*work
	in     *space
	store  *persona.Store
	now    manifest.Current
	first  error
	failed int
}

// Remove takes down what the ledger says was made of a team file: its agents, then the settings of its channels, then the agent files that
// it brought along. What somebody changed since is left, and so is everything that the ledger does not name. The team file itself is
// not read. With dry nothing is done.
//
// Errors: not-found when there is neither a ledger nor such a file; unavailable, with nothing done, when not all supervisors answer; what
// could not be taken down stays in the ledger.
func Remove(ctx context.Context, e *command.Env, file string, dry bool) error {
	path := absolute(e.Dir, file)
	if t, err := manifest.Load(path, file); err == nil && t.Space != "" && e.Flags.Space == "" {
		e.Flags.Space = string(t.Space)
	}
	w, err := begin(e, path)
	if err != nil {
		return err
	}
	defer w.close()
	if w.ledger == nil {
		return w.nothing(file)
	}
	if w.ledger.Space != w.target.Space() {
		err := wire.Errorf(wire.CodeConflict, "deploy %q was made in space %q, not %q; nothing was done", w.ledger.ID, w.ledger.Space, w.target.Space())
		return command.Hint(err, "name it: --space "+string(w.ledger.Space))
	}
	r := &removal{work: w, store: persona.Open(filepath.Join(w.dir, persona.Folder))}
	if r.in, err = w.join(ctx, len(w.ledger.Channels) > 0, len(w.ledger.Agents) > 0); err != nil {
		return err
	}
	defer r.in.leave()
	if r.now, err = w.look(ctx, r.in, false); err != nil {
		return command.Hint(err, "nothing was done")
	}
	r.agents(ctx, dry)
	if r.failed == 0 {
		r.channels(ctx, dry)
		r.files(ctx, dry)
	}
	return r.end(file, dry)
}

// nothing answers for a file of which nothing was made.
func (w *work) nothing(file string) error {
	if _, err := os.Stat(w.path); err != nil {
		var hints []string
		for _, path := range w.others() {
			hints = append(hints, "this is deployed: cotal down -f "+command.Quote(path))
		}
		return command.Hint(wire.Errorf(wire.CodeNotFound, "nothing was deployed from %q, and there is no such file", file), hints...)
	}
	w.env.Note("nothing was deployed from %s; nothing to take down", command.Safe(file))
	for _, path := range w.others() {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) { // as of a project that was moved since an earlier build deployed it
			w.env.Note("this is deployed, and its file is gone: cotal down -f %s", command.Safe(command.Quote(path)))
		}
	}
	res := Result{V: command.V1, Event: "removed", Deploy: w.id, File: w.path, Ledger: w.ledgers.Dir()}
	return w.env.Each(res, func(*command.Printer) {})
}

// others are the team files of the deploys that there are.
func (w *work) others() []string {
	all, err := w.ledgers.List()
	if err != nil {
		return nil
	}
	var out []string
	for _, l := range all {
		out = append(out, l.Path(w.root))
	}
	return out
}

// done tells of one thing, and drops it from the ledger where keep does not say that it may still be there.
func (r *removal) done(ev Event, err error, dry bool, drop func()) {
	ev.Do = "remove"
	switch {
	case err != nil:
		ev.State, ev.Error = stateFailed, err.Error()
		r.fail(err)
	case dry:
		if ev.State == stateDone {
			ev.State = stateRemovable
		}
	default:
		drop()
		if err := r.save(); err != nil {
			r.fail(err)
		}
	}
	if err := r.tell(ev); err != nil {
		r.fail(err)
	}
}

func (r *removal) fail(err error) {
	if r.failed++; r.first == nil {
		r.first = err
	}
}

// agents ends them, the last that was made first.
func (r *removal) agents(ctx context.Context, dry bool) {
	for _, e := range slices.Backward(slices.Clone(r.ledger.Agents)) {
		ev := Event{Kind: manifest.KindAgent, Name: e.Name, State: stateDone}
		a, there := find(r.ledger, e, r.now.Agents)
		var err error
		switch {
		case !there:
			if ev.State = stateGone; r.stranger(e) {
				ev.State, ev.Why = stateLeft, "the agent of that name is not the one that the deploy made"
			}
		case a.Ended():
			ev.State, ev.Agent = stateGone, &a
		case !dry:
			ev.Agent = &a
			if _, err = r.in.manager.Stop(ctx, a, wire.StopRequest{Force: true, Children: true}); errors.Is(err, wire.ErrNotFound) {
				err, ev.State = nil, stateGone
			}
		}
		r.done(ev, err, dry, func() {
			r.ledger.Agents = slices.DeleteFunc(r.ledger.Agents, func(o manifest.LedgerAgent) bool { return o.Name == e.Name })
		})
		if err != nil && lost(err) {
			return
		}
	}
}

// stranger reports whether another agent has the name of an entry.
func (r *removal) stranger(e manifest.LedgerAgent) bool {
	return slices.ContainsFunc(r.now.Agents, func(a wire.AgentStatus) bool {
		p, err := wire.ParsePrincipal(a.Principal)
		return err == nil && p.Actor == e.Name && !a.Ended()
	})
}

// channels removes the settings that are still as the deploy made them.
func (r *removal) channels(ctx context.Context, dry bool) {
	for _, e := range slices.Backward(slices.Clone(r.ledger.Channels)) {
		ev := Event{Kind: manifest.KindChannel, Name: e.Channel, State: stateDone}
		i := slices.IndexFunc(r.now.Channels, func(c wire.ChannelInfo) bool { return c.Channel == e.Channel && c.Config != nil })
		var err error
		ours := false
		if i >= 0 {
			ours, ev.Why = e.Ours(r.now, r.now.Channels[i])
		}
		switch {
		case i < 0:
			ev.State = stateGone
		case !ours:
			ev.State = stateLeft
		case !dry:
			if _, err = target.SetChannel(ctx, r.in.channels, wire.ChannelSetRequest{Channel: e.Channel, Revision: &r.now.Channels[i].Revision}); err != nil {
				err = r.target.Explain(err)
			}
		}
		r.done(ev, err, dry, func() {
			r.ledger.Channels = slices.DeleteFunc(r.ledger.Channels, func(o manifest.LedgerChannel) bool { return o.Channel == e.Channel })
		})
		if err != nil && lost(err) {
			return
		}
	}
}

// users are the other deploys whose ledgers have an agent file of that name.
func (w *work) users(name string) []*manifest.Ledger {
	all, err := w.ledgers.List()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(l *manifest.Ledger) bool {
		return l.ID == w.ledger.ID || !slices.ContainsFunc(l.Files, func(f manifest.LedgerFile) bool { return f.Persona == name })
	})
}

// files removes the agent files that the deploy brought along, nobody changed and no other deploy uses. The store opens names below its
// folder alone.
func (r *removal) files(ctx context.Context, dry bool) {
	if len(r.ledger.Files) == 0 {
		return
	}
	release, err := r.lockFiles(ctx)
	if err != nil {
		r.fail(err)
		return
	}
	defer release()
	for _, e := range slices.Clone(r.ledger.Files) {
		ev := Event{Kind: kindFile, Name: e.Persona, State: stateDone}
		data, err := r.store.Source(e.Persona)
		users := r.users(e.Persona)
		switch {
		case errors.Is(err, wire.ErrNotFound):
			ev.State, err = stateGone, nil
		case err != nil, !r.ledger.Wrote(e.Persona, data):
			ev.State, ev.Why, err = stateLeft, "it is not as the deploy wrote it", nil
		case len(users) > 0:
			ev.State, ev.Why = stateLeft, "deploy "+users[0].ID+" uses it, too"
		case !dry:
			err = r.store.Remove(e.Persona)
		}
		r.done(ev, err, dry, func() {
			r.ledger.Files = slices.DeleteFunc(r.ledger.Files, func(o manifest.LedgerFile) bool { return o.Persona == e.Persona })
		})
	}
}

func (r *removal) end(file string, dry bool) error {
	res := Result{
		V: command.V1, Event: "removed", Deploy: r.ledger.ID, File: r.path, Space: r.ledger.Space, Ledger: r.ledgers.Dir(),
		Channels: len(r.ledger.Channels), Agents: len(r.ledger.Agents), Failed: r.failed,
	}
	if dry {
		res.Event = "plan"
	}
	err := r.env.Each(res, func(p *command.Printer) {
		switch {
		case dry:
			p.Line("nothing was done")
		case r.failed == 0:
			p.Line("%s is taken down", p.Bold(res.Deploy))
		}
	})
	if err != nil || r.first == nil {
		return err
	}
	out := wire.Errorf(wire.CodeOf(r.first), "deploy %q: %d could not be taken down, the first: %w", r.ledger.ID, r.failed, r.first)
	return command.Hint(command.Hint(out, command.Hints(r.first)...), "what is left is in the ledger; repeat: cotal down -f "+command.Quote(file))
}
