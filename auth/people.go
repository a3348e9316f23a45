package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// GrantRequest says what a principal of a space of people may do.
type GrantRequest struct {
	// Space, Owner and Actor are required.
	Space        wire.Space
	Owner, Actor string
	// Kind is interactive (the default), service, or managed for an agent that a supervisor runs.
	Kind trust.GrantKind
	// Scope, Subscribe and Publish replace the lists of the grant. Nil keeps what is there, which for a new grant is nothing; an
	// empty list takes everything away.
	Scope, Subscribe, Publish []string
	// Role and Label replace those of the grant; nil keeps.
	Role, Label *string
	// Expires is the end of the grant: nil keeps, a zero time means none.
	Expires *time.Time
	// Parent is the life that the grant is held under; nil for none. It is chosen once for a life.
	Parent *wire.Lifecycle
	// By names who grants, for the record. Default: that of the authority.
	By string

	tokenHash *string  // of a managed agent
	fresh     bool     // the name must be free, or granted by the same request before
	life      wire.UID // the life that is meant; empty for whichever there is, or a new one
	start     uint64   // with life and tokenHash: the number of the start that is made or ended
	did       string   // the action of the audit record; default: by what changes
	asked     string   // on whose behalf it is asked, as whoever asks says
}

// GrantChange says what a grant did.
type GrantChange struct {
	Grant   trust.Grant `json:"grant"`
	Created bool        `json:"created"` // a life began
	Changed bool        `json:"changed"`
	// Narrowed says that something was taken away. What was open under it is closed then.
	Narrowed bool `json:"narrowed"`
	Kicked   int  `json:"kicked"` // connections that were ended
	// Exceeding are those held under the grant who now hold more than it does, or are agents while it may start none any more: they are
	// refused until they are narrowed or the grant is widened again.
	Exceeding []wire.Principal `json:"exceeding,omitempty"`

	did, asked string // as in GrantRequest
}

// Grant writes what a principal may do, and makes it bite: what was open under rights that are taken away is closed before it
// returns, also of everybody held under the grant who now holds more than it. New bearers are needed after every change; live
// connections that lost nothing stay.
//
// Errors: bad-request for a name, pattern or scope outside the grammar; permission-denied with reason exceeds-parent,
// parent-gone; failed-precondition with reason static-mode for a space of credential files, and grant-retiring; already-exists
// for a name of another kind or under another parent; conflict when somebody else changed the grant meanwhile. The error says
// when the change is written and connections may still be open; running it again finishes it.
func (a *Authority) Grant(ctx context.Context, req GrantRequest) (GrantChange, error) {
	out := GrantChange{did: req.did, asked: req.asked}
	if err := req.check(); err != nil {
		return out, err
	}
	if err := a.forPeople(ctx, req.Space); err != nil {
		return out, err
	}
	if req.Owner == wire.LocalOwner && req.kind() == trust.KindManaged && !req.takes() {
		return out, ofFiles(req.principal(), trust.ReasonUserMode)
	}
	ses, err := a.session(ctx, req.Space)
	if err != nil {
		return out, fmt.Errorf("grant %q: %w", req.principal(), err)
	}
	pl, err := a.grantPlan(ctx, ses, req, &out)
	if err != nil {
		return out, err
	}
	if err := req.mintable(pl.grant); err != nil {
		return out, err
	}
	if err := req.bearable(pl.grant); err != nil {
		return out, err
	}
	if _, err := chain(ctx, ses, pl.grant, time.Now()); err != nil && !req.takes() {
		return out, err
	}
	if err := a.activate(ctx, ses, req.Space, &pl); err != nil {
		return out, err
	}
	out.Grant = pl.grant
	// Once more: what is above may have been taken away between the look and the write, and whoever did that has looked for
	// what is below before this was written.
	if _, err := chain(ctx, ses, pl.grant, time.Now()); err != nil && out.Created {
		_, rerr := a.revoke(context.WithoutCancel(ctx), ses, req.Space, pl.grant.Lifecycle(), ses.grants.Update)
		return out, errors.Join(err, rerr)
	}
	switch {
	case out.Narrowed:
		if err := a.closeNarrowed(ctx, ses, req.Space, &out, ses.grants.Update); err != nil {
			return out, err
		}
	case out.Changed:
		a.auditGrant(ctx, req.Space, out)
	}
	a.log.InfoContext(ctx, "grant written", logkey.Space, req.Space, logkey.Principal, req.principal().String(), logkey.Action, out.action())
	return out, nil
}

