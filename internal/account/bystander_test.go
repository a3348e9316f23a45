package account_test

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// bystanderFile is the environment variable that makes the test binary a bystander: the file that takes the signals it gets.
const bystanderFile = "COTAL_ACCOUNT_BYSTANDER"

// standBy is a process that has nothing to do with the mesh. It writes every signal down and ends with its input.
func standBy(path string) int {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	got := make(chan os.Signal, 16)
	signal.Notify(got)
	signal.Reset(syscall.Signal(23)) // SIGURG, by which the Go runtime interrupts itself
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	fmt.Println("ready")
	for {
		select {
		case s := <-got:
			_, _ = fmt.Fprintln(f, s)
		case <-end:
			return 0
		}
	}
}
