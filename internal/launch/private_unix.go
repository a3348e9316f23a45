//go:build !windows

package launch

import (
	"io/fs"
	"os"
	"syscall"

	"github.com/cotal-go/cotal/wire"
)

// openFlags follow no link in the last place and wait for no writer of a pipe.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// private refuses a file that others may read or that is somebody else's.
func private(info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode != 0o600 {
		return wire.Errorf(wire.CodeFailedPrecondition, "its mode is %#o, want 0600: others could read or change who this agent is", mode)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() {
		return wire.Errorf(wire.CodeFailedPrecondition, "it belongs to another user")
	}
	return nil
}