func (a *Authority) auditGrant(ctx context.Context, s wire.Space, c GrantChange) {
	detail := fmt.Sprintf("epoch %d, %s ended", c.Grant.Epoch, counted(c.Kicked, "connection"))
	if c.asked != "" {
		detail += fmt.Sprintf(", asked for by %.140q", c.asked)
	}
	a.audit(ctx, s, change{action: c.action(), target: c.Grant.Lifecycle(), by: c.Grant.By, detail: detail})
}

func (c GrantChange) action() string {
	switch {
	case c.did != "":
		return c.did
	case c.Created:
		return space.ActionGrant
	case c.Narrowed:
		return space.ActionNarrow
	}
	return space.ActionWiden
}

// takes reports whether the request only takes the secret of an agent away, which needs no right above it.
func (r GrantRequest) takes() bool { return r.life != "" && r.tokenHash != nil && *r.tokenHash == "" }

// inOrder holds the starts and stops of a life to their order, in whichever they come: a start that is over is refused, and the stop of
// one takes nothing away.
func (r GrantRequest) inOrder(have trust.Grant) (GrantRequest, error) {
	switch {
	case r.tokenHash == nil || r.start > have.Start:
	case r.takes():
		if r.start < have.Start {
			r.tokenHash = nil
		}
	case r.start < have.Start, r.start > 0 && *r.tokenHash != have.TokenHash:
		return r, trust.Deny(wire.CodeConflict, trust.ReasonSuperseded, "start agent %q: start %d comes late, after start %d was made or stopped",
			r.principal(), r.start, have.Start)
	}
	return r, nil
}

// repeats reports whether an active grant is what the same request made before.
func (r GrantRequest) repeats(have trust.Grant) bool {
	parent, uid := "", wire.UID("")
	if r.Parent != nil {
		parent, uid = r.Parent.Principal.String(), r.Parent.UID
	}
	return have.Kind == r.kind() && have.Parent == parent && have.ParentUID == uid && same(r.apply(have), have)
}

func (r GrantRequest) principal() wire.Principal {
	return wire.Principal{Owner: r.Owner, Actor: r.Actor}
}

// grantable refuses what is no name, and the one that the authority knows supervisors by.
func grantable(p wire.Principal) error {
	if p == trust.Supervisor.Principal() {
		return wire.Errorf(wire.CodeAlreadyExists, "grant %q: the name is that of the supervisors of the space; take another", p)
	}
	return p.Validate()
}

func (r GrantRequest) check() error {
	if _, err := wire.ParseSpace(string(r.Space)); err != nil {
		return err
	}
	if err := grantable(r.principal()); err != nil {
		return err
	}
	for _, e := range r.Scope {
		if err := trust.ValidateScope(e); err != nil {
			return err
		}
	}
	for _, p := range slices.Concat(r.Subscribe, r.Publish) {
		if err := wire.ValidatePattern(p); err != nil {
			return err
		}
	}
	if r.Expires != nil && !r.Expires.IsZero() && !r.Expires.After(time.Now()) {
		return wire.Errorf(wire.CodeBadRequest, "grant %q: it would end at %s, which is past", r.principal(), r.Expires.Format(time.RFC3339))
	}
	return nil
}

// mintable refuses lists that no connection could be given.
func (r GrantRequest) mintable(g trust.Grant) error {
	id := trust.Identity{
		Space: r.Space, Profile: trust.Agent, Lifecycle: g.Lifecycle(), Inbox: string(g.UID), Role: g.Role,
		Subscribe: g.AllowSubscribe, Publish: g.AllowPublish, Commands: trust.ScopeCommands(g.Scope), Spawns: trust.Spawns(g.Scope),
	}
	return id.Validate()
}

// bearable refuses a scope with which no bearer could be signed. One of before that was looked at is left alone by what does not name it.
func (r GrantRequest) bearable(g trust.Grant) error {
	if r.Scope == nil && (r.tokenHash == nil || r.takes()) {
		return nil
	}
	return trust.CheckScopeSize(g.Principal(), g.Scope)
}

// forPeople refuses what only spaces have that sign people in.
func (a *Authority) forPeople(ctx context.Context, s wire.Space) error {
	people, err := a.People(ctx, s)
	if err == nil && !people {
		return trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode,
			"space %q works with credential files; hand one out with: cotal mint <name>, or sign people in with: cotal up --idp <issuer>", s)
	}
	return err
}

