package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// Control is what the authority asks of the broker; *broker.Control satisfies it.
type Control interface {
	// PutAccount adds or replaces an account and returns once the broker reads it back unchanged.
	PutAccount(ctx context.Context, public, jwt string) error
	// RemoveAccount ends an account, its connections included.
	RemoveAccount(ctx context.Context, public, deleteToken string) error
	// EvictTagged ends every connection of the account whose credential carries all tags, and proves it by
	// listing them again. It returns how many were ended.
	EvictTagged(ctx context.Context, account string, tags ...string) (int, error)
	// EvictKeys is the same for the connections of the credentials with these user keys.
	EvictKeys(ctx context.Context, account string, userKeys ...string) (int, error)
}

// Dialer opens a connection to the broker with the given credentials.
type Dialer func(ctx context.Context, creds *trust.Credentials) (*nats.Conn, error)

// Options adjusts an [Authority]. The zero value works.
type Options struct {
	// Logger receives one record per decision. Nil discards.
	Logger *slog.Logger
	// Space shapes streams and buckets of spaces that AddSpace creates. Nil means the defaults of package space.
	Space *space.Options
	// By names who asks, for the grant records. Default "authority".
	By string
}

// Authority mints, grants and revokes. Make one with [New].
type Authority struct {
	mint *mint.Authority
	ctl  Control
	dial Dialer
	opts Options
	log  *slog.Logger

	mu       sync.Mutex // guards the fields below
	sessions map[wire.Space]*slot
	folds    map[wire.Space]*Denials

	queues queueCache
	pace   pace
}

// New returns an authority over the records of m. It panics when m, ctl or dial is nil: an authority that
// cannot push or connect would accept revocations it cannot carry out.
func New(m *mint.Authority, ctl Control, dial Dialer, opts *Options) *Authority {
	if m == nil || ctl == nil || dial == nil {
		panic("auth: New needs a mint, a control and a dialer")
	}
	a := &Authority{mint: m, ctl: ctl, dial: dial, sessions: map[wire.Space]*slot{}, folds: map[wire.Space]*Denials{}}
	if opts != nil {
		a.opts = *opts
	}
	if a.opts.By == "" {
		a.opts.By = "authority"
	}
	a.log = a.opts.Logger
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.log = a.log.With(logkey.Component, "auth")
	return a
}

// Mint gives access to the trust records that the authority works on.
func (a *Authority) Mint() *mint.Authority { return a.mint }

// Close ends the connections that the authority holds. It is idempotent; a later call connects again.
func (a *Authority) Close() error {
	a.mu.Lock()
	folds := slices.Collect(maps.Values(a.folds))
	clear(a.folds)
	a.mu.Unlock()
	var err error
	for _, d := range folds {
		err = errors.Join(err, d.Close()) // over sessions that are still open
	}
	a.mu.Lock()
	slots := slices.Collect(maps.Values(a.sessions))
	clear(a.sessions)
	a.mu.Unlock()
	for _, sl := range slots {
		sl.close()
	}
	return err
}

// Issue grants a principal and returns its first credential.
//
// An unknown or retired name gets a fresh lifecycle. An active name is refused with already-exists unless
// Request.Renew is set; then the lifecycle is kept, the lists that the request names replace those of the grant
// and the others stay. What that means for the credentials before it is told by [Authority.Renew].
//
// Errors: bad-request for a name, pattern or lifetime outside the limits; already-exists; not-found for an
// unknown space or, with Renew, an unknown name; conflict when the grant changed meanwhile (nothing is handed
// out, ask again); unavailable when the broker does not answer.
func (a *Authority) Issue(ctx context.Context, req Request) (*trust.Credentials, error) {
	creds, _, err := a.issue(ctx, req)
	return creds, err
}

func (a *Authority) issue(ctx context.Context, req Request) (creds *trust.Credentials, ref Refusal, err error) {
	if req, err = req.withDefaults(); err != nil {
		return nil, ref, err
	}
	ses, err := a.session(ctx, req.Space)
	if err != nil {
		return nil, ref, fmt.Errorf("issue credential for %q: %w", req.Actor, err)
	}
	if err := a.forFiles(ctx, req); err != nil {
		return nil, ref, err
	}
	plan, creds, err := a.stand(ctx, ses, req)
	if req.reuse && (errors.Is(err, wire.ErrExists) || errors.Is(err, wire.ErrConflict)) {
		plan, creds, err = a.stand(ctx, ses, req) // another command of the same person may have been first; its grant serves both
	}
	if err != nil {
		return nil, ref, err
	}
	if plan.grant.Refusing != 0 { // before anything for which there may be no room
		if ref, err = a.refuseEarlier(ctx, ses, req.Space, plan.grant, ses.grants.Update); err != nil {
			return nil, ref, err
		}
	}
	id := creds.Identity()
	if err := accounted(ctx, ses, req.Space, plan.grant, id); err != nil {
		switch {
		case ref.Narrowed:
			err = fmt.Errorf("grant narrowed and earlier credentials refused; renew it again: %w", err)
		case plan.begin && errors.Is(err, wire.ErrExhausted):
			err = a.undone(ctx, ses, req.Space, plan.grant, err) // else the name were taken, by nobody
		}
		return nil, ref, err
	}
	if err := a.release(ctx, ses, plan); err != nil {
		return nil, ref, err
	}
	if err := a.forFiles(ctx, req); err != nil { // a switch refuses what was issued before it, and this may be later
		return nil, ref, err
	}
	if plan.write || !req.reuse { // what a person's own commands mint for themselves is in the issuance log alone
		a.audit(ctx, req.Space, change{action: plan.action(), target: plan.grant.Lifecycle(), detail: fmt.Sprintf("credential of profile %s until %s", id.Profile, id.Expires.Format(time.RFC3339))})
	}
	a.log.InfoContext(ctx, "credential issued", logkey.Space, req.Space, logkey.Principal, plan.grant.Principal().String(),
		logkey.Profile, string(id.Profile), logkey.Expires, id.Expires)
	return creds, ref, nil
}

