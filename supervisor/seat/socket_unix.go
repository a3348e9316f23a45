//go:build linux || darwin

package seat

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/wire"
)

// maxSocketPath is what fits into the address of a unix socket on all systems, with its zero byte.
const maxSocketPath = 103

// folderFile, beside a socket that has a short path, has the folder of that when it is one of its own.
const folderFile = ".sockets"

// ShortSocket returns a path that fits into the address of a unix socket: the given one or, when that is too long, one that stands for
// it in a private folder of this user. That is cotal-<uid> below the folder for temporary files or, when somebody else has taken that
// name, cotal in the user's runtime folder, which goes with the last login and so comes second, and else a folder of a random name, which
// is kept beside the path. The same path gives the same one as long as these are there. Codes: bad-request when all of them are too long.
func ShortSocket(path string) (string, error) {
	if len(path) <= maxSocketPath {
		return path, nil
	}
	sum := sha256.Sum256([]byte(path))
	name := hex.EncodeToString(sum[:10]) + ".sock"
	var refused error
	for _, folder := range []func() (string, error){
		func() (string, error) { return filepath.Join(os.TempDir(), fmt.Sprintf("cotal-%d", os.Getuid())), nil },
		func() (string, error) {
			run := os.Getenv("XDG_RUNTIME_DIR")
			if !filepath.IsAbs(run) {
				return "", errors.New("no runtime folder")
			}
			_, err := os.Stat(run) // it is not ours to make
			return filepath.Join(run, "cotal"), err
		},
		func() (string, error) { return randomDir(filepath.Dir(path)) },
	} {
		dir, err := folder()
		short := filepath.Join(dir, name)
		if err == nil && len(short) > maxSocketPath {
			err = wire.Errorf(wire.CodeBadRequest, "name socket %q: %q has %d bytes, limit %d", path, short, len(short), maxSocketPath)
		}
		if err == nil {
			err = privateDir(dir)
		}
		if err == nil {
			return short, nil
		}
		if refused == nil || wire.CodeOf(err) == wire.CodeBadRequest {
			refused = err
		}
	}
	return "", refused
}

// randomDir is a private folder for sockets whose name nobody else could take, the same each time for one folder.
func randomDir(beside string) (string, error) {
	note := filepath.Join(beside, folderFile)
	if kept, err := os.ReadFile(note); err == nil {
		if dir := string(kept); filepath.IsAbs(dir) && privateDir(dir) == nil {
			return dir, nil
		}
	}
	dir, err := os.MkdirTemp("", "cotal-")
	if err != nil {
		return "", wire.Errorf(wire.CodeInternal, "make folder for sockets: %v", err)
	}
	if err := atomicfile.Write(note, []byte(dir), 0o600); err != nil {
		_ = os.Remove(dir)
		return "", wire.Errorf(wire.CodeInternal, "keep folder for sockets in %q: %v", beside, err)
	}
	return dir, nil
}
