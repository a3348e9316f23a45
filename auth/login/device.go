package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"time"
	"unicode"

	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	deviceGrant  = "urn:ietf:params:oauth:grant-type:device_code"
	refreshGrant = "refresh_token"

	// The life of a code when the provider names none, and the longest that is waited for one.
	defaultCodeLife = 15 * time.Minute
	maxCodeLife     = time.Hour
	// maxUserCode bounds the code that a person types, in bytes.
	maxUserCode = 64
)

// Prompt is what the person must be shown.
type Prompt struct {
	// UserCode is what to type, grouped as the provider groups it.
	UserCode string
	// VerificationURI is where to type it. It is http or https.
	VerificationURI string
	// VerificationURIComplete has the code in it, for a link or a QR code; empty when the provider has none. RFC 8628 section 3.3.1
	// wants the code shown beside it all the same, to be compared.
	VerificationURIComplete string
	// Expires is when the code ends.
	Expires time.Time
}

// Progress tells what the last question to the provider gave.
type Progress struct {
	Attempt int           // from 1
	Wait    time.Duration // until the next question
	Expires time.Time     // when the code ends
	Err     error         // nil while the provider says that it waits for the person, else why it could not be asked
}

// DeviceOptions are what [Device] needs besides the provider.
type DeviceOptions struct {
	// HTTP asks the provider; nil means a client of its own.
	HTTP *http.Client
	// Prompt shows the person what to do and is required. It must not wait for the person. Its error ends the login.
	Prompt func(ctx context.Context, p Prompt) error
	// Progress is told after each question that was not the last. Nil is told nothing.
	Progress func(Progress)
}

// Device signs a person in by the device flow (RFC 8628) and returns the session, which it does not save. It sends PKCE with S256 (RFC
// 7636) with the OpenID Connect shape; providers that do not know it ignore it. It asks for the endpoints that p lacks, see
// [Provider.Discover]. It never asks more often than the provider allows, and gives up when the code ends, whatever the
// provider goes on saying.
//
// Errors: permission-denied when the person said no, expired with [trust.ReasonExpired] when nobody said anything in
// time, failed-precondition when the provider does not allow it, unauthenticated when what it gave is not for this mesh,
// unavailable when it cannot be asked, and the code of ctx when that ended.
func Device(ctx context.Context, p Provider, opts *DeviceOptions) (Session, error) {
	if opts == nil || opts.Prompt == nil {
		return Session{}, wire.Errorf(wire.CodeBadRequest, "sign in at %q: nothing to show the code with", p.Issuer)
	}
	p, err := p.Discover(ctx, opts.HTTP)
	if err != nil {
		return Session{}, err
	}
	d := &device{p: p, hc: client(opts.HTTP), progress: opts.Progress, verifier: rand.Text() + rand.Text()}
	c, err := d.authorize(ctx)
	if err != nil {
		return Session{}, err
	}
	if err := opts.Prompt(ctx, c.prompt); err != nil {
		return Session{}, err
	}
	granted, err := d.wait(ctx, c)
	if err != nil {
		return Session{}, err
	}
	return d.session(ctx, granted)
}

// device is one login under way.
type device struct {
	p        Provider
	hc       *http.Client
	progress func(Progress)
	verifier string // of PKCE: 52 characters, 260 bits (RFC 7636 section 4.1)
}

// code is what the provider answered to the device authorization.
type code struct {
	device func() string
	prompt Prompt
	life   time.Duration
	gap    time.Duration
}

// authorize asks for a code, without offline_access when the provider does not know that scope.
func (d *device) authorize(ctx context.Context) (code, error) {
	a, err := d.ask(ctx, true)
	if err != nil {
		return code{}, err
	}
	f, ok := a.fields()
	if ok && f.text("error") == "invalid_scope" && d.p.Shape == ShapeOIDC {
		if a, err = d.ask(ctx, false); err != nil {
			return code{}, err
		}
		f, ok = a.fields()
	}
	if !ok {
		return code{}, wire.Errorf(wire.CodeUnavailable, "sign in at %q: %s", d.p.Issuer, a.describe())
	}
	if name := f.text("error"); name != "" || a.status != http.StatusOK {
		return code{}, d.refusal(a, f)
	}
	return d.code(f)
}

