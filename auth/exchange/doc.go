// Package exchange turns a proof of who somebody is into a bearer of a space, over HTTP.
//
// A person proves a login with a token of the identity provider, a managed agent proves the secret of its last start. The
// [Authority] says what the grant allows, and the answer is a bearer of at most 900 or 300 seconds that never outlives
// the proof or the grant:
//
//	srv, err := exchange.New(exchange.Options{Space: "main", Authority: authority, Identity: verifier, …})
//	err = srv.Run(ctx)
//
// # Faces
//
// There are two, and both listen on loopback addresses only. The loopback face is for programs of the same user: every route
// but /health and /jwks wants the capability of this start, which stands in a private file (see [LoadCapabilityFile]). The
// public face is optional and stands behind a proxy that ends TLS; there the credential itself is the proof. Each serves
// exactly these routes, and answers 404 to everything else:
//
//	GET  /health                  {"ok":true,"space":…,"issuer":…}
//	GET  /jwks                    the public keys of the bearers (RFC 7517), cacheable for 300 s
//	POST /exchange                see below
//	GET  /.well-known/cotal-mesh  how to sign in here, see [WellKnown]
//
// # Exchange
//
// The body is JSON, {"idpToken", "actor", "owner", "actorToken", "ttlSec", "view", "scope"}: a person sends idpToken and may
// name an actor; an agent sends owner, actor and actorToken. Both proofs, no proof, a doubled or an unknown member are 400. Views are
// for people, at the loopback face. Or it is the form of RFC 8693, see [GrantType]; there parameters that are not
// known are ignored, as RFC 6749 section 3.2 wants. A header DPoP (RFC 9449) proves a key, and the bearer then is of use to
// its holder alone. Answers and refusals are JSON; a refusal has one sentence and a code that programs may rely on
// ([trust.Reason] or [wire.Code]).
//
// # What it promises
//
// Whatever an agent sends before its secret is proved is answered by one and the same sentence. A credential that is valid passes however
// many bad ones came from the same address; of refusals, each address sees a limited number per minute and then 429.
// No token is kept, logged or handed to the audit hook. No answer carries a CORS header, and a request with an Origin is
// refused, so no page in a browser gets an answer. Half-open requests are closed in seconds, and when there is no room for
// more of them, first those of the peer that has most.
//
// It does not promise that a bearer is of use: the broker's callout reads the grant again when somebody connects.
//
// All methods are safe for concurrent use. The package has three mutexes, of the limits, of the bodies and of the connections,
// and holds one of them at a time.
package exchange
