package plainfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cotal-go/cotal/internal/plainfile"
)

func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if _, err := plainfile.Open(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of nothing = %v, want %v", err, fs.ErrNotExist)
	}
	for range 2 {
		f, err := plainfile.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, "x"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := plainfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	_ = f.Close()
	if err != nil || string(got) != "xx" {
		t.Errorf("the file holds %q, %v, want %q", got, err, "xx")
	}
	if _, err := plainfile.Open(dir); !errors.Is(err, plainfile.ErrNotPlain) {
		t.Errorf("Open of a folder = %v, want %v", err, plainfile.ErrNotPlain)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Logf("no links here: %v", err)
		return
	}
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY | os.O_APPEND | os.O_CREATE} {
		if _, err := plainfile.OpenFile(link, flag, 0o600); !errors.Is(err, plainfile.ErrNotPlain) {
			t.Errorf("OpenFile(%#x) of a link = %v, want %v", flag, err, plainfile.ErrNotPlain)
		}
	}
}
