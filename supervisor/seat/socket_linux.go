package seat

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownSocket is a short path of this process's socket for clients of earlier builds, which know no other way to one whose path is long.
func ownSocket(string) string { return "/proc/" + strconv.Itoa(os.Getpid()) + "/cwd/" + socketFile }

// shortly calls use with a path of the folder that leaves room for the name of a socket in its address.
func shortly(dir string, use func(short string) error) error {
	if len(filepath.Join(dir, socketFile)) <= maxSocketPath {
		return use(dir)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	return use("/proc/self/fd/" + strconv.Itoa(fd))
}
