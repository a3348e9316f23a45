package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cotal-go/cotal/internal/config"
)

// TestMoved tells a folder that was moved from one that was not, from one folder under two paths, and from one whose old place is another project's.
func TestMoved(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) *config.Project { return config.NewProject(filepath.Join(dir, name)) }
	settle := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(at(name).Dir, "run"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := at(name).Settle(); err != nil {
			t.Fatal(err)
		}
	}
	is := func(name, want, when string) {
		t.Helper()
		if got := at(name).Moved(); got != want {
			t.Errorf("%s: %q is said to be moved from %q, want %q", when, name, got, want)
		}
	}
	old := at("p").Root
	is("p", "", "before any start")
	settle("p")
	is("p", "", "where it was started")
	if err := os.Rename(old, at("q").Root); err != nil {
		t.Fatal(err)
	}
	is("q", old, "moved")
	if err := os.Symlink(at("q").Root, old); err == nil { // Windows may not
		is("q", "", "still reached by the old path")
		if err := os.Remove(old); err != nil {
			t.Fatal(err)
		}
	}
	settle("p")
	is("q", old, "with another project where it was")
	is("p", "", "another project")
	settle("q")
	is("q", "", "started where it is now")
}
