// Package filestore keeps secrets as private files under one folder.
//
// A key is the path of its file below the folder, so a person can look after the store with ordinary tools.
// Folders are 0700 and files 0600; a file that others can read, or a symbolic link anywhere on the way, is
// refused with a sentence that names it. Writes go to a temporary file that is synced, renamed over the old
// one and made durable by syncing the folder: after a crash a key holds its old value or its new one, and the next
// write into the same folder removes what the crash left. Writers
// of all processes exclude each other through a lock file, so Create and CompareAndSwap decide one winner.
// Network file systems that lack flock are not supported.
//
// On Windows access is left to the folder's access control list, and folders are not synced.
package filestore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/cotal-go/cotal/secret"
)

const (
	lockFile   = ".lock"
	tempPrefix = ".tmp-"
	// lockPoll is how often a writer that found the lock taken by another process tries again. A write holds
	// it for two syncs.
	lockPoll = 2 * time.Millisecond
)

// Store is a [secret.Store] and [secret.Lister] over a folder. Make one with [New].
type Store struct {
	dir  string
	root *os.Root
	gate chan struct{} // one writer of this process at a time, waited for with a context
	lock *flock.Flock  // one writer among all processes
}

var (
	_ secret.Store  = (*Store)(nil)
	_ secret.Lister = (*Store)(nil)
)

// New opens the store in dir and makes the folder with mode 0700 if there is none. It refuses a path that is
// not a folder or that others may write to.
func New(dir string) (*Store, error) {
	if dir == "" {
		return nil, errors.New("open secret store: no folder given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open secret store: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open secret store %q: %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open secret store %q: %w", dir, err)
	}
	s := &Store{dir: dir, root: root, gate: make(chan struct{}, 1), lock: flock.New(filepath.Join(dir, lockFile))}
	if err := s.check(); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("open secret store %q: %w", dir, err)
	}
	return s, nil
}

// check looks at the folder itself.
func (s *Store) check() error {
	info, err := s.root.Stat(".")
	if err != nil {
		return err
	}
	return checkShared(info, 0o022)
}

// sweep removes the temporary files of crashed writers from a folder; the caller holds the lock, so none is in use.
func (s *Store) sweep(dir string) error {
	entries, err := fs.ReadDir(s.root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), tempPrefix) {
			if err := s.root.Remove(path.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// skipUnreadable passes over folders of others below ours.
func skipUnreadable(d fs.DirEntry, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission) && d != nil && d.IsDir():
		return fs.SkipDir
	}
	return err
}

// Dir returns the absolute path of the folder.
func (s *Store) Dir() string { return s.dir }

// Close releases the folder. Calls after it fail.
func (s *Store) Close() error { return s.root.Close() }

// Format writes the folder, never a value.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "[secret store %q]", s.dir) }

// LogValue returns the folder.
func (s *Store) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("[secret store %q]", s.dir))
}

// Get implements [secret.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := s.get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get secret %q: %w", key, err)
	}
	return value, nil
}

func (s *Store) get(ctx context.Context, key string) ([]byte, error) {
	if err := cmp.Or(secret.CheckKey(key), ctx.Err()); err != nil {
		return nil, err
	}
	return s.read(key)
}

// Put implements [secret.Store].
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	return s.change(ctx, "put", key, value, func(_ []byte, err error) error {
		if errors.Is(err, secret.ErrNotFound) {
			return nil
		}
		return err
	})
}

// Create implements [secret.Store].
func (s *Store) Create(ctx context.Context, key string, value []byte) error {
	return s.change(ctx, "create", key, value, func(_ []byte, err error) error {
		switch {
		case err == nil:
			return secret.ErrExists
		case errors.Is(err, secret.ErrNotFound):
			return nil
		}
		return err
	})
}

// CompareAndSwap implements [secret.Store].
func (s *Store) CompareAndSwap(ctx context.Context, key string, old, new []byte) error {
	return s.change(ctx, "swap", key, new, func(current []byte, err error) error {
		if err == nil && !bytes.Equal(current, old) {
			return secret.ErrConflict
		}
		return err
	})
}

// change writes value under the lock if allow agrees with what is there.
func (s *Store) change(ctx context.Context, verb, key string, value []byte, allow func(current []byte, err error) error) error {
	err := cmp.Or(secret.CheckKey(key), secret.CheckValue(key, value), ctx.Err())
	if err == nil {
		err = s.locked(ctx, func() error {
			if err := allow(s.read(key)); err != nil {
				return err
			}
			return s.write(key, value)
		})
	}
	if err != nil {
		return fmt.Errorf("%s secret %q: %w", verb, key, err)
	}
	return nil
}

