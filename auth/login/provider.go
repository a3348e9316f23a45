package login

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// The shapes of identity provider that are spoken here.
const (
	ShapeOIDC       = "oidc"        // OpenID Connect with the device flow of RFC 8628
	ShapeBetterAuth = "better-auth" // Better Auth with its device and JWT plugins
)

// Provider is what the client needs to know of an identity provider; the mesh's well-known document or discovery gives it.
type Provider struct {
	// Issuer is the provider's name, byte for byte as it stands in its tokens.
	Issuer string `json:"issuer"`
	// ClientID names this program at the provider. It is a public client: it has no secret.
	ClientID string `json:"clientId"`
	// Audience is what tokens must be meant for; empty means ClientID.
	Audience string `json:"audience,omitempty"`
	// Shape is [ShapeOIDC], the default, or [ShapeBetterAuth].
	Shape string `json:"shape,omitempty"`
	// DeviceEndpoint is where a device code is asked for.
	DeviceEndpoint string `json:"deviceEndpoint,omitempty"`
	// TokenEndpoint is where codes and refresh tokens are redeemed.
	TokenEndpoint string `json:"tokenEndpoint,omitempty"`
	// DeviceTokenEndpoint is where a device code is redeemed at a provider that has an address of its own for that; empty
	// means TokenEndpoint.
	DeviceTokenEndpoint string `json:"deviceTokenEndpoint,omitempty"`
	// JWTEndpoint is where a session of the Better Auth shape gets its id token.
	JWTEndpoint string `json:"jwtEndpoint,omitempty"`
	// RevocationEndpoint ends a session (RFC 7009); empty when there is none.
	RevocationEndpoint string `json:"revocationEndpoint,omitempty"`
	// Scopes are asked for besides those that the shape needs.
	Scopes []string `json:"scopes,omitempty"`
	// Resource is sent as the resource parameter of RFC 8707; empty sends none.
	Resource string `json:"resource,omitempty"`
}

// audience is what a token must be meant for.
func (p Provider) audience() string {
	if p.Audience != "" {
		return p.Audience
	}
	return p.ClientID
}

// scope is the parameter that the device authorization carries.
func (p Provider) scope(offline bool) string {
	var all []string
	if p.Shape == ShapeOIDC {
		all = []string{"openid"}
	}
	for _, s := range p.Scopes {
		if s != "offline_access" && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if offline && p.Shape == ShapeOIDC {
		all = append(all, "offline_access") // OpenID Connect Core 1.0 section 11: this is what gives a refresh token
	}
	return strings.Join(all, " ")
}

// check fills the shape and refuses what cannot be used, with code bad-request.
func (p Provider) check() (Provider, error) {
	if p.Shape == "" {
		p.Shape = ShapeOIDC
	}
	switch {
	case p.Shape != ShapeOIDC && p.Shape != ShapeBetterAuth:
		return p, wire.Errorf(wire.CodeBadRequest, "identity provider %q: shape %q is neither %q nor %q", p.Issuer, p.Shape, ShapeOIDC, ShapeBetterAuth)
	case p.Issuer == "":
		return p, wire.Errorf(wire.CodeBadRequest, "identity provider: no issuer given")
	case p.ClientID == "":
		return p, wire.Errorf(wire.CodeBadRequest, "identity provider %q: no client id given", p.Issuer)
	}
	for _, e := range []struct{ name, address string }{
		{"device endpoint", p.DeviceEndpoint}, {"token endpoint", p.TokenEndpoint}, {"device token endpoint", p.DeviceTokenEndpoint},
		{"JWT endpoint", p.JWTEndpoint}, {"revocation endpoint", p.RevocationEndpoint},
	} {
		if e.address == "" {
			continue
		}
		if err := checkAddress(e.address); err != nil {
			return p, wire.Errorf(wire.CodeBadRequest, "identity provider %q: %s: %w", p.Issuer, e.name, err)
		}
	}
	return p, nil
}

// ofIssuer returns the provider without its endpoints when one of them is elsewhere than the issuer, so that [Provider.Discover] asks
// the issuer. Device codes and refresh tokens are sent there, and whoever describes a mesh must not choose who gets those of a
// provider that others trust. With the Better Auth shape there is nobody else to ask.
func (p Provider) ofIssuer() Provider {
	if p.Shape != ShapeOIDC {
		return p
	}
	endpoints := []*string{&p.DeviceEndpoint, &p.TokenEndpoint, &p.DeviceTokenEndpoint, &p.JWTEndpoint, &p.RevocationEndpoint}
	if slices.ContainsFunc(endpoints, func(e *string) bool { return *e != "" && !samePlace(*e, p.Issuer) }) {
		for _, e := range endpoints {
			*e = ""
		}
	}
	return p
}

// samePlace reports whether two addresses have one scheme, host and port.
func samePlace(x, y string) bool {
	a, errA := url.Parse(x)
	b, errB := url.Parse(y)
	return errA == nil && errB == nil && a.Host != "" && a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host)
}

