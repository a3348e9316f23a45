package oidc

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// DiscoverOptions are the optional parts of [Discover]. Nil means the zero value.
type DiscoverOptions struct {
	// HTTP makes the requests; nil means a client that dials directly. Its cookies and redirect policy are not used.
	HTTP *http.Client
	// Shape is the provider's conventions; empty means [ShapeOIDC].
	Shape Shape
	// Issuer is the iss of the tokens where it is not the address that is asked; [ShapeBetterAuth] only. Empty means the
	// origin of the base address (scheme, host and port), which is Better Auth's own default.
	Issuer string
}

// Metadata is what a provider says about itself. Nothing of it is accepted until it is in a [Pin]; a host may correct a
// field before it makes one.
type Metadata struct {
	Issuer, JWKSURI                            string
	DeviceEndpoint, TokenEndpoint, JWTEndpoint string
	RevocationEndpoint                         string
	// Algorithms are those it says it signs identity tokens with, also those never accepted here.
	Algorithms []string
	// Scopes are those it says it knows; nil when it does not say.
	Scopes []string
	PKCE   bool
	Shape  Shape
}

// Discover asks a provider about itself.
//
// For [ShapeOIDC] it reads {issuer}/.well-known/openid-configuration (OpenID Connect Discovery section 4), where only the
// making of that address ignores a slash at the end of the issuer: the document must name the issuer byte for byte as
// asked. A provider on another machine cannot name addresses on this one.
//
// For [ShapeBetterAuth] issuer is the base address, such as https://app.example/api/auth; the addresses under it are fixed
// and the key set is read once, to see that it is one. Algorithms are those its keys name, EdDSA when they name none.
//
// Errors have code bad-request for an address that must not be asked, unavailable with idp-unavailable when no usable document
// can be had, and failed-precondition with wrong-issuer when the document is another issuer's.
func Discover(ctx context.Context, issuer string, opts *DiscoverOptions) (Metadata, error) {
	var o DiscoverOptions
	if opts != nil {
		o = *opts
	}
	if err := checkIssuer(issuer); err != nil {
		return Metadata{}, err
	}
	client := newClient(o.HTTP)
	switch o.Shape {
	case "", ShapeOIDC:
		if o.Issuer != "" && o.Issuer != issuer {
			return Metadata{}, wire.Errorf(wire.CodeBadRequest, "discover identity provider: a provider of shape %q is asked by its issuer", ShapeOIDC)
		}
		return discoverOIDC(ctx, client, issuer)
	case ShapeBetterAuth:
		return discoverBetterAuth(ctx, client, issuer, o.Issuer)
	}
	return Metadata{}, wire.Errorf(wire.CodeBadRequest, "discover identity provider: shape %.96q is neither %q nor %q", o.Shape, ShapeOIDC, ShapeBetterAuth)
}

func discoverOIDC(ctx context.Context, client *http.Client, issuer string) (Metadata, error) {
	uri := strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
	body, _, err := get(ctx, client, uri)
	if err != nil {
		return Metadata{}, trust.Deny(wire.CodeUnavailable, trust.ReasonIDP, "discover identity provider: %w", err)
	}
	unusable := func(why string) error {
		return trust.Deny(wire.CodeUnavailable, trust.ReasonIDP, "discover identity provider: get %.200q: %s", uri, why)
	}
	doc, err := decodeObject(body, maxBody)
	if err != nil {
		return Metadata{}, unusable(err.Error())
	}
	if said, ok := doc.text("issuer"); !ok || said != issuer {
		return Metadata{}, trust.Deny(wire.CodeFailedPrecondition, trust.ReasonIssuer,
			"discover identity provider: asked for %q, the document is of %.200q: name the issuer byte for byte, a slash at the end included", issuer, said)
	}
	m := Metadata{Issuer: issuer, Shape: ShapeOIDC}
	for _, e := range []struct {
		name string
		to   *string
	}{
		{"jwks_uri", &m.JWKSURI}, {"device_authorization_endpoint", &m.DeviceEndpoint},
		{"token_endpoint", &m.TokenEndpoint}, {"revocation_endpoint", &m.RevocationEndpoint},
	} {
		said, ok := doc.text(e.name)
		if ok && said == "" {
			continue
		}
		if !ok || checkURL(e.name, said) != nil || host(said, loopback) && !host(issuer, loopback) {
			return Metadata{}, unusable("its " + e.name + " is not an address that may be asked")
		}
		*e.to = said
	}
	if m.JWKSURI == "" {
		return Metadata{}, unusable("it names no jwks_uri")
	}
	var ok [3]bool
	var challenges []string
	m.Algorithms, ok[0] = doc.texts("id_token_signing_alg_values_supported")
	m.Scopes, ok[1] = doc.texts("scopes_supported")
	challenges, ok[2] = doc.texts("code_challenge_methods_supported")
	if ok != [3]bool{true, true, true} {
		return Metadata{}, unusable("one of its lists is not a list of words")
	}
	if len(m.Algorithms) == 0 {
		m.Algorithms = []string{rs256} // what OpenID Connect Core section 15.1 makes everybody speak
	}
	m.PKCE = slices.Contains(challenges, "S256")
	return m, nil
}

