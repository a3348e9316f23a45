//go:build unix

package cli_test

import (
	"os"
	"syscall"
)

// The signals that stop a process where it is, and let it go on.
var (
	signalPause  os.Signal = syscall.SIGSTOP
	signalResume os.Signal = syscall.SIGCONT
)
