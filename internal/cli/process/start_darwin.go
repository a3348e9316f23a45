package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// startTime is the wall clock time at which the kernel started the process, to the microsecond.
func startTime(pid int) (string, error) {
	const zombie = 5 // SZOMB of sys/proc.h
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EIO) {
		return "", ErrGone
	}
	if err != nil {
		return "", err
	}
	if int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombie {
		return "", ErrGone
	}
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec), nil
}
