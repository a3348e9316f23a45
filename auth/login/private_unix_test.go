//go:build !windows

package login_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/wire"
)

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	dir, key := filepath.Join(t.TempDir(), "new"), login.Key{Issuer: issuer}
	s := files(t, dir)
	if err := s.Save(t.Context(), key, bigSession(t, "r")); err != nil {
		t.Fatal(err)
	}
	if err := login.NewSource(s, key, dir, nil).SignIn(t.Context(), bigSession(t, "r")); err != nil {
		t.Fatal(err)
	}
	for path := range tree(t, dir) {
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode of %s = %v, %v, want 0600", path, info.Mode(), err)
		}
	}
	if info, err := os.Lstat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the folder = %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(filepath.Join(dir, "session.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), key); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("load with a key that others can read = %v, want a refusal that says chmod", err)
	}
}

func TestCapabilityThatOthersCanRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "exchange.json")
	if err := os.WriteFile(path, []byte(capability), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o610} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := login.ReadCapability(path)
		if !errors.Is(err, wire.ErrPermissionDenied) || !strings.Contains(err.Error(), "chmod 600 "+path) || strings.Contains(err.Error(), "open-sesame") {
			t.Errorf("mode %04o: %v, want a refusal with the command", mode, err)
		}
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := login.ReadCapability(path); err != nil {
		t.Errorf("mode 0400: %v", err)
	}
}
