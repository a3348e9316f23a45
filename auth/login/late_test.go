package login_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/faketime"
)

// TestWhatCouldNotBeKeptIsKeptLater: the disk was full when the provider rotated the refresh token, and has room again. Another process
// must not find the token that is spent, with which it would end the session.
func TestWhatCouldNotBeKeptIsKeptLater(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		src, kept := diskFull(t, p)
		if _, _, err := src.IDToken(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept.err = nil
		if _, _, err := src.IDToken(t.Context()); err != nil || p.refreshes != 1 {
			t.Fatalf("id token with room again = %v after %d refreshes", err, p.refreshes)
		}
		time.Sleep(time.Hour)
		other := login.NewSource(kept, demo, t.TempDir(), &login.SourceOptions{HTTP: overWire(p)})
		if _, _, err := other.IDToken(t.Context()); err != nil || p.refreshes != 2 {
			t.Errorf("id token of another process = %v after %d refreshes", err, p.refreshes)
		}
	})
}

// TestLogoutEndsWhatCouldNotBeKept: the refresh token that the provider is told is the one that it gave last, though the disk has another.
func TestLogoutEndsWhatCouldNotBeKept(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		src, _ := diskFull(t, p)
		if _, _, err := src.IDToken(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := src.Logout(t.Context()); err != nil || len(p.revoked) != 1 || p.revoked[0] != p.refresh {
			t.Errorf("logout = %v, revoked %q, want %q", err, p.revoked, p.refresh)
		}
	})
}
