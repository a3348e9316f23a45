package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// RealSeats starts seats of package seat: Program with Args and then the folder is a process that calls seat.Main.
type RealSeats struct {
	// Program is the absolute path of cotal, and Args what makes it a seat, such as ["seat"].
	Program string
	Args    []string
}

var (
	_ Seats        = RealSeats{}
	_ SeatsChecker = RealSeats{}
	_ SeatsEnder   = RealSeats{}
)

// Check implements [SeatsChecker]: the program must be there. On Linux the one that runs could still make seats, but the tools and hooks
// of agents are that file too.
func (r RealSeats) Check() error {
	info, err := os.Stat(r.Program)
	if err == nil && info.Mode().IsRegular() {
		return nil
	}
	why := "it is no file"
	if err != nil {
		why = fserr.Cause(err).Error()
	}
	return wire.Errorf(wire.CodeFailedPrecondition, "the program that this mesh runs is gone (%s: %s): cotal down, then cotal up", r.Program, why)
}

// Start implements [Seats].
func (r RealSeats) Start(ctx context.Context, dir string, s SeatSpec) (Seat, error) {
	c, err := seat.Start(ctx, seat.StartOptions{
		Program: r.Program, Args: r.Args, Dir: dir,
		Spec: seat.Spec{
			ID: s.ID, Space: s.Space, Principal: s.Principal, Argv: s.Argv, Env: s.Env, Dir: s.Dir, Cols: s.Cols, Rows: s.Rows, Grace: s.Grace,
		},
	})
	if err != nil {
		return nil, err
	}
	return realSeat{c}, nil
}

// Open implements [Seats].
func (RealSeats) Open(ctx context.Context, dir string) (Seat, error) {
	c, err := seat.Open(ctx, dir)
	switch {
	case errors.Is(err, seat.ErrGone):
		return nil, fmt.Errorf("%w: %w", ErrSeatGone, err)
	case err != nil:
		return nil, err
	}
	return realSeat{c}, nil
}

// Ended implements [Seats].
func (RealSeats) Ended(dir string) (SeatExit, bool) {
	e, ok := seat.ReadExit(dir)
	return exitOf(e), ok
}

// Sweep implements [Seats].
func (RealSeats) Sweep(ctx context.Context, dir string, grace time.Duration) (int, error) {
	ended, err := seat.Sweep(ctx, dir, grace)
	if errors.Is(err, wire.ErrNotFound) {
		return 0, nil // nobody was told to start anything there
	}
	return len(ended), err
}

// End implements [SeatsEnder].
func (RealSeats) End(dir string) error { return seat.End(dir) }

type realSeat struct{ c *seat.Client }

func (r realSeat) Process(ctx context.Context) (int, time.Time, error) {
	i, err := r.c.Info(ctx)
	return i.PID, i.Started, err
}

func (r realSeat) Done() <-chan struct{} { return r.c.Done() }

func (r realSeat) Exit() (SeatExit, bool) {
	e, ok := r.c.Exit()
	return exitOf(e), ok
}

func (r realSeat) Stop(ctx context.Context, grace time.Duration) (SeatExit, error) {
	e, err := r.c.Stop(ctx, grace)
	return exitOf(e), err
}

func (r realSeat) Close(ctx context.Context, release bool) error {
	var err error
	if release {
		err = r.c.Release(ctx)
	}
	return errors.Join(err, r.c.Close())
}

func (r realSeat) Lines(ctx context.Context, n int) ([]string, error) { return r.c.Lines(ctx, n) }

func (r realSeat) Terminal() relay.Terminal {
	t := seatTerminal(r)
	if r.c.Record().Counts { // not one that a supervisor before this one started
		return pacedTerminal{t}
	}
	return t
}

func exitOf(e seat.Exit) SeatExit {
	out := SeatExit{Ending: Ending{Code: e.Code, Signal: e.Signal}, At: e.At, LastLines: e.LastLines}
	for _, p := range e.Left {
		out.Left = append(out.Left, fmt.Sprintf("%s (%d)", p.Name, p.PID))
	}
	return out
}
