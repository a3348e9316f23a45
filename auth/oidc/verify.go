package oidc

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Limits of a token.
const (
	// MaxToken bounds a token in bytes. It is checked before anything else.
	MaxToken = 16 << 10
	// MaxSubject bounds a subject in bytes (OpenID Connect Core section 2).
	MaxSubject = 255
	// DefaultLeeway is how far the clocks of a provider and of this machine may be apart.
	DefaultLeeway = time.Minute

	maxLeeway = 5 * time.Minute
	maxTries  = 3
	maxID     = 1024
)

// KeyResolver finds the keys of the pinned provider. [KeySet] is the one over the network; a host that has the keys otherwise
// gives its own.
type KeyResolver interface {
	// Keys returns the public keys that the provider published under a key id for an algorithm; with an empty id, all those
	// for the algorithm. None means that there is no such key. An error means that the keys cannot be had: one that is not
	// a refusal of its own is answered as unavailable. What does not fit the algorithm is ignored.
	Keys(ctx context.Context, kid, alg string) ([]jose.JSONWebKey, error)
}

// Options are the optional parts of [NewVerifier]. Nil means the zero value.
type Options struct {
	// Leeway is how far clocks may be apart: zero means [DefaultLeeway], at most 5 minutes.
	Leeway time.Duration
}

// Verifier checks tokens against one [Pin].
type Verifier struct {
	pin    Pin
	keys   KeyResolver
	leeway time.Duration
	algs   []jose.SignatureAlgorithm
}

// NewVerifier returns the verifier of a pin. The error has code bad-request: the pin is not valid, there is no resolver, or
// the leeway is out of range.
func NewVerifier(pin Pin, keys KeyResolver, opts *Options) (*Verifier, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Leeway == 0 {
		o.Leeway = DefaultLeeway
	}
	if err := pin.Validate(); err != nil {
		return nil, err
	}
	if keys == nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "check tokens of %q: no keys to check them with", pin.Issuer)
	}
	if o.Leeway < 0 || o.Leeway > maxLeeway {
		return nil, wire.Errorf(wire.CodeBadRequest, "check tokens of %q: leeway %s is not within 0 to %s", pin.Issuer, o.Leeway, maxLeeway)
	}
	pin.Algorithms, pin.Scopes = slices.Clone(pin.Algorithms), slices.Clone(pin.Scopes)
	v := &Verifier{pin: pin, keys: keys, leeway: o.Leeway}
	for _, alg := range pin.Algorithms {
		v.algs = append(v.algs, jose.SignatureAlgorithm(alg))
	}
	return v, nil
}

// Verify checks a token and returns what it says. It waits only for the resolver.
//
// A refusal has code unauthenticated and one of the reasons malformed, bad-signature, wrong-issuer, wrong-audience, expired,
// not-yet-valid and bad-subject; or code unavailable and idp-unavailable when the keys cannot be had, and asking again later
// makes sense. The claims are then zero. The sentence of a refusal, that of its *wire.Error, is for strangers; the text of the
// error may go on with a cause, which is not.
func (v *Verifier) Verify(ctx context.Context, token string) (Claims, error) {
	if len(token) > MaxToken {
		return Claims{}, deny(trust.ReasonMalformed, "the token has %d bytes, limit %d: have the provider put less into it", len(token), MaxToken)
	}
	if !compact(token) {
		return Claims{}, deny(trust.ReasonMalformed, "not a signed token of three parts: give the identity token of the login")
	}
	alg, kid, access, err := v.header(token)
	if err != nil {
		return Claims{}, err
	}
	jws, err := jose.ParseSignedCompact(token, v.algs)
	if err != nil {
		return Claims{}, deny(trust.ReasonMalformed, "the token does not read as a JWS: give the identity token of the login")
	}
	body, err := decodeObject(jws.UnsafePayloadWithoutVerification(), MaxToken)
	if err != nil {
		return Claims{}, deny(trust.ReasonMalformed, "the token's claims are %v: give the identity token of the login", err)
	}
	if err := v.issuer(body); err != nil {
		return Claims{}, err
	}
	if err := v.signed(ctx, jws, kid, alg); err != nil {
		return Claims{}, err
	}
	return v.claims(body, access, time.Now())
}

