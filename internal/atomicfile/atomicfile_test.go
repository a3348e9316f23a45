package atomicfile_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cotal-go/cotal/internal/atomicfile"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	path := filepath.Join(dir, "file")
	for what, write := range map[string]func(data string) error{
		"by path": func(data string) error { return atomicfile.Write(path, []byte(data), 0o600) },
		"in root": func(data string) error { return atomicfile.WriteIn(root, "file", []byte(data)) },
	} {
		for _, data := range []string{"one", ""} {
			if err := write(data); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if got, err := os.ReadFile(path); string(got) != data || err != nil {
				t.Errorf("%s: the file holds %q, %v; want %q", what, got, err, data)
			}
		}
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
			t.Errorf("%s: mode %v, %v", what, info.Mode(), err)
		}
	}
}

// What cannot be put in its place leaves nothing behind.
func TestFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.MkdirAll(filepath.Join(dir, "file", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if atomicfile.Write(filepath.Join(dir, "file"), nil, 0o600) == nil || atomicfile.WriteIn(root, "file", nil) == nil {
		t.Error("a file took the place of a folder")
	}
	if all, err := os.ReadDir(dir); len(all) != 1 || err != nil {
		t.Errorf("the folder holds %v, %v", all, err)
	}
}
