package auth

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// FindingStatus says how bad a finding is.
type FindingStatus string

// The statuses of a [Finding].
const (
	FindingOK   FindingStatus = "ok"
	FindingWarn FindingStatus = "warn" // works, and will not or may not for long; or could not be looked at
	FindingFail FindingStatus = "fail" // does not work
)

// Finding is the outcome of one check.
type Finding struct {
	// Check names what was looked at, the same word in every version: see the constants of this type's checks.
	Check string `json:"check"`
	// Subject is the one thing that it is about, when a check looks at several: a principal, a record, a role.
	Subject string        `json:"subject,omitempty"`
	Status  FindingStatus `json:"status"`
	// Text is one sentence, Repair the command or the thing to do; empty when there is nothing to do. Neither holds a secret.
	Text   string `json:"text"`
	Repair string `json:"repair,omitempty"`
	// Fixed says that it was as the text says and was repaired just now; its status is ok then.
	Fixed bool `json:"fixed,omitempty"`
}

// The checks of [Authority.Diagnose].
const (
	CheckRecords      = "records"       // the records of broker and space can be read and belong together
	CheckSeeds        = "seeds"         // every seed is one that the records list
	CheckSigning      = "signing"       // a credential of every profile can be made
	CheckCalloutSeeds = "callout-seeds" // in a space of people: every seed that signing in needs is there
	CheckOperatorKeys = "operator-keys" // current and next key are there, and no rotation is half done
	CheckTemplates    = "templates"     // accounts are signed as this build signs them
	CheckRevocations  = "revocations"   // there is room for more
	CheckAccounts     = "accounts"      // the broker holds the accounts of the records
	CheckBroker       = "broker"        // the broker lets the authority in
	CheckMode         = "mode"          // credential files or people
	CheckProvider     = "provider"      // the identity provider says what is pinned
	CheckProviderKeys = "provider-keys" // its keys can be read and used
	CheckClock        = "clock"         // this machine and the provider agree on the time
	CheckOwnerSecret  = "owner-secret"
	CheckIssuerKeys   = "issuer-keys"
	CheckGrants       = "grants" // no change of a grant is half done
	CheckDelegation   = "delegation"
	CheckLease        = "lease" // somebody does what one does for all
	CheckDaemons      = "daemons"
)

// DiagnoseOptions adjusts [Authority.Diagnose].
type DiagnoseOptions struct {
	// Store keeps the records. Nil leaves out what only it can tell: the provider, the keys of bearers, and daemons.
	Store secret.Store
	// Fix repairs what can be repaired without asking anybody: accounts are signed anew and pushed, changes that were left half
	// done are finished, endpoints and algorithms that the provider moved are pinned, and daemons get later credentials.
	Fix bool
	// HTTP asks the identity provider. Nil means a client that dials directly.
	HTTP *http.Client
}

// repairFix is what repairs what Diagnose itself can.
const repairFix = "cotal doctor auth --fix"

// diagnosis is one run of Diagnose.
type diagnosis struct {
	a     *Authority
	space wire.Space
	opts  DiagnoseOptions
	out   []Finding
}

// Diagnose looks at everything that the authority of a space stands on, and says of each what it found, in a fixed order. Without
// a broker it looks at the rest. It changes nothing without [DiagnoseOptions.Fix], and then tells what it repaired.
//
// What goes wrong is a finding too, so there is no error; when ctx ends, what could not be looked at is left out or warned about.
func (a *Authority) Diagnose(ctx context.Context, s wire.Space, opts *DiagnoseOptions) []Finding {
	d := &diagnosis{a: a, space: s}
	if opts != nil {
		d.opts = *opts
	}
	rec, ok := d.records(ctx)
	if !ok {
		return d.out
	}
	d.seeds(ctx, rec)
	d.operatorKeys(ctx)
	rec = d.templates(ctx, rec)
	d.revocations(rec)
	d.mode(ctx, rec)
	if rec.Callout != nil && d.opts.Store != nil {
		d.provider(ctx)
		d.secrets(ctx)
	}
	if d.accounts(ctx, rec) {
		d.online(ctx, rec)
	}
	if d.opts.Store != nil {
		d.daemons(ctx)
	}
	return d.out
}

func (d *diagnosis) add(f Finding) { d.out = append(d.out, f) }

func (d *diagnosis) ok(check, format string, args ...any) {
	d.add(Finding{Check: check, Status: FindingOK, Text: fmt.Sprintf(format, args...)})
}

// bad adds a finding that something is to be done about.
func (d *diagnosis) bad(status FindingStatus, check, repair, format string, args ...any) {
	d.add(Finding{Check: check, Status: status, Repair: repair, Text: fmt.Sprintf(format, args...)})
}

// mend repairs what text says is wrong, if that was asked for, and adds the finding of what is the case then.
func (d *diagnosis) mend(f Finding, repair func() error) {
	if !d.opts.Fix {
		f.Repair = repairFix
		d.add(f)
		return
	}
	if err := repair(); err != nil {
		f.Text += "; it could not be repaired: " + err.Error()
		d.add(f)
		return
	}
	f.Status, f.Fixed, f.Repair = FindingOK, true, ""
	d.add(f)
}

func (d *diagnosis) records(ctx context.Context) (trust.AccountRecord, bool) {
	rec, err := d.a.mint.Account(ctx, d.space)
	switch {
	case err == nil:
		d.ok(CheckRecords, "records can be read and belong together")
	case wire.CodeOf(err) == wire.CodeNotFound:
		d.bad(FindingFail, CheckRecords, "cotal space add "+string(d.space), "the records know no space %q", d.space)
	default:
		d.bad(FindingFail, CheckRecords, "restore the record from a backup", "%v", err)
	}
	return rec, err == nil
}

func (d *diagnosis) seeds(ctx context.Context, rec trust.AccountRecord) {
	if err := d.a.mint.CheckSeeds(ctx); err != nil {
		d.bad(FindingFail, CheckSeeds, "restore the seed from a backup", "%v", err)
		return
	}
	d.ok(CheckSeeds, "every seed that is there is of a key that the records list")
	d.signing(ctx, rec)
}

func (d *diagnosis) mode(ctx context.Context, rec trust.AccountRecord) {
	if rec.Callout != nil {
		d.ok(CheckMode, "space %s signs people in", d.space)
		return
	}
	if d.opts.Store != nil {
		if _, err := loadPin(ctx, d.opts.Store, d.space); err == nil {
			d.bad(FindingWarn, CheckMode, "cotal up --idp <issuer>", "an identity provider is chosen and the space works with credential files: making it one of people was interrupted")
			return
		}
	}
	d.ok(CheckMode, "space %s works with credential files", d.space)
}

// Failed reports whether something of it does not work.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Status == FindingFail })
}
