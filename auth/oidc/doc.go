// Package oidc decides whether an identity token of an OpenID Provider is a login here, and who logged in.
//
// A [Pin] holds what a mesh accepts of one provider. The operator makes it once, from what [Discover] found, and nothing
// the provider says later widens it. A [Verifier] checks a token against the pin and asks a [KeyResolver] for the
// keys; [KeySet] is the one that reads the provider's key set from the pinned address:
//
//	found, err := oidc.Discover(ctx, "https://idp.example/realms/main", nil)
//	pin, err := found.Pin("cotal-main-1b2c3d4e", "", nil)
//	keys := oidc.NewKeySet(pin.JWKSURI, nil)
//	defer keys.Close()
//	v, err := oidc.NewVerifier(pin, keys, nil)
//	claims, err := v.Verify(ctx, token)
//
// What an accepted token has shown: it is signed, by a pinned algorithm, with a key that the pinned address published for
// that algorithm; its issuer is the pinned one byte for byte; it is meant for the pinned audience and was given to the
// pinned client, by its own word where the audience is another; it is valid now, within a minute; and it names a subject. The order is size, form and header, then the
// issuer, then the signature, then everything else, so a reason other than a wrong issuer or form is never given on the
// word of somebody who signed nothing.
//
// What it has not shown: that the subject may do anything (that is the grant), that the token was not seen before, or that
// the e-mail address is anybody's. Only issuer and subject together name a person.
//
// Refusals are made with [trust.Deny]: code unauthenticated and a reason, or unavailable and idp-unavailable when the
// keys cannot be had. No error quotes a token beyond its issuer and audience, shortened.
//
// Parsing of JWS and JWK is go-jose's; every decision is here. The facts are from OpenID Connect Core 1.0 and Discovery 1.0,
// RFC 7515 (JWS), 7517 (JWK), 7518 (JWA), 7519 (JWT), 8725 (JWT practice) and 9068 (access tokens). All types are safe
// for concurrent use.
package oidc
