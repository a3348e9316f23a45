// Package manifest reads team files: channels and agents that belong together, in one file, and what was made of it.
//
// [Load] reads cotal.yaml into a [Team]: its channels with their settings, and its agents, each with the lists of channels that follow
// from who hears, reads and posts where. [Team.Access] is that as a graph. [Team.Plan] compares it with what there is and with the
// [Ledger] of what was made of it before, and says what to do. A ledger is the only authority for taking something down: what it does
// not name, or what is no longer as it was made, stays.
//
// Every error of a file names file, line and column, what is wrong and what to do, all at once; see persona.ProblemsOf. Ledgers are
// outside input too: one that is not a private file of this user, or names what it cannot have made, is refused.
//
// The package asks nobody; it is plain data and files. A [Ledgers] folder is used under a lock by whoever writes it.
package manifest
