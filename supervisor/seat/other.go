//go:build !linux && !darwin

package seat

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/cotal-go/cotal/wire"
)

func missing() error {
	return wire.Errorf(wire.CodeUnimplemented, "hold an agent: seats need the pseudo-terminals and process tables of linux or darwin, and this system is neither")
}

const adoptsOrphans = false

func collectLast(Process) {}

// Start is not built for this system: code unimplemented.
func Start(context.Context, StartOptions) (*Client, error) { return nil, missing() }

// Main is not built for this system: code unimplemented.
func Main(context.Context, string, *slog.Logger) error { return missing() }

// Open is not built for this system: code unimplemented.
func Open(context.Context, string) (*Client, error) { return nil, missing() }

// Sweep is not built for this system: code unimplemented.
func Sweep(context.Context, string, time.Duration) ([]Process, error) { return nil, missing() }

// End is not built for this system: code unimplemented.
func End(string) error { return missing() }

func dial(context.Context, string, Record, bool) (net.Conn, error) { return nil, missing() }
