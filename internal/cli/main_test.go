package cli_test

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cotal-go/cotal/internal/cli"
)

// TestMain lets copies of the test binary be the program: scripts run real processes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cotal": program})
}

func program() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	code := cli.Main(ctx, os.Args[1:], cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Dir: dir})
	os.Exit(code)
}
