package oidc

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cotal-go/cotal/wire"
)

// Shape says which conventions a provider follows.
type Shape string

// The shapes.
const (
	// ShapeOIDC is OpenID Connect: a discovery document, and ID tokens from the token endpoint.
	ShapeOIDC Shape = "oidc"
	// ShapeBetterAuth is the device authorization and JWT plugins of Better Auth: fixed paths under a base address, a device
	// flow that ends in a session token, and a further address that gives a JWT for the session.
	ShapeBetterAuth Shape = "better-auth"
)

// Limits of a pin.
const (
	// MaxPin bounds an encoded pin, in bytes.
	MaxPin = 16 << 10

	maxURL    = 1024
	maxText   = 255
	maxScopes = 32
	pinVer    = 1
)

// Pin is what a mesh accepts of one identity provider, chosen once and never widened by what the provider says later. It
// holds nothing secret. Its JSON form is that of [Pin.Encode].
type Pin struct {
	// Issuer is the iss of the tokens, byte for byte: a slash at the end counts. An https URL (http on a loopback host);
	// any text without control characters, at most 1024 bytes, for [ShapeBetterAuth].
	Issuer string `json:"issuer"`
	// Audience is the one audience accepted, at most 255 bytes.
	Audience string `json:"audience"`
	// ClientID is the public client that people log in with, at most 255 bytes. A token that says who it was given to
	// (azp, the client_id of RFC 9068, cid or appid) must name it; with [ShapeOIDC] and an audience that is another than the
	// client it must say so.
	ClientID string `json:"clientId"`
	// JWKSURI is where the provider publishes its keys.
	JWKSURI string `json:"jwksUri"`
	// Algorithms are the signature algorithms accepted, one to all of [Algorithms].
	Algorithms []string `json:"algorithms"`
	// Shape is the provider's conventions.
	Shape Shape `json:"shape"`

	// DeviceEndpoint and TokenEndpoint are where a login starts and where it polls (RFC 8628 sections 3.1 and 3.4). They are
	// for the login client; verification uses neither. Empty when the provider has none.
	DeviceEndpoint string `json:"deviceEndpoint,omitempty"`
	TokenEndpoint  string `json:"tokenEndpoint,omitempty"`
	// JWTEndpoint gives a JWT for the session token of the device flow; [ShapeBetterAuth] only.
	JWTEndpoint string `json:"jwtEndpoint,omitempty"`
	// RevocationEndpoint is where a logout hands in its refresh token (RFC 7009), or empty.
	RevocationEndpoint string `json:"revocationEndpoint,omitempty"`
	// PKCE says that the provider takes the S256 challenge of RFC 7636.
	PKCE bool `json:"pkce,omitempty"`
	// Scopes are those a login asks for, at most 32.
	Scopes []string `json:"scopes,omitempty"`
}

// pinFile is the closed form of a stored pin. Version 1, 2026-11: the first.
type pinFile struct {
	Ver int `json:"ver"`
	Pin
}

// Validate checks every field. Its error has code bad-request and names the field. A pin that passes is one that
// [NewVerifier] takes.
func (p Pin) Validate() error {
	switch p.Shape {
	case ShapeOIDC:
		if err := checkIssuer(p.Issuer); err != nil {
			return err
		}
	case ShapeBetterAuth:
		if err := checkText("issuer", p.Issuer, maxURL); err != nil {
			return err
		}
	default:
		return wire.Errorf(wire.CodeBadRequest, "check identity provider: shape %.96q is neither %q nor %q", p.Shape, ShapeOIDC, ShapeBetterAuth)
	}
	if err := checkText("audience", p.Audience, maxText); err != nil {
		return err
	}
	if err := checkText("client id", p.ClientID, maxText); err != nil {
		return err
	}
	if err := checkURL("jwksUri", p.JWKSURI); err != nil {
		return err
	}
	for _, e := range []struct{ name, uri string }{
		{"deviceEndpoint", p.DeviceEndpoint}, {"tokenEndpoint", p.TokenEndpoint},
		{"jwtEndpoint", p.JWTEndpoint}, {"revocationEndpoint", p.RevocationEndpoint},
	} {
		if e.uri == "" {
			continue
		}
		if err := checkURL(e.name, e.uri); err != nil {
			return err
		}
	}
	if err := checkAlgorithms(p.Algorithms); err != nil {
		return err
	}
	return checkScopes(p.Scopes)
}