// accounted makes the queues of a grant and logs a credential under it, which is not handed out before.
func accounted(ctx context.Context, ses *session, s wire.Space, g trust.Grant, id trust.Identity) error {
	if err := makeQueues(ctx, ses, s, g); err != nil {
		return err
	}
	if err := ses.grants.LogMint(ctx, g.UID, space.Mint{UserKey: id.UserKey, Epoch: g.Epoch, Expires: id.Expires}); err != nil {
		return fmt.Errorf("log credential of %q: %w", id.Principal, err)
	}
	return nil
}

// stand makes a credential and has the grant written that it stands under.
func (a *Authority) stand(ctx context.Context, ses *session, req Request) (plan, *trust.Credentials, error) {
	p, err := a.plan(ctx, ses, req)
	if err != nil {
		return plan{}, nil, err
	}
	profile, err := req.minted(p.grant)
	if err != nil {
		return plan{}, nil, err
	}
	creds, err := a.mint.User(ctx, mint.UserRequest{
		Space: req.Space, Profile: profile, Principal: p.grant.Principal(), UID: p.grant.UID, Role: p.grant.Role,
		Subscribe: p.grant.AllowSubscribe, Publish: p.grant.AllowPublish, Commands: trust.ScopeCommands(p.grant.Scope),
		Spawns: profile == trust.Agent && trust.Spawns(p.grant.Scope), TTL: req.TTL,
	})
	if err != nil { // what cannot be minted leaves no grant
		return plan{}, nil, err
	}
	if err := a.activate(ctx, ses, req.Space, &p); err != nil {
		return plan{}, nil, err
	}
	return p, creds, nil
}

// forFiles refuses what only spaces have that hand out credential files.
func (a *Authority) forFiles(ctx context.Context, req Request) error {
	people, err := a.People(ctx, req.Space)
	if err == nil && people {
		return trust.Deny(wire.CodeFailedPrecondition, trust.ReasonUserMode,
			"space %q signs people in and hands out no credential files; the operator runs: cotal actor grant %s --sub <id>, and they run: cotal login", req.Space, req.Actor)
	}
	return err
}

// plan is the grant under which a credential will stand and how to write it.
type plan struct {
	grant trust.Grant
	rev   uint64 // of the grant as it is stored; 0 when there is none
	write bool   // the grant is not stored as it is here
	begin bool   // it begins a life, whose queue starts at the present frontier
}

// action names for the record what the plan does.
func (p plan) action() string {
	switch {
	case p.begin:
		return space.ActionGrant
	case p.grant.Refusing != 0:
		return space.ActionNarrow
	case p.write:
		return space.ActionWiden
	}
	return space.ActionRenew
}

// plan decides what grant the request leads to, and writes nothing.
func (a *Authority) plan(ctx context.Context, ses *session, req Request) (plan, error) {
	p := req.principal()
	have, rev, err := ses.grants.Get(ctx, p)
	absent := errors.Is(err, wire.ErrNotFound)
	switch {
	case err != nil && !absent:
		return plan{}, fmt.Errorf("read grant of %q: %w", p, err)
	case absent && req.Renew:
		return plan{}, wire.Errorf(wire.CodeNotFound, "renew credential for %q: no such principal in space %q", p, req.Space)
	case absent:
		return plan{grant: req.newGrant(a.opts.By), write: true, begin: true}, nil
	case have.State == trust.GrantRetiring:
		return plan{}, wire.Errorf(wire.CodeFailedPrecondition, "issue credential for %q: its last life is still being retired; finish that with: %s", p, RevokeCommand(have))
	case have.State == trust.GrantActive && !req.Renew && !req.reuse:
		return plan{}, wire.Errorf(wire.CodeAlreadyExists, "issue credential for %q: the name is active in space %q", p, req.Space)
	case have.State == trust.GrantActive:
		next, changed, err := req.merge(have)
		return plan{grant: next, rev: rev, write: changed}, err
	case req.Renew:
		return plan{}, wire.Errorf(wire.CodeNotFound, "renew credential for %q: the principal was revoked in space %q", p, req.Space)
	}
	next := req.newGrant(a.opts.By)
	next.Epoch = have.Epoch + 1
	return plan{grant: next, rev: rev, write: true, begin: true}, nil
}

