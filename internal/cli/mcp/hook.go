package mcp

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/mcpserver"
)

const hookLong = `
Tells the tools of an agent what its host does, and the host what waits for the agent. Hosts call it from their hooks; what
they say is on standard input, and the answer for them on standard output. It takes at most two seconds, at the start of a
session eight, and never fails: when the tools are not there it says so on standard error, and the host goes on.
`

const hookExample = `
  cotal hook claude prompt
  cotal hook opencode stop
`

// hook is the command.
type hook struct {
	args   []string
	socket string
}

// NewHook adds `cotal hook`, which people need not see.
func NewHook(t *command.Tree) *cobra.Command {
	h := &hook{}
	c := t.Add(command.Spec{
		Use: "hook <connector> <event>", Short: "Tell an agent's tools what its host does", Long: hookLong, Example: hookExample,
		Args:   func(args []string) error { h.args = args; return nil }, // a refusal here would stop the host
		Target: command.TargetNone,
	}, h)
	c.Hidden = true
	c.FParseErrWhitelist.UnknownFlags = true
	c.Flags().StringVar(&h.socket, "socket", "", "socket of the tools (default: what the launch file says)")
	return c
}

// Run tells, and returns nil whatever comes of it.
func (h *hook) Run(ctx context.Context, e *command.Env) error {
	if err := h.tell(ctx, e); err != nil {
		fmt.Fprintf(e.Stderr, "cotal hook: %s\n", command.SafeBody(err.Error(), "  "))
	}
	return nil
}

func (h *hook) tell(ctx context.Context, e *command.Env) error {
	if len(h.args) != 2 {
		return command.Usagef("want <connector> <event>, got %d operands", len(h.args))
	}
	socket := h.socket
	if socket == "" {
		path := e.Getenv(launch.Env)
		if path == "" {
			return command.Usagef("this is no shell of an agent: %s is not set", launch.Env)
		}
		f, err := launch.Read(path)
		if err != nil {
			return err
		}
		if socket = f.HostSocket; socket == "" {
			return command.Usagef("the tools of %s listen to no hooks", f.Principal)
		}
	}
	return mcpserver.Hook(ctx, socket, h.args[0], h.args[1], e.Stdin, e.Stdout)
}
