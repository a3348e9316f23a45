package exchange

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// shortest is what must be left of a proof or a grant: a bearer that ends before it is used would only be asked for again.
const shortest = 5 * time.Second

// grantedJSON is the answer to an exchange. Times are in seconds since 1970.
type grantedJSON struct {
	Token     string        `json:"token"`
	Owner     string        `json:"owner"`
	Actor     string        `json:"actor"`
	UID       wire.UID      `json:"uid"`
	Epoch     uint64        `json:"epoch"`
	IssuedAt  int64         `json:"iat"`
	Expires   int64         `json:"exp"`
	Scope     []string      `json:"scope"`
	View      trust.View    `json:"view,omitempty"`
	Profile   trust.Profile `json:"profile"`
	Space     wire.Space    `json:"space"`
	Inbox     string        `json:"inbox"`
	Role      string        `json:"role,omitempty"`
	Subscribe []string      `json:"allowSubscribe"`
	Publish   []string      `json:"allowPublish"`
	Sentinel  string        `json:"sentinel"`
	Server    string        `json:"server,omitempty"`
}

// grantedForm is the answer of RFC 8693 section 2.2.1.
type grantedForm struct {
	AccessToken string `json:"access_token"`
	IssuedType  string `json:"issued_token_type"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"`
	Scope       string `json:"scope,omitempty"`
}

// decide answers a request that has the right form. It runs by itself: what it finds out after the deadline is dropped.
func (f *face) decide(ctx context.Context, req request) answer {
	d := Decision{Kind: req.kind, View: req.view}
	body, err := f.grant(ctx, req, &d)
	if err == nil {
		return answer{status: http.StatusOK, body: body, decision: d}
	}
	a := refuse(err, req.form)
	d.Code, d.Reason, d.Message = a.decision.Code, a.decision.Reason, a.decision.Message
	a.decision = d
	return a
}

// proven is what a request was found to hold.
type proven struct {
	admission auth.Admission
	end       time.Time // of the proof and the grant, zero for none
}

// grant decides, and returns the body of the answer.
func (f *face) grant(ctx context.Context, req request, d *Decision) ([]byte, error) {
	o := &f.server.opts
	prove := f.person
	if req.kind == KindAgent {
		prove = f.agent
	}
	p, err := prove(ctx, req, d)
	if err != nil {
		return nil, err
	}
	g := p.admission.Grant
	d.Lifecycle, d.Epoch = g.Lifecycle(), g.Epoch
	if err := fits(p.admission, req); err != nil {
		return nil, err
	}
	if err := p.lasts(); err != nil {
		return nil, err
	}
	sentinel, err := o.Sentinel(ctx)
	if err != nil {
		return nil, fmt.Errorf("read sentinel: %w", err)
	}
	key, err := f.spend(req, g.Principal())
	if err != nil {
		return nil, err
	}
	token, signed, err := o.Bearers.Sign(ctx, bearer.Claims{
		Subject: g.Owner, Expires: p.end, Scope: p.admission.Scope, Confirmation: key,
		Act: bearer.Act{
			Owner: g.Owner, Actor: g.Actor, UID: g.UID, Epoch: g.Epoch, Inbox: string(g.UID), View: p.admission.View, Parent: g.Parent,
		},
	}, req.life)
	if err != nil {
		return nil, signFailed(err, g, p.admission.Scope)
	}
	d.TokenID, d.Expires, d.Bound = signed.ID, signed.Expires, key != nil
	if req.form {
		return encode(formOf(req, token, signed)), nil
	}
	if !p.admission.Profile.Lists() { // what connections are given, not what the grant holds
		g.Role, g.AllowSubscribe, g.AllowPublish = "", nil, nil
	}
	return encode(grantedJSON{
		Token: token, Owner: g.Owner, Actor: g.Actor, UID: g.UID, Epoch: g.Epoch, IssuedAt: signed.IssuedAt.Unix(), Expires: signed.Expires.Unix(),
		Scope: entries(signed.Scope), View: p.admission.View, Profile: p.admission.Profile, Space: o.Space, Inbox: string(g.UID), Role: g.Role,
		Subscribe: entries(g.AllowSubscribe), Publish: entries(g.AllowPublish), Sentinel: sentinel, Server: o.Mesh().Server,
	}), nil
}

// signFailed keeps the reasons that are about the caller's time, and that the scope is too long. Any other refusal to sign what was just
// admitted is a defect here.
func signFailed(err error, g trust.Grant, scope []string) error {
	switch code := wire.CodeOf(err); code {
	case wire.CodeExpired, wire.CodeUnavailable, wire.CodeDeadlineExceeded, wire.CodeCancelled:
		return err
	case wire.CodeResourceExhausted:
		return fmt.Errorf("%w: %w", tooLong(g, scope), err)
	default:
		return wire.Errorf(wire.CodeInternal, "sign bearer: %w", err)
	}
}

