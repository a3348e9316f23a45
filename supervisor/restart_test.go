package supervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

func (th *theatre) Check() error {
	th.mu.Lock()
	defer th.mu.Unlock()
	return th.broken
}

// TestRestartLooksFirst leaves an agent that runs alone when it could not be started again.
func TestRestartLooksFirst(t *testing.T) {
	for what, spoil := range map[string]func(s *stand, a wire.AgentStatus) (mended func()){
		"the disk is full": func(s *stand, a wire.AgentStatus) func() {
			return block(t, filepath.Join(s.opts.Dir, string(a.UID), ".room"))
		},
		"no seat can be started": func(s *stand, a wire.AgentStatus) func() {
			s.th.set(func() { s.th.broken = wire.Errorf(wire.CodeFailedPrecondition, "the program is gone") })
			return func() { s.th.set(func() { s.th.broken = nil }) }
		},
		"its folder is gone": func(s *stand, a wire.AgentStatus) func() {
			_ = os.Remove(a.Cwd)
			return func() { _ = os.Mkdir(a.Cwd, 0o700) }
		},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				s := newStand(t, nil)
				req := named("a")
				req.Cwd = t.TempDir()
				a := s.spawn(t, operator, req).Agent
				s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
				mended := spoil(s, a)
				_, err := s.Restart(t.Context(), operator, wire.RestartRequest{UID: a.UID})
				codeIs(t, err, wire.CodeFailedPrecondition, "restart while "+what)
				s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
				if starts, _, _ := s.th.counts(); starts != 1 {
					t.Errorf("started %s, want it left alone", times(starts))
				}
				mended()
				if _, err := s.Restart(t.Context(), operator, wire.RestartRequest{UID: a.UID}); err != nil {
					t.Fatal(err)
				}
				s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
				if starts, _, _ := s.th.counts(); starts != 2 {
					t.Errorf("started %s, want it started again", times(starts))
				}
			})
		})
	}
}

// TestSpawnNeedsASeat refuses an agent that cannot be started, before anything is granted.
func TestSpawnNeedsASeat(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.th.set(func() { s.th.broken = wire.Errorf(wire.CodeFailedPrecondition, "the program is gone") })
		_, err := s.Spawn(t.Context(), operator, named("a"))
		codeIs(t, err, wire.CodeFailedPrecondition, "spawn without seats")
		if s.led.count() != 0 {
			t.Errorf("%d grants stand", s.led.count())
		}
	})
}

// TestTheProgramOfSeats is looked for before anything is started.
func TestTheProgramOfSeats(t *testing.T) {
	program := filepath.Join(t.TempDir(), "cotal")
	seats := supervisor.RealSeats{Program: program}
	if err := seats.Check(); wire.CodeOf(err) != wire.CodeFailedPrecondition || !strings.Contains(err.Error(), "cotal down, then cotal up") {
		t.Errorf("a program that is gone: %v", err)
	}
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := seats.Check(); err != nil {
		t.Errorf("a program that is there: %v", err)
	}
}
