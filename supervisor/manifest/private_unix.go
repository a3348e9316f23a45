//go:build unix

package manifest

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// private refuses a file that others may read or change, or that is somebody else's: who writes a ledger says what is taken down.
func private(info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("its mode is %#o, want 0600", mode)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to another user")
	}
	return nil
}
