package archtest

import (
	"os"
	"testing"
)

// Skip skips the running test because of reason, a phrase that says what the machine lacks ("node is not installed").
// In CI (the environment variable CI is set and not empty) it fails the test instead: there, everything a test needs
// is installed first, so a skip is a hole in the proof. Every call stands on the list of known skips in this package.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("skipped in CI: %s", reason)
	}
	t.Skip(reason)
}

// NotHere skips the running test in CI too, because what it tests cannot exist here: on this operating system, or for this
// user ("permission bits do not bind root"). Every call stands on the list of known skips in this package.
func NotHere(t testing.TB, reason string) {
	t.Helper()
	t.Skip(reason)
}
