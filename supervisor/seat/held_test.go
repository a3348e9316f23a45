//go:build linux

package seat_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/supervisor/seat"
)

// TestADaemonHoldsTheTerminal ends an agent that made a daemon which keeps the terminal open, so that its output never ends: the agent is
// told to have ended all the same, and the daemon is left alone and named.
func TestADaemonHoldsTheTerminal(t *testing.T) {
	for i, how := range []string{"stopped", "by_itself"} {
		t.Run(how, func(t *testing.T) {
			seconds := fmt.Sprint(4711 + i)
			c := start(t, options(t, "sh", "-c", "setsid -f sleep "+seconds+"; echo ready; read line; exit 3"))
			shows(t, c, "ready")
			daemon := 0
			until(t, "the daemon is one", func() bool {
				info, err := c.Info(within(t))
				if err == nil && len(info.Daemons) == 1 {
					daemon = info.Daemons[0].PID
				}
				return daemon != 0
			})
			defer func() { _ = syscall.Kill(daemon, syscall.SIGKILL) }()
			var e seat.Exit
			if how == "stopped" {
				var err error
				if e, err = c.Stop(within(t), time.Second); err != nil {
					t.Fatal(err)
				}
			} else {
				send(t, c, "\r")
				if e = ended(t, c); e.Code != 3 {
					t.Errorf("exit = %+v, want code 3", e)
				}
			}
			if len(e.Left) != 1 || e.Left[0].PID != daemon || !strings.Contains(e.Left[0].Name, "sleep") || !runs(daemon) {
				t.Errorf("left is %v, the daemon %d runs: %t; want it alive and named", e.Left, daemon, runs(daemon))
			}
		})
	}
}
