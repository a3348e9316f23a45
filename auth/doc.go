// Package auth is the authority of a space: the only role that mints, grants and revokes.
//
// An [Authority] owns three things and nothing else: the trust records (through [mint.Authority]), the grant of
// every principal (through the authority bucket of the space) and the push of account changes to the broker
// (through a [Control]). A grant is written before a credential leaves, and checked again after the credential
// has been written to the issuance log, so a revocation that runs at the same time either sees the new key or
// stops it from being handed out.
//
// It promises: a name that is granted holds exactly one lifecycle; a renewed credential keeps that lifecycle; a
// revoked principal is refused by the broker from the moment Revoke returns, live connections included, and
// after every restart. It does not promise to reach a broker that is down: the record is then changed and the
// error says that the push is still owed, which the next start or the next push settles.
//
// All methods are safe for concurrent use, also by several processes over the same records and broker.
package auth
