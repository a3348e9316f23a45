//go:build unix

package fault_test

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// TestRow7APausedPrimaryWritesNothing stops the primary as a debugger or a starved machine does, until another one has the lease,
// and lets it go on. It finds out that it lost the lease and leaves it alone. Meanwhile people sign in.
func TestRow7APausedPrimaryWritesNothing(t *testing.T) {
	t.Parallel()
	c := newCity(t)
	const people = 6
	enrol(t, c.Node().Authority(), c.Space(), c.owners.Owner, people)
	first := c.authority(t, false)
	c.authority(t, true)
	held := c.lease(t)
	s := storm{patience: 2 * patience} // a login may wait out a request at the one that stands still, and be given to it again
	ctx, stop := context.WithCancel(t.Context())
	wait := s.rage(ctx, t, c.front.url, c.URL(), people, 500*time.Millisecond)
	first.stop(t)
	before := time.Now()
	taken := c.leaseMoves(t, held, takeover+2*time.Second)
	t.Logf("the lease moved after %v", time.Since(before).Round(100*time.Millisecond))
	first.signal(t, syscall.SIGCONT)
	first.said.hears(t, "lease lost", 10*time.Second) // a request on the connection that the broker gave up takes its 5 s
	stop()
	wait()
	s.report(t, 10)
	if now := c.lease(t); now.Holder != taken.Holder || now.Fence != taken.Fence {
		t.Errorf("the lease is %+v after the old primary went on, want that of %+v", now, taken)
	}
	if !first.alive() {
		t.Errorf("the old primary ended: %s", first.said)
	}
}
