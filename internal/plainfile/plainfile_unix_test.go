//go:build unix

package plainfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cotal-go/cotal/internal/plainfile"
)

// TestPipe is about a pipe that nobody writes to, or reads from: it is refused, and not waited for.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
		if _, err := plainfile.OpenFile(path, flag, 0); !errors.Is(err, plainfile.ErrNotPlain) {
			t.Errorf("OpenFile(%#x) of a pipe = %v, want %v", flag, err, plainfile.ErrNotPlain)
		}
		// What is a pipe only once it is opened is not waited for either.
		f, err := os.OpenFile(path, flag|plainfile.Flags, 0)
		if err == nil {
			_ = f.Close()
		}
	}
}
