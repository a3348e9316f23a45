// Package spawn is `cotal spawn`: it asks a supervisor for an agent and waits until that is ready or has failed.
//
// The request is accepted at once, under an identity that is printed, and carries an id, so that a reply that was lost is asked for again
// and never makes a second agent. What is waited for is the agent's presence in the space, not a clock: one that takes long is
// "starting", which is no failure.
package spawn