// People reports whether a space signs people in, instead of handing out credential files.
func (a *Authority) People(ctx context.Context, s wire.Space) (bool, error) {
	rec, err := a.mint.Account(ctx, s)
	if err != nil {
		return false, fmt.Errorf("read mode of space %q: %w", s, err)
	}
	return rec.Callout != nil, nil
}

// grantPlan decides what the grant becomes, and writes nothing.
func (a *Authority) grantPlan(ctx context.Context, ses *session, req GrantRequest, out *GrantChange) (plan, error) {
	p := req.principal()
	have, rev, err := ses.grants.Get(ctx, p)
	absent := errors.Is(err, wire.ErrNotFound)
	switch {
	case err != nil && !absent:
		return plan{}, fmt.Errorf("read grant of %q: %w", p, err)
	case req.life != "" && absent:
		return plan{}, fmt.Errorf("change grant: %w", err)
	case req.life != "" && have.UID != req.life:
		return plan{}, wire.Errorf(wire.CodeConflict, "change grant of %q: it has begun another life", p)
	case req.life != "" && have.State != trust.GrantActive:
		return plan{}, standing(have, time.Now())
	case absent || have.State == trust.GrantRetired:
		out.Created, out.Changed = true, true
		g := trust.Grant{
			Ver: trust.GrantVersion, Owner: p.Owner, Actor: p.Actor, UID: wire.NewUID(), Epoch: have.Epoch + 1, Kind: req.kind(),
			State: trust.GrantActive, CreatedAt: time.Now().UTC(), By: a.by(req.By),
		}
		if req.Parent != nil {
			g.Parent, g.ParentUID = req.Parent.Principal.String(), req.Parent.UID
		}
		return plan{grant: req.apply(g), rev: rev, write: true, begin: true}, nil
	case have.State == trust.GrantRetiring:
		return plan{}, standing(have, time.Now())
	case req.fresh && req.repeats(have):
		return plan{grant: have, rev: rev}, nil
	case have.Kind != req.kind():
		return plan{}, wire.Errorf(wire.CodeAlreadyExists, "grant %q: the name is granted as %s, not %s; take another, or free it with: %s", p, have.Kind, req.kind(), RevokeCommand(have))
	case req.fresh:
		return plan{}, wire.Errorf(wire.CodeAlreadyExists, "grant agent %q: it is active; start it again, or free the name with: %s", p, RevokeCommand(have))
	case req.Parent != nil && (have.Parent != req.Parent.Principal.String() || have.ParentUID != req.Parent.UID):
		return plan{}, wire.Errorf(wire.CodeAlreadyExists, "grant %q: it is held under somebody else; free the name with: %s", p, RevokeCommand(have))
	}
	if req, err = req.inOrder(have); err != nil {
		return plan{}, err
	}
	next := req.apply(have)
	out.Changed = !same(next, have)
	if !out.Changed && have.Refusing == 0 {
		return plan{grant: have, rev: rev}, nil
	}
	if out.Changed {
		next.Epoch, next.By = have.Epoch+1, a.by(req.By)
	}
	if narrows(have, next) || ends(have, next) {
		next.Refusing = next.Epoch
	}
	out.Narrowed = next.Refusing != 0
	return plan{grant: next, rev: rev, write: out.Changed}, nil
}

func (a *Authority) by(who string) string {
	if who == "" {
		return a.opts.By
	}
	return who
}

func (r GrantRequest) kind() trust.GrantKind {
	if r.Kind == "" {
		return trust.KindInteractive
	}
	return r.Kind
}

// apply puts what the request names into a grant.
func (r GrantRequest) apply(g trust.Grant) trust.Grant {
	for _, l := range []struct {
		have *[]string
		want []string
	}{{&g.Scope, r.Scope}, {&g.AllowSubscribe, r.Subscribe}, {&g.AllowPublish, r.Publish}} {
		if l.want != nil {
			*l.have = slices.Clone(l.want)
		}
	}
	for _, f := range []struct{ have, want *string }{{&g.Role, r.Role}, {&g.Label, r.Label}, {&g.TokenHash, r.tokenHash}} {
		if f.want != nil {
			*f.have = *f.want
		}
	}
	g.Start = max(g.Start, r.start)
	if r.Expires != nil {
		g.ExpiresAt = nil
		if !r.Expires.IsZero() {
			end := r.Expires.UTC()
			g.ExpiresAt = &end
		}
	}
	return g
}

