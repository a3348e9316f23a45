//go:build !unix

package cli_test

import "os"

// There are no such signals here; sending one fails.
var (
	signalPause  os.Signal = os.Interrupt
	signalResume os.Signal = os.Interrupt
)

// paused is asked on systems that have the signals.
func paused(int) (bool, error) { return false, nil }
