package connector

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/wire"
)

// Write makes the files of a launch below dir, which must exist, in folders that are this user's alone. A file is replaced whole,
// so that a host that starts meanwhile reads the old one or the new; one that is marked Keep and there is left alone.
//
// Errors: bad-request for a path that is not below dir, before anything is written; internal when the disk refuses, with what
// was made before left there.
func Write(dir string, files []File) error {
	for _, f := range files {
		rel, err := filepath.Rel(dir, f.Path)
		if err != nil || !filepath.IsLocal(rel) || rel == "." {
			return wire.Errorf(wire.CodeBadRequest, "write launch file %q: it is not below %q", f.Path, dir)
		}
	}
	for _, f := range files {
		if err := f.write(dir); err != nil {
			return wire.Errorf(wire.CodeInternal, "write launch file %q: %w", f.Path, err)
		}
	}
	return nil
}

// write makes one file and the folders above it, up to dir.
func (f File) write(dir string) error {
	rel, err := filepath.Rel(dir, filepath.Dir(f.Path))
	if err != nil {
		return err
	}
	at := dir
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if _, err := os.Lstat(f.Path); err == nil && f.Keep {
		return nil
	}
	if f.Link == "" {
		return atomicfile.Write(f.Path, f.Data, f.mode())
	}
	temp := f.Path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(f.Link, temp); err != nil {
		return err
	}
	return os.Rename(temp, f.Path)
}

// mode is the permission bits of the file.
func (f File) mode() fs.FileMode {
	if f.Mode == 0 {
		return 0o600
	}
	return f.Mode
}
