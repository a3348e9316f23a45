// Package idptest starts real identity providers for tests, so that no test of ours signs a token by hand:
//
//	idp := idptest.Start(t, idptest.Zitadel, nil)
//	code := … // ask idp.DeviceEndpoint as a client does
//	err := idp.Approve(ctx, code.UserCode, "ada")
//
// There are three, unlike on purpose. Zitadel is the provider library of github.com/zitadel/oidc in this process (RS256).
// BetterAuth and Panva, the npm package oidc-provider, run in Node (EdDSA and ES256); conformance/idp has their scripts, and
// conformance/idp/setup installs them. Without Node or the packages a test that starts one is skipped, in CI it fails.
//
// What clients see is a proxy on 127.0.0.1 whose address is the issuer. It counts requests and plays outages; whatever is
// signed or refused is the product's own doing. A person approves over HTTP too, on the product's pages or routes.
//
// What a client must know of each, with the versions that go.mod and package-lock.json name, is held by the tests here:
//
//   - Zitadel: discovery. Every body is a form with client_id. The interval is 1 s, and polling faster is never told slow_down. A
//     device code is good for one answer; an unknown one is access_denied. An unknown client is 401 invalid_client. Refresh
//     tokens, for the scope offline_access, rotate; the answer has a new ID token. aud is a list of the audience and the client,
//     azp is the client.
//   - BetterAuth: no discovery; the endpoints have fixed paths below /api/auth. The device endpoint takes forms and JSON, the token
//     endpoint JSON alone (415 for a form), with client_id. The interval is 1 s, and polling faster is slow_down, which does not
//     lengthen the interval. Errors of OAuth have "error"; others have "code" and "message" instead. The answer has a session
//     token for 7 days, and neither ID token nor refresh token: GET JWTEndpoint with the session as bearer returns {"token"}, as
//     often as wanted while the session lives, then 401. aud is one string, the audience; there is no azp. A person has to open the
//     code before allowing it. POST /sign-out with the session as bearer and the body {} ends it.
//   - Panva: discovery. Every body is a form with client_id, and a resource parameter is refused. There is no interval in the
//     answer, so it is 5 s by RFC 8628 section 3.2, and slow_down is never told. Refresh tokens, for the scope offline_access,
//     rotate, and using one twice ends all of that grant; the answer has a new ID token. aud is one string, the client, whatever
//     audience was asked for; there is no azp.
//
// All take a code_challenge on the device endpoint and a code_verifier that does not fit, and look at neither, although the first
// and the last advertise S256 in their discovery.
//
// Everything a test starts ends with the test, and a child ends with the process even when that is killed. An IdP is safe for
// concurrent use. It needs real sockets, so it does not work inside a testing/synctest bubble.
package idptest
