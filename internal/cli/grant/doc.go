// Package grant holds the commands that decide who may do what in a space: mint, revoke, grants.
//
// All of them work as the authority of the project, over the running mesh: a credential is only written to disk after
// its grant and its issuance are recorded in the broker. Credential files are private to their owner and never
// replaced unless that was asked for.
package grant
