package auth

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// looker is a Control that can say what the broker holds; *broker.Control is one.
type looker interface {
	// Lookup returns the claim that the broker holds for an account. Not-found when it knows none, conflict when its servers
	// hold different ones.
	Lookup(ctx context.Context, public string) (string, error)
}

// signing makes a credential of every profile and of every kind of the system, and throws it away: a seed that is missing shows here.
// A mesh serves all its spaces or does not start, and so the others of the records are looked at too.
func (d *diagnosis) signing(ctx context.Context, rec trust.AccountRecord) {
	const restore = "restore the seed from a backup"
	bad := func(subject, what string, err error) {
		d.add(Finding{Check: CheckSigning, Subject: subject, Status: FindingFail, Repair: restore, Text: "no " + what + " credential can be made: " + err.Error()})
	}
	all := true
	if p, err := d.mints(ctx, d.space); err != nil {
		bad("", string(p), err)
		all = false
	}
	for _, k := range trust.SystemKinds() {
		req := mint.SystemRequest{Kind: k, TTL: time.Minute}
		if k == trust.SystemWatcher {
			req.Account = rec.Public
		}
		if _, err := d.a.mint.SystemUser(ctx, req); err != nil {
			bad("", string(k), err)
			all = false
			break
		}
	}
	if all {
		d.ok(CheckSigning, "a credential of every profile can be made")
	}
	if rec.Callout != nil {
		d.calloutSeeds(ctx, d.space)
	}
	others, err := d.a.mint.Spaces(ctx)
	if err != nil {
		return // told by whoever needs the record of the broker
	}
	for _, s := range others {
		if s == d.space {
			continue
		}
		if p, err := d.mints(ctx, s); err != nil && wire.CodeOf(err) != wire.CodeNotFound { // half added
			bad(string(s), string(p), err)
		}
		d.calloutSeeds(ctx, s)
	}
}

// mints returns the first profile of a space that no credential can be made for, and why.
func (d *diagnosis) mints(ctx context.Context, s wire.Space) (trust.Profile, error) {
	for _, p := range trust.Profiles() {
		_, err := d.a.mint.User(ctx, mint.UserRequest{
			Space: s, Profile: p, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "doctor"}, TTL: time.Minute, // never cut to nothing by the whole seconds of a JWT
		})
		if err != nil {
			return p, err
		}
	}
	return "", nil
}

func (d *diagnosis) operatorKeys(ctx context.Context) {
	rec, err := d.a.mint.Broker(ctx)
	if err != nil {
		d.bad(FindingFail, CheckOperatorKeys, "restore the record from a backup", "%v", err)
		return
	}
	if rec.Signs(trust.KeyRetiring) != "" {
		d.mend(Finding{Check: CheckOperatorKeys, Status: FindingWarn, Text: "a rotation of the operator's signing key was begun and not finished"},
			func() error { return d.a.RotateOperatorKey(ctx) })
		return
	}
	if d.opts.Store != nil {
		for _, state := range []trust.OperatorKeyState{trust.KeyCurrent, trust.KeyNext} {
			key := trust.OperatorSigningKey(rec.Signs(state))
			if _, err := d.opts.Store.Get(ctx, key); errors.Is(err, secret.ErrNotFound) {
				d.bad(FindingWarn, CheckOperatorKeys, "restore it from a backup, unless it is kept elsewhere on purpose",
					"the %s signing key of the operator is not in the store (%q)", state, key)
				return
			}
		}
	}
	d.ok(CheckOperatorKeys, "the operator has a signing key and the one to follow it")
}

// templates returns the record as it is afterwards.
func (d *diagnosis) templates(ctx context.Context, rec trust.AccountRecord) trust.AccountRecord {
	current, err := d.a.mint.Current(ctx, d.space)
	system, serr := d.a.mint.SystemCurrent(ctx)
	switch err = errors.Join(err, serr); {
	case err != nil:
		d.bad(FindingFail, CheckTemplates, "restore the record from a backup", "%v", err)
	case !system:
		d.bad(FindingWarn, CheckTemplates, "start the mesh again: cotal down, then cotal up --detach", "the system account is signed as an earlier version signs it")
	case current:
		d.ok(CheckTemplates, "accounts are signed as this version signs them")
	default:
		f := Finding{Check: CheckTemplates, Status: FindingWarn, Text: "the account of the space is signed as an earlier version signs it"}
		d.mend(f, func() error {
			next, err := d.a.mint.AddSpace(ctx, d.space, nil)
			if err == nil && next.Callout != nil {
				next, err = d.a.mint.EnsureCallout(ctx, d.space)
			}
			if err == nil {
				rec = next // pushed by the check of accounts
			}
			return err
		})
	}
	return rec
}

func (d *diagnosis) revocations(rec trust.AccountRecord) {
	if n := len(rec.Revocations); n > mint.AgentRevocations {
		d.bad(FindingWarn, CheckRevocations, "wait until the credentials that were revoked have run out, or rotate the signing keys of the space and retire the old ones",
			"%d credentials are revoked one by one, and %d fit; with credential files no agent is granted or started beyond %d", n, trust.MaxRevocations, mint.AgentRevocations)
		return
	}
	d.ok(CheckRevocations, "%d of at most %d credentials are revoked one by one", len(rec.Revocations), trust.MaxRevocations)
}

