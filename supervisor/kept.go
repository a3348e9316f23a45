package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// Kept reads the names of the agents that a keeper's folder holds and that are not known to have ended, from files alone. What became of
// them since is for a keeper to find out. A folder that is not there holds none; one of an agent that cannot be read counts,
// under the name of its folder.
//
// Errors: failed-precondition for a folder that cannot be read.
func Kept(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read %q: %v", dir, fserr.Cause(err))
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() || wire.UID(e.Name()).Validate() != nil {
			continue
		}
		rec, err := readRecord(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, wire.ErrNotFound) && !hasSeats(filepath.Join(dir, e.Name())):
		case err != nil:
			out = append(out, e.Name())
		case !rec.State.over():
			out = append(out, rec.Plan.Name)
		}
	}
	return out, nil
}

// hasSeats reports whether something may have been started in the folder of an agent, or that cannot be known. A start is written into the
// record first, so a folder with seats and without a record has lost it, and its agent may run.
func hasSeats(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), seatPrefix) })
}

// InstanceOf reads the instance of the keeper of a folder.
//
// Errors: not-found for a folder that none ever kept, failed-precondition for one that cannot be read.
func InstanceOf(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, instanceFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", wire.Errorf(wire.CodeNotFound, "read %q: no supervisor kept agents there", dir)
	case err != nil:
		return "", wire.Errorf(wire.CodeFailedPrecondition, "read instance of %q: %v", dir, fserr.Cause(err))
	}
	name := strings.TrimSpace(string(data))
	if wire.ValidateRole(name) != nil { // the same characters as of an instance
		return "", wire.Errorf(wire.CodeFailedPrecondition, "read %q: %.64q is no instance name", filepath.Join(dir, instanceFile), name)
	}
	return name, nil
}
