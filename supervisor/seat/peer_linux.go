package seat

import (
	"net"

	"golang.org/x/sys/unix"
)

// peer returns who is at the other end of a unix socket, as the kernel knows it: the process, and its user.
func peer(c *net.UnixConn) (pid, uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var got error
	if err := raw.Control(func(fd uintptr) { cred, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, 0, err
	}
	if got != nil {
		return 0, 0, got
	}
	return int(cred.Pid), int(cred.Uid), nil
}
