package cli_test

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cotal-go/cotal/internal/cli"
)

// TestMain lets copies of the test binary be the program: scripts run real processes.
// A node in the test's own process starts seats and agents by its own path; the flags of a test begin with a dash, commands do not.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		program()
	}
	testscript.Main(m, map[string]func(){"cotal": program})
}

func program() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	env := cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	dir, err := os.Getwd()
	if err != nil {
		os.Exit(cli.NoFolder(os.Args[1:], env, err))
	}
	env.Dir = dir
	os.Exit(cli.Main(ctx, os.Args[1:], env))
}
