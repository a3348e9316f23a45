package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

// TestUnwritable is about folders that take no file: that is the state of the machine, and no bug of ours.
func TestUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := config.Machine{Dir: filepath.Join(file, "home")}
	p := config.NewProject(t.TempDir())
	if err := p.Create(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "run"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(p.Dir, "config.json", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"list": m.Save(config.Mesh{Root: p.Root}), "current": m.Use(config.Mesh{Root: p.Root}), "run": p.SaveRun(config.Run{}), "port": p.SavePort(1),
		"keeper": p.SaveKeeper(config.Process{}), "settings": p.SaveSettings(config.Settings{}),
	} {
		if wire.CodeOf(err) != wire.CodeFailedPrecondition {
			t.Errorf("%s: %v has the code %s, want %s", name, err, wire.CodeOf(err), wire.CodeFailedPrecondition)
		}
	}
}
