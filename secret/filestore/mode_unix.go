//go:build !windows

package filestore

import (
	"errors"
	"fmt"
	"io/fs"
)

// checkShared refuses a file or folder whose mode gives others any of the bits.
func checkShared(info fs.FileInfo, bits fs.FileMode) error {
	if mode := info.Mode().Perm(); mode&bits != 0 {
		return fmt.Errorf("%q has mode %04o and must not have any of %04o: run chmod go-rwx on it", info.Name(), mode, bits)
	}
	return nil
}

// syncDir makes the names in dir durable.
func (s *Store) syncDir(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
