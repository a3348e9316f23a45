//go:build unix

package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// The signals that stop a process where it is, and let it go on.
var (
	signalPause  os.Signal = syscall.SIGSTOP
	signalResume os.Signal = syscall.SIGCONT
)

// paused reports that a process told to stop has stopped: on a busy machine its threads go on for a while and still answer. Threads
// are looked at where the system lists them below /proc, else the process as a whole is.
func paused(pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	for _, file := range threads {
		line, err := os.ReadFile(file)
		if err != nil {
			return false, nil // a thread that has just ended: look again
		}
		if _, state, ok := bytes.Cut(line[bytes.LastIndexByte(line, ')')+1:], []byte(" ")); !ok || !bytes.HasPrefix(state, []byte("T")) {
			return false, nil
		}
	}
	if len(threads) > 0 {
		return true, nil
	}
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return bytes.HasPrefix(bytes.TrimSpace(out), []byte("T")), err
}
