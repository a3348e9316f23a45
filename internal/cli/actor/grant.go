package actor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const grantLong = `
Grants a name to a person, or changes what it may do. They then sign in with cotal login and act under the name.

A list that is named replaces the one before; one that is named and empty takes everything of it away; one that is not named stays as it is.
Lists take commas, and may be repeated. A new name that is granted nothing is refused: name its lists, or spell out --full, which
is every channel and the scope spawn. The scope holds spawn (start helpers), supervise (run a supervisor), role:<role> (serve the
role, and hand it on), commands as <endpoint>.<command>, and admin, which is never in --full: its holder may ask for the views
of an administrator, and what is held under it has no limit.

The change counts at once. What was open under rights that are taken away is closed before the command returns, also of everybody held
under the name who now holds more than it does; they are told with the command that mends it. Running it again changes nothing.
`

const grantExample = `
  cotal actor grant ada --sub 248289761001 --allow-subscribe 'team.>' --allow-publish team.backend --scope spawn,role:reviewer
  cotal actor grant ada --allow-publish '' --expires 30d
`

const (
	flagScope     = "scope"
	flagSubscribe = "allow-subscribe"
	flagPublish   = "allow-publish"
	flagRole      = "role"
	flagLabel     = "label"
	flagExpires   = "expires"
)

// grant grants a name or changes a grant.
type grant struct {
	whose
	name                      string
	scope, subscribe, publish []string
	role, label, expires      string
	service, full             bool
	changed                   func(flag string) bool
	all                       []trust.Grant // of the space, before
}

func newGrant(t *command.Tree) *cobra.Command {
	g := &grant{}
	c := t.Add(command.Spec{
		Use: "grant <name> [flags]", Short: "Grant a name, or change what it may do", Long: grantLong, Example: grantExample,
		Args: command.One("name", &g.name), Complete: names, Changes: true,
	}, g)
	g.whose.flags(t, c)
	f := c.Flags()
	g.changed = f.Changed
	f.StringSliceVar(&g.subscribe, flagSubscribe, nil, "channel patterns the holder may read")
	f.StringSliceVar(&g.publish, flagPublish, nil, "channel patterns the holder may post to")
	f.StringSliceVar(&g.scope, flagScope, nil, "what else: spawn, supervise, role:<role>, <endpoint>.<command>, admin")
	f.StringVar(&g.role, flagRole, "", "role whose messages the holder takes, one holder each")
	f.StringVar(&g.label, flagLabel, "", "free text kept with the grant")
	f.StringVar(&g.expires, flagExpires, "", "end of the grant: 30d, 2027-01-31, a time of RFC 3339, or never")
	f.BoolVar(&g.service, "service", false, "a long-running program, not a person at a terminal")
	f.BoolVar(&g.full, "full", false, "of the lists not named: every channel, and the scope spawn")
	completeList(t, c, flagScope, scopes)
	completeList(t, c, flagSubscribe, target.CompleteChannels)
	completeList(t, c, flagPublish, target.CompleteChannels)
	return c
}

// GrantResult is what `cotal actor grant --json` prints.
type GrantResult struct {
	command.V
	Space wire.Space `json:"space"`
	// Done is created, widened, narrowed, changed or unchanged. What is narrowed may have gained something too.
	Done    string    `json:"done"`
	Grant   Row       `json:"grant"`
	Added   *Rights   `json:"added,omitempty"`
	Removed *Rights   `json:"removed,omitempty"`
	Kicked  int       `json:"kicked"`              // connections that were ended
	Exceeds []Exceeds `json:"exceeding,omitempty"` // who below holds more than it does now
	Warning string    `json:"warning,omitempty"`
}

// Rights are entries of the lists of a grant.
type Rights struct {
	Scope     []string `json:"scope,omitempty"`
	Subscribe []string `json:"allowSubscribe,omitempty"`
	Publish   []string `json:"allowPublish,omitempty"`
	Role      string   `json:"role,omitempty"`
}

// Exceeds is somebody who is refused until one of both grants changes, and the command that narrows it.
type Exceeds struct {
	Principal string `json:"principal"`
	Repair    string `json:"repair,omitempty"`
}

