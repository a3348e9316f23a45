// Package spec holds the tests that read SPEC.md as a stranger would: they drive a space with a NATS connection and
// literal subjects and JSON, and use no package of the project but the mesh under test. What they find on the wire is
// what the document says is there. The package has no code of its own.
package spec
