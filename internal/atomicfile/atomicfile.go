// Package atomicfile replaces files as a whole: a crash leaves the old content or the new one, and what was written is on disk when
// the call returns.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// prefix begins the names of files that are being written, in the folder of the one that they replace.
const prefix = ".tmp-"

// Write replaces the file at path, whose folder exists, by one of mode perm. Errors are those of the system; then the file is as it was.
func Write(path string, data []byte, perm fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), prefix+"*") // mode 0600
	if err != nil {
		return err
	}
	if perm != 0o600 {
		err = f.Chmod(perm)
	}
	if err = errors.Join(err, fill(f, data)); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	syncDir(os.Open(filepath.Dir(path)))
	return nil
}

// WriteIn is [Write] with mode 0600 for a name in a root, which no link leads out of.
func WriteIn(root *os.Root, name string, data []byte) error {
	tmp := prefix + rand.Text()
	f, err := root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = fill(f, data); err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		_ = root.Remove(tmp)
		return err
	}
	syncDir(root.Open("."))
	return nil
}

func fill(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a rename durable where the system can; Windows cannot open a folder for that.
func syncDir(dir *os.File, err error) {
	if err != nil {
		return
	}
	_ = dir.Sync()
	_ = dir.Close()
}
