//go:build linux || darwin

package seat_test

import (
	"slices"
	"testing"

	"github.com/cotal-go/cotal/supervisor/seat"
)

// TestDaemonWhoseParentIsNotCollected: a program that never waits for its children leaves the process between it and a daemon behind as
// a zombie, which leads the daemon's session and is no reason to end it.
func TestDaemonWhoseParentIsNotCollected(t *testing.T) {
	const root, agent, between, daemon = 10, 20, 30, 40
	for _, c := range []struct {
		name   string
		zombie bool
		want   []int
	}{{"ended", true, []int{daemon}}, {"alive", false, nil}} {
		got := seat.DaemonsOf(root, agent,
			seat.Seen{PID: agent, Parent: root, Session: agent}, seat.Seen{PID: between, Parent: agent, Session: between, Zombie: c.zombie},
			seat.Seen{PID: daemon, Parent: root, Session: between})
		if !slices.Equal(got, c.want) {
			t.Errorf("its parent %s: daemons are %v, want %v", c.name, got, c.want)
		}
	}
}