// tooLong refuses a scope that fits no bearer. It is not 429: to ask again later does not help.
func tooLong(g trust.Grant, scope []string) error {
	mend := fmt.Sprintf("ask the operator to run: cotal actor grant %s --owner %s --scope <fewer entries>", g.Actor, g.Owner)
	if g.Kind == trust.KindManaged {
		mend = "have the agent started with fewer"
	}
	e := speak(wire.CodeResourceExhausted, "the grant of %q names too much: the %d entries of its scope make a bearer of more than %d bytes; ask for some of them only, or %s",
		g.Principal(), len(scope), bearer.MaxToken, mend)
	e.Details[detailStatus] = http.StatusForbidden
	return e
}

// entries is a list that JSON shows as one even when it is empty.
func entries(in []string) []string {
	if in == nil {
		return []string{}
	}
	return in
}

// formOf is the answer in the form of RFC 8693. Its section 2.2.1 wants a token_type: DPoP for a bearer that is bound to a key (RFC
// 9449 section 5). An unbound one may be used by whoever holds it, so it is Bearer to a client that asked for an access token,
// and N_A to one that asked for a JWT: no HTTP resource takes it in an Authorization header.
func formOf(req request, token string, signed bearer.Claims) grantedForm {
	out := grantedForm{
		AccessToken: token, IssuedType: req.issued, TokenType: "N_A", Scope: strings.Join(signed.Scope, " "),
		ExpiresIn: int64(time.Until(signed.Expires) / time.Second),
	}
	switch {
	case signed.Confirmation != nil:
		out.TokenType = "DPoP"
	case req.issued == typeAccessToken:
		out.TokenType = "Bearer"
	}
	return out
}

// person proves a login. The view is refused before anything is looked at, because that depends on the face alone.
func (f *face) person(ctx context.Context, req request, d *Decision) (proven, error) {
	if req.view != trust.ViewNone && f.name != Loopback {
		return proven{}, trust.Deny(wire.CodePermissionDenied, trust.ReasonView,
			"views are given out on the machine of the space only; ask there, or leave view out")
	}
	o := &f.server.opts
	claims, err := f.identify(ctx, req)
	if err != nil {
		return proven{}, fmt.Errorf("check login: %w", err)
	}
	owner, err := o.Owner(claims.Issuer, claims.Subject)
	switch {
	case errors.Is(err, wire.ErrBadRequest):
		return proven{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonSubject, "the token names no usable subject; log in again")
	case err != nil:
		return proven{}, wire.Errorf(wire.CodeInternal, "derive owner: %w", err)
	}
	d.Lifecycle.Principal = wire.Principal{Owner: owner, Actor: req.actor}
	if claims.Expires.IsZero() {
		return proven{}, wire.Errorf(wire.CodeInternal, "check login: the identity has no end")
	}
	if time.Until(claims.Expires) < shortest {
		return proven{}, trust.Deny(wire.CodeExpired, trust.ReasonExpired, "the login has expired or is about to; log in again")
	}
	if err := f.server.limits.owner(owner); err != nil {
		return proven{}, err
	}
	p := proven{end: claims.Expires}
	p.admission, err = o.Authority.AdmitPerson(ctx, auth.PersonRequest{Owner: owner, Actor: req.actor, View: req.view, Scope: req.scope})
	if err != nil {
		return proven{}, fmt.Errorf("admit person: %w", err)
	}
	if p.admission.Grant.Owner != owner {
		return proven{}, wire.Errorf(wire.CodeInternal, "admit person: the grant is of another owner")
	}
	return p, nil
}

func (f *face) identify(ctx context.Context, req request) (oidc.Claims, error) {
	if req.vouched != nil {
		return *req.vouched, nil
	}
	return f.server.opts.Identity.Verify(ctx, req.proof())
}

// afterProof are the reasons that an authority gives an agent only once it has proved its secret.
var afterProof = []trust.Reason{
	trust.ReasonRevoked, trust.ReasonRetiring, trust.ReasonGrantExpired, trust.ReasonParent, trust.ReasonExceedsParent, trust.ReasonScope,
	trust.ReasonSuperseded,
}

