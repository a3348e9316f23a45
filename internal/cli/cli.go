// Package cli is the command line: the tree of commands, and one way in.
//
// [Main] parses, runs one command and returns the exit code; it never exits by itself, touches nothing of the process
// but what its [Env] holds, and leaves nothing running. Results go to standard output, everything else to standard
// error; --json makes both machine-readable. What each command promises is its own help, which the generated page
// docs/reference/cli.md repeats; exit codes are those of docs/reference/errors.md.
//
// Each noun has a folder below this one. The folders share package command and know nothing of each other.
package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/actor"
	"github.com/cotal-go/cotal/internal/cli/agent"
	"github.com/cotal-go/cotal/internal/cli/attach"
	"github.com/cotal-go/cotal/internal/cli/audit"
	"github.com/cotal-go/cotal/internal/cli/bench"
	"github.com/cotal-go/cotal/internal/cli/channel"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/deadletter"
	"github.com/cotal-go/cotal/internal/cli/demo"
	"github.com/cotal-go/cotal/internal/cli/doctor"
	"github.com/cotal-go/cotal/internal/cli/grant"
	"github.com/cotal-go/cotal/internal/cli/login"
	"github.com/cotal-go/cotal/internal/cli/mcp"
	"github.com/cotal-go/cotal/internal/cli/member"
	"github.com/cotal-go/cotal/internal/cli/mesh"
	"github.com/cotal-go/cotal/internal/cli/message"
	"github.com/cotal-go/cotal/internal/cli/person"
	"github.com/cotal-go/cotal/internal/cli/persona"
	"github.com/cotal-go/cotal/internal/cli/ps"
	"github.com/cotal-go/cotal/internal/cli/role"
	"github.com/cotal-go/cotal/internal/cli/roster"
	"github.com/cotal-go/cotal/internal/cli/script"
	"github.com/cotal-go/cotal/internal/cli/seat"
	"github.com/cotal-go/cotal/internal/cli/serve"
	"github.com/cotal-go/cotal/internal/cli/setting"
	"github.com/cotal-go/cotal/internal/cli/space"
	"github.com/cotal-go/cotal/internal/cli/spawn"
	"github.com/cotal-go/cotal/wire"
)

// Env is the world that a command may touch.
type Env = command.Env

const rootLong = `
A mesh for agents and the people who work with them: everyone in a space sees who is there, posts to channels, sends
direct messages and asks anyone with a role, and the broker enforces who may speak as whom.

Exit codes: 0 done, 1 a bug of ours, 2 wrong usage or request, 3 not permitted, 4 not found, 5 the state does not allow
it, 6 over a limit, 7 nobody answered and nothing was done, 8 no answer in time and it may have been done.

How commands find the mesh they mean: cotal help config
`

const rootExample = `
  cotal up --detach
  cotal send msg general "hello"
  cotal tail
`

// Main runs the command that args name (without the program's own name) and returns the exit code.
func Main(ctx context.Context, args []string, env Env) (code int) {
	e := &env
	defer func() {
		if v := recover(); v != nil {
			err := wire.Errorf(wire.CodeInternal, "this is a bug: %v", v)
			if e.Verbose {
				fmt.Fprintf(e.Stderr, "%s\n", debug.Stack())
			}
			code = command.Report(e, command.Hint(err, "please report it with the output of: cotal version, and of this command with --verbose"))
		}
	}()
	t := &command.Tree{Env: e}
	root := newRoot(t)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !t.Ran {
		// Parsing ended before the flags took effect, so --json is looked for by hand.
		e.JSON = e.JSON || asksJSON(args)
		err = usage(root, args, err)
	}
	return command.Report(e, command.Stopped(ctx, err))
}

// NoFolder reports, as any command would, that the process has no working folder, and returns the exit code.
func NoFolder(args []string, env Env, err error) int {
	env.JSON = asksJSON(args)
	refusal := wire.Errorf(wire.CodeFailedPrecondition, "find the working folder: %v", err)
	refusal.Outcome = wire.OutcomeNotExecuted
	return command.Report(&env, command.Hint(refusal, "it may have been removed: go to another one, or to a new one of that name"))
}

// usage makes an error of the parser one of ours, with the commands whose names are near.
func usage(root *cobra.Command, args []string, err error) error {
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return err
	}
	err = command.Hint(command.Usagef("%v", err), "see: cotal --help")
	if len(args) > 0 {
		if near := root.SuggestionsFor(args[0]); len(near) > 0 {
			return command.Hint(err, "did you mean: "+strings.Join(near, ", "))
		}
	}
	return err
}

func asksJSON(args []string) bool {
	for _, a := range args {
		if a == "--" {
			return false
		}
		if a == "--json" || a == "--json=true" {
			return true
		}
	}
	return false
}

// strictHelp makes a request for help with a command that does not exist an error.
func strictHelp(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Run, c.RunE = nil, func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if about == nil || err != nil || len(rest) > 0 && about.HasSubCommands() {
				return usage(root, args, fmt.Errorf("no command %q", strings.Join(args, " ")))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		}
	}
}

// newRoot builds the whole tree.
func newRoot(t *command.Tree) *cobra.Command {
	e := t.Env
	showVersion := false
	root := &cobra.Command{
		Use: "cotal", Short: "A mesh for agents and people", Long: strings.TrimSpace(rootLong), Example: strings.Trim(rootExample, "\n"),
		SilenceErrors: true, SilenceUsage: true, DisableAutoGenTag: true, SuggestionsMinimumDistance: 2,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, _ []string) error {
			if showVersion {
				t.Ran = true
				return version{}.Run(c.Context(), e)
			}
			return c.Help()
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("no command %q", args[0])
			}
			return nil
		},
	}
	root.SetIn(e.Stdin)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	f := root.PersistentFlags()
	f.BoolVar(&e.JSON, "json", false, "print results and failures as JSON, one object a line")
	f.BoolVar(&e.Verbose, "verbose", false, "log what happens to standard error")
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print which build this is")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		mesh.NewUp(t), mesh.NewStatus(t), mesh.NewDown(t), login.NewLogin(t), login.NewLogout(t), login.NewWhoami(t),
		grant.NewMint(t), grant.NewRevoke(t), grant.NewGrants(t), actor.New(t), audit.New(t), doctor.New(t),
		spawn.New(t), ps.New(t), agent.NewStop(t), agent.NewRestart(t), agent.NewInput(t), attach.New(t), script.New(t),
		person.NewJoin(t), member.NewLeave(t), member.NewMembers(t), roster.New(t),
		message.NewSend(t), message.NewReceipt(t), message.NewInbox(t), message.NewHistory(t), message.NewRead(t), message.NewTail(t),
		channel.New(t), persona.New(t), space.New(t), role.New(t), deadletter.New(t), serve.New(t), mcp.New(t), mcp.NewHook(t), setting.New(t), demo.New(t), bench.New(t), seat.New(t), newCompletion(t), newVersion(t),
	)
	noFiles(root)
	root.InitDefaultHelpCmd()
	strictHelp(root)
	return root
}
