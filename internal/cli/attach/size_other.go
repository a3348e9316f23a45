//go:build !unix

package attach

import (
	"context"
	"os"
)

// sizeChanges tells nothing here: no signal says that a terminal's size has changed, and the size at the beginning stays.
func sizeChanges() (changes <-chan os.Signal, stop func()) { return nil, func() {} }

// untilQuit ends a context with its parent: no signal asks for more here.
func untilQuit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
