package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/wire"
)

// ErrSeatGone says that the process of a seat is no more.
var ErrSeatGone = errors.New("the seat is gone")

// Seats makes and finds the seats that agents run in. Package seat has the real one.
type Seats interface {
	// Start starts a seat in dir, which holds none, and returns when it answers. After an error there may be one all the same: Open
	// tells, and Sweep ends what it started.
	Start(ctx context.Context, dir string, spec SeatSpec) (Seat, error)
	// Open finds the seat of dir again. Errors: not-found when none has come up there, though one may be about to; [ErrSeatGone]
	// when its process is no more; another one when nothing is known.
	Open(ctx context.Context, dir string) (Seat, error)
	// Ended returns how the agent of dir ended, if its seat kept that.
	Ended(dir string) (SeatExit, bool)
	// Sweep ends what a seat that is gone, or never came up, has left, and nothing else, and returns how many processes that were.
	// Errors: failed-precondition while the seat runs.
	Sweep(ctx context.Context, dir string, grace time.Duration) (int, error)
}

// SeatsChecker is what [Seats] may have besides.
type SeatsChecker interface {
	// Check looks whether a seat can be started at all. It starts nothing. Errors: failed-precondition, in a sentence for a person.
	Check() error
}

// SeatsEnder is what [Seats] may have besides.
type SeatsEnder interface {
	// End asks the seat of dir, which runs and cannot be reached, to end its agent and then itself. Whether it did Open tells. Errors:
	// one that says why it could not be asked.
	End(dir string) error
}

// Seat is one that runs, or has run, an agent.
type Seat interface {
	SeatProcess
	SeatTerminal
}

// SeatProcess is the process of a seat.
type SeatProcess interface {
	// Process returns the agent's process.
	Process(ctx context.Context) (pid int, started time.Time, err error)
	// Done is closed when the agent has ended or the seat is gone.
	Done() <-chan struct{}
	// Exit returns how it ended, after Done; false says that the seat is gone without a word.
	Exit() (SeatExit, bool)
	// Stop ends the agent and all that it started, and returns when nothing of it is left.
	Stop(ctx context.Context, grace time.Duration) (SeatExit, error)
	// Close lets go of the seat. With release, which is for after the end, the seat may go too.
	Close(ctx context.Context, release bool) error
}

// SeatTerminal is the terminal of a seat.
type SeatTerminal interface {
	// Lines returns the last lines of the screen, oldest first.
	Lines(ctx context.Context, n int) ([]string, error)
	// Terminal is for those who look at it or type.
	Terminal() relay.Terminal
}

// SeatSpec is what a seat starts. It prints and logs as whose seat it is: the environment has the keys of model
// providers that are passed on to the host.
type SeatSpec struct {
	// ID is fresh for every start, so that what one start leaves is never taken for another's.
	ID         wire.UID
	Space      wire.Space
	Principal  string
	Argv       []string
	Env        []string
	Dir        string // working folder
	Cols, Rows int
	Grace      time.Duration
}

// Format writes whose seat it is, whatever the verb.
func (s SeatSpec) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "[seat of %q, space %q]", s.Principal, s.Space)
}

// LogValue returns whose seat it is.
func (s SeatSpec) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(s)) }

// SeatExit is how an agent ended.
type SeatExit struct {
	Ending    Ending
	At        time.Time
	LastLines []string
	// Left are processes that it has left behind on purpose, by name and number.
	Left []string
}