// Run grants.
func (g *grant) Run(ctx context.Context, e *command.Env) error {
	name, err := checkName(g.name, &g.whose)
	if err != nil {
		return err
	}
	req := auth.GrantRequest{Actor: name}
	if req.Expires, err = parseEnd(g.expires, g.changed(flagExpires), time.Now()); err != nil {
		return err
	}
	t, node, err := target.OpenNode(ctx, e, "actor")
	if err != nil {
		return err
	}
	defer t.Close()
	a := node.Authority()
	req.Space = t.Space()
	before, err := g.subject(ctx, t, node, &req)
	if err != nil {
		return t.Explain(err)
	}
	if err := g.lists(&req, before); err != nil {
		return err
	}
	change, err := a.Grant(ctx, req)
	if err != nil {
		return t.Explain(g.explain(err, req))
	}
	res := resultOf(t.Space(), before, change)
	if change.Created {
		res.warnTwin(g.all)
	}
	for _, p := range change.Exceeding {
		ex := Exceeds{Principal: p.String()}
		if in, err := a.Inspect(ctx, t.Space(), p); err == nil {
			ex.Repair = in.Fitting()
		}
		res.Exceeds = append(res.Exceeds, ex)
	}
	if err := e.Print(res, res.human); err != nil {
		return err
	}
	if res.Warning != "" {
		e.Note("warning: %s", res.Warning)
	}
	return nil
}

// subject decides whose name it is, and returns the grant that it has; the zero grant for a new one.
func (g *grant) subject(ctx context.Context, t *target.Target, node *cotal.NodeClient, req *auth.GrantRequest) (trust.Grant, error) {
	a := node.Authority()
	people, err := a.People(ctx, t.Space())
	if err != nil {
		return trust.Grant{}, err
	}
	if !people { // which refuses, and says how it is done there
		_, err := a.Grant(ctx, auth.GrantRequest{Space: t.Space(), Owner: wire.LocalOwner, Actor: req.Actor, Kind: trust.KindStatic})
		return trust.Grant{}, command.Hint(err, "a credential file: cotal mint "+req.Actor)
	}
	all, err := a.List(ctx, t.Space())
	if err != nil {
		return trust.Grant{}, err
	}
	g.all = all
	if req.Owner, err = g.resolve(ctx, t, people, all); err != nil {
		return trust.Grant{}, err
	}
	if req.Owner == wire.LocalOwner {
		return trust.Grant{}, command.Usagef("owner %q is of spaces of credential files: nobody can sign in as it", req.Owner)
	}
	have, err := find(all, req.Actor, req.Owner, "grant")
	switch {
	case err == nil && have.State != trust.GrantRetired:
		req.Owner = have.Owner
		if req.Kind = have.Kind; g.service {
			req.Kind = trust.KindService
		}
		return have, nil
	case err != nil && !errors.Is(err, wire.ErrNotFound):
		return trust.Grant{}, err
	case req.Owner == "":
		return trust.Grant{}, command.Hint(command.Usagef("grant %q: whose name is it to be", req.Actor),
			"a person, by the subject at the identity provider: cotal actor grant "+req.Actor+" --sub <id>", "or by the owner that a refused sign-in names: --owner u_…")
	}
	if g.service {
		req.Kind = trust.KindService
	}
	return trust.Grant{}, nil
}

// lists puts into the request what is named.
func (g *grant) lists(req *auth.GrantRequest, before trust.Grant) error {
	any := false
	for _, l := range []struct {
		flag string
		from []string
		to   *[]string
		full []string
	}{
		{flagScope, g.scope, &req.Scope, []string{trust.ScopeSpawn}},
		{flagSubscribe, g.subscribe, &req.Subscribe, []string{">"}},
		{flagPublish, g.publish, &req.Publish, []string{">"}},
	} {
		switch {
		case g.changed(l.flag):
			*l.to = orEmpty(l.from)
		case g.full:
			*l.to = l.full
		}
		any = any || *l.to != nil
	}
	if g.changed(flagRole) {
		req.Role = &g.role
	}
	if g.changed(flagLabel) {
		req.Label = &g.label
	}
	if any || before.UID != "" {
		return nil
	}
	return command.Usagef("grant %q: nothing is named that it may do; name its lists, such as --allow-subscribe general --allow-publish general, or spell out --full", req.Actor)
}

// explain adds to a refusal what helps.
func (g *grant) explain(err error, req auth.GrantRequest) error {
	if errors.Is(err, wire.ErrExists) {
		return command.Hint(err, "cotal actor revoke "+req.Actor+" --owner "+req.Owner)
	}
	return err
}

