package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// startTime is "<boot id>:<ticks since boot>": ticks alone repeat after a reboot.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return "", ErrGone
	}
	if err != nil {
		return "", err
	}
	// The second field is the command in parentheses and may hold anything, so count from its end.
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	const state, start = 0, 19 // fields 3 and 22 of proc(5)
	if end < 0 || len(fields) <= start {
		return "", fmt.Errorf("read start time of process %d: unexpected format", pid)
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return "", ErrGone // ended, only not yet reaped
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + ":" + fields[start], nil
}
