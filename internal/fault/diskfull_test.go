//go:build linux

package fault_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// smallDisk is a filesystem of a few megabytes.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		archtest.Skip(t, "only root can mount the filesystem that is filled")
	}
	dir := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", dir)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	return dir
}

// fill takes all the room that is left and returns the file that holds it.
func fill(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 4096); ; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return f.Name()
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiskFull fills the disk under traffic: the node says so, stores again by itself once there is room, and has lost
// nothing that it acknowledged, as often as it happens. The second time a person asks, so that nothing waits.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t)
	c := start(t, dir, false)
	client := dialNode(t.Context(), t, c.url, dir)
	defer func() { _ = client.Close() }()
	var creds [2]*trust.Credentials
	for i, name := range []string{"sender", "receiver"} {
		var err error
		if creds[i], err = client.Authority().Issue(t.Context(), auth.Request{Space: spaceName, Actor: name}); err != nil {
			t.Fatal(err)
		}
	}
	ep, err := endpoint.Connect(t.Context(), c.url, endpoint.Static(creds[0]), &endpoint.Options{Name: "sender"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ep.Close() }()
	l, to := newLedger(), creds[1].Identity().Principal
	n := 0
	send := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		n++
		r, err := ep.Direct(ctx, to, endpoint.Draft{ID: fmt.Sprintf("m%d", n), Parts: []wire.Part{wire.Text(strings.Repeat("x", 10_000))}})
		if err == nil {
			l.sent(r.ID)
		}
		return err
	}
	healthy := func(want bool) cotal.Status {
		t.Helper()
		limit := time.After(60 * time.Second)
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			st, err := client.Status(ctx)
			cancel()
			if err == nil && st.Healthy() == want {
				return st
			}
			select {
			case <-limit:
				t.Fatalf("healthy is not %v: %+v, %v", want, st, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	for round := range 2 {
		for range 20 {
			if err := send(); err != nil {
				t.Fatalf("round %d: send with room on the disk: %v", round, err)
			}
		}
		filler := fill(t, dir)
		for limit := n + 1000; send() == nil; {
			if n > limit {
				t.Fatal("a full disk stores")
			}
		}
		st := healthy(false)
		if sp := st.Spaces[0]; sp.Delivery != cotal.Degraded || !strings.HasSuffix(sp.Error, ": disk full") || sp.Since.IsZero() {
			t.Errorf("round %d: status of a space on a full disk = %+v", round, sp)
		}
		if err := client.Heal(t.Context()); !errors.Is(err, wire.ErrExhausted) {
			t.Errorf("round %d: heal on a full disk: %v, want resource-exhausted", round, err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if round > 0 { // by itself the node would wait half a minute after its last restart
			if err := client.Heal(t.Context()); err != nil {
				t.Errorf("heal: %v", err)
			}
		}
		healthy(true)
		for limit := n + 20; send() != nil; { // the endpoint may still be reconnecting
			if n > limit {
				t.Fatalf("round %d: nothing is stored though there is room", round)
			}
		}
	}
	direct, _ := l.counts()
	t.Logf("acknowledged %d of %d messages", direct, n)
	if lost := missing(t, c.url, dir, creds[1], l); len(lost) > 0 {
		t.Errorf("lost %d acknowledged messages: %.20q", len(lost), lost)
	}
}
