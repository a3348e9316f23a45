// Package hosts holds the proof that agents run in the hosts that package supervisor/connector knows: the real programs, as npm
// installs them, each started from what its connector prepares, in a terminal, with the tools of a space.
//
// Run setup once, then go test. Only the model is not real, since it would cost and differ: an endpoint on the loopback interface
// answers in the format of each provider, first with a call of a tool of the space and then with an end of the turn. What a host
// sends to it and what arrives in the space is what the tests look at. The package has no code of its own.
package hosts