// agent proves the secret of an agent. Whatever is wrong before that is proved is one refusal; that the authority cannot be
// asked says nothing about the agent and is said.
func (f *face) agent(ctx context.Context, req request, d *Decision) (proven, error) {
	if req.view != trust.ViewNone {
		return proven{}, trust.Deny(wire.CodePermissionDenied, trust.ReasonView, "an agent never gets a view; leave view out")
	}
	a, err := f.server.opts.Authority.AdmitAgent(ctx, auth.AgentRequest{
		Owner: req.owner, Actor: req.actor, Token: []byte(req.proof()), Scope: req.scope,
	})
	switch code := codeOf(err); {
	case err == nil:
	case slices.Contains(afterProof, trust.ReasonOf(err)):
		d.Lifecycle.Principal = wire.Principal{Owner: req.owner, Actor: req.actor}
		return proven{}, fmt.Errorf("admit agent: %w", err)
	case code == wire.CodeUnavailable || code == wire.CodeInternal || code == wire.CodeResourceExhausted:
		return proven{}, fmt.Errorf("admit agent: %w", err)
	default:
		return proven{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonActorToken,
			"no such agent, or not the secret of its last start; its supervisor starts it again with a new one")
	}
	d.Lifecycle.Principal = a.Grant.Principal()
	if want := (wire.Principal{Owner: req.owner, Actor: req.actor}); a.Grant.Principal() != want {
		return proven{}, wire.Errorf(wire.CodeInternal, "admit agent: the grant is of another principal")
	}
	return proven{admission: a}, nil
}

// spend counts one bearer of a principal and returns the key that it is bound to. The proof of the key is taken last, when nothing
// but it is in the way of a bearer: anybody can make proofs of keys of their own, each one is remembered for two minutes, and when
// there is no room for more nobody gets in. So the limits of owners and actors bound what is remembered.
func (f *face) spend(req request, p wire.Principal) (ed25519.PublicKey, error) {
	l := f.server.limits
	if err := l.room(req.kind, p); err != nil {
		return nil, err
	}
	key, err := f.proveKey(req)
	if err != nil {
		return nil, err
	}
	if key == nil && f.server.opts.RequireKeyProof {
		return nil, trust.Deny(wire.CodeUnauthenticated, trust.ReasonKeyProof,
			"this space binds every bearer to a key; send a DPoP proof of yours (RFC 9449), as cotal does")
	}
	return key, l.bearer(req.kind, p)
}

// proveKey checks the DPoP header, if there is one.
func (f *face) proveKey(req request) (ed25519.PublicKey, error) {
	if len(req.dpop) == 0 {
		return req.key, nil
	}
	proofs := f.server.opts.Proofs
	if len(req.dpop) > 1 || proofs == nil {
		return nil, trust.Deny(wire.CodeUnauthenticated, trust.ReasonKeyProof, "one DPoP header at most is taken here, and none where keys are not bound")
	}
	key, err := proofs.Check(req.dpop[0], http.MethodPost, *f.urls.Load()...)
	if err != nil {
		return nil, fmt.Errorf("check key proof: %w", err)
	}
	if len(key) != ed25519.PublicKeySize {
		return nil, wire.Errorf(wire.CodeInternal, "check key proof: no key")
	}
	return key, nil
}

// lasts takes the earlier of the ends, and refuses when little is left.
func (p *proven) lasts() error {
	until := p.admission.Until
	if until.IsZero() {
		return nil
	}
	if time.Until(until) < shortest {
		return trust.Deny(wire.CodePermissionDenied, trust.ReasonGrantExpired, "the grant of %q, or one above it, ends at %s; ask the operator to extend it",
			p.admission.Grant.Principal(), until.Format(time.RFC3339))
	}
	if p.end.IsZero() || until.Before(p.end) {
		p.end = until
	}
	return nil
}

// fits holds an admission against what was asked, so that a mistake elsewhere widens nothing.
func fits(a auth.Admission, req request) error {
	g := a.Grant
	wrong := ""
	switch {
	case g.State != trust.GrantActive:
		wrong = "the grant is not active"
	case req.actor != "" && g.Actor != req.actor:
		wrong = "another actor"
	case (g.Kind == trust.KindManaged) != (req.kind == KindAgent):
		wrong = "another kind"
	case a.View != req.view || a.Profile != req.view.Profile():
		wrong = "another view"
	}
	for _, e := range a.Scope {
		if !slices.Contains(g.Scope, e) || req.scope != nil && !slices.Contains(req.scope, e) {
			wrong = "a scope beyond the grant or the request"
		}
	}
	if wrong != "" {
		return wire.Errorf(wire.CodeInternal, "admission of %q does not fit the request: %s", g.Principal(), wrong)
	}
	return nil
}
