//go:build !windows

package process

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// Orphan makes this process outlive the reader of its standard output: a write that nobody reads is then an error like any
// other, and does not end the process.
func Orphan() { signal.Ignore(syscall.SIGPIPE) }

var stopSignal os.Signal = syscall.SIGTERM

// Detach gives the child a session of its own, so that closing the terminal or Ctrl-C in it does not reach it.
func Detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

// Asked reports whether the process was ended by a signal that asks for it, rather than by one that kills or tells of a fault.
func Asked(s *os.ProcessState) bool {
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && (w.Signal() == syscall.SIGTERM || w.Signal() == syscall.SIGINT || w.Signal() == syscall.SIGHUP)
}
