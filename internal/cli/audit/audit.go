// Package audit is `cotal audit`: who did what to whom in a space, and how it ended.
package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const auditLong = `
Lists the audit records of the space, newest last: what was granted, narrowed and taken away, by whom, which views were given, and who was not
let in and why. Denials that come in numbers are folded into one record that says how many they stand for. Who was let in as
usual is not recorded: cotal actor show <name> lists the connections.

Without --since the last records are shown; with it all since then, up to --limit if that is given. A record that this version cannot
read is listed as such. With --follow later ones are printed as they come, until Ctrl-C.
`

const auditExample = `
  cotal audit --since 1h
  cotal audit --actor ada --denied --follow
`

const (
	defaultLimit = 50
	// followEvery is how often --follow looks for more.
	followEvery = time.Second
)

// audit lists audit records.
type audit struct {
	since, actor, action string
	denied, follow       bool
	limit                int
	changed              func(flag string) bool
}

// New adds `cotal audit`.
func New(t *command.Tree) *cobra.Command {
	a := &audit{}
	c := t.Add(command.Spec{Use: "audit [flags]", Short: "List who did what, and who was not let in", Long: auditLong, Example: auditExample}, a)
	f := c.Flags()
	a.changed = f.Changed
	f.StringVar(&a.since, "since", "", "only records since then: 1h, 2d, 2027-01-31 or a time of RFC 3339")
	f.StringVar(&a.actor, "actor", "", "only records about this name or principal")
	f.StringVar(&a.action, "action", "", "only this action, such as grant, narrow, revoke, connect or exchange")
	f.BoolVar(&a.denied, "denied", false, "only what was denied")
	f.IntVar(&a.limit, "limit", defaultLimit, "at most so many, the last ones")
	f.BoolVar(&a.follow, "follow", false, "go on with what comes")
	_ = c.RegisterFlagCompletionFunc("action", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return space.AuditActions(), cobra.ShellCompDirectiveNoFileComp
	})
	_ = c.RegisterFlagCompletionFunc("actor", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return principals(c.Context(), t.Env), cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// Line is what `cotal audit --json` prints, one a record.
type Line struct {
	command.V
	space.AuditEntry
}

// Run lists, and with --follow goes on.
func (a *audit) Run(ctx context.Context, e *command.Env) error {
	q, err := a.query(time.Now())
	if err != nil {
		return err
	}
	t, node, err := target.OpenNode(ctx, e, "audit")
	if err != nil {
		return err
	}
	defer t.Close()
	r := &reader{e: e, t: t, authority: node.Authority()}
	if q.Principal, err = r.principal(ctx, a.actor); err != nil {
		return t.Explain(err)
	}
	if err := r.first(ctx, &q, a.changed("since") && !a.changed("limit")); err != nil {
		return t.Explain(err)
	}
	if !a.follow {
		if r.printed == 0 {
			e.Note("no such records in space %s", t.Space())
		}
		return nil
	}
	return t.Explain(r.follow(ctx, q))
}

func (a *audit) query(now time.Time) (space.AuditQuery, error) {
	q := space.AuditQuery{Action: a.action, Limit: a.limit, Newest: true}
	if a.denied {
		q.Outcome = space.OutcomeDenied
	}
	if a.limit < 1 || a.limit > space.MaxAuditPage {
		return q, command.Usagef("--limit %d: want 1 to %d", a.limit, space.MaxAuditPage)
	}
	if a.action != "" && !slices.Contains(space.AuditActions(), a.action) {
		return q, command.Usagef("--action %q: want one of %s", a.action, strings.Join(space.AuditActions(), ", "))
	}
	if a.since == "" {
		return q, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04"} {
		if at, err := time.ParseInLocation(form, a.since, time.Local); err == nil {
			q.Since = at
			return q, nil
		}
	}
	d, err := command.ParseDuration("--since", a.since)
	if err != nil || d <= 0 {
		return q, command.Usagef("--since %q: want a duration such as 1h or 2d, a date such as 2027-01-31, or a time of RFC 3339", a.since)
	}
	q.Since = now.Add(-d)
	return q, nil
}

// reader prints records.
type reader struct {
	e         *command.Env
	t         *target.Target
	authority *auth.Authority
	printed   int
}

// principal is who a name means: a principal, or the one that has a grant under that name, also one that was taken away.
func (r *reader) principal(ctx context.Context, name string) (wire.Principal, error) {
	switch {
	case name == "":
		return wire.Principal{}, nil
	case strings.Contains(name, "."):
		return wire.ParsePrincipal(name)
	}
	if err := target.CheckActor(name); err != nil {
		return wire.Principal{}, err
	}
	all, err := r.authority.List(ctx, r.t.Space())
	if err != nil {
		return wire.Principal{}, err
	}
	var fits, hints []string
	var found wire.Principal
	for _, g := range all {
		if g.Actor == name {
			found = g.Principal()
			fits, hints = append(fits, found.String()), append(hints, "cotal audit --actor "+found.String())
		}
	}
	switch len(fits) {
	case 0:
		return wire.Principal{}, command.Hint(wire.Errorf(wire.CodeNotFound, "nobody was ever granted %q here", name), "which names there are: cotal actor list --all", "or name a principal: --actor <owner>.<name>")
	case 1:
		return found, nil
	}
	return wire.Principal{}, command.Hint(wire.Errorf(wire.CodeConflict, "%q is a name of several owners: %s", name, strings.Join(fits, ", ")), hints...)
}

// first prints what is there and moves the query on behind it. With all it reads everything since the time, page by page.
func (r *reader) first(ctx context.Context, q *space.AuditQuery, all bool) error {
	if all {
		q.Newest, q.Limit = false, space.MaxAuditPage
	}
	for {
		entries, next, err := r.authority.Audit(ctx, r.t.Space(), *q)
		if err != nil {
			return err
		}
		if err := r.print(entries); err != nil {
			return err
		}
		q.After = next
		if !all || len(entries) < q.Limit {
			return nil
		}
	}
}

func (r *reader) print(entries []space.AuditEntry) error {
	for _, en := range entries {
		r.printed++
		err := r.e.Each(Line{V: command.V1, AuditEntry: en}, func(p *command.Printer) { p.Line("%s", view.Audit(p, en)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// follow prints what comes until the person ends it. A mesh that is away is waited for.
func (r *reader) follow(ctx context.Context, q space.AuditQuery) error {
	q.Newest, q.Limit = false, space.MaxAuditPage
	r.e.Note("following the audit records of space %s; Ctrl-C ends", r.t.Space())
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		entries, next, err := r.authority.Audit(ctx, r.t.Space(), q)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, wire.ErrUnavailable), wire.CodeOf(err) == wire.CodeDeadlineExceeded:
			if !away {
				r.e.Note("-- disconnected; waiting for the mesh")
			}
			away = true
			continue
		case err != nil:
			return err
		}
		if away {
			r.e.Note("-- connected")
		}
		away = false
		if err := r.print(entries); err != nil {
			return err
		}
		q.After = next
	}
}

// principals proposes who has or had a grant.
func principals(ctx context.Context, e *command.Env) []string {
	return target.CompleteNode(ctx, e, func(ctx context.Context, t *target.Target, node *cotal.NodeClient) []string {
		all, err := node.Authority().List(ctx, t.Space())
		if err != nil {
			return nil
		}
		var out []string
		for _, g := range all {
			out = append(out, g.Principal().String())
		}
		return out
	})
}