// Encode returns the stored form of a valid pin: one JSON object of version 1. Equal pins encode to equal bytes. The error
// is that of [Pin.Validate].
func (p Pin) Encode() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(pinFile{pinVer, p})
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "encode identity provider: %v", err)
	}
	return data, nil
}

// DecodePin reads what [Pin.Encode] wrote. It refuses unknown and repeated members, another version (unsupported-version)
// and whatever [Pin.Validate] refuses (bad-request).
func DecodePin(data []byte) (Pin, error) {
	var f pinFile
	if err := wire.Decode(data, &f, MaxPin); err != nil {
		return Pin{}, wire.Errorf(wire.CodeBadRequest, "decode identity provider: not the JSON that this build writes")
	}
	if f.Ver != pinVer {
		return Pin{}, wire.Errorf(wire.CodeUnsupportedVersion, "decode identity provider: version %d, this build reads %d", f.Ver, pinVer)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Pin{}, wire.Errorf(wire.CodeBadRequest, "decode identity provider: not the JSON that this build writes: unknown field")
	}
	if err := f.Pin.Validate(); err != nil {
		return Pin{}, err
	}
	return f.Pin, nil
}

func checkAlgorithms(list []string) error {
	if len(list) == 0 {
		return wire.Errorf(wire.CodeBadRequest, "check identity provider: no algorithm: name some of %s", strings.Join(accepted, " "))
	}
	for i, alg := range list {
		if !slices.Contains(accepted, alg) {
			return wire.Errorf(wire.CodeBadRequest,
				"check identity provider: algorithm %.96q is never accepted: name some of %s", alg, strings.Join(accepted, " "))
		}
		if slices.Contains(list[:i], alg) {
			return wire.Errorf(wire.CodeBadRequest, "check identity provider: algorithm %q is named twice", alg)
		}
	}
	return nil
}

// checkScopes holds each to the scope-token of RFC 6749 section 3.3.
func checkScopes(list []string) error {
	if len(list) > maxScopes {
		return wire.Errorf(wire.CodeBadRequest, "check identity provider: %d scopes, limit %d", len(list), maxScopes)
	}
	for i, s := range list {
		bad := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
		if s == "" || len(s) > maxText || strings.ContainsFunc(s, bad) || slices.Contains(list[:i], s) {
			return wire.Errorf(wire.CodeBadRequest, "check identity provider: scope %.96q is no scope or named twice", s)
		}
	}
	return nil
}

func checkText(what, s string, limit int) error {
	if s == "" || len(s) > limit || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return wire.Errorf(wire.CodeBadRequest, "check identity provider: %s %.96q: want 1 to %d bytes without control characters", what, s, limit)
	}
	return nil
}

// checkIssuer holds an issuer to OpenID Connect Core section 2: a URL without query and fragment.
func checkIssuer(issuer string) error {
	if strings.Contains(issuer, "?") {
		return wire.Errorf(wire.CodeBadRequest, "check identity provider: issuer %.96q: an issuer has no query", issuer)
	}
	return checkURL("issuer", issuer)
}

// checkURL refuses every address that must not be asked: other than https (http on a loopback host), with credentials or a
// fragment, or longer than 1024 bytes.
func checkURL(what, raw string) error {
	refuse := func(why string) error {
		return wire.Errorf(wire.CodeBadRequest, "check identity provider: %s %.96q: %s", what, raw, why)
	}
	bad := func(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }
	if len(raw) > maxURL || strings.ContainsFunc(raw, bad) {
		return refuse("want at most 1024 bytes without space")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Hostname() == "", u.Opaque != "":
		return refuse("not an address with a host")
	case u.User != nil:
		return refuse("credentials do not belong in an address")
	case strings.Contains(raw, "#"):
		return refuse("an address here has no fragment")
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return refuse("want https, or http on a loopback host")
}

// loopback reports whether a host of a URL is this machine by its name alone.
func loopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}
