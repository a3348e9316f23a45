//go:build !unix

package attach

import (
	"context"
	"os"
)

// sessionLeader is 0 here: there are no sessions of processes.
func sessionLeader() int { return 0 }

// sizeChanges tells nothing here: no signal says that a terminal's size has changed, and the size at the beginning stays.
func sizeChanges() (changes <-chan os.Signal, stop func()) { return nil, func() {} }

// untilQuit ends a context with its parent: no signal asks for more here.
func untilQuit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
