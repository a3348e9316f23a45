//go:build unix

package persona_test

import (
	"syscall"
	"testing"
)

// pipe makes what a reader would wait at.
func pipe(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
