// Package fserr words the errors of the file system.
package fserr

import (
	"errors"
	"io/fs"
	"os"
)

// Cause is what went wrong, without the paths, for a text that names the file already.
func Cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
