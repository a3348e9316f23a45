//go:build unix

package attach

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// sessionLeader is the process that leads the session of this one, 0 when that cannot be told.
func sessionLeader() int {
	pid, err := unix.Getsid(0)
	if err != nil {
		return 0
	}
	return pid
}

// sizeChanges tells when the terminal's size may have changed, until stop.
func sizeChanges() (changes <-chan os.Signal, stop func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGWINCH)
	return ch, func() { signal.Stop(ch) }
}

// untilQuit ends a context on SIGQUIT too, which would otherwise end the process with the terminal still taken over.
func untilQuit(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGQUIT)
}
