package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/filestore"
	"github.com/cotal-go/cotal/secret/secrettest"
)

// incrementEnv names the folder in which the re-run test binary plays a second process.
const incrementEnv = "FILESTORE_INCREMENT_DIR"

const childIncrements = 60

func TestMain(m *testing.M) {
	if dir := os.Getenv(incrementEnv); dir != "" {
		os.Exit(incrementInChild(dir))
	}
	os.Exit(m.Run())
}

func incrementInChild(dir string) int {
	s, err := filestore.New(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range childIncrements {
		if err := secrettest.Increment(ctx, s, "count"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

func open(t testing.TB, dir string) *filestore.Store {
	t.Helper()
	s, err := filestore.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	secrettest.Run(t, func(t testing.TB) secret.Store { return open(t, filepath.Join(t.TempDir(), "store")) })
}

func TestProcessesLoseNoSwap(t *testing.T) {
	dir := t.TempDir()
	s := open(t, private(t, dir))
	if err := s.Create(t.Context(), "count", []byte("0")); err != nil {
		t.Fatal(err)
	}
	children := make([]*exec.Cmd, 3)
	for i := range children {
		children[i] = exec.CommandContext(t.Context(), os.Args[0])
		children[i].Env = append(os.Environ(), incrementEnv+"="+dir)
		children[i].Stderr = os.Stderr
		if err := children[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range children {
		if err := c.Wait(); err != nil {
			t.Errorf("child: %v", err)
		}
	}
	got, err := s.Get(t.Context(), "count")
	if want := strconv.Itoa(len(children) * childIncrements); err != nil || string(got) != want {
		t.Errorf("count after all processes = %q, %v, want %s", got, err, want)
	}
}

func TestLinksAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir)
	if err := s.Put(t.Context(), "real/value", []byte("hush")); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"linkfile": outside, "linkinside": "real/value", "linkdir": "real"}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"linkfile", "linkinside", "linkdir/value"} {
		_, err := s.Get(t.Context(), key)
		if err == nil || errors.Is(err, secret.ErrNotFound) {
			t.Errorf("get %q through a link = %v, want a refusal", key, err)
		}
		if err := s.Put(t.Context(), key, []byte("changed")); err == nil {
			t.Errorf("put %q through a link succeeded", key)
		}
	}
	if got, err := os.ReadFile(outside); err != nil || string(got) != "outside" {
		t.Errorf("the file outside is now %q, %v", got, err)
	}
	keys, err := s.List(t.Context(), "")
	if err != nil || len(keys) != 1 {
		t.Errorf("list = %q, %v, want only the real file", keys, err)
	}
}

func TestLeftoversOfACrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir)
	if err := s.Put(t.Context(), "auth/k", []byte("old")); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "auth", ".tmp-abandoned")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	if err := again.Put(t.Context(), "auth/other", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file is still there: %v", err)
	}
	if got, err := again.Get(t.Context(), "auth/k"); err != nil || string(got) != "old" {
		t.Errorf("value after the crash = %q, %v, want old", got, err)
	}
}

func TestLockedOutWriterGivesUpWithItsContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, other := open(t, dir), open(t, dir)
	unlock := filestore.Lock(t, other)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Put(ctx, "k", []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put while another holds the lock = %v, want the deadline", err)
	}
	unlock()
	if err := s.Put(t.Context(), "k", []byte("x")); err != nil {
		t.Errorf("put afterwards: %v", err)
	}
}

func TestNewRefusesAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "below")} {
		if _, err := filestore.New(dir); err == nil {
			t.Errorf("New(%q) succeeded", dir)
		}
	}
}

func private(t *testing.T, dir string) string {
	t.Helper()
	chmod(t, dir, 0o700)
	return dir
}

func chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}
