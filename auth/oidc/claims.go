package oidc

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cotal-go/cotal/trust"
)

// Claims is what an accepted token says. Issuer and Subject together name a person; everything else describes, and is only
// ever shown.
type Claims struct {
	// Issuer is that of the pin.
	Issuer string
	// Subject is 1 to 255 bytes without control characters. It may hold dots, stars, spaces and any script, so it is hashed
	// and never becomes part of a name or subject.
	Subject string
	// AuthorizedParty is the pinned client when the token says who it was given to, otherwise empty.
	AuthorizedParty string
	// Name is the name or else the preferred_username, and Email the address. Each is empty when the token has none, or one
	// of more than 255 bytes or with control characters.
	Name, Email string
	// EmailVerified says that the provider checked the address. Not even then is it an identity here.
	EmailVerified bool
	// Audience is every audience of the token; the pinned one is among them.
	Audience []string
	// IssuedAt and Expires are the token's own, in whole seconds. Expires may be up to the leeway in the past.
	IssuedAt, Expires time.Time
	// ID is the jti, or empty.
	ID string
}

// issuer compares the iss with the pinned one, byte for byte.
func (v *Verifier) issuer(body object) error {
	iss, ok := body.text("iss")
	switch {
	case !ok || iss == "":
		return deny(trust.ReasonIssuer, "the token names no issuer, this mesh accepts %.96q: log in there", v.pin.Issuer)
	case iss != v.pin.Issuer:
		return deny(trust.ReasonIssuer, "the token is of issuer %.96q, this mesh accepts %.96q: log in there", iss, v.pin.Issuer)
	}
	return nil
}

// claims checks what is left once the signature is known to be good.
func (v *Verifier) claims(body object, access bool, now time.Time) (Claims, error) {
	c := Claims{Issuer: v.pin.Issuer}
	if body.has("events") {
		return Claims{}, deny(trust.ReasonMalformed, "a logout or event token is no login: give the identity token of the login")
	}
	if err := v.times(body, now, &c); err != nil {
		return Claims{}, err
	}
	if err := v.audience(body, &c); err != nil {
		return Claims{}, err
	}
	if err := v.party(body, access, &c); err != nil {
		return Claims{}, err
	}
	sub, ok := body.text("sub")
	if !ok || sub == "" || len(sub) > MaxSubject || strings.ContainsFunc(sub, unicode.IsControl) {
		return Claims{}, deny(trust.ReasonSubject,
			"the token's subject is not a text of 1 to %d bytes without control characters: have the provider name people so", MaxSubject)
	}
	c.Subject = sub
	if c.ID, ok = body.text("jti"); !ok || len(c.ID) > maxID {
		return Claims{}, deny(trust.ReasonMalformed, "the token's id is not a text of at most %d bytes: give the identity token of the login", maxID)
	}
	c.Name = shown(body, "name")
	if c.Name == "" {
		c.Name = shown(body, "preferred_username")
	}
	c.Email = shown(body, "email")
	verified := "email_verified"
	if v.pin.Shape == ShapeBetterAuth {
		verified = "emailVerified"
	}
	c.EmailVerified = c.Email != "" && string(body.get(verified)) == "true"
	return c, nil
}

// times checks exp, iat and nbf (RFC 7519 sections 4.1.4 to 4.1.6). The first two must be there.
func (v *Verifier) times(body object, now time.Time, c *Claims) error {
	exp, okExp := body.date("exp")
	iat, okIat := body.date("iat")
	nbf, okNbf := body.date("nbf")
	switch {
	case !okExp || !okIat || !okNbf || exp.IsZero() || iat.IsZero():
		return deny(trust.ReasonMalformed, "the token's exp and iat must be there, and nbf be a time if it is: give the identity token of the login")
	case exp.Before(iat):
		return deny(trust.ReasonMalformed, "the token ends before it was issued: give the identity token of the login")
	case !now.Before(exp.Add(v.leeway)):
		return deny(trust.ReasonExpired, "the token expired at %s, it is %s here: log in again", stamp(exp), stamp(now))
	case iat.After(now.Add(v.leeway)), nbf.After(now.Add(v.leeway)):
		return deny(trust.ReasonNotYet, "the token is valid from %s, it is %s here: set the clocks right", stamp(later(iat, nbf)), stamp(now))
	}
	c.IssuedAt, c.Expires = iat, exp
	return nil
}

// audience checks aud (RFC 7519 section 4.1.3).
func (v *Verifier) audience(body object, c *Claims) error {
	raw := body.get("aud")
	if one, ok := text(raw); ok {
		c.Audience = []string{one}
	} else if list, ok := texts(raw); ok {
		c.Audience = list
	}
	if !slices.Contains(c.Audience, v.pin.Audience) {
		first := ""
		if len(c.Audience) > 0 {
			first = c.Audience[0]
		}
		return deny(trust.ReasonAudience, "the token is meant for %.96q, this mesh is %.96q: log in for this mesh", first, v.pin.Audience)
	}
	return nil
}

// party checks to which client the token was given: azp (OpenID Connect Core section 2), client_id (RFC 9068 section 2.2), and what
// stands for it in the access tokens of Entra (appid) and Okta (cid). All that are there must name ours.
//
// One must be there unless the token is for our client itself. An audience that is not the client is a resource, for which any
// client of the provider may get access tokens; and those need not have a type of their own, so they cannot be told from
// identity tokens otherwise. Better Auth gives tokens to whom it has signed in itself, and names no client.
func (v *Verifier) party(body object, access bool, c *Claims) error {
	resource := access || v.pin.Shape == ShapeOIDC && v.pin.Audience != v.pin.ClientID
	names := []string{"azp", "client_id"}
	switch {
	case resource:
		names = append(names, "cid", "appid")
	case v.pin.Shape == ShapeOIDC:
		names = append(names, "appid") // an API of Entra may have the id of a client; in identity tokens cid may be anything
	}
	for _, name := range names {
		if !body.has(name) {
			continue
		}
		if party, ok := body.text(name); !ok || party != v.pin.ClientID {
			return deny(trust.ReasonAudience, "the token was given to another client than %.96q (%s): log in with that one", v.pin.ClientID, name)
		}
		c.AuthorizedParty = v.pin.ClientID
	}
	switch {
	case c.AuthorizedParty != "":
		return nil
	case access:
		return deny(trust.ReasonAudience, "the access token does not say which client it was given to: give the identity token of the login")
	case resource:
		return deny(trust.ReasonAudience,
			"the token does not say which client it was given to, which it must where the audience %.96q is not the client: have the provider name %.96q in azp",
			v.pin.Audience, v.pin.ClientID)
	case len(c.Audience) > 1:
		return deny(trust.ReasonAudience,
			"the token is meant for several and does not say that it was given to %.96q: log in with that client", v.pin.ClientID)
	}
	return nil
}

// shown returns a text for people, or nothing when it is not fit to be shown.
func shown(body object, name string) string {
	s, ok := body.text(name)
	if !ok || len(s) > maxText || strings.ContainsFunc(s, unicode.IsControl) {
		return ""
	}
	return s
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
