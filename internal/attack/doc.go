// Package attack holds the attacks that must fail: each test plays a holder of a valid credential, or of a stolen
// key, who speaks raw NATS to a real broker and tries to get what was not granted. The package has no code of its
// own; docs/threat-model.md names the test that guards each threat.
package attack
