package supervisor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// mute has seats that nobody reaches while set, and that end when they are asked by a signal.
type mute struct {
	*theatre
	set   *atomic.Bool
	asked *atomic.Int32
}

func (m mute) Open(ctx context.Context, dir string) (supervisor.Seat, error) {
	if seat, err := m.theatre.Open(ctx, dir); err != nil || !m.set.Load() {
		return seat, err
	}
	return nil, wire.Errorf(wire.CodeUnavailable, "dial unix %q: no such file", dir)
}

func (m mute) End(dir string) error {
	m.mu.Lock()
	s := m.seats[dir]
	m.mu.Unlock()
	if s == nil {
		return errors.New("no seat")
	}
	m.asked.Add(1)
	s.end(supervisor.Ending{Signal: "SIGTERM"})
	s.th.mu.Lock()
	s.gone = true
	s.th.mu.Unlock()
	return nil
}

// TestStopOfASeatThatCannotBeReached: an agent whose seat is not found at the start of its supervisor is ended all the same, at once, and
// none is that nobody wants to end.
func TestStopOfASeatThatCannotBeReached(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var set atomic.Bool
		var asked atomic.Int32
		s := newStand(t, func(o *supervisor.Options) { o.Seats = mute{o.Seats.(*theatre), &set, &asked} })
		a, b := s.spawn(t, operator, named("a")).Agent, s.spawn(t, operator, named("b")).Agent
		s.want(t, b.UID, wire.AgentReady, wire.ProcessRunning)
		set.Store(true)
		s.again(t)
		time.Sleep(time.Hour)
		if got := s.want(t, a.UID, wire.AgentStarting, wire.ProcessNone); !strings.Contains(got.Reason, "does not answer") || asked.Load() != 0 {
			t.Errorf("its reason is %q, and %d were asked to end", got.Reason, asked.Load())
		}
		ctx, cancel := contextFor(t, 20*time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := s.Stop(ctx, operator, wire.StopRequest{UID: a.UID}); err != nil || time.Since(begun) > 2*time.Second {
			t.Errorf("stop: %v after %v", err, time.Since(begun))
		}
		s.want(t, a.UID, wire.AgentExited, wire.ProcessExited)
		set.Store(false)
		time.Sleep(time.Minute)
		s.want(t, b.UID, wire.AgentReady, wire.ProcessRunning)
		if asked.Load() != 1 {
			t.Errorf("%d seats were asked to end, want 1", asked.Load())
		}
	})
}

// stopped has seats that are connected and do not hear while they are stopped; a signal has them go on.
type stopped struct{ mute }

func (m stopped) Start(ctx context.Context, dir string, spec supervisor.SeatSpec) (supervisor.Seat, error) {
	s, err := m.mute.Start(ctx, dir, spec)
	return stoppedSeat{s}, err
}

type stoppedSeat struct{ supervisor.Seat }

func (s stoppedSeat) Stop(ctx context.Context, _ time.Duration) (supervisor.SeatExit, error) {
	return supervisor.SeatExit{}, silence(ctx)
}

// TestStopOfASeatThatIsStopped: an agent that stops its own seat is ended all the same, within what who asked waits.
func TestStopOfASeatThatIsStopped(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var set atomic.Bool
		var asked atomic.Int32
		s := newStand(t, func(o *supervisor.Options) { o.Seats = stopped{mute{o.Seats.(*theatre), &set, &asked}} })
		a := s.spawn(t, operator, named("a")).Agent
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		ctx, cancel := contextFor(t, 30*time.Second)
		defer cancel()
		if _, err := s.Stop(ctx, operator, wire.StopRequest{UID: a.UID}); err != nil {
			t.Errorf("stop: %v", err)
		}
		s.want(t, a.UID, wire.AgentExited, wire.ProcessExited)
		if asked.Load() != 1 || s.th.alive() != 0 {
			t.Errorf("it was asked %d times by a signal, want once; %d processes are left", asked.Load(), s.th.alive())
		}
	})
}

// dumb has seats that start, do not say what runs in them, and are reached by nobody after that.
type dumb struct{ mute }

func (d dumb) Start(ctx context.Context, dir string, spec supervisor.SeatSpec) (supervisor.Seat, error) {
	s, err := d.mute.Start(ctx, dir, spec)
	return dumbSeat{s}, err
}

type dumbSeat struct{ supervisor.Seat }

func (dumbSeat) Process(ctx context.Context) (int, time.Time, error) {
	return 0, time.Time{}, wire.Errorf(wire.CodeDeadlineExceeded, "no answer")
}

// TestStopOfASeatThatIsStoppedAsItStarts: an agent that stops its seat before the supervisor knows what runs there is ended all the same.
func TestStopOfASeatThatIsStoppedAsItStarts(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var set atomic.Bool
		var asked atomic.Int32
		set.Store(true)
		s := newStand(t, func(o *supervisor.Options) { o.Seats = dumb{mute{o.Seats.(*theatre), &set, &asked}} })
		a := s.spawn(t, operator, named("a")).Agent
		time.Sleep(time.Minute)
		if got := s.want(t, a.UID, wire.AgentStarting, wire.ProcessNone); !strings.Contains(got.Reason, "uncertain") || asked.Load() != 0 {
			t.Errorf("its reason is %q, and %d were asked to end", got.Reason, asked.Load())
		}
		ctx, cancel := contextFor(t, time.Minute)
		defer cancel()
		if _, err := s.Stop(ctx, operator, wire.StopRequest{UID: a.UID}); err != nil {
			t.Errorf("stop: %v", err)
		}
		if asked.Load() != 1 || s.th.alive() != 0 {
			t.Errorf("it was asked %d times by a signal, want once; %d processes are left", asked.Load(), s.th.alive())
		}
	})
}
