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