// header checks the first part of a token and returns what chooses its key. What could bring a key of its own, or change what
// is signed, is refused (RFC 8725 sections 3.1, 3.2, 3.5, 3.11).
func (v *Verifier) header(token string) (alg, kid string, access bool, err error) {
	first, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil {
		return "", "", false, deny(trust.ReasonMalformed, "not a signed token: give the identity token of the login")
	}
	h, err := decodeObject(raw, MaxToken)
	if err != nil {
		return "", "", false, deny(trust.ReasonMalformed, "the token's header is %v: give the identity token of the login", err)
	}
	for _, name := range []string{"jku", "jwk", "x5u", "x5c", "crit", "b64"} {
		if h.has(name) {
			return "", "", false, deny(trust.ReasonSignature, "the token's header has %q, which is never accepted: keys come from the pinned key set alone", name)
		}
	}
	typ, ok := h.text("typ")
	if !ok || !login(typ) {
		return "", "", false, deny(trust.ReasonMalformed, "the token is of a type that is no login: give the identity token of the login")
	}
	alg, ok = h.text("alg")
	if !ok || !slices.Contains(v.pin.Algorithms, alg) {
		return "", "", false, deny(trust.ReasonSignature,
			"the token is signed by an algorithm that is not pinned: accepted are %s", strings.Join(v.pin.Algorithms, " "))
	}
	if kid, ok = h.text("kid"); !ok {
		return "", "", false, deny(trust.ReasonMalformed, "the token's key id is no text: give the identity token of the login")
	}
	return alg, kid, isAccess(typ), nil
}

// isAccess reports whether a typ is that of an access token (RFC 9068 section 2.1). Not every provider says so: an access token may
// as well be a JWT like any other.
func isAccess(typ string) bool {
	return strings.TrimPrefix(strings.ToLower(typ), "application/") == "at+jwt"
}

// login reports whether a typ is that of a token people log in with. Logout, event and proof tokens carry another one.
func login(typ string) bool {
	typ = strings.ToLower(typ)
	switch strings.TrimPrefix(typ, "application/") {
	case "", "jwt", "at+jwt", "id_token", "id_token+jwt":
		return true
	}
	return false
}

// signed checks the signature with the keys that the provider published for the token's key id and algorithm.
func (v *Verifier) signed(ctx context.Context, jws *jose.JSONWebSignature, kid, alg string) error {
	keys, err := v.keys.Keys(ctx, kid, alg)
	if err != nil {
		if trust.ReasonOf(err) != "" {
			return err
		}
		return away(0, err)
	}
	tries := 0
	for i := range keys {
		if !fits(&keys[i], alg) {
			continue
		}
		if tries++; tries > maxTries {
			break
		}
		if _, err := jws.Verify(keys[i].Key); err == nil {
			return nil
		}
	}
	if tries == 0 {
		return deny(trust.ReasonSignature,
			"the identity provider publishes no %s key of the token's key id: log in again, in a minute if its keys have just changed", alg)
	}
	return deny(trust.ReasonSignature, "the signature is not of a key of the identity provider: log in again")
}

func deny(r trust.Reason, format string, args ...any) error {
	return trust.Deny(wire.CodeUnauthenticated, r, format, args...)
}

// compact reports whether a token is three parts of canonical base64url (RFC 7515 section 7.1), so that one token has one
// spelling: no padding, no line breaks, no loose bits at the end of a part.
func compact(token string) bool {
	for n := range 3 {
		part, rest, more := strings.Cut(token, ".")
		if more != (n < 2) || !canonical(part) {
			return false
		}
		token = rest
	}
	return true
}

func canonical(part string) bool {
	if part == "" {
		return false
	}
	var last byte
	for i := range len(part) {
		if last = base64Values[part[i]]; last == noValue {
			return false
		}
	}
	switch len(part) % 4 {
	case 1:
		return false
	case 2:
		return last&0xf == 0
	case 3:
		return last&3 == 0
	}
	return true
}

const noValue = 0xff

// base64Values maps the characters of base64url (RFC 4648 section 5) to their values.
var base64Values = func() (table [256]byte) {
	for i := range table {
		table[i] = noValue
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
		table[c] = byte(i)
	}
	return table
}()
