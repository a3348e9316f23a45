package supervisor

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// find brings the agent in line with what is really there when its goroutine begins: its process is found and adopted, or known
// to be gone, before anything else happens. It reports false when ctx ended before that was known.
func (a *agent) find(ctx context.Context) bool {
	now := time.Now().UTC()
	_ = a.update(func(r *record) { r.State = Recover(r.State, now) }) // written again by the next step
	rec := a.snapshot()
	if !rec.State.Begun {
		a.send(Event{Kind: EventBegin}) // means something only to one that never began
		return true
	}
	run := rec.State.Runs
	for try := 0; ; try++ {
		seat, err := a.k.opts.Seats.Open(ctx, seatDir(a.dir, run))
		switch {
		case err == nil:
			if a.take(ctx, seat, run) {
				a.k.counts.adopted.Add(1)
				return true
			}
			closeSeat(seat, false)
			err = wire.Errorf(wire.CodeUnavailable, "it does not say what runs in it")
		case errors.Is(err, wire.ErrNotFound):
			if err = a.neverBegan(ctx, run); err == nil {
				return true
			}
			a.k.log.WarnContext(ctx, "start of before not undone yet", logkey.UID, string(a.uid), logkey.Attempt, try+1, logkey.Error, err)
		case errors.Is(err, ErrSeatGone):
			if exit, ok := a.k.opts.Seats.Ended(seatDir(a.dir, run)); ok {
				a.over(run, exit)
				return true
			}
			a.tasks.Go(func() { a.sweep(ctx, run, Ending{Lost: true}) })
			return true
		default:
			a.k.log.WarnContext(ctx, "seat not opened yet", logkey.UID, string(a.uid), logkey.Attempt, try+1, logkey.Error, err)
		}
		_ = a.update(func(r *record) { // said by the next step too
			r.State.Trouble = "its seat does not answer: " + err.Error()
			if r.State.Phase == wire.AgentReady { // which is not known any more
				r.State.Phase = wire.AgentStarting
			}
		})
		a.endUnheard(ctx, run)
		if !a.heed(ctx, &try) {
			return false
		}
	}
}

// neverBegan is for a start that was planned and of which nothing came. A seat that is still on its way finds its folder gone, and ends.
func (a *agent) neverBegan(ctx context.Context, run int) error {
	dir := seatDir(a.dir, run)
	n, err := a.k.opts.Seats.Sweep(ctx, dir, DefaultGrace)
	a.k.counts.swept.Add(int64(n))
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	a.send(Event{Kind: EventBegin, Run: run})
	return nil
}

// take makes a seat that answers the one of a run. It reports false when the seat does not say what runs in it.
func (a *agent) take(ctx context.Context, seat Seat, run int) bool {
	pid, began, err := seat.Process(ctx)
	if err != nil {
		select {
		case <-seat.Done(): // watch tells how it ended
		default:
			return false
		}
	}
	a.mu.Lock()
	a.seat = seat
	a.mu.Unlock()
	a.send(Event{Kind: EventStarted, Run: run, PID: pid, Began: began.UTC()})
	a.tasks.Go(func() { a.watch(ctx, seat, run) })
	return true
}
