package bearer

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Limits of a bearer.
const (
	// MaxHumanLife is the longest life of a bearer, which only a person gets.
	MaxHumanLife = 900 * time.Second
	// MaxAgentLife is the longest life of an agent's bearer.
	MaxAgentLife = 300 * time.Second
	// MaxToken bounds a token in bytes.
	MaxToken = 8 << 10
	// MaxID bounds a "jti" in bytes, of a bearer and of a proof.
	MaxID = 128

	// leeway is how far the clock that signed may run ahead of the one that checks.
	leeway = 5 * time.Second
	// version is that of the claims. History: 1, 2026-11, first.
	version = 1
)

// Claims are what a bearer says. The issuer of the space vouches for all of it at the moment of signing; whether it still
// holds is for the grant to say.
type Claims struct {
	// Issuer is "urn:cotal:auth:<space>", Audience the space, ID the "jti", which no two bearers share.
	Issuer, Audience, ID string
	// Subject is the owner, the same as Act.Owner.
	Subject string
	// IssuedAt, NotBefore and Expires bound its life, in whole seconds of UTC.
	IssuedAt, NotBefore, Expires time.Time
	// Scope is what the grant held when the bearer was signed, entries of [trust.ValidateScope].
	Scope []string
	// Act is who acts.
	Act Act
	// Confirmation is the key whose holder alone may use the bearer (RFC 7800 section 3.2), nil when none was proved.
	Confirmation ed25519.PublicKey
}

// Act is who acts with a bearer: one life of one principal at one epoch of its grant.
type Act struct {
	Owner, Actor string
	UID          wire.UID
	Epoch        uint64 // at least 1
	// Inbox is the private inbox of the connection, the same as UID.
	Inbox string
	// View is what a person asked for beyond an agent's rights, or [trust.ViewNone].
	View trust.View
	// Parent is the principal that the grant is held under, "owner.actor", or empty. It is for the audit log.
	Parent string
}

// Lifecycle returns the life that acts.
func (a Act) Lifecycle() wire.Lifecycle {
	return wire.Lifecycle{Principal: wire.Principal{Owner: a.Owner, Actor: a.Actor}, UID: a.UID}
}

// payload is Claims as JSON (RFC 7519 section 4.1; "cnf" is RFC 7800, "act" is shaped after RFC 8693 section 4.1).
type payload struct {
	Issuer    string        `json:"iss"`
	Audience  audience      `json:"aud"`
	Subject   string        `json:"sub"`
	IssuedAt  int64         `json:"iat"`
	NotBefore int64         `json:"nbf"`
	Expires   int64         `json:"exp"`
	ID        string        `json:"jti"`
	Version   int           `json:"ver"`
	Scope     []string      `json:"scope"`
	Act       actor         `json:"act"`
	Confirm   *confirmation `json:"cnf,omitempty"`
}

type actor struct {
	Owner  string     `json:"owner"`
	Actor  string     `json:"actor"`
	UID    wire.UID   `json:"uid"`
	Epoch  uint64     `json:"epoch"`
	Inbox  string     `json:"inbox"`
	View   trust.View `json:"view,omitempty"`
	Parent string     `json:"parent,omitempty"`
}

type confirmation struct {
	JWK publicJWK `json:"jwk"`
}

// audience is one audience, which RFC 7519 section 4.1.3 lets an issuer write as a string or as a list.
type audience string

// UnmarshalJSON reads a string or a list of exactly one.
func (a *audience) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		var list []*string
		if err := json.Unmarshal(data, &list); err != nil || len(list) != 1 || list[0] == nil {
			*a = ""
			return nil // no space has an empty name, so this is refused as another audience
		}
		*a = audience(*list[0])
		return nil
	}
	var one *string
	if err := json.Unmarshal(data, &one); err != nil || one == nil {
		*a = ""
		return nil
	}
	*a = audience(*one)
	return nil
}

// issuerOf is the issuer of a space's bearers.
func issuerOf(s wire.Space) string { return "urn:cotal:auth:" + string(s) }

func payloadOf(c Claims) payload {
	p := payload{
		Issuer: c.Issuer, Audience: audience(c.Audience), Subject: c.Subject, ID: c.ID, Version: version,
		IssuedAt: c.IssuedAt.Unix(), NotBefore: c.NotBefore.Unix(), Expires: c.Expires.Unix(),
		Scope: c.Scope, Act: actor(c.Act),
	}
	if c.Confirmation != nil {
		p.Confirm = &confirmation{JWK: jwkOf(c.Confirmation)}
	}
	return p
}

