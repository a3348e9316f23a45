// Command cotal runs a mesh and works in one. See `cotal --help`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/cotal-go/cotal/internal/cli"
)

func main() { os.Exit(run()) }

// run gives the command the process's streams, and a context that ends with the first request to stop. A second one
// ends the process at once, as the system does it.
func run() int {
	dir, err := os.Getwd()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cotal: find the working folder: %v\n", err)
		return 1
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	context.AfterFunc(ctx, cancel)
	return cli.Main(ctx, os.Args[1:], cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Dir: dir})
}
