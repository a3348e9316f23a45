//go:build !windows

package filestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/filestore"
)

func TestPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	s := open(t, dir)
	if err := s.Put(t.Context(), "auth/space.61/root.nk", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{
		"": 0o700, "auth": 0o700, "auth/space.61": 0o700, "auth/space.61/root.nk": 0o600, ".lock": 0o600,
	} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %q = %04o, want %04o", name, got, want)
		}
	}
}

func TestSharedFilesAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir)
	put := func(key string) {
		t.Helper()
		if err := s.Put(t.Context(), key, []byte("hush")); err != nil {
			t.Fatal(err)
		}
	}
	put("file/readable")
	chmod(t, filepath.Join(dir, "file/readable"), 0o640)
	put("folder/inside")
	chmod(t, filepath.Join(dir, "folder"), 0o750)
	for _, key := range []string{"file/readable", "folder/inside"} {
		_, err := s.Get(t.Context(), key)
		if err == nil || errors.Is(err, secret.ErrNotFound) || !strings.Contains(err.Error(), "chmod") {
			t.Errorf("get %q from a shared place = %v, want a refusal that says chmod", key, err)
		}
	}
	if err := s.Put(t.Context(), "folder/other", nil); err == nil {
		t.Error("put into a shared folder succeeded")
	}
	chmod(t, dir, 0o770)
	if _, err := filestore.New(dir); err == nil {
		t.Error("New on a folder others may write to succeeded")
	}
}