// kept is an account as the records have it.
type kept struct {
	trust.SignedAccount
	version uint64 // 0 when its JWT carries none
}

// kept returns the accounts of the space and that of the system.
func (d *diagnosis) kept(ctx context.Context, rec trust.AccountRecord) []kept {
	var out []kept
	for _, a := range rec.Accounts() {
		out = append(out, kept{SignedAccount: a})
	}
	out[0].version = rec.Version
	if b, err := d.a.mint.Broker(ctx); err == nil {
		out = append(out, kept{trust.SignedAccount{Public: b.System.Public, JWT: b.System.JWT}, b.System.Version})
	}
	return out
}

// accounts compares what the broker holds with the records, and reports whether the broker could be asked.
func (d *diagnosis) accounts(ctx context.Context, rec trust.AccountRecord) bool {
	look, ok := d.a.ctl.(looker)
	if !ok {
		return true
	}
	var stale []kept
	for _, account := range d.kept(ctx, rec) {
		held, err := look.Lookup(ctx, account.Public)
		switch code := wire.CodeOf(err); {
		case code == wire.CodeNotFound, code == wire.CodeConflict:
			stale = append(stale, account)
		case err != nil:
			d.unasked(err)
			return false
		case held == account.JWT:
		case account.version > 0 && versionOf(held) > account.version:
			d.bad(FindingFail, CheckAccounts, "restore the records as they were last; pushing these would bring back what was revoked since",
				"the broker holds version %d of account %s and the records version %d: the records are older than the broker", versionOf(held), account.Public, account.version)
			return true
		default:
			stale = append(stale, account)
		}
	}
	if len(stale) == 0 {
		d.ok(CheckAccounts, "the broker holds the accounts of the records")
		return true
	}
	d.mend(Finding{Check: CheckAccounts, Status: FindingFail, Text: "the broker holds other accounts than the records"}, func() error {
		for _, account := range stale {
			if err := d.a.ctl.PutAccount(ctx, account.Public, account.JWT); err != nil {
				return err
			}
		}
		return d.a.Push(ctx, d.space) // should they have changed meanwhile
	})
	return true
}

// unasked says why the broker cannot be asked.
func (d *diagnosis) unasked(err error) {
	switch code := wire.CodeOf(err); {
	case code == wire.CodeFailedPrecondition: // of the records: no credential to come with
		d.bad(FindingFail, CheckBroker, "mend the records and seeds first, as said above", "the broker cannot be asked, so what it holds was not looked at: %v", err)
		return
	case code != wire.CodeUnavailable && code != wire.CodeDeadlineExceeded:
		d.bad(FindingFail, CheckBroker, "see that the address is that of a broker which was started from these records", "the broker refuses the authority: %v", err)
		return
	}
	d.bad(FindingWarn, CheckBroker, "start the mesh: cotal up --detach", "the broker cannot be asked, so what it holds was not looked at: %v", err)
}

// versionOf reads the version of an account's record from its JWT, 0 when it says none.
func versionOf(token string) uint64 {
	claims, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return 0
	}
	for _, tag := range claims.Tags {
		if v, ok := strings.CutPrefix(tag, "version:"); ok {
			n, _ := strconv.ParseUint(v, 10, 64)
			return n
		}
	}
	return 0
}

// daemons looks at, or renews, the credentials of daemons.
func (d *diagnosis) daemons(ctx context.Context) {
	look := d.a.Daemons
	if d.opts.Fix {
		look = func(ctx context.Context, store secret.Store, s wire.Space) ([]DaemonResult, error) {
			return d.a.RenewDaemons(ctx, store, s, nil)
		}
	}
	all, err := look(ctx, d.opts.Store, d.space)
	if err != nil {
		d.bad(FindingFail, CheckDaemons, "", "%v", err)
		return
	}
	for _, r := range all {
		f := Finding{Check: CheckDaemons, Subject: r.Role, Status: FindingOK, Text: "its credential is good until " + r.Expires.UTC().Format(time.RFC3339)}
		switch r.State {
		case DaemonRenewed:
			f.Fixed, f.Text = true, "its credential was due; the new one is good until "+r.Expires.UTC().Format(time.RFC3339)
		case DaemonDue:
			f.Status, f.Repair, f.Text = FindingWarn, repairFix, "its credential is due, and ends at "+r.Expires.UTC().Format(time.RFC3339)
			if time.Now().After(r.Expires) {
				f.Status, f.Text = FindingFail, "its credential expired at "+r.Expires.UTC().Format(time.RFC3339)
			}
		case DaemonKept, DaemonFailed:
			f.Status, f.Text = FindingFail, r.Error
		}
		d.add(f)
	}
	if len(all) == 0 {
		d.ok(CheckDaemons, "no daemon has a credentials file")
	}
}
