package supervisor

import (
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// lockDir makes the folder this process's own.
func lockDir(dir string) (unlock func(), err error) {
	l := flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	switch {
	case err != nil:
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "lock %q: %v", dir, fserr.Cause(err))
	case !ok:
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "lock %q: another supervisor keeps the agents of this folder", dir)
	}
	return func() { _ = l.Unlock() }, nil
}
