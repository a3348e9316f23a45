package still

import (
	"syscall"
	"time"
	"unsafe"
)

// held is the limit of open files that the process had, nil in a process of another command.
var held = hold()

func hold() *syscall.Rlimit {
	if !wanted() {
		return nil
	}
	time.AfterFunc(time.Hour, func() {}).Stop() // the runtime opens what it waits with at the first timer, and could not do so later
	var have syscall.Rlimit
	if !limit(nil, &have) || !limit(&syscall.Rlimit{Max: have.Max}, nil) {
		return nil
	}
	return &have
}

// Release lets files be opened again. It does nothing in a process of another command.
func Release() {
	if held != nil {
		limit(held, nil)
	}
}

// limit sets or reads the limit of open files of this process. That of package syscall would also make it the limit of every
// process that is started from here.
func limit(set, have *syscall.Rlimit) bool {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, syscall.RLIMIT_NOFILE, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(have)), 0, 0)
	return errno == 0
}
