// Package plainfile opens files that are regular ones and nothing else: no symbolic link is followed at the end of a path, and a pipe
// or a device is neither waited for nor read.
//
// [Open] reads, [OpenFile] takes flags. They promise this of the file that was opened, not of the folders on the way to it. On Windows
// the file is looked at before it is opened. They keep nothing and are safe for concurrent use.
package plainfile

import (
	"errors"
	"io/fs"
	"os"
)

// ErrNotPlain is the cause of the error for a file of another kind.
var ErrNotPlain = errors.New("not a regular file")

// Flags make an open of something else fail, or at least not wait.
const Flags = noFollow | noWait

// Open opens a file for reading.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile is [os.OpenFile] for a file that is regular or not there.
func OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	if err := Check(os.Lstat(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, named(path, err)
	}
	f, err := os.OpenFile(path, flag|Flags, perm)
	if err != nil {
		return nil, err
	}
	if err := Check(f.Stat()); err != nil { // it was changed for another one just now
		_ = f.Close()
		return nil, named(path, err)
	}
	return f, nil
}

// Check is nil for a regular file: it takes what Lstat says of one.
func Check(info fs.FileInfo, err error) error {
	if err == nil && !info.Mode().IsRegular() {
		return ErrNotPlain
	}
	return err
}

// named is an error with the path in it, once.
func named(path string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return &fs.PathError{Op: "open", Path: path, Err: err}
}
