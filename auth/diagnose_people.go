package auth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// clockWarn is how far this machine and the identity provider may differ unmentioned; tokens are taken up to a minute off.
	clockWarn = 30 * time.Second
	// clockTimeout bounds asking for the time.
	clockTimeout = 5 * time.Second
)

func loadPin(ctx context.Context, store secret.Store, s wire.Space) (oidc.Pin, error) {
	return oidc.LoadPin(ctx, store, s)
}

// provider compares what the identity provider says now with what is pinned.
func (d *diagnosis) provider(ctx context.Context) {
	pin, err := loadPin(ctx, d.opts.Store, d.space)
	if err != nil {
		repair := "restore the record from a backup"
		if errors.Is(err, secret.ErrNotFound) {
			repair += ", or name the same provider and client again: cotal down, then cotal up --idp <issuer> --detach"
		}
		d.bad(FindingFail, CheckProvider, repair, "%v", err)
		return
	}
	found, err := oidc.Discover(ctx, addressOf(pin), d.discovery(pin))
	switch {
	case wire.CodeOf(err) == wire.CodeUnavailable, ctx.Err() != nil:
		d.bad(FindingWarn, CheckProvider, "see that it runs and can be reached from here; who is signed in already stays so for now",
			"the identity provider %q cannot be asked: %v", pin.Issuer, err)
	case err != nil:
		d.bad(FindingFail, CheckProvider, "correct it at the provider; another issuer would make everybody somebody else", "%v", err)
		return
	default:
		pin = d.moved(ctx, pin, found)
	}
	d.providerKeys(ctx, pin)
	d.clock(ctx, pin)
}

// addressOf is where a provider is asked about itself.
func addressOf(pin oidc.Pin) string {
	if pin.Shape == oidc.ShapeBetterAuth {
		return strings.TrimSuffix(pin.JWKSURI, "/jwks")
	}
	return pin.Issuer
}

func (d *diagnosis) discovery(pin oidc.Pin) *oidc.DiscoverOptions {
	o := &oidc.DiscoverOptions{HTTP: d.opts.HTTP, Shape: pin.Shape}
	if pin.Shape == oidc.ShapeBetterAuth {
		o.Issuer = pin.Issuer
	}
	return o
}

// moved returns the pin as it is afterwards: with the endpoints that the provider has now, and those of the pinned algorithms that it
// still signs with.
func (d *diagnosis) moved(ctx context.Context, pin oidc.Pin, found oidc.Metadata) oidc.Pin {
	next := pin
	next.JWKSURI, next.DeviceEndpoint, next.TokenEndpoint = found.JWKSURI, found.DeviceEndpoint, found.TokenEndpoint
	next.JWTEndpoint, next.RevocationEndpoint, next.PKCE = found.JWTEndpoint, found.RevocationEndpoint, found.PKCE
	var keep, have []string
	for _, alg := range oidc.Algorithms() {
		if slices.Contains(found.Algorithms, alg) {
			have = append(have, alg)
		}
	}
	for _, alg := range pin.Algorithms {
		if slices.Contains(have, alg) {
			keep = append(keep, alg)
		}
	}
	if next.Algorithms = keep; len(keep) == 0 {
		next.Algorithms = have
	}
	was, err := pin.Encode()
	is, nerr := next.Encode()
	switch {
	case nerr != nil:
		d.bad(FindingFail, CheckProvider, "correct it at the provider", "the identity provider says what cannot be used: %v", nerr)
		return pin
	case err == nil && string(was) == string(is):
		d.ok(CheckProvider, "the identity provider %s says what is pinned", pin.Issuer)
		return pin
	}
	f := Finding{Check: CheckProvider, Status: FindingFail, Text: "the identity provider moved " + strings.Join(differences(pin, next), ", ")}
	d.mend(f, func() error {
		err := oidc.Repin(ctx, d.opts.Store, d.space, next)
		if err == nil {
			pin = next
		}
		return err
	})
	if last := &d.out[len(d.out)-1]; last.Fixed { // what runs has read the pin when it started
		last.Repair = "start the mesh again, so that it takes effect: cotal down, then cotal up --detach"
	}
	return pin
}