// pointsInward reports whether an address is on this machine although the one who names it is not.
func pointsInward(address, by string) bool {
	a, errA := url.Parse(address)
	b, errB := url.Parse(by)
	return errA == nil && errB == nil && loopback(a.Hostname()) && !loopback(b.Hostname())
}

// Discover fills the endpoints that are missing and leaves those that are there. With the OpenID Connect shape it reads the provider's
// discovery document (OpenID Connect Discovery 1.0 section 4, else RFC 8414 section 3); with the Better Auth shape it uses the
// addresses that its plugins have below the issuer. It asks nobody when nothing is missing. Nil hc means a client of its own.
//
// Errors: bad-request for a provider that cannot be used, failed-precondition when the document is another issuer's or names no
// endpoint for the device flow, unavailable when it cannot be read.
func (p Provider) Discover(ctx context.Context, hc *http.Client) (Provider, error) {
	p, err := p.check()
	if err != nil {
		return p, err
	}
	if p.Shape == ShapeBetterAuth {
		base := strings.TrimSuffix(p.Issuer, "/")
		if u, err := url.Parse(base); err == nil && u.Path == "" {
			base += "/api/auth"
		}
		fill(&p.DeviceEndpoint, base+"/device/code")
		fill(&p.TokenEndpoint, base+"/device/token")
		fill(&p.JWTEndpoint, base+"/token")
		fill(&p.RevocationEndpoint, base+"/sign-out")
		return p.check()
	}
	if p.DeviceEndpoint != "" && p.TokenEndpoint != "" {
		return p, nil
	}
	doc, err := p.document(ctx, client(hc))
	if err != nil {
		return p, err
	}
	if got := doc.text("issuer"); got != p.Issuer {
		return p, wire.Errorf(wire.CodeFailedPrecondition, "discover identity provider %q: its document is of the issuer %q: give that one, byte for byte",
			p.Issuer, clip(got))
	}
	fill(&p.DeviceEndpoint, doc.text("device_authorization_endpoint"))
	fill(&p.TokenEndpoint, doc.text("token_endpoint"))
	fill(&p.RevocationEndpoint, doc.text("revocation_endpoint"))
	if p.DeviceEndpoint == "" || p.TokenEndpoint == "" {
		return p, noDeviceFlow(p)
	}
	for _, e := range []string{p.DeviceEndpoint, p.TokenEndpoint, p.RevocationEndpoint} {
		if pointsInward(e, p.Issuer) {
			return p, wire.Errorf(wire.CodeFailedPrecondition, "discover identity provider %q: its document names %q, which is on this machine and not there", p.Issuer, clip(e))
		}
	}
	return p.check()
}

func noDeviceFlow(p Provider) error {
	return wire.Errorf(wire.CodeFailedPrecondition, "identity provider %q names no endpoint for the device flow (device endpoint %q, token endpoint %q): "+
		"enable the device flow there, or configure both addresses", p.Issuer, clip(p.DeviceEndpoint), clip(p.TokenEndpoint))
}

// document reads the discovery document from its usual place, or from that of RFC 8414 when there is none.
func (p Provider) document(ctx context.Context, hc *http.Client) (fields, error) {
	if err := checkAddress(p.Issuer); err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "discover identity provider %q: %w", p.Issuer, err)
	}
	u, err := url.Parse(p.Issuer)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "discover identity provider %q: %v", p.Issuer, err)
	}
	first := strings.TrimSuffix(p.Issuer, "/") + "/.well-known/openid-configuration"
	a, err := get(ctx, hc, first, nil)
	if err != nil {
		return nil, err
	}
	if a.status == http.StatusNotFound {
		second := *u
		second.Path = "/.well-known/oauth-authorization-server" + strings.TrimSuffix(u.Path, "/")
		if a, err = get(ctx, hc, second.String(), nil); err != nil {
			return nil, err
		}
	}
	doc, ok := a.fields()
	if a.status != http.StatusOK || !ok {
		return nil, wire.Errorf(wire.CodeUnavailable, "discover identity provider %q: %s", p.Issuer, a.describe())
	}
	return doc, nil
}

func fill(at *string, value string) {
	if *at == "" {
		*at = value
	}
}

// checkAddress refuses an address that a secret must not be sent to: only https, or http to this machine itself.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return wire.Errorf(wire.CodeBadRequest, "address %q is not an absolute URL", clip(address))
	case u.User != nil:
		return wire.Errorf(wire.CodeBadRequest, "address of host %q holds a user name or password: leave it out", u.Host)
	case u.Fragment != "":
		return wire.Errorf(wire.CodeBadRequest, "address %q has a fragment", clip(address))
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return wire.Errorf(wire.CodeBadRequest, "address %q would carry secrets in the clear: use https (http is for this machine only)", clip(address))
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
