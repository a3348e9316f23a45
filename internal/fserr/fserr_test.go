package fserr_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cotal-go/cotal/internal/fserr"
)

func TestCause(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	_, read := os.ReadFile(none)
	for name, err := range map[string]error{"path": read, "link": os.Rename(none, none+"2"), "wrapped": fmt.Errorf("look: %w", read)} {
		got := fserr.Cause(err)
		if !errors.Is(got, fs.ErrNotExist) || strings.Contains(got.Error(), "none") {
			t.Errorf("%s: Cause(%v) = %v, want what is wrong and no path", name, err, got)
		}
	}
	if other := errors.New("other"); fserr.Cause(other) != other {
		t.Error("an error that is not of the file system changed")
	}
	if fserr.Cause(nil) != nil {
		t.Error("Cause(nil) is not nil")
	}
}

func TestFull(t *testing.T) {
	inPath := &os.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}
	for _, err := range []error{inPath, fmt.Errorf("start: %w", inPath), fmt.Errorf("start: %v", inPath), syscall.EDQUOT} {
		if runtime.GOOS != "windows" && !fserr.Full(err) {
			t.Errorf("Full(%v) = false", err)
		}
	}
	for _, err := range []error{nil, os.ErrNotExist, errors.New("disk")} {
		if fserr.Full(err) {
			t.Errorf("Full(%v) = true", err)
		}
	}
}
