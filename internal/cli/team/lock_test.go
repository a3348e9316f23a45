package team

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cotal-go/cotal/supervisor/manifest"
)

// Many who take a lock and give it back, and with it remove its file and its folder, never hold it at once.
func TestLockIsHeldByOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deploys")
	w := &work{ledgers: manifest.OpenLedgers(dir)}
	var holders atomic.Int32
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 10 {
				release, err := w.lockFiles(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				holders.Add(-1)
				release()
			}
		})
	}
	wg.Wait()
	if left, err := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Who finds a lock held leaves it to its holder.
func TestLockOfAnother(t *testing.T) {
	dir := t.TempDir()
	release, ok, err := lock(dir, "x")
	if !ok || err != nil {
		t.Fatalf("lock = %t, %v", ok, err)
	}
	if _, ok, err := lock(dir, "x"); ok || err != nil {
		t.Errorf("a second lock = %t, %v; want false", ok, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "x.lock")); err != nil {
		t.Errorf("the lock of another was removed: %v", err)
	}
	release()
	made := filepath.Join(dir, "deploys")
	release, ok, err = lock(made, "x")
	if !ok || err != nil {
		t.Fatalf("lock in a new folder = %t, %v", ok, err)
	}
	release()
	if _, err := os.Stat(made); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
	release, ok, err = lock(dir, "x")
	if !ok || err != nil {
		t.Fatalf("lock again = %t, %v", ok, err)
	}
	release()
}
