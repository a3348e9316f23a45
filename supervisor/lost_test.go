package supervisor_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// damaged has seats whose files cannot be read while bad is set.
type damaged struct {
	supervisor.Seats
	bad *atomic.Bool
}

func (d damaged) err(dir string) error {
	if d.bad.Load() {
		return wire.Errorf(wire.CodeBadRequest, "read seat %q: seat.json: not JSON", dir)
	}
	return nil
}

func (d damaged) Open(ctx context.Context, dir string) (supervisor.Seat, error) {
	if err := d.err(dir); err != nil {
		return nil, err
	}
	return d.Seats.Open(ctx, dir)
}

func (d damaged) Sweep(ctx context.Context, dir string, grace time.Duration) (int, error) {
	if err := d.err(dir); err != nil {
		return 0, err
	}
	return d.Seats.Sweep(ctx, dir, grace)
}

// TestDamagedSeatFiles loses seats whose files cannot be read, under one keeper and between two: nobody is told that they are ready, but
// which file it is; when it can be read again, all goes on.
func TestDamagedSeatFiles(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var bad atomic.Bool
		s := newStand(t, func(o *supervisor.Options) { o.Seats = damaged{o.Seats, &bad} })
		a, b := s.spawn(t, operator, named("a")).Agent, s.spawn(t, operator, named("b")).Agent
		s.want(t, b.UID, wire.AgentReady, wire.ProcessRunning)
		bad.Store(true)
		s.th.of(a.Principal).lose()
		if got := s.want(t, a.UID, wire.AgentStopping, wire.ProcessLost); !strings.Contains(got.Reason, "seat.json") {
			t.Errorf("its reason is %q", got.Reason)
		}
		ctx, cancel := contextFor(t, 20*time.Second)
		defer cancel()
		if _, err := s.Stop(ctx, operator, wire.StopRequest{UID: a.UID}); wire.CodeOf(err) != wire.CodeDeadlineExceeded || !strings.Contains(err.Error(), "seat.json") {
			t.Errorf("stop: %v", err)
		}
		s.again(t)
		time.Sleep(time.Minute)
		if got := s.want(t, b.UID, wire.AgentStarting, wire.ProcessNone); !strings.Contains(got.Reason, "seat.json") {
			t.Errorf("its reason is %q", got.Reason)
		}
		bad.Store(false)
		time.Sleep(time.Minute)
		s.want(t, b.UID, wire.AgentReady, wire.ProcessRunning)
		s.want(t, a.UID, wire.AgentExited, wire.ProcessLost)
	})
}
