package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// DaemonState is what became of the credentials file of a daemon.
type DaemonState string

// The states of a [DaemonResult].
const (
	DaemonRenewed DaemonState = "renewed" // a later credential is in its place
	DaemonFresh   DaemonState = "fresh"   // less than three quarters of its life are over
	DaemonDue     DaemonState = "due"     // more are, or all; only [Authority.Daemons] says so
	DaemonKept    DaemonState = "kept"    // a later one was made and not accepted, so that the file is as it was
	DaemonFailed  DaemonState = "failed"  // the file cannot be renewed, and is as it was unless the error says that this is not known
)

// DaemonResult is one credentials file of a daemon.
type DaemonResult struct {
	// Key is its name in the store, of [trust.DaemonKey], and Role the last part of it.
	Key  string `json:"key"`
	Role string `json:"role"`
	// State is what became of it.
	State DaemonState `json:"state"`
	// Expires is the end of the credential that is there now; zero when there is none that can be read.
	Expires time.Time `json:"expires,omitzero"`
	// Error is why it was kept or failed, in one sentence without anything secret.
	Error string `json:"error,omitempty"`
}

// RenewOptions adjusts [Authority.RenewDaemons]. Nil and the zero value work.
type RenewOptions struct {
	// Force renews also what is fresh.
	Force bool
	// Preflight asks the broker whether it accepts a credential. Default: connect with it. An error of code unavailable or
	// deadline-exceeded says that the broker could not be asked, any other that it said no.
	Preflight func(ctx context.Context, creds *trust.Credentials) error
}

// DaemonProfiles returns the roles of a deployment that can have a credentials file.
func DaemonProfiles() []trust.Profile { return []trust.Profile{trust.Delivery, trust.Authority} }

// WriteDaemon writes the first credential of a daemon of a space to the store, under [trust.DaemonKey] of its profile, and
// returns that key. It lives for the default of the profile; [Authority.RenewDaemons] renews it.
//
// Errors: bad-request for a profile that is none of [DaemonProfiles]; already-exists for a daemon that has one; unavailable when the store
// does not answer; those of [Authority.ServiceCredential].
func (a *Authority) WriteDaemon(ctx context.Context, store secret.Store, s wire.Space, p trust.Profile) (string, error) {
	if !slices.Contains(DaemonProfiles(), p) {
		return "", wire.Errorf(wire.CodeBadRequest, "write credential of daemon %.64q: not one of %q", string(p), DaemonProfiles())
	}
	key := trust.DaemonKey(s, string(p))
	creds, err := a.ServiceCredential(ctx, s, p, 0)
	if err != nil {
		return "", err
	}
	switch err := store.Create(ctx, key, creds.Reveal()); {
	case errors.Is(err, secret.ErrExists):
		return "", wire.Errorf(wire.CodeAlreadyExists, "write credential %q: there is one; it is renewed with: cotal doctor auth --fix", key)
	case err != nil:
		return "", storeFailed(ctx, "write", key, err)
	}
	a.log.InfoContext(ctx, "daemon credential written", logkey.Space, s, logkey.Profile, string(p), logkey.Expires, creds.Identity().Expires)
	return key, nil
}

// Daemons looks at the credentials file of every daemon of a space: fresh, due or failed. It writes nothing and asks no broker.
//
// Errors: bad-request for what is no space; unavailable when the store does not answer.
func (a *Authority) Daemons(ctx context.Context, store secret.Store, s wire.Space) ([]DaemonResult, error) {
	return a.eachDaemon(ctx, store, s, func(d *daemon) {
		if d.result.State = DaemonFresh; d.due(time.Now()) {
			d.result.State = DaemonDue
		}
	})
}

// RenewDaemons makes a later credential for every daemon of a space that has a credentials file which is due: for the same
// holder and the same key, in the same place of the same store. Before a file is replaced the new credential is proved: the broker
// accepts it or, when the broker cannot be asked, it is what the accepted one is but for its times. Of several who renew at once
// one writes. So a credential that the broker accepts is never replaced by one that it does not.
//
// What happened to each file is in its result: one that fails keeps none of the others. Errors, with the results so far: as of [Authority.Daemons].
func (a *Authority) RenewDaemons(ctx context.Context, store secret.Store, s wire.Space, opts *RenewOptions) ([]DaemonResult, error) {
	var o RenewOptions
	if opts != nil {
		o = *opts
	}
	if o.Preflight == nil {
		o.Preflight = a.accepts
	}
	return a.eachDaemon(ctx, store, s, func(d *daemon) { a.renewDaemon(ctx, store, s, d, o) })
}