// Delete implements [secret.Store]. Folders that become empty stay.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := cmp.Or(secret.CheckKey(key), ctx.Err())
	if err == nil {
		err = s.locked(ctx, func() error {
			if _, err := s.stat(key); err != nil {
				return err
			}
			if err := s.root.Remove(key); err != nil {
				return err
			}
			return s.syncDir(path.Dir(key))
		})
	}
	if err != nil {
		return fmt.Errorf("delete secret %q: %w", key, err)
	}
	return nil
}

// List implements [secret.Lister]. Files whose names are not keys are left out.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	keys := []string{}
	err := fs.WalkDir(s.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return skipUnreadable(d, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.IsDir() && name != "." && !strings.HasPrefix(name, prefix) && !strings.HasPrefix(prefix, name+"/") {
			return fs.SkipDir // a project folder holds more than secrets
		}
		if d.Type().IsRegular() && strings.HasPrefix(name, prefix) && secret.CheckKey(name) == nil {
			keys = append(keys, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list secrets %q: %w", prefix, err)
	}
	slices.Sort(keys)
	return keys, nil
}

func (s *Store) locked(ctx context.Context, do func() error) error {
	release, err := s.exclusive(ctx)
	if err != nil {
		return err
	}
	defer release()
	return do()
}

// exclusive waits for the lock of the folder and returns what gives it back.
func (s *Store) exclusive(ctx context.Context) (release func(), err error) {
	select {
	case s.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ok, err := s.lock.TryLockContext(ctx, lockPoll)
	if err != nil || !ok {
		<-s.gate
		return nil, fmt.Errorf("lock folder: %w", cmp.Or(err, errors.New("not taken")))
	}
	return func() {
		_ = s.lock.Unlock()
		<-s.gate
	}, nil
}

// stat returns what key names if the way to it and the file itself are private and no link.
func (s *Store) stat(key string) (fs.FileInfo, error) {
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		if err := s.checkDir(key[:i]); err != nil {
			return nil, err
		}
	}
	info, err := s.root.Lstat(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, secret.ErrNotFound
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("file %q is not a regular file (%s)", key, info.Mode().Type())
	}
	return info, checkShared(info, 0o077)
}

func (s *Store) checkDir(dir string) error {
	info, err := s.root.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return secret.ErrNotFound
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("folder %q is not a folder (%s)", dir, info.Mode().Type())
	}
	return checkShared(info, 0o077)
}

func (s *Store) read(key string) ([]byte, error) {
	info, err := s.stat(key)
	if err != nil {
		return nil, err
	}
	f, err := s.root.Open(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, secret.ErrNotFound // deleted since
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	opened, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// A rename may have replaced the file since, which is how values change; a link may not.
	if !os.SameFile(info, opened) && !opened.Mode().IsRegular() {
		return nil, fmt.Errorf("file %q was replaced while it was opened", key)
	}
	value, err := io.ReadAll(io.LimitReader(f, secret.MaxValue+1))
	if err != nil {
		return nil, err
	}
	return value, secret.CheckValue(key, value)
}

// write replaces the file of key; the caller holds the lock.
func (s *Store) write(key string, value []byte) error {
	dir := path.Dir(key)
	if err := s.makeDirs(dir); err != nil {
		return err
	}
	if err := s.sweep(dir); err != nil {
		return err
	}
	temp := path.Join(dir, tempPrefix+strings.ToLower(rand.Text()))
	if err := s.writeTemp(temp, value); err != nil {
		return errors.Join(err, s.discard(temp))
	}
	if err := s.root.Rename(temp, key); err != nil {
		return errors.Join(err, s.discard(temp))
	}
	return s.syncDir(dir)
}

func (s *Store) writeTemp(temp string, value []byte) error {
	f, err := s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (s *Store) discard(temp string) error {
	if err := s.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// makeDirs makes every missing folder down to dir and refuses one that is a link or open to others.
func (s *Store) makeDirs(dir string) error {
	if dir == "." {
		return nil
	}
	if err := s.makeDirs(path.Dir(dir)); err != nil {
		return err
	}
	switch err := s.root.Mkdir(dir, 0o700); {
	case err == nil:
		return s.syncDir(path.Dir(dir))
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	return s.checkDir(dir)
}