// same reports whether two grants of one life say the same.
func same(x, y trust.Grant) bool {
	sameEnd := (x.ExpiresAt == nil) == (y.ExpiresAt == nil) && (x.ExpiresAt == nil || x.ExpiresAt.Equal(*y.ExpiresAt))
	return sameEnd && slices.Equal(x.Scope, y.Scope) && slices.Equal(x.AllowSubscribe, y.AllowSubscribe) &&
		slices.Equal(x.AllowPublish, y.AllowPublish) && x.Role == y.Role && x.Label == y.Label && x.TokenHash == y.TokenHash && x.Start == y.Start
}

// ends reports whether next ends before g does, or has another secret than it.
func ends(g, next trust.Grant) bool {
	sooner := next.ExpiresAt != nil && (g.ExpiresAt == nil || next.ExpiresAt.Before(*g.ExpiresAt))
	return sooner || g.TokenHash != "" && next.TokenHash != g.TokenHash
}

// closeNarrowed ends what was open under the wider grant, of the principal and of everybody under it who exceeds it now, and
// takes the mark off by write. What it did is noted before that: whoever finishes it after that finds nothing to note.
func (a *Authority) closeNarrowed(ctx context.Context, ses *session, s wire.Space, out *GrantChange, write update) error {
	p := out.Grant.Principal()
	fail := func(err error) error {
		return fmt.Errorf("grant %q: narrowed, connections may still be open; run it again: %w", p, err)
	}
	lives := []closing{{Lifecycle: out.Grant.Lifecycle(), before: out.Grant.Refusing}}
	below, err := descendants(ctx, ses, out.Grant)
	if err != nil {
		return fail(err)
	}
	for _, g := range below {
		if g.State != trust.GrantActive {
			continue
		}
		_, err := chain(ctx, ses, g, time.Now())
		switch {
		case trust.ReasonOf(err) != "":
			out.Exceeding = append(out.Exceeding, g.Principal())
		case err != nil:
			return fail(err)
		case out.Grant.ExpiresAt == nil:
			continue // it lost nothing, and does not end sooner
		}
		lives = append(lives, closing{Lifecycle: g.Lifecycle()})
	}
	if out.Kicked, err = a.closeLives(ctx, ses, s, lives); err != nil {
		return fail(err)
	}
	a.auditGrant(ctx, s, *out)
	if err := refused(ctx, ses, out.Grant, write); err != nil {
		return fail(err)
	}
	out.Grant.Refusing = 0
	return nil
}

// descendants returns everything held under a grant, parents before children.
func descendants(ctx context.Context, ses *session, g trust.Grant) ([]trust.Grant, error) {
	var out []trust.Grant
	seen := map[wire.UID]bool{g.UID: true}
	for queue := []trust.Grant{g}; len(queue) > 0; queue = queue[1:] {
		children, err := ses.grants.Children(ctx, queue[0].Lifecycle())
		if err != nil {
			return nil, err
		}
		for _, c := range children {
			if !seen[c.UID] {
				seen[c.UID] = true
				out, queue = append(out, c), append(queue, c)
			}
		}
	}
	return out, nil
}

// EnsurePeople makes a space one of people: it gives it the accounts and keys of the callout, refuses every credential that was issued
// before, and pushes that. It is idempotent, and returns once credentials can be issued again, a second later. There is no way back but
// removing the space: credential files would come back with it.
func (a *Authority) EnsurePeople(ctx context.Context, s wire.Space) (trust.AccountRecord, error) {
	before, err := a.People(ctx, s)
	if err != nil {
		return trust.AccountRecord{}, fmt.Errorf("sign people in at space %q: %w", s, err)
	}
	rec, err := a.mint.SwitchToCallout(ctx, s)
	if err != nil {
		return rec, fmt.Errorf("sign people in at space %q: %w", s, err)
	}
	if err := a.Push(ctx, s); err != nil {
		return rec, err
	}
	if !before {
		if err := mint.AwaitSwitch(ctx); err != nil {
			return rec, fmt.Errorf("sign people in at space %q: recorded and pushed: %w", s, err)
		}
	}
	a.audit(ctx, s, change{action: space.ActionConfigure, detail: "people sign in"})
	return rec, nil
}
