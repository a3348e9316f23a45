package team

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/cotal-go/cotal/wire"
)

const (
	// lockPause is between two looks at a lock that is waited for.
	lockPause = 20 * time.Millisecond
	// maxLocks bounds how often a lock is taken whose file was removed in between, so that a folder which loses its files ends in an error.
	maxLocks = 100
)

// filesLock excludes commands at several deploys while they look who else uses an agent file, and put or remove it. No deploy is called so.
const filesLock = ".files"

// lock takes a lock in a folder, which it makes if need be. Ok is false when another process holds it. Release removes the
// file, and the folder if it was made for it and is empty: a file is removed by its holder alone, and who gets a lock on one that is not there
// any more begins again.
func lock(dir, name string) (release func(), ok bool, err error) {
	refuse := func(err error) (func(), bool, error) {
		return nil, false, wire.Errorf(wire.CodeFailedPrecondition, "lock %q: %v", name, err)
	}
	path := filepath.Join(dir, name+".lock")
	_, missing := os.Lstat(dir)
	for range maxLocks {
		if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) { // that is said of one, too, which is removed meanwhile
			return nil, false, wire.Errorf(wire.CodeFailedPrecondition, "make folder of ledgers: %v", err)
		}
		l := flock.New(path, flock.SetPermissions(0o600))
		got, err := l.TryLock()
		switch {
		case errors.Is(err, os.ErrNotExist): // the folder was removed
			continue
		case err != nil:
			return refuse(err)
		case !got:
			return nil, false, nil
		}
		held, err := l.Stat()
		if there, serr := os.Stat(path); err != nil || serr != nil || !os.SameFile(held, there) {
			_ = l.Unlock()
			continue
		}
		return func() {
			_ = os.Remove(path) // where an open file cannot be removed it stays
			_ = l.Unlock()
			if errors.Is(missing, os.ErrNotExist) {
				_ = os.Remove(dir) // unless it has something
			}
		}, true, nil
	}
	return refuse(errors.New("its file does not stay"))
}

// lockFiles waits for the lock over the agent files that deploys brought along.
func (w *work) lockFiles(ctx context.Context) (release func(), err error) {
	pause := time.NewTicker(lockPause)
	defer pause.Stop()
	for {
		release, ok, err := lock(w.ledgers.Dir(), filesLock)
		if ok || err != nil {
			return release, err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			e := wire.Errorf(wire.CodeCancelled, "wait for another deploy that changes agent files: %v", ctx.Err())
			e.Outcome = wire.OutcomeNotExecuted
			return nil, e
		}
	}
}
