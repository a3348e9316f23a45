package bench

import (
	"syscall"
	"time"
)

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, exited, kernel, user syscall.Filetime
	if syscall.GetProcessTimes(process, &created, &exited, &kernel, &user) != nil {
		return 0
	}
	ticks := func(f syscall.Filetime) int64 { return int64(f.HighDateTime)<<32 | int64(f.LowDateTime) } // of 100 ns
	return time.Duration(100 * (ticks(kernel) + ticks(user)))
}
