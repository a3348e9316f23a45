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

	mu       sync.Mutex // guards sessions
	sessions map[wire.Space]*slot
}

// New returns an authority over the records of m. It panics when m, ctl or dial is nil: an authority that
// cannot push or connect would accept revocations it cannot carry out.
func New(m *mint.Authority, ctl Control, dial Dialer, opts *Options) *Authority {
	if m == nil || ctl == nil || dial == nil {
		panic("auth: New needs a mint, a control and a dialer")
	}
	a := &Authority{mint: m, ctl: ctl, dial: dial, sessions: map[wire.Space]*slot{}}
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
	slots := slices.Collect(maps.Values(a.sessions))
	clear(a.sessions)
	a.mu.Unlock()
	for _, sl := range slots {
		sl.close()
	}
	return nil
}

// Issue grants a principal and returns its first credential.
//
// An unknown or retired name gets a fresh lifecycle. An active name is refused with already-exists unless
// Request.Renew is set; then the lifecycle is kept, the lists that the request names replace those of the grant
// and the others stay.
//
// Errors: bad-request for a name, pattern or lifetime outside the limits; already-exists; not-found for an
// unknown space or, with Renew, an unknown name; conflict when the grant changed meanwhile (nothing is handed
// out, ask again); unavailable when the broker does not answer.
func (a *Authority) Issue(ctx context.Context, req Request) (*trust.Credentials, error) {
	req, err := req.withDefaults()
	if err != nil {
		return nil, err
	}
	ses, err := a.session(ctx, req.Space)
	if err != nil {
		return nil, fmt.Errorf("issue credential for %q: %w", req.Actor, err)
	}
	grant, rev, err := a.activate(ctx, ses, req)
	if err != nil {
		return nil, err
	}
	creds, err := a.hand(ctx, ses, req, grant, rev)
	if err != nil {
		return nil, err
	}
	a.log.InfoContext(ctx, "credential issued", logkey.Space, req.Space, logkey.Principal, grant.Principal().String(),
		logkey.Profile, string(req.Profile), logkey.Expires, creds.Identity().Expires)
	return creds, nil
}

// activate makes sure that an active grant stands for the request and that its durables exist.
func (a *Authority) activate(ctx context.Context, ses *session, req Request) (trust.Grant, uint64, error) {
	p := req.principal()
	grant, rev, err := ses.grants.Get(ctx, p)
	switch {
	case errors.Is(err, wire.ErrNotFound):
		if req.Renew {
			return grant, 0, wire.Errorf(wire.CodeNotFound, "renew credential for %q: no such principal in space %q", p, req.Space)
		}
		grant = req.newGrant(a.opts.By)
		if grant.Cut, err = space.DirectFrontier(ctx, ses.js, req.Space); err == nil {
			rev, err = ses.grants.Create(ctx, grant)
		}
	case err != nil:
		return grant, 0, fmt.Errorf("read grant of %q: %w", p, err)
	case grant.State == trust.GrantActive && !req.Renew && !req.reuse:
		return grant, 0, wire.Errorf(wire.CodeAlreadyExists, "issue credential for %q: the name is active in space %q", p, req.Space)
	case grant.State == trust.GrantActive:
		next, changed, kerr := req.merge(grant)
		if kerr != nil {
			return grant, 0, kerr
		}
		if changed {
			rev, err = ses.grants.Update(ctx, next, rev)
		}
		grant = next
	case grant.State == trust.GrantRetiring:
		return grant, 0, wire.Errorf(wire.CodeFailedPrecondition, "issue credential for %q: its last life is still being retired; revoke it again to finish", p)
	case req.Renew:
		return grant, 0, wire.Errorf(wire.CodeNotFound, "renew credential for %q: the principal was revoked in space %q", p, req.Space)
	default:
		epoch := grant.Epoch
		grant = req.newGrant(a.opts.By)
		grant.Epoch = epoch + 1
		if grant.Cut, err = space.DirectFrontier(ctx, ses.js, req.Space); err == nil {
			rev, err = ses.grants.Update(ctx, grant, rev)
		}
	}
	if err != nil {
		return grant, 0, fmt.Errorf("write grant of %q: %w", p, err)
	}
	if err := space.EnsureQueues(ctx, ses.js, req.Space, queues(grant)); err != nil {
		return grant, 0, fmt.Errorf("create durables of %q: %w", p, err)
	}
	return grant, rev, nil
}

func queues(g trust.Grant) space.Queues {
	return space.Queues{Lifecycle: g.Lifecycle(), Role: g.Role, Cut: g.Cut}
}

// Restore makes the queues of active grants that the broker has lost, and returns for how many. A node calls it
// when the one before it did not end in order: a power cut can take a queue and leave the grant.
func (a *Authority) Restore(ctx context.Context, s wire.Space) (int, error) {
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

// hand mints under the grant and releases the credential only if the grant still stands after the issuance was
// logged; so a concurrent Revoke either finds the key in the log or changes the grant before this last look.
func (a *Authority) hand(ctx context.Context, ses *session, req Request, grant trust.Grant, rev uint64) (*trust.Credentials, error) {
	creds, err := a.mint.User(ctx, mint.UserRequest{
		Space: req.Space, Profile: req.Profile, Principal: grant.Principal(), UID: grant.UID, Role: grant.Role,
		Subscribe: grant.AllowSubscribe, Publish: grant.AllowPublish, Commands: grant.Scope, TTL: req.TTL,
	})
	if err != nil {
		return nil, fmt.Errorf("mint credential for %q: %w", grant.Principal(), err)
	}
	id := creds.Identity()
	if err := ses.grants.LogMint(ctx, grant.UID, id.UserKey, id.Expires); err != nil {
		return nil, fmt.Errorf("log credential of %q: %w", grant.Principal(), err)
	}
	now, after, err := ses.grants.Get(ctx, grant.Principal())
	if err != nil {
		return nil, fmt.Errorf("read grant of %q again: %w", grant.Principal(), err)
	}
	if after != rev && (now.State != trust.GrantActive || now.UID != grant.UID || now.Epoch != grant.Epoch) {
		return nil, wire.Errorf(wire.CodeConflict, "issue credential for %q: the grant changed meanwhile; nothing was handed out", grant.Principal())
	}
	return creds, nil
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
