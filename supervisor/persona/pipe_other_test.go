//go:build !unix

package persona_test

import "testing"

func pipe(t *testing.T, path string) {
	t.Helper()
	t.Fatalf("no pipe at %s here", path)
}
