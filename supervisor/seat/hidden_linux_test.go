package seat_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/cotal-go/cotal/supervisor/seat"
	"golang.org/x/sys/unix"
)

// TestHiddenProcesses: where /proc hides what is of other users, the others are seen and nothing fails; one of the seat's own tree that is
// hidden is not taken for gone.
func TestHiddenProcesses(t *testing.T) {
	hidden := map[int]error{
		1:  &os.PathError{Op: "open", Path: "/proc/1/stat", Err: unix.EPERM},
		30: &os.PathError{Op: "open", Path: "/proc/30/stat", Err: unix.EACCES},
		40: os.ErrProcessDone,
	}
	pids := []int{1, 20, 30, 40, 50}
	got, err := seat.LookAt(pids, hidden, 20, 50)
	if err != nil || !slices.Equal(got, []int{20, 50}) {
		t.Errorf("with strangers hidden: %v, %v; want the others", got, err)
	}
	if got, err := seat.LookAt(pids, hidden, 20, 30); !errors.Is(err, os.ErrPermission) {
		t.Errorf("with one of ours hidden: %v, %v; want that it may not be looked at", got, err)
	}
	hidden[50] = unix.EIO
	if got, err := seat.LookAt(pids, hidden); !errors.Is(err, unix.EIO) {
		t.Errorf("with one that cannot be read: %v, %v; want why", got, err)
	}
}