// daemon is one file on its way.
type daemon struct {
	result DaemonResult
	raw    []byte // the file as it was read
	creds  *trust.Credentials
}

func (d *daemon) due(now time.Time) bool { return !now.Before(d.creds.RenewAt()) }

func (d *daemon) end(state DaemonState, err error) {
	d.result.State = state
	if err != nil {
		d.result.Error = err.Error()
	}
}

// eachDaemon calls do for every file that holds a credential which the records vouch for, and keeps what panics from whom it
// calls to the one file.
func (a *Authority) eachDaemon(ctx context.Context, store secret.Store, s wire.Space, do func(*daemon)) ([]DaemonResult, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	keys, err := daemonKeys(ctx, store, s)
	if err != nil {
		return nil, err
	}
	out := []DaemonResult{}
	for _, key := range keys {
		d := &daemon{result: DaemonResult{Key: key, Role: strings.TrimSuffix(strings.TrimPrefix(key, trust.DaemonPrefix(s)), daemonSuffix)}}
		func() {
			defer func() {
				if v := recover(); v != nil { // what it says may be secret
					d.end(DaemonFailed, wire.Errorf(wire.CodeInternal, "renew credential %q: this is a bug: panic of type %T", key, v))
				}
			}()
			switch err := a.readDaemon(ctx, store, s, d); {
			case errors.Is(err, secret.ErrNotFound):
				d.result.Key = "" // removed, or never there
			case err != nil:
				d.end(DaemonFailed, err)
			default:
				do(d)
			}
		}()
		if d.result.Key != "" {
			out = append(out, d.result)
		}
	}
	return out, nil
}

const daemonSuffix = ".creds"

