package exchange

import (
	"context"
	"fmt"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/wire"
)

const wellKnownVersion = 1

// WellKnown is the document at /.well-known/cotal-mesh: all that a client needs to sign in at a mesh whose address it was
// given. It holds no secret.
type WellKnown struct {
	// Ver is 1; filled in by the server.
	Ver int `json:"ver"`
	// Space is filled in by the server.
	Space wire.Space `json:"space"`
	// Server is the address of the broker as clients reach it, "tls://host:port"; empty when it is not advertised.
	Server string `json:"server,omitempty"`
	// TLSRequired says that clients must not connect to the broker in the clear.
	TLSRequired bool     `json:"tlsRequired"`
	UserAuth    UserAuth `json:"userAuth"`
	// Sentinel is the public credential to connect with; filled in by the server.
	Sentinel string `json:"sentinel"`
	// SentinelCreds is the same as the text of a credentials file, for clients that take nothing else; filled in by the server.
	// Its seed belongs to nobody and is made for this document: a sentinel is a bearer of NATS, whose seed opens nothing.
	SentinelCreds string `json:"sentinelCreds,omitempty"`
}

// UserAuth says how people sign in.
type UserAuth struct {
	// Provider is "cotal"; filled in by the server.
	Provider string `json:"provider"`
	IDP      IDP    `json:"idp"`
	// Endpoints are of this exchange; filled in by the server.
	Endpoints Endpoints `json:"endpoints"`
}

// IDP is the identity provider of a mesh, as `cotal login` uses it.
type IDP struct {
	// Issuer is byte for byte what tokens name.
	Issuer string `json:"issuer"`
	// ClientID is the client to log in as, Audience what its tokens are for.
	ClientID string `json:"clientId"`
	Audience string `json:"audience"`
	// Scopes to ask for; empty for the default of the client.
	Scopes []string `json:"scopes,omitempty"`
	// Shape is the conventions that the provider follows; empty for OpenID Connect, see [oidc.Shape].
	Shape string `json:"shape,omitempty"`
	// DeviceEndpoint and TokenEndpoint are where the device flow (RFC 8628) starts and polls, JWTEndpoint where a session gets a
	// JWT, RevocationEndpoint (RFC 7009) where it ends. What is empty is found by discovery, or there is none.
	DeviceEndpoint     string `json:"deviceEndpoint,omitempty"`
	TokenEndpoint      string `json:"tokenEndpoint,omitempty"`
	JWTEndpoint        string `json:"jwtEndpoint,omitempty"`
	RevocationEndpoint string `json:"revocationEndpoint,omitempty"`
}

// IDPOf is what people are told of a pin.
func IDPOf(p oidc.Pin) IDP {
	return IDP{
		Issuer: p.Issuer, ClientID: p.ClientID, Audience: p.Audience, Scopes: p.Scopes, Shape: string(p.Shape),
		DeviceEndpoint: p.DeviceEndpoint, TokenEndpoint: p.TokenEndpoint, JWTEndpoint: p.JWTEndpoint, RevocationEndpoint: p.RevocationEndpoint,
	}
}

// Endpoints are addresses of an exchange.
type Endpoints struct {
	// URL is the base: the routes are appended to it.
	URL string `json:"url"`
}

// describe makes the document of now.
func (s *Server) describe(ctx context.Context) (WellKnown, error) {
	doc := s.opts.Mesh()
	sentinel, err := s.opts.Sentinel(ctx)
	if err != nil {
		return WellKnown{}, fmt.Errorf("read sentinel: %w", err)
	}
	doc.Ver, doc.Space, doc.Sentinel = wellKnownVersion, s.opts.Space, sentinel
	doc.UserAuth.Provider, doc.UserAuth.Endpoints.URL = "cotal", s.URL()
	if doc.SentinelCreds, err = credsOf(sentinel); err != nil {
		return WellKnown{}, fmt.Errorf("write sentinel: %w", err)
	}
	return doc, nil
}

// credsOf is the text of a credentials file around a user JWT that needs no seed.
func credsOf(token string) (string, error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return "", err
	}
	defer key.Wipe()
	seed, err := key.Seed()
	if err != nil {
		return "", err
	}
	rest, err := jwt.DecorateSeed(seed)
	return "-----BEGIN NATS USER JWT-----\n" + token + "\n------END NATS USER JWT------\n\n" + string(rest), err
}
