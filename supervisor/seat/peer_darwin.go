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
	var cred *unix.Xucred
	var got error
	if err := raw.Control(func(fd uintptr) {
		if cred, got = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); got == nil {
			pid, got = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		}
	}); err != nil {
		return 0, 0, err
	}
	if got != nil {
		return 0, 0, got
	}
	return pid, int(cred.Uid), nil
}
