//go:build linux || darwin

package hosts_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/internal/cli"
)

// TestMain is also cotal: hosts start the program of the tests as the one that has the tools and hears the hooks.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"mcp", "hook", "seat"}, os.Args[1]) {
		os.Exit(cotal(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

func cotal(args []string) int {
	dir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Main(ctx, args, cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Dir: dir})
}
