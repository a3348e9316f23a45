//go:build !windows

package process

import (
	"os"
	"os/exec"
	"syscall"
)

var stopSignal os.Signal = syscall.SIGTERM

// Detach gives the child a session of its own, so that closing the terminal or Ctrl-C in it does not reach it.
func Detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}
