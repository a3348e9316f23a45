//go:build linux

package fault_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/wire"
)

// TestDiskFullGrantsNothing grants while the disk is full, which the broker calls a conflict: nothing was granted, that it says, and
// why. With room again the same name is granted.
func TestDiskFullGrantsNothing(t *testing.T) {
	dir := smallDisk(t)
	c := start(t, dir, false)
	client := dialNode(t.Context(), t, c.url, dir)
	defer func() { _ = client.Close() }()
	filler := fill(t, dir)
	req := auth.Request{Space: spaceName, Actor: "late"}
	_, err := client.Authority().Issue(t.Context(), req)
	if !errors.Is(err, wire.ErrUnavailable) || !strings.Contains(err.Error(), "disk may be full") {
		t.Errorf("grant on a full disk: %v, want unavailable", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := client.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Authority().Issue(t.Context(), req); err != nil {
		t.Errorf("grant with room on the disk: %v", err)
	}
}
