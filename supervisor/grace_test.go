package supervisor_test

import (
	"context"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// deafSeats hold agents that end when a grace is over, and not before.
type deafSeats struct{ supervisor.Seats }

func (d deafSeats) Start(ctx context.Context, dir string, spec supervisor.SeatSpec) (supervisor.Seat, error) {
	s, err := d.Seats.Start(ctx, dir, spec)
	return deafSeat{s}, err
}

type deafSeat struct{ supervisor.Seat }

func (s deafSeat) Stop(ctx context.Context, grace time.Duration) (supervisor.SeatExit, error) {
	select {
	case <-time.After(grace): // in a bubble
	case <-s.Done():
	}
	return s.Seat.Stop(ctx, grace)
}

// TestLessGraceForAStopThatIsUnderWay stops an agent that does not hear, and then with less grace: that is what it takes for both.
func TestLessGraceForAStopThatIsUnderWay(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *supervisor.Options) { o.Seats = deafSeats{o.Seats} })
		a := s.spawn(t, operator, named("a")).Agent
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		first := make(chan error, 1)
		go func() {
			_, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: a.UID, Grace: 600_000})
			first <- err
		}()
		s.want(t, a.UID, wire.AgentStopping, wire.ProcessRunning)
		began := time.Now()
		if _, err := s.Stop(t.Context(), operator, wire.StopRequest{UID: a.UID, Grace: 1}); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := <-first; err != nil {
			t.Errorf("first stop: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}
