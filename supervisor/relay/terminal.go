package relay

import (
	"context"

	"github.com/cotal-go/cotal/wire"
)

// Terminal is the terminal of one agent. Its methods are called by several goroutines.
type Terminal interface {
	// View begins a view, whose first frame is a snapshot. It must not slow the agent down, whatever becomes of it.
	View(ctx context.Context) (View, error)
	// Input types, after what was typed before, and returns once the terminal has taken it.
	Input(ctx context.Context, data []byte) error
	// Resize makes the terminal cols by rows, each at least 1.
	Resize(ctx context.Context, cols, rows int) error
	// Size is what it is.
	Size(ctx context.Context) (cols, rows int, err error)
}

// Pacer is a Terminal that tells what of its input was written, so that a viewer need not type faster than the agent reads.
type Pacer interface {
	Terminal
	// Type is Input that returns where data ends in the count of all that was ever typed there, by anybody.
	Type(ctx context.Context, data []byte) (end uint64, err error)
	// Written waits, for as long as ctx, until so much of it was written, and returns how much that is. An error other than that of ctx
	// says that it cannot be told any more.
	Written(ctx context.Context, end uint64) (uint64, error)
}

// View is one look at a terminal.
type View interface {
	// Next returns the next frame and waits for it. Whoever asks too seldom gets a snapshot in place of what was missed. After a frame
	// of kind Ended there is none.
	Next(ctx context.Context) (Frame, error)
	// Close ends the view.
	Close() error
}

// Kind says what a frame is.
type Kind int

// The kinds of frames.
const (
	Snapshot Kind = iota + 1 // Data repaints an empty terminal of Cols by Rows
	Output                   // Data was written
	Resized                  // the terminal has Cols by Rows now
	Ended                    // the agent ended, see Exit
)

// Frame is one thing that a view shows.
type Frame struct {
	Kind       Kind
	Data       []byte
	Cols, Rows int
	Exit       *wire.SessionExit
}
