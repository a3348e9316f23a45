// Command cotal runs a mesh and works in one. See `cotal --help`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/cotal-go/cotal/internal/cli"
	"github.com/cotal-go/cotal/internal/cli/seat"
	"github.com/cotal-go/cotal/internal/still"
	"github.com/cotal-go/cotal/wire"
)

func main() { os.Exit(run()) }

// run gives the command the process's streams, and a context that ends with the first request to stop. A second one
// ends the process at once, as the system does it.
func run() int {
	still.Release()
	if len(os.Args) == 3 && os.Args[1] == "seat" && !strings.HasPrefix(os.Args[2], "-") {
		return hold(os.Args[2])
	}
	env := cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	dir, err := os.Getwd()
	if err != nil {
		return cli.NoFolder(os.Args[1:], env, err)
	}
	env.Dir = dir
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	context.AfterFunc(ctx, cancel)
	return cli.Main(ctx, os.Args[1:], env)
}

// hold is the command seat without the tree of commands, which would stay in memory as long as the agent lives.
func hold(dir string) int {
	if err := seat.Hold(context.Background(), dir, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "cotal: %v\n", err)
		return wire.CodeOf(err).Exit()
	}
	return 0
}
