package supervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// block puts a folder where a file is to be written, which fails then as on a full disk, until the returned function is called.
func block(t *testing.T, path string) (free func()) {
	t.Helper()
	old, read := os.ReadFile(path)
	if read == nil {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() {
		err := os.RemoveAll(path)
		if err == nil && read == nil {
			err = os.WriteFile(path, old, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestAFullDiskIsNoFailure: an agent that ends while its record cannot be written is started again once it can be, however long that
// takes: a full disk says nothing about the agent.
func TestAFullDiskIsNoFailure(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		req := named("a")
		req.Restart = supervisor.RestartAlways
		a := s.spawn(t, operator, req).Agent
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		free := block(t, filepath.Join(s.opts.Dir, string(a.UID), "agent.json"))
		s.th.of(a.Principal).end(supervisor.Ending{Signal: "SIGKILL"})
		time.Sleep(time.Hour)
		if got := s.want(t, a.UID, wire.AgentStarting, wire.ProcessNone); !strings.Contains(got.Reason, "write record") {
			t.Errorf("it says %q, want what it waits for", got.Reason)
		}
		if starts, _, _ := s.th.counts(); starts != 1 {
			t.Errorf("started %s without a record on disk", times(starts))
		}
		free()
		time.Sleep(time.Minute)
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
	})
}
