package supervisor_test

import (
	"context"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// slowSweep are seats of which it takes long to find out that nothing is left.
type slowSweep struct {
	*theatre
	takes time.Duration
}

func (s slowSweep) Sweep(ctx context.Context, dir string, grace time.Duration) (int, error) {
	time.Sleep(s.takes) // in a bubble
	return s.theatre.Sweep(ctx, dir, grace)
}

// TestStopWhileTheNextKeeperLooks stops an agent whose start never came up, while the next keeper undoes that start.
func TestStopWhileTheNextKeeperLooks(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.th.set(func() { s.th.refuse = wire.Errorf(wire.CodeUnavailable, "not now") })
		a := s.spawn(t, operator, request("process")).Agent
		time.Sleep(time.Second)
		s.stop()
		s.opts.Seats = slowSweep{s.th, 5 * time.Second}
		s.begin(t)
		time.Sleep(time.Second)
		ctx, cancel := contextFor(t, time.Minute)
		defer cancel()
		if _, err := s.Stop(ctx, operator, wire.StopRequest{UID: a.UID}); err != nil {
			t.Errorf("stop: %v", err)
		}
		s.want(t, a.UID, wire.AgentExited, wire.ProcessNone)
		if s.led.count() != 0 || s.th.alive() != 0 {
			t.Errorf("%d grants and %d processes are left", s.led.count(), s.th.alive())
		}
	})
}
