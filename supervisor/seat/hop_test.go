//go:build linux

package seat_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAnOrphanThatForksAndExits stops an agent of which something forks and exits all the time, so that a look at the processes can miss
// it on both sides: it is not said to have ended while that goes on.
func TestAnOrphanThatForksAndExits(t *testing.T) {
	o := options(t, "sh", "-c", `
		trap '' TERM HUP
		exec 9>held
		echo '[ -e enough ] || exec sh hop &' > hop
		sh hop & exec 9>&-
		trap 'exit 0' TERM; echo ready
		while :; do sleep 0.1; done`)
	held := filepath.Join(o.Spec.Dir, "held")
	if err := unix.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(held, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	c := start(t, o)
	shows(t, c, "ready")
	_, err = c.Stop(within(t), 2*time.Second)
	_, left := unix.Read(fd, make([]byte, 1)) // the end of the file when nobody holds it open for writing
	if werr := os.WriteFile(filepath.Join(o.Spec.Dir, "enough"), nil, 0o600); werr != nil {
		t.Fatal(werr)
	}
	if err != nil || errors.Is(left, unix.EAGAIN) {
		t.Errorf("Stop() = %v, and something of the agent goes on: %t", err, errors.Is(left, unix.EAGAIN))
	}
}
