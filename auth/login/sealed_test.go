package login_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// TestChangedFilesAreRefusedAndLeft tries every byte of a sealed file, another file in its place, and what is no file of ours.
func TestChangedFilesAreRefusedAndLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, one, two := files(t, dir), login.Key{Mesh: "one", Issuer: issuer}, login.Key{Mesh: "two", Issuer: issuer}
	if err := s.Save(t.Context(), one, bigSession(t, "refresh-one")); err != nil {
		t.Fatal(err)
	}
	path, whole := only(t, filepath.Join(dir, "session"))
	refused := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := s.Load(t.Context(), one)
		if !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "refresh-one") {
			t.Errorf("%s: %v, want a refusal that names %s", name, err, path)
		}
		if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, data) {
			t.Errorf("%s: the file was changed: %v", name, err)
		}
	}
	for i := range whole {
		if i > 60 && i%97 != 0 && i < len(whole)-20 {
			continue // the middle in steps
		}
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		refused(fmt.Sprintf("byte %d", i), changed)
	}
	for n := range 40 {
		refused(fmt.Sprintf("%d bytes", n), whole[:n])
	}
	refused("cut", whole[:len(whole)-1])
	refused("longer", append(bytes.Clone(whole), 0))
	refused("foreign", []byte(`{"refresh_token":"of another program"}`))
	if err := s.Save(t.Context(), two, bigSession(t, "refresh-two")); err != nil {
		t.Fatal(err)
	}
	for name, data := range tree(t, filepath.Join(dir, "session")) {
		if name != path {
			refused("swapped", data)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), one); err != nil {
		t.Errorf("the whole file again: %v", err)
	}
}

func only(t testing.TB, dir string) (path string, data []byte) {
	t.Helper()
	all := tree(t, dir)
	for path, data = range all {
		if len(all) == 1 {
			return path, data
		}
	}
	t.Fatalf("%d files in %s, want one", len(all), dir)
	return "", nil
}

func TestLostAndWrongKeys(t *testing.T) {
	t.Parallel()
	key := login.Key{Issuer: issuer}
	save := func(s login.Sessions) {
		t.Helper()
		if err := s.Save(t.Context(), key, bigSession(t, "r")); err != nil {
			t.Fatal(err)
		}
	}
	unreadable := func(s login.Sessions, says string) {
		t.Helper()
		if _, err := s.Load(t.Context(), key); !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), says) {
			t.Errorf("load = %v, want a refusal with %q", err, says)
		}
	}
	dir, r := t.TempDir(), newRing()
	save(openWith(t, login.StoreOptions{Dir: dir}, r))
	unreadable(files(t, dir), "keyring")                                                         // sealed on a desktop, read without one
	unreadable(openWith(t, login.StoreOptions{Dir: dir}, newRing()), "no longer in the keyring") // reset keyring
	other := newRing()
	save(openWith(t, login.StoreOptions{Dir: t.TempDir()}, other))
	for name := range r.values {
		r.values[name] = strings.Repeat("A", 43) + "="
	}
	unreadable(openWith(t, login.StoreOptions{Dir: dir}, r), "another key")
	for name := range r.values {
		r.values[name] = "not base64"
	}
	if _, err := openWith(t, login.StoreOptions{Dir: dir}, r).Load(t.Context(), key); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("load with a foreign value in the keyring = %v", err)
	}

	dir = t.TempDir()
	pass := login.StoreOptions{Dir: dir, Passphrase: passphrase("right")}
	broken := newRing()
	broken.err = errors.New("no such bus")
	s := openWith(t, pass, broken)
	if s.Kind() != login.KindPassphrase {
		t.Errorf("kind = %q, want the passphrase before the key file", s.Kind())
	}
	save(s)
	pass.Passphrase = passphrase("wrong")
	unreadable(openWith(t, pass, broken), "another key")
	pass.Passphrase = passphrase("")
	if _, err := openWith(t, pass, broken).Load(t.Context(), key); !errors.Is(err, wire.ErrUnavailable) || !strings.Contains(err.Error(), "empty") {
		t.Errorf("load with an empty passphrase = %v", err)
	}

	dir = t.TempDir()
	save(files(t, dir))
	if s := openWith(t, login.StoreOptions{Dir: dir}, newRing()); s.Kind() != login.KindKeyring {
		t.Errorf("kind = %q", s.Kind())
	} else if _, err := s.Load(t.Context(), key); err != nil {
		t.Errorf("a session that a key file sealed, on a desktop: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "session.key")); err != nil {
		t.Fatal(err)
	}
	unreadable(files(t, dir), "no longer in the file")
	save(files(t, dir)) // a new login works
	if _, err := files(t, dir).Load(t.Context(), key); err != nil {
		t.Error(err)
	}
}

func TestKeyringsThatDoNotWork(t *testing.T) {
	t.Parallel()
	faketime.Test(t, testKeyringsThatDoNotWork) // which also says that no goroutine is left once a keyring that hung has answered
}

func testKeyringsThatDoNotWork(t *testing.T) {
	lossy, broken, hung := newRing(), newRing(), newRing()
	lossy.lossy, broken.err, hung.hang = true, errors.New("no such bus"), make(chan struct{})
	defer close(hung.hang)
	for name, r := range map[string]login.Ring{"lossy": lossy, "broken": broken, "hung": hung} {
		s, err := login.OpenWith(t.Context(), login.StoreOptions{Dir: t.TempDir()}, r, time.Minute)
		if err != nil || s.Kind() != login.KindFile {
			t.Errorf("%s: %v, %v, want a key file", name, s, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := login.OpenWith(ctx, login.StoreOptions{Dir: t.TempDir()}, hung, time.Minute); !errors.Is(err, wire.ErrDeadline) {
		t.Errorf("open with a context that ends = %v", err)
	}
	if n := len(broken.values) + len(hung.values); n != 0 {
		t.Errorf("%d values are left of trying the keyring out", n)
	}
	for name, opts := range map[string]*login.StoreOptions{
		"nil": nil, "no folder": {}, "unknown": {Dir: t.TempDir(), Prefer: "usb"}, "no passphrase": {Dir: t.TempDir(), Prefer: login.KindPassphrase},
	} {
		if _, err := login.Open(t.Context(), opts); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %v, want a bad request", name, err)
		}
	}
}