// claims checks everything but time and returns the claims. It is what signing and checking have in common, so that
// nothing is signed that would be refused.
func (p *payload) claims(s wire.Space) (Claims, error) {
	switch {
	case p.Version != version:
		return Claims{}, deny(trust.ReasonMalformed, "check bearer: version %d, this build knows %d", p.Version, version)
	case p.Issuer != issuerOf(s):
		return Claims{}, deny(trust.ReasonIssuer, "check bearer: issued by %.96q, space %q takes %q only", p.Issuer, s, issuerOf(s))
	case p.Audience != audience(s):
		return Claims{}, deny(trust.ReasonAudience, "check bearer: meant for %.96q, not for space %q alone", string(p.Audience), s)
	case !validID(p.ID):
		return Claims{}, deny(trust.ReasonMalformed, "check bearer: jti is not 1 to %d visible characters", MaxID)
	case p.Scope == nil || len(p.Scope) > trust.MaxCommands:
		return Claims{}, deny(trust.ReasonMalformed, "check bearer: scope is not a list of at most %d entries", trust.MaxCommands)
	}
	for i, e := range p.Scope {
		if trust.ValidateScope(e) != nil || slices.Contains(p.Scope[:i], e) {
			return Claims{}, deny(trust.ReasonMalformed, "check bearer: scope entry %.96q is none, or there twice", e)
		}
	}
	if err := p.checkAct(); err != nil {
		return Claims{}, err
	}
	c := Claims{
		Issuer: p.Issuer, Audience: string(p.Audience), Subject: p.Subject, ID: p.ID, Scope: p.Scope, Act: Act(p.Act),
		IssuedAt: time.Unix(p.IssuedAt, 0).UTC(), NotBefore: time.Unix(p.NotBefore, 0).UTC(), Expires: time.Unix(p.Expires, 0).UTC(),
	}
	if p.Confirm == nil {
		return c, nil
	}
	var ok bool
	if c.Confirmation, ok = p.Confirm.JWK.key(); !ok {
		return Claims{}, deny(trust.ReasonMalformed, "check bearer: cnf does not hold an Ed25519 public key")
	}
	return c, nil
}

func (p *payload) checkAct() error {
	a := p.Act
	if trust.ValidateOwner(p.Subject) != nil {
		return deny(trust.ReasonSubject, "check bearer: subject %.96q is not an owner that a space derives", p.Subject)
	}
	if a.Owner != p.Subject {
		return deny(trust.ReasonSubject, "check bearer: it acts for %.96q but its subject is %q", a.Owner, p.Subject)
	}
	if wire.ValidateActor(a.Actor) != nil || a.UID.Validate() != nil {
		return deny(trust.ReasonSubject, "check bearer of %q: actor %.96q or uid %.64q does not fit", p.Subject, a.Actor, string(a.UID))
	}
	if a.Epoch == 0 || a.Inbox != string(a.UID) {
		return deny(trust.ReasonSubject, "check bearer of %q: it has no epoch, or an inbox that is not its uid", p.Subject)
	}
	if _, err := trust.ParseView(string(a.View)); err != nil {
		return deny(trust.ReasonView, "check bearer of %q: unknown view %.64q", p.Subject, string(a.View))
	}
	if a.Parent != "" {
		parent, err := wire.ParsePrincipal(a.Parent)
		if err != nil || !parent.OwnerKnown() {
			return deny(trust.ReasonSubject, "check bearer of %q: parent %.96q is no principal", p.Subject, a.Parent)
		}
	}
	return nil
}

// checkTime holds the life of the bearer against now and the longest life that is accepted.
func (p *payload) checkTime(now time.Time, limit time.Duration) error {
	if p.IssuedAt <= 0 || p.NotBefore <= 0 || p.Expires <= 0 {
		return deny(trust.ReasonMalformed, "check bearer: iat, nbf and exp are required, in whole seconds")
	}
	if err := checkEnd(p.Expires, now); err != nil {
		return err
	}
	most := int64(limit / time.Second)
	switch ahead := now.Add(leeway).Unix(); {
	case p.IssuedAt > ahead || p.NotBefore > ahead:
		return deny(trust.ReasonNotYet, "check bearer: it begins in the future; set the clocks of both machines")
	case p.Expires <= p.IssuedAt || p.Expires-p.IssuedAt > most: // so it ends at most limit and leeway from now
		return deny(trust.ReasonMalformed, "check bearer: it lives longer than %d s; get one from the exchange of this space", most)
	}
	return nil
}

func checkEnd(exp int64, now time.Time) error {
	if exp <= now.Unix() {
		return trust.Deny(wire.CodeExpired, trust.ReasonExpired, "check bearer: it has expired; get a new one from the exchange")
	}
	return nil
}

// validID reports whether s may stand as a "jti": it goes into logs and keys.
func validID(s string) bool {
	if s == "" || len(s) > MaxID {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// decodeClosed decodes JSON whose every member is known: on top of what wire.Decode refuses (depth, doubled keys, wrong
// case, trailing data) it refuses unknown members. It reports only whether it could: no error quotes a token.
func decodeClosed(data []byte, v any, limit int) bool {
	if wire.Decode(data, v, limit) != nil {
		return false
	}
	if again, err := json.Marshal(v); err == nil && bytes.Equal(again, data) {
		return true // what we write has nothing unknown, and is nearly all there is: the second decoding costs twice this
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v) == nil
}

func deny(r trust.Reason, format string, args ...any) error {
	return trust.Deny(wire.CodeUnauthenticated, r, format, args...)
}
