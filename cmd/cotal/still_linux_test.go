package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/still"
)

// TestStillComesBeforeTheSampler looks at the order in which packages are initialised, on which package still depends, and that its
// processes open files again afterwards.
func TestStillComesBeforeTheSampler(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "cotal")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(build.Environ(), "CGO_ENABLED=0") // as it is shipped
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, command := range still.Commands() {
		cmd := exec.Command(bin, command, filepath.Join(t.TempDir(), "absent"))
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1", "COTAL_HOME="+t.TempDir(), "COTAL_LAUNCH=")
		cmd.Dir = t.TempDir()
		out, _ := cmd.CombinedOutput() // it has nothing to work on
		ours := strings.Index(string(out), "init github.com/cotal-go/cotal/internal/still ")
		theirs := strings.Index(string(out), "init github.com/nats-io/nats-server/v2/server/pse ")
		if ours < 0 || theirs < 0 || ours > theirs {
			t.Errorf("cotal %s: package still is initialised at %d, the sampler at %d, want it before:\n%s", command, ours, theirs, out)
		}
		if strings.Contains(string(out), "fatal error") || strings.Contains(string(out), "too many open files") {
			t.Errorf("cotal %s: %s", command, out)
		}
	}
}