// activate writes the grant of the plan.
func (a *Authority) activate(ctx context.Context, ses *session, s wire.Space, pl *plan) (err error) {
	p := pl.grant.Principal()
	if pl.begin {
		if pl.grant.Cut, err = space.DirectFrontier(ctx, ses.js, s); err != nil {
			return fmt.Errorf("write grant of %q: %w", p, err)
		}
	}
	switch {
	case pl.write && pl.rev == 0:
		pl.rev, err = ses.grants.Create(ctx, pl.grant)
	case pl.write:
		pl.rev, err = ses.grants.Update(ctx, pl.grant, pl.rev)
	}
	if err != nil {
		return fmt.Errorf("write grant of %q: %w", p, err)
	}
	return nil
}

// makeQueues makes sure of the queues of a grant. It looks at the grant once more when they are made: whoever ended the life
// before that may have looked for queues before they were there, and nobody would look again.
func makeQueues(ctx context.Context, ses *session, s wire.Space, g trust.Grant) error {
	p := g.Principal()
	if err := space.EnsureQueues(ctx, ses.js, s, queues(g)); err != nil {
		return fmt.Errorf("create durables of %q: %w", p, err)
	}
	now, _, err := ses.grants.Get(ctx, p)
	if err != nil {
		return fmt.Errorf("read grant of %q again: %w", p, err)
	}
	if now.UID == g.UID && now.State == trust.GrantActive {
		return nil
	}
	if err := space.RemoveDurables(context.WithoutCancel(ctx), ses.js, s, g.Lifecycle()); err != nil {
		return fmt.Errorf("remove durables of %q, whose life has ended: %w", p, err)
	}
	return trust.Deny(wire.CodeConflict, trust.ReasonSuperseded, "the life of %q was ended meanwhile; nothing was handed out", p)
}

func queues(g trust.Grant) space.Queues {
	return space.Queues{Lifecycle: g.Lifecycle(), Role: g.Role, Cut: g.Cut}
}

// Restore makes the queues of active grants that the broker has lost, and returns for how many. A node calls it
// when the one before it did not end in order: a power cut can take a queue and leave the grant.
func (a *Authority) Restore(ctx context.Context, s wire.Space) (int, error) {
	if people, err := a.People(ctx, s); err != nil || people {
		return 0, err // queues of people are made when they connect
	}
	ses, err := a.session(ctx, s)
	if err != nil {
		return 0, fmt.Errorf("restore queues of space %q: %w", s, err)
	}
	grants, err := ses.grants.List(ctx)
	if err != nil {
		return 0, fmt.Errorf("restore queues of space %q: %w", s, err)
	}
	var wanted []space.Queues
	for _, g := range grants {
		if g.State == trust.GrantActive {
			wanted = append(wanted, queues(g))
		}
	}
	n, err := space.RestoreQueues(ctx, ses.js, s, wanted)
	if n > 0 {
		a.log.WarnContext(ctx, "lost queues made again", logkey.Space, s, logkey.Count, n)
	}
	return n, err
}

// release lets the credential go only if the grant still stands after the issuance was logged; so a concurrent
// Revoke, or a renewal that takes rights away, either finds the key in the log or changes the grant before this last look.
func (a *Authority) release(ctx context.Context, ses *session, pl plan) error {
	p := pl.grant.Principal()
	now, rev, err := ses.grants.Get(ctx, p)
	if err != nil {
		return fmt.Errorf("read grant of %q again: %w", p, err)
	}
	if rev != pl.rev && (now.State != trust.GrantActive || now.UID != pl.grant.UID || now.Epoch != pl.grant.Epoch) {
		return wire.Errorf(wire.CodeConflict, "issue credential for %q: the grant changed meanwhile; nothing was handed out", p)
	}
	return nil
}

// List returns the grants of a space, by principal.
func (a *Authority) List(ctx context.Context, s wire.Space) ([]trust.Grant, error) {
	ses, err := a.session(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("list grants of space %q: %w", s, err)
	}
	return ses.grants.List(ctx)
}

// Personal returns a short credential for a person's own commands: profile operator, observer, admin or agent, for the
// principal local.<actor>. The first call writes the person's grant; later calls reuse it, so that the person
// keeps one inbox. A name that is already granted to something else is refused with already-exists.
func (a *Authority) Personal(ctx context.Context, s wire.Space, profile trust.Profile, actor string, ttl time.Duration) (*trust.Credentials, error) {
	return a.Issue(ctx, Request{
		Space: s, Actor: actor, Profile: profile, TTL: ttl, reuse: true, kind: trust.KindInteractive,
		Subscribe: []string{">"}, Publish: []string{">"},
	})
}
