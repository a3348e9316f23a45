// Package js holds the proof that a client which nobody of the project wrote in Go takes part in a space: a small participant in
// JavaScript over the official NATS client for Node, written from SPEC.md alone.
//
// Run setup once, then go test. contract.mjs has the names, the JSON and the shapes; client.mjs connects, sends, receives and
// asks; drive.mjs is the scenario, beside endpoints of the project's own code that the test moves; vectors.mjs runs the vectors
// of wire/testdata against contract.mjs. In people.mjs is the way into a space of people, from the login to a bearer that is
// renewed, and peopledrive.mjs is its scenario, at real identity providers. harness.mjs is what scenarios are made of. tools.mjs
// is the view of the official JavaScript client of the Model Context Protocol of what cotal mcp serves. The package has no code of
// its own.
package js
