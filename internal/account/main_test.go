package account_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

var (
	rounds = flag.Int("accounting.rounds", 9, "how often something is killed")
	spawns = flag.Int("accounting.spawns", 60, "how many agents are started under load")
	cycles = flag.Int("accounting.cycles", 50, "how many agents are started and finish, one after the other")
	seed   = flag.Uint64("accounting.seed", 0, "of what is killed when; 0 draws one")
)

// program is the path of cotal, built for these tests. No process of the mesh is a copy of the test binary.
var program string

// TestMain builds the program. A copy of the test binary is only ever a bystander.
func TestMain(m *testing.M) {
	if path := os.Getenv(bystanderFile); path != "" {
		os.Exit(standBy(path))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if runtime.GOOS != "linux" {
		return m.Run() // there is nothing that needs the program
	}
	dir, err := os.MkdirTemp("", "cotal-account-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "cotal")
	build := exec.Command("go", "build", "-o", program, "github.com/cotal-go/cotal/cmd/cotal")
	build.Env = append(build.Environ(), "CGO_ENABLED=0") // as it is shipped
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build cotal: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