func (d *device) ask(ctx context.Context, offline bool) (answer, error) {
	scope := d.p.scope(offline)
	if d.p.Shape == ShapeBetterAuth {
		return postJSON(ctx, d.hc, d.p.DeviceEndpoint, nil, struct {
			ClientID string `json:"client_id"`
			Scope    string `json:"scope,omitempty"`
		}{d.p.ClientID, scope})
	}
	sum := sha256.Sum256([]byte(d.verifier))
	form := url.Values{
		"client_id": {d.p.ClientID}, "scope": {scope},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	if d.p.Resource != "" {
		form.Set("resource", d.p.Resource)
	}
	return postForm(ctx, d.hc, d.p.DeviceEndpoint, form)
}

// code reads the answer to the device authorization (RFC 8628 section 3.2).
func (d *device) code(f fields) (code, error) {
	secret := f.text("device_code")
	c := code{
		device: func() string { return secret },
		prompt: Prompt{UserCode: f.text("user_code"), VerificationURI: f.text("verification_uri"), VerificationURIComplete: f.text("verification_uri_complete")},
		life:   seconds(f.number("expires_in")),
		gap:    seconds(f.number("interval")),
	}
	if c.prompt.VerificationURI == "" {
		c.prompt.VerificationURI = f.text("verification_url") // what some providers wrote before the RFC
	}
	if c.gap == 0 {
		c.gap = defaultGap
	}
	c.gap = max(c.gap, time.Second)
	if c.life == 0 {
		c.life = defaultCodeLife
	}
	c.life = min(c.life, maxCodeLife)
	c.prompt.Expires = time.Now().Add(c.life)
	bad := func(what string) (code, error) {
		return code{}, wire.Errorf(wire.CodeUnavailable, "sign in at %q: the provider answered the request for a code with %s", d.p.Issuer, what)
	}
	switch {
	case secret == "":
		return bad("no device_code")
	case !printable(c.prompt.UserCode, maxUserCode):
		return bad("no user_code that can be shown")
	case !webAddress(c.prompt.VerificationURI):
		return bad("no verification_uri that a browser opens")
	}
	if !webAddress(c.prompt.VerificationURIComplete) {
		c.prompt.VerificationURIComplete = ""
	}
	return c, nil
}

// printable says whether s is 1 to limit bytes that move no cursor.
func printable(s string, limit int) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// webAddress says whether s is something to open in a browser: neither a file nor a script.
func webAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil && printable(s, 2048)
}

// wait asks until the person has decided or the code has ended.
func (d *device) wait(ctx context.Context, c code) (fields, error) {
	ends := c.prompt.Expires
	bounded, cancel := context.WithDeadline(ctx, ends)
	defer cancel()
	s := schedule{gap: c.gap}
	for n := 1; ; n++ {
		if err := pause.For(bounded, s.next()); err != nil {
			return nil, d.ended(ctx)
		}
		a, err := d.redeem(bounded, c)
		if bounded.Err() != nil && err != nil {
			return nil, d.ended(ctx)
		}
		granted, err, final := d.judge(&s, a, err)
		if final {
			return granted, err
		}
		if d.progress != nil {
			d.progress(Progress{Attempt: n, Wait: s.gap, Expires: ends, Err: err})
		}
	}
}

// ended says why a wait ended: the caller's context or the code's end.
func (d *device) ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return wire.Errorf(wire.CodeOf(err), "sign in at %q: %w", d.p.Issuer, err)
	}
	return expired(d.p)
}

func expired(p Provider) error {
	return trust.Deny(wire.CodeExpired, trust.ReasonExpired, "sign in at %q: the code was not approved in time: start again and approve it sooner", p.Issuer)
}

// redeem asks once for the tokens of a device code (RFC 8628 section 3.4).
func (d *device) redeem(ctx context.Context, c code) (answer, error) {
	if d.p.Shape == ShapeBetterAuth {
		return postJSON(ctx, d.hc, d.tokenEndpoint(), nil, struct {
			Grant  string `json:"grant_type"`
			Code   string `json:"device_code"`
			Client string `json:"client_id"`
		}{deviceGrant, c.device(), d.p.ClientID})
	}
	form := url.Values{"grant_type": {deviceGrant}, "device_code": {c.device()}, "client_id": {d.p.ClientID}, "code_verifier": {d.verifier}}
	if d.p.Resource != "" {
		form.Set("resource", d.p.Resource)
	}
	return postForm(ctx, d.hc, d.tokenEndpoint(), form)
}

func (d *device) tokenEndpoint() string {
	if d.p.DeviceTokenEndpoint != "" {
		return d.p.DeviceTokenEndpoint
	}
	return d.p.TokenEndpoint
}

// session makes a session of what the provider granted.
func (d *device) session(ctx context.Context, granted fields) (Session, error) {
	now := time.Now()
	t := tokens{refresh: granted.text("refresh_token"), id: granted.text("id_token")}
	if d.p.Shape == ShapeBetterAuth {
		t.refresh = granted.text("access_token") // it is the session itself
		id, err := again(ctx, defaultPatience, func(ctx context.Context) (string, error) { return jwtOf(ctx, d.hc, d.p, t.refresh) })
		if err != nil {
			return Session{}, err
		}
		t.id = id
	}
	if t.id == "" {
		return Session{}, wire.Errorf(wire.CodeFailedPrecondition,
			"sign in at %q: the provider gave no id_token: allow the scope %q for client %q there", d.p.Issuer, "openid", d.p.ClientID)
	}
	s := Session{Provider: d.p, Obtained: now.UTC()}
	if life := d.life(granted); life > 0 {
		s.Expires = s.Obtained.Add(life)
	}
	return s.with(t, now)
}

// life is how long the session itself lasts, zero when the provider does not say. expires_in is that of the access token, which is the
// session with the Better Auth shape only.
func (d *device) life(granted fields) time.Duration {
	names := []string{"refresh_expires_in", "refresh_token_expires_in"}
	if d.p.Shape == ShapeBetterAuth {
		names = []string{"expires_in"}
	}
	for _, n := range names {
		if v := granted.number(n); v > 0 {
			return seconds(v)
		}
	}
	return 0
}

// jitter is added to a pause and never taken from it, so that many clients do not ask at once and none asks too soon.
func jitter(d time.Duration) time.Duration {
	return time.Duration(mathrand.Int64N(int64(min(d/10, 500*time.Millisecond)) + 1))
}
