// Package roster is `cotal roster`: who is there, who was, and since when that is certain.
package roster

import (
	"context"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const rosterLong = `
Lists who is there, with what each says it does. With --all those who are gone are listed too, and how they went: left (they
said so), disconnected (the broker saw their connection end), silent (nothing was heard of them for too long).

A list that is not fresh says "stale since": then nobody is called gone on a guess. With --watch every later change is
printed as it happens, until Ctrl-C.
`

const rosterExample = `
  cotal roster
  cotal roster --all --json
  cotal roster --watch
`

// roster lists who is there.
type roster struct {
	all   bool
	watch bool
}

// New adds `cotal roster`.
func New(t *command.Tree) *cobra.Command {
	r := &roster{}
	c := t.Add(command.Spec{Use: "roster [flags]", Short: "List who is there", Long: rosterLong, Example: rosterExample, Target: command.TargetPerson}, r)
	c.Flags().BoolVar(&r.all, "all", false, "also those who are gone, and how they went")
	c.Flags().BoolVar(&r.watch, "watch", false, "go on with every change")
	return c
}

// Result is what `cotal roster --json` prints; with --watch it is the first line, and again one whenever changes may have been
// missed.
type Result struct {
	command.V
	Space   wire.Space    `json:"space"`
	Present []target.Peer `json:"present"`
	// Gone are those who are not there any more; listed with --all.
	Gone []target.Peer `json:"gone,omitempty"`
	// Stale is set when delivery has lost sight of the space since then.
	Stale time.Time `json:"staleSince,omitzero"`
}

// Change is a later line of `cotal roster --watch --json`; one field besides v is set. A lost and a regained connection are told
// as cotal tail tells them.
type Change struct {
	command.V
	Peer    *target.Peer `json:"peer,omitempty"`    // its new state
	Removed string       `json:"removed,omitempty"` // gone for so long that it is listed no more
	Stale   time.Time    `json:"staleSince,omitzero"`
	Fresh   bool         `json:"fresh,omitempty"` // no longer stale
}

// Run lists, and with --watch follows.
func (r *roster) Run(ctx context.Context, e *command.Env) error {
	w := &watcher{r: r, e: e}
	t, ep, leave, err := target.Enter(ctx, e, target.Looking, target.WithEvents(w.event))
	if err != nil {
		return err
	}
	defer leave()
	now, err := ep.Roster(ctx)
	if err != nil {
		return t.Explain(err)
	}
	if r.watch {
		return t.Explain(w.follow(ctx, ep))
	}
	res := r.result(ep.Space(), now.Entries, now.StaleSince)
	return e.Print(res, res.human)
}

func (r *roster) result(s wire.Space, entries []wire.RosterEntry, stale time.Time) Result {
	res := Result{V: command.V1, Space: s, Present: []target.Peer{}, Stale: stale}
	for _, en := range entries {
		switch p := target.PeerOf(en); {
		case p.Here():
			res.Present = append(res.Present, p)
		case r.all:
			res.Gone = append(res.Gone, p)
		}
	}
	return res
}

func (r Result) human(p *command.Printer) {
	if !r.Stale.IsZero() {
		p.Line("stale since %s: delivery has lost sight of the space", view.When(r.Stale))
	}
	if len(r.Present) == 0 {
		p.Line("nobody is there in space %s", r.Space)
	}
	if len(r.Present)+len(r.Gone) == 0 {
		return
	}
	var rows [][]string
	for _, m := range r.Present {
		rows = append(rows, []string{m.Principal, m.Status, m.Role, m.Activity})
	}
	for _, m := range r.Gone {
		rows = append(rows, []string{m.Principal, departure(m), m.Role, m.Activity})
	}
	p.Table([]string{"principal", "status", "role", "activity"}, rows)
}

// departure says how and when a peer went.
func departure(m target.Peer) string {
	how := m.Gone
	if how == "" {
		how = m.Status
	}
	return how + " " + view.When(m.Since())
}

// watcher prints a roster that is followed.
type watcher struct {
	r     *roster
	e     *command.Env
	space wire.Space

	mu    sync.Mutex // guards the fields below and the output
	stop  context.CancelFunc
	stale time.Time
	shown bool // the first state was printed
	gone  bool // the connection is lost
	err   error
}

func (w *watcher) follow(ctx context.Context, ep *endpoint.Endpoint) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.space, w.stop = ep.Space(), cancel
	w.mu.Unlock()
	if err := ep.WatchRoster(ctx, w.update); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// event says when the mesh is gone and when it is back.
func (w *watcher) event(ev endpoint.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, lost := ev.(endpoint.EventDisconnected)
	_, back := ev.(endpoint.EventConnected)
	if !w.shown || !lost && !(back && w.gone) {
		return
	}
	w.gone = lost
	w.keep(w.e.Each(view.NoticeOf(ev), func(p *command.Printer) {
		p.Line("%s %s", p.Dim(view.When(time.Now())), view.Spoken(ev))
	}))
}

// update prints one change.
func (w *watcher) update(u endpoint.RosterUpdate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !u.StaleSince.Equal(w.stale) && w.shown {
		w.print(Change{V: command.V1, Stale: u.StaleSince, Fresh: u.StaleSince.IsZero()})
	}
	w.stale = u.StaleSince
	if u.Snapshot {
		res := w.r.result(w.space, u.Entries, u.StaleSince)
		w.shown = true
		w.keep(w.e.Each(res, res.human))
		return
	}
	for _, en := range u.Entries {
		p := target.PeerOf(en)
		w.print(Change{V: command.V1, Peer: &p})
	}
	for _, id := range u.Removed {
		w.print(Change{V: command.V1, Removed: id})
	}
}

func (w *watcher) print(c Change) { w.keep(w.e.Each(c, c.human)) }

// keep ends the watch at the first result that cannot be written.
func (w *watcher) keep(err error) {
	if err != nil && w.err == nil {
		w.err = err
		w.stop()
	}
}

func (c Change) human(p *command.Printer) {
	at := p.Dim(view.When(time.Now()))
	switch {
	case c.Peer != nil && c.Peer.Here():
		what := c.Peer.Status
		if c.Peer.Activity != "" {
			what += ": " + c.Peer.Activity
		}
		p.Line("%s %s is %s", at, p.Bold(command.Safe(c.Peer.Principal)), command.Safe(what))
	case c.Peer != nil:
		how := c.Peer.Gone
		if how == "" {
			how = c.Peer.Status
		}
		p.Line("%s %s is gone (%s)", at, p.Bold(command.Safe(c.Peer.Principal)), command.Safe(how))
	case c.Removed != "":
		p.Line("%s %s is no longer listed", at, command.Safe(c.Removed))
	case c.Fresh:
		p.Line("%s fresh again", at)
	default:
		p.Line("%s stale since %s: delivery has lost sight of the space", at, view.When(c.Stale))
	}
}
