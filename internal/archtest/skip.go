package archtest

import (
	"os"
	"runtime"
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

// SkipOn skips the running test on one operating system, in CI too, because the thing it tests does not exist there.
// Every call stands on the list of known skips in this package.
func SkipOn(t testing.TB, goos, reason string) {
	t.Helper()
	if runtime.GOOS == goos {
		t.Skipf("%s: %s", goos, reason)
	}
}
