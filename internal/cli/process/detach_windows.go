package process

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// stopSignal is Kill: Windows has no request to end that reaches a process without a console.
var stopSignal = os.Kill

// Orphan makes this process outlive the reader of its standard output. Here a write that nobody reads is an error already.
func Orphan() {}

// Detach starts the child without a console and in a group of its own, so that closing the terminal or Ctrl-C in
// it does not reach it.
func Detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS,
		HideWindow:    true,
	}
}

// Asked reports whether the process was ended by a signal that asks for it. Here there is none.
func Asked(*os.ProcessState) bool { return false }