// differences names what is not the same, with both values where they are short.
func differences(was, is oidc.Pin) []string {
	var out []string
	for _, f := range []struct{ name, was, is string }{
		{"its keys", was.JWKSURI, is.JWKSURI}, {"its device endpoint", was.DeviceEndpoint, is.DeviceEndpoint},
		{"its token endpoint", was.TokenEndpoint, is.TokenEndpoint}, {"its JWT endpoint", was.JWTEndpoint, is.JWTEndpoint},
		{"its revocation endpoint", was.RevocationEndpoint, is.RevocationEndpoint},
		{"its algorithms", strings.Join(was.Algorithms, " "), strings.Join(is.Algorithms, " ")},
	} {
		if f.was != f.is {
			out = append(out, f.name+" from "+orNone(f.was)+" to "+orNone(f.is))
		}
	}
	if was.PKCE != is.PKCE {
		out = append(out, "its use of PKCE")
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// providerKeys reads the key set once.
func (d *diagnosis) providerKeys(ctx context.Context, pin oidc.Pin) {
	set := oidc.NewKeySet(pin.JWKSURI, &oidc.KeySetOptions{HTTP: d.opts.HTTP})
	defer func() { _ = set.Close() }()
	usable := 0
	for _, alg := range pin.Algorithms {
		keys, err := set.Keys(ctx, "", alg)
		if err != nil {
			d.bad(FindingWarn, CheckProviderKeys, "see that "+pin.JWKSURI+" can be reached from here", "%v", err)
			return
		}
		usable += len(keys)
	}
	if usable == 0 {
		d.bad(FindingFail, CheckProviderKeys, "let the provider sign identity tokens with one of them", "the identity provider publishes no key for %s, so nobody can sign in",
			strings.Join(pin.Algorithms, ", "))
		return
	}
	d.ok(CheckProviderKeys, "the identity provider publishes keys for %s", strings.Join(pin.Algorithms, ", "))
}

// clock compares the time of this machine with the one that the provider stamps its answers with (RFC 9110 section 6.6.1).
func (d *diagnosis) clock(ctx context.Context, pin oidc.Pin) {
	off, ok := d.clockOff(ctx, pin.JWKSURI)
	switch {
	case !ok: // told by the other checks, or it does not say
	case off.Abs() > clockWarn:
		ahead := "ahead of"
		if off < 0 {
			ahead = "behind"
		}
		d.bad(FindingWarn, CheckClock, "let both be set by NTP", "the clock of this machine is %s %s that of the identity provider; tokens are taken up to a minute off", off.Abs().Round(time.Second), ahead)
	default:
		d.ok(CheckClock, "the clocks of this machine and of the identity provider agree")
	}
}

// clockOff is how far this machine is ahead of who answers at an address. An answer of a cache is as old as its Age says (RFC 9111
// section 5.1).
func (d *diagnosis) clockOff(ctx context.Context, uri string) (time.Duration, bool) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, nil)
	if err != nil {
		return 0, false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if d.opts.HTTP != nil {
		client = *d.opts.HTTP
	}
	client.Jar, client.CheckRedirect = nil, func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, false
	}
	_ = resp.Body.Close()
	took := time.Since(began)
	stamped, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0, false
	}
	if age, err := time.ParseDuration(resp.Header.Get("Age") + "s"); err == nil && age > 0 {
		stamped = stamped.Add(age)
	}
	// The stamp is cut to the second and was made somewhere within the time that the answer took.
	return began.Add(took / 2).Sub(stamped.Add(time.Second / 2)), true
}

// calloutSeeds tells what signing in at a space needs and is not there. A mesh that runs may have read it before, and cannot start again.
// Of another space than that of the diagnosis nothing is said when all is there.
func (d *diagnosis) calloutSeeds(ctx context.Context, s wire.Space) {
	f := Finding{Check: CheckCalloutSeeds, Status: FindingFail}
	if s != d.space {
		f.Subject = string(s)
	}
	missing, err := d.a.mint.MissingCalloutSeeds(ctx, s)
	switch {
	case wire.CodeOf(err) == wire.CodeNotFound && s != d.space: // half added
		return
	case err != nil:
		f.Text, f.Repair = err.Error(), "restore the seed from a backup"
	case len(missing) > 0:
		f.Text = strings.Join(missing, ", ") + " missing: nobody can be signed in once the mesh starts again"
		f.Repair = "restore what is missing from a backup; without one, remove the space and add it again (cotal space rm " + string(s) +
			"), which loses its messages, members and grants"
	case s != d.space:
		return
	default:
		f.Status, f.Text = FindingOK, "every seed that signing people in needs is there"
	}
	d.add(f)
}

// secrets looks at what owners and bearers are made with.
func (d *diagnosis) secrets(ctx context.Context) {
	const stranger = "another one, with which everybody is a stranger to what they were granted"
	_, err := trust.LoadOwnerSecret(ctx, d.opts.Store, d.space)
	d.secret(err, CheckOwnerSecret, trust.OwnerSecretKey(d.space), "the secret that owners are derived from is there",
		"restore it from a backup before the mesh starts again: that makes "+stranger,
		"restore it from a backup; without one, remove the record, and the start of the mesh makes "+stranger)
	const anew = "start the mesh again, which makes other keys: every token that was given out is refused then, and agents that hold one are to be started again"
	_, err = bearer.LoadKeys(ctx, d.opts.Store, d.space)
	d.secret(err, CheckIssuerKeys, bearer.KeysKey(d.space), "the keys that sign bearers are there",
		"restore it from a backup, or "+anew, "restore it from a backup, or remove the record and "+anew)
}

// secret adds the finding of a record of secrets: what repairs one that is missing is not what repairs one that is damaged.
func (d *diagnosis) secret(err error, check, record, well, missing, damaged string) {
	switch {
	case errors.Is(err, secret.ErrNotFound):
		d.bad(FindingFail, check, missing, "record %q is missing", record)
	case err != nil:
		d.bad(FindingFail, check, damaged, "%v", err)
	default:
		d.ok(check, "%s", well)
	}
}
