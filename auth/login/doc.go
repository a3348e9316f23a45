// Package login is the client side of signing in to a space of people.
//
// It has five parts, in the order a program needs them:
//
//   - [Mesh] reads what a mesh says about itself, its identity provider among it. [ReadCapability] reads the private
//     file of a node on this machine.
//   - [Device] signs a person in at the identity provider by the device flow (RFC 8628) and returns a [Session].
//   - [Open] chooses where sessions are kept, sealed with a key of the keyring of the operating system or of a private file.
//   - [Source] keeps one session and hands out a fresh id token, refreshed once among all processes of the machine.
//   - [Exchange] turns an id token, or the token of an agent, into a [Bearer] bound to a key that never leaves the process.
//     [CredentialSource] does so again for each credential that an endpoint asks for.
//
// What it promises: a token goes only to the address it came from or is meant for, over TLS or to this machine itself, and no redirect
// is followed. Nothing of this package shows a token when printed, logged or encoded, but for the methods called Reveal. A session is
// forgotten only when the provider says that it has ended, never because somebody could not be asked.
//
// It does not verify signatures: what the provider said over TLS is believed (OpenID Connect Core 1.0 section 3.1.3.7, 6), and the
// exchange verifies it anyway. Errors are [wire.Error] values; those that say why somebody was not let in carry a [trust.Reason].
//
// All types are safe for concurrent use. When a store takes a lock it holds no other; a Source takes its own lock first.
package login
