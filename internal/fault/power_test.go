//go:build linux

package fault_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/trust"
)

// disk is an ext4 filesystem in a file. What the kernel has not been told to write is only in the page cache of
// the mount; a copy of the backing file is what a machine finds after its power was cut. Periodic commits are
// put off (commit=300), so that nothing but fsync saves data: the harshest cut there is.
type disk struct{ image, mount string }

func newDisk(t *testing.T) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		archtest.Skip(t, "only root can mount the filesystem whose power is cut")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			archtest.Skip(t, "mkfs.ext4, mount or umount is not installed")
		}
	}
	dir := t.TempDir()
	d := &disk{image: filepath.Join(dir, "disk"), mount: filepath.Join(dir, "mnt")}
	f, err := os.Create(d.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(192 << 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", "-F", d.image)
	d.attach(t)
	return d
}

func (d *disk) attach(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll(d.mount, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "-o", "loop,commit=300,nobarrier", d.image, d.mount)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", d.mount).Run() })
}

// cut copies the backing file as it is and mounts the copy: the disk after the power came back.
func (d *disk) cut(t *testing.T) *disk {
	t.Helper()
	next := &disk{image: d.image + ".cut", mount: d.mount + ".cut"}
	run(t, "cp", "--sparse=always", d.image, next.image)
	next.attach(t)
	return next
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// TestPowerCut cuts the power of the disk under traffic. In strict mode nothing acknowledged is lost. By default
// what is lost was acknowledged within the stated window before the cut.
func TestPowerCut(t *testing.T) {
	for _, mode := range []struct {
		name   string
		strict bool
	}{{"default_window", false}, {"strict", true}} {
		t.Run(mode.name, func(t *testing.T) { powerCut(t, mode.strict) })
	}
}

// window is the longest age of an acknowledged write that a power cut may lose by default: the sync interval of
// 250 ms, plus as much for the sync itself on a busy machine.
const window = 500 * time.Millisecond

func powerCut(t *testing.T, strict bool) {
	d := newDisk(t)
	c := start(t, d.mount, strict)
	client := dialNode(t.Context(), t, c.url, d.mount)
	var creds [2]*trust.Credentials
	for i, name := range []string{"sender", "receiver"} {
		var err error
		if creds[i], err = client.Authority().Issue(t.Context(), auth.Request{Space: spaceName, Actor: name}); err != nil {
			t.Fatal(err)
		}
	}
	_ = client.Close()
	pause(2 * window) // real time: the kernel's disk is no part of a bubble; the set-up must be older than the window

	l, safe := newLedger(), (*ledger)(nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	begun := make(chan struct{})
	wg.Go(func() { traffic(ctx, t, c.url, d.mount, creds[0], creds[1].Identity().Principal, 0, 1000, l, begun) })
	<-begun
	pause(time.Second)
	if !strict {
		safe = l.copy()
		pause(window)
	}
	c.kill() // from here on nothing reaches the disk any more
	cancel()
	wg.Wait()
	if strict {
		safe = l.copy()
	}
	after := d.cut(t)
	direct, names := safe.counts()
	total, _ := l.counts()
	t.Logf("acknowledged %d messages and %d grants before the window, %d messages in all", direct, names, total)
	if direct < 100 {
		t.Fatalf("acknowledged only %d messages", direct)
	}
	c = start(t, after.mount, strict)
	if lost := missing(t, c.url, after.mount, creds[1], safe); len(lost) > 0 {
		t.Errorf("lost %d entries older than the window: %.20q", len(lost), lost)
	}
	c.kill()
}