// daemonKeys lists the files of daemons; those that a store which cannot list may have.
func daemonKeys(ctx context.Context, store secret.Store, s wire.Space) ([]string, error) {
	var keys []string
	lister, ok := store.(secret.Lister)
	if !ok {
		for _, p := range DaemonProfiles() {
			keys = append(keys, trust.DaemonKey(s, string(p)))
		}
		return keys, nil
	}
	all, err := lister.List(ctx, trust.DaemonPrefix(s))
	if err != nil {
		return nil, storeFailed(ctx, "list", trust.DaemonPrefix(s), err)
	}
	for _, key := range all {
		if strings.HasSuffix(key, daemonSuffix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// readDaemon reads a file and refuses what is not the credential of that daemon.
func (a *Authority) readDaemon(ctx context.Context, store secret.Store, s wire.Space, d *daemon) (err error) {
	key := d.result.Key
	if d.raw, err = store.Get(ctx, key); err != nil {
		return storeFailed(ctx, "read", key, err)
	}
	if d.creds, err = trust.ParseCredentials(d.raw); err != nil {
		return fmt.Errorf("read credential %q: %w; remove it, and write the daemon a new one", key, err)
	}
	id := d.creds.Identity()
	d.result.Expires = id.Expires
	role := trust.Profile(d.result.Role)
	switch {
	case id.Space != s:
		return wire.Errorf(wire.CodeFailedPrecondition, "read credential %q: it is of space %q; remove it, and write the daemon a new one", key, id.Space)
	case id.Profile != role || !slices.Contains(DaemonProfiles(), role) || id.Principal != (wire.Principal{Owner: wire.LocalOwner, Actor: string(role)}):
		return wire.Errorf(wire.CodeFailedPrecondition, "read credential %q: it is the %s credential of %q, not that of this daemon; remove it", key, id.Profile, id.Principal)
	}
	if err := a.mint.Vouches(ctx, d.creds); err != nil {
		return fmt.Errorf("%w; remove %q, and write the daemon a new one", err, key)
	}
	return nil
}

// renewDaemon replaces one file by a later credential that has been proved.
func (a *Authority) renewDaemon(ctx context.Context, store secret.Store, s wire.Space, d *daemon, o RenewOptions) {
	if !o.Force && !d.due(time.Now()) {
		d.end(DaemonFresh, nil)
		return
	}
	next, err := a.mint.Renew(ctx, d.creds, 0)
	if err != nil {
		d.end(DaemonFailed, err)
		return
	}
	asked, err := a.prove(ctx, d.creds, next, o)
	if err != nil {
		d.end(DaemonKept, err)
		return
	}
	switch err := store.CompareAndSwap(ctx, d.result.Key, d.raw, next.Reveal()); {
	case errors.Is(err, secret.ErrConflict), errors.Is(err, secret.ErrNotFound):
		a.yield(ctx, store, s, d)
		return
	case err != nil:
		d.end(DaemonFailed, fmt.Errorf("%w; the file is as it was, or it is renewed", storeFailed(ctx, "write", d.result.Key, err)))
		return
	}
	id := next.Identity()
	d.result.Expires = id.Expires
	d.end(DaemonRenewed, nil)
	a.log.InfoContext(ctx, "daemon credential renewed", logkey.Space, s, logkey.Profile, string(id.Profile), logkey.Expires, id.Expires)
	if asked { // else the record could not be written either
		a.audit(ctx, s, change{action: space.ActionRenew, target: id.Lifecycle, detail: "credential of the daemon " + d.result.Role + " renewed"})
	}
}

// yield is for who found that somebody else wrote the file meanwhile.
func (a *Authority) yield(ctx context.Context, store secret.Store, s wire.Space, d *daemon) {
	before := d.creds.Identity()
	err := a.readDaemon(ctx, store, s, d)
	switch {
	case err != nil:
		d.end(DaemonFailed, fmt.Errorf("somebody else changed it meanwhile: %w", err))
	case d.creds.Identity().Expires.After(before.Expires):
		d.end(DaemonFresh, nil) // they renewed it
	default:
		d.end(DaemonFailed, wire.Errorf(wire.CodeConflict, "renew credential %q: somebody else changed it meanwhile; run it again", d.result.Key))
	}
}

// prove returns nil when a credential may take the place of another, and whether the broker said so itself.
func (a *Authority) prove(ctx context.Context, have, next *trust.Credentials, o RenewOptions) (asked bool, err error) {
	err = o.Preflight(ctx, next)
	switch code := wire.CodeOf(err); {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, fmt.Errorf("prove new credential: %w", ctx.Err())
	case code != wire.CodeUnavailable && code != wire.CodeDeadlineExceeded:
		return true, fmt.Errorf("the broker does not accept the new credential, the one before is kept: %w", err)
	}
	if err := continues(have, next, time.Now()); err != nil {
		return false, fmt.Errorf("the broker cannot be asked, the credential before is kept: %w", err)
	}
	return false, nil
}

// accepts asks the broker about a credential.
func (a *Authority) accepts(ctx context.Context, creds *trust.Credentials) error {
	nc, err := a.dial(ctx, creds)
	if err == nil {
		nc.Close()
	}
	return err
}

// continues says why next could be refused where have is accepted: another holder, account, or signing key. Of one that has
// expired nothing is accepted, so any key that the records list will do.
func continues(have, next *trust.Credentials, now time.Time) error {
	old, err := jwt.DecodeUserClaims(have.JWT())
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "the credential before is unreadable")
	}
	fresh, err := jwt.DecodeUserClaims(next.JWT())
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "the new credential is unreadable")
	}
	was, is := have.Identity(), next.Identity()
	switch {
	case old.IssuerAccount != fresh.IssuerAccount:
		return wire.Errorf(wire.CodeFailedPrecondition, "the new one is of another account")
	case was.Space != is.Space || was.Profile != is.Profile || was.Lifecycle != is.Lifecycle || was.UserKey != is.UserKey:
		return wire.Errorf(wire.CodeFailedPrecondition, "the new one is of another holder")
	case old.Issuer != fresh.Issuer && !have.Expired(now):
		return wire.Errorf(wire.CodeFailedPrecondition, "the new one is signed by another key, of which the broker may not know yet")
	}
	return nil
}

// storeFailed says what a store refused. Absence and the end of the context keep their own error.
func storeFailed(ctx context.Context, verb, key string, err error) error {
	switch {
	case errors.Is(err, secret.ErrNotFound):
		return wire.Errorf(wire.CodeNotFound, "%s %q: %w", verb, key, secret.ErrNotFound)
	case ctx.Err() != nil:
		return fmt.Errorf("%s %q: %w", verb, key, err)
	}
	return wire.Errorf(wire.CodeUnavailable, "%s %q: %w", verb, key, err)
}