func discoverBetterAuth(ctx context.Context, client *http.Client, base, issuer string) (Metadata, error) {
	if issuer == "" {
		u, err := url.Parse(base)
		if err != nil {
			return Metadata{}, wire.Errorf(wire.CodeBadRequest, "discover identity provider: %.96q is not an address", base)
		}
		issuer = u.Scheme + "://" + u.Host
	}
	base = strings.TrimSuffix(base, "/")
	m := Metadata{
		Issuer: issuer, JWKSURI: base + "/jwks", Shape: ShapeBetterAuth,
		DeviceEndpoint: base + "/device/code", TokenEndpoint: base + "/device/token", JWTEndpoint: base + "/token",
	}
	body, _, err := get(ctx, client, m.JWKSURI)
	if err != nil {
		return Metadata{}, trust.Deny(wire.CodeUnavailable, trust.ReasonIDP, "discover identity provider: %w", err)
	}
	set, err := parseKeys(body)
	if err != nil {
		return Metadata{}, trust.Deny(wire.CodeUnavailable, trust.ReasonIDP, "discover identity provider: get %.200q: %w", m.JWKSURI, err)
	}
	for _, alg := range accepted {
		if slices.Contains(set.algorithms, alg) {
			m.Algorithms = append(m.Algorithms, alg)
		}
	}
	if len(m.Algorithms) == 0 {
		m.Algorithms = []string{edDSA}
	}
	return m, nil
}

// host reports whether the host of a checked address is one.
func host(raw string, is func(string) bool) bool {
	u, err := url.Parse(raw)
	return err == nil && is(u.Hostname())
}

// Pin makes the pin of a mesh. An empty audience means the client id, which is the audience of an ID token. Algorithms
// default to those the provider names and we accept; given ones may be any we accept. Scopes are openid, profile, email and
// offline_access as far as the provider knows them; openid always, offline_access only when it is named.
//
// The error has code bad-request when a field is refused, or failed-precondition when the provider names no algorithm
// that is accepted.
func (m Metadata) Pin(clientID, audience string, algorithms []string) (Pin, error) {
	if audience == "" {
		audience = clientID
	}
	algorithms = slices.Clone(algorithms)
	if len(algorithms) == 0 {
		for _, alg := range accepted {
			if slices.Contains(m.Algorithms, alg) {
				algorithms = append(algorithms, alg)
			}
		}
		if len(algorithms) == 0 {
			return Pin{}, wire.Errorf(wire.CodeFailedPrecondition,
				"pin identity provider: it signs with none of %s: configure one of them there", strings.Join(accepted, " "))
		}
	}
	p := Pin{
		Issuer: m.Issuer, Audience: audience, ClientID: clientID, JWKSURI: m.JWKSURI, Algorithms: algorithms, Shape: m.Shape,
		DeviceEndpoint: m.DeviceEndpoint, TokenEndpoint: m.TokenEndpoint, JWTEndpoint: m.JWTEndpoint,
		RevocationEndpoint: m.RevocationEndpoint, PKCE: m.PKCE, Scopes: []string{"openid"},
	}
	for _, s := range []string{"profile", "email"} {
		if m.Scopes == nil || slices.Contains(m.Scopes, s) {
			p.Scopes = append(p.Scopes, s)
		}
	}
	if slices.Contains(m.Scopes, "offline_access") {
		p.Scopes = append(p.Scopes, "offline_access")
	}
	return p, p.Validate()
}
