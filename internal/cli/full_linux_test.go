package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cotal-go/cotal/internal/archtest"
)

// newSmallWorld is newWorld with its folder on a disk of its own, of so much room.
func newSmallWorld(t *testing.T, size string) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		archtest.Skip(t, "only root can mount the filesystem that is filled")
	}
	w := newWorld(t)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size+",mode=700", "tmpfs", w.dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", w.dir).Run() })
	return w
}

// TestUpOnAFullDisk: a start that finds no room says which disk that is about and what to do, wherever it meets the end of it, and works once
// there is room.
func TestUpOnAFullDisk(t *testing.T) {
	w := newSmallWorld(t, "32m")
	filler := filepath.Join(w.dir, "filler")
	for _, room := range []int64{0, 16 << 10, 40 << 10} {
		fillUp(t, filler, room)
		for _, args := range [][]string{{"up", "--detach"}, {"up"}} {
			code, _, errs := w.run("", args...)
			if code != 6 || !strings.HasPrefix(errs, `cotal: the disk that holds "`+w.dir) || !strings.Contains(errs, "is full\nhint: make room there and start it again: cotal up --detach\n") {
				t.Errorf("%d bytes of room, %v: exit %d: %s", room, args, code, errs)
			}
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.must("up", "--detach")
	w.must("send", "msg", "general", "there is room")
	w.must("down")
}

// TestFullDisk has the disk of the mesh full: commands that need a credential say so, and what to do, and one that brings its own goes on.
func TestFullDisk(t *testing.T) {
	w := newSmallWorld(t, "24m")
	w.up()
	filler := filepath.Join(w.dir, "filler")
	full := func() { fillUp(t, filler, 0) }
	room := func() {
		t.Helper()
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	says := func(code int, errs string, words ...string) {
		t.Helper()
		for _, word := range append(words, "make room on the disk", "--creds <file>") {
			if !strings.Contains(errs, word) {
				t.Errorf("it does not say %q:\n%s", word, errs)
			}
		}
		if code != 7 || strings.Contains(errs, "does not answer") {
			t.Errorf("exit %d, want 7:\n%s", code, errs)
		}
	}
	full()
	code, _, errs := w.run("", "ps") // the first command of a person: there is no grant yet
	says(code, errs, "its disk may be full")
	room()
	w.must("mint", "op", "--profile", "operator", "--out", "op.creds")
	w.must("ps")
	full()
	for range 200 { // until the log of credentials wants another block
		if code, _, errs = w.run("", "ps"); code != 0 {
			break
		}
	}
	says(code, errs, `space "main" is degraded: cannot store since`, "disk full; nothing was done")
	code, _, errs = w.run("", "send", "msg", "general", "hi")
	says(code, errs, "disk full; nothing was done")
	if code, _, errs = w.run("", "mint", "op", "--renew"); code != 8 || !strings.Contains(errs, "disk full") {
		t.Errorf("mint: exit %d:\n%s", code, errs)
	}
	w.must("ps", "--creds", "op.creds")
	room()
}

// fillUp makes a file that takes all the room of its disk but some.
func fillUp(t *testing.T, path string, room int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	size := int64(0)
	for block := make([]byte, 4096); err == nil; size += int64(len(block)) {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Truncate(max(0, size-4096-room)); err != nil {
		t.Fatal(err)
	}
}