// parseEnd reads --expires: nil keeps the end that there is, the zero time means none.
func parseEnd(s string, named bool, now time.Time) (*time.Time, error) {
	if !named {
		return nil, nil
	}
	if s == "never" {
		return &time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04"} {
		if at, err := time.ParseInLocation(form, s, time.Local); err == nil {
			return &at, nil
		}
	}
	d, err := command.ParseDuration("--expires", s)
	if err != nil || d <= 0 {
		return nil, command.Usagef("--expires %q: want a duration such as 30d, a date such as 2027-01-31, a time of RFC 3339, or never", s)
	}
	at := now.Add(d).Truncate(time.Second)
	return &at, nil
}

func resultOf(s wire.Space, before trust.Grant, change auth.GrantChange) GrantResult {
	after := change.Grant
	res := GrantResult{V: command.V1, Space: s, Grant: rowOf(after), Kicked: change.Kicked, Added: beyond(after, before), Removed: beyond(before, after)}
	switch {
	case change.Created:
		res.Done, res.Removed = "created", nil
	case change.Narrowed:
		res.Done = "narrowed"
	case !change.Changed:
		res.Done = "unchanged"
	case res.Added != nil:
		res.Done = "widened"
	default:
		res.Done = "changed"
	}
	if slices.Contains(after.Scope, trust.ScopeAdmin) {
		res.Warning = after.Principal().String() + " holds scope admin: it may ask for the views of an administrator, and what is held under it has no limit"
	}
	return res
}

// warnTwin says that a name is easily taken for another one.
func (r *GrantResult) warnTwin(all []trust.Grant) {
	for _, g := range all {
		if g.State != trust.GrantActive || g.Actor == r.Grant.Name || !strings.EqualFold(g.Actor, r.Grant.Name) {
			continue
		}
		if r.Warning != "" {
			r.Warning += "; "
		}
		r.Warning += fmt.Sprintf("%q differs from %s in nothing but the case of its letters", r.Grant.Name, rowOf(g).who())
		return
	}
}

// beyond is what x names and y does not, nil when there is nothing.
func beyond(x, y trust.Grant) *Rights {
	missing := func(a, b []string) []string {
		var out []string
		for _, v := range a {
			if !slices.Contains(b, v) {
				out = append(out, v)
			}
		}
		return out
	}
	r := &Rights{Scope: missing(x.Scope, y.Scope), Subscribe: missing(x.AllowSubscribe, y.AllowSubscribe), Publish: missing(x.AllowPublish, y.AllowPublish)}
	if x.Role != y.Role {
		r.Role = x.Role
	}
	if len(r.Scope)+len(r.Subscribe)+len(r.Publish) == 0 && r.Role == "" {
		return nil
	}
	return r
}

func (r *Rights) lines() []string {
	if r == nil {
		return nil
	}
	var out []string
	for _, l := range []struct {
		what string
		list []string
	}{{"read", r.Subscribe}, {"post to", r.Publish}, {"scope", r.Scope}} {
		if len(l.list) > 0 {
			out = append(out, l.what+" "+strings.Join(l.list, ", "))
		}
	}
	if r.Role != "" {
		out = append(out, "take messages of role "+r.Role)
	}
	return out
}

func (r GrantResult) human(p *command.Printer) {
	verb := r.Done
	if verb == "created" {
		verb = "granted"
	}
	p.Line("%s %s in space %s", verb, p.Bold(r.Grant.who()), r.Space)
	for _, line := range r.Added.lines() {
		p.Line("  + %s", line)
	}
	for _, line := range r.Removed.lines() {
		p.Line("  - %s", line)
	}
	if r.Grant.Expires != nil {
		p.Line("  until %s", r.Grant.expires())
	}
	if r.Kicked > 0 {
		p.Line("  ended %s", plural(r.Kicked, "connection"))
	}
	if len(r.Exceeds) > 0 {
		p.Line("  %s under it now %s more than it does, and %s refused until one of both grants changes:", plural(len(r.Exceeds), "actor"), verbs(r.Exceeds, "holds", "hold"), verbs(r.Exceeds, "is", "are"))
	}
	for _, x := range r.Exceeds {
		p.Line("    %s: %s", x.Principal, dash(x.Repair))
	}
}

func verbs(x []Exceeds, one, many string) string {
	if len(x) == 1 {
		return one
	}
	return many
}
