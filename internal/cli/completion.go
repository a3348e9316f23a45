package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cotal-go/cotal/internal/cli/command"
)

const completionLong = `
Prints a script that makes the shell complete commands, flags, spaces, channels, names, agent files, roles and dead letters. Spaces and agent files
come from this machine; the others are asked of the mesh when it answers at once, and left out when it does not.

  bash        source <(cotal completion bash)
  zsh         cotal completion zsh > "${fpath[1]}/_cotal"
  fish        cotal completion fish > ~/.config/fish/completions/cotal.fish
  powershell  cotal completion powershell | Out-String | Invoke-Expression

The line for bash goes into ~/.bashrc, so that each shell has it; it needs the package bash-completion.
`

const completionExample = `
  source <(cotal completion bash)
  cotal completion fish > ~/.config/fish/completions/cotal.fish
`

var shells = []string{"bash", "zsh", "fish", "powershell"}

type completion struct {
	shell string
	root  func() *cobra.Command
}

func newCompletion(t *command.Tree) *cobra.Command {
	cp := &completion{}
	c := t.Add(command.Spec{
		Use: "completion <shell> [flags]", Short: "Print a completion script for bash, zsh, fish or powershell", Long: completionLong,
		Example: completionExample, Target: command.TargetNone,
		Args: func(args []string) error {
			if err := command.One("shell", &cp.shell)(args); err != nil {
				return err
			}
			if !slices.Contains(shells, cp.shell) {
				return command.Usagef("no script for shell %q: there are %s", cp.shell, strings.Join(shells, ", "))
			}
			return nil
		},
		Complete: func(_ context.Context, _ *command.Env, args []string) []string {
			if len(args) > 0 {
				return nil
			}
			return shells
		},
	}, cp)
	cp.root = c.Root
	return c
}

// files are the flags that take the name of a file or a folder.
var files = []string{"ca", "creds", "file", "from", "out", "store-dir", "tls-cert", "tls-key"}

// noFiles keeps files from being proposed for the flags that take none.
func noFiles(c *cobra.Command) {
	for _, child := range c.Commands() {
		noFiles(child)
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, has := c.GetFlagCompletionFunc(f.Name); !has && !slices.Contains(files, f.Name) {
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	})
}

// Run prints the script.
func (c *completion) Run(_ context.Context, e *command.Env) error {
	root := c.root()
	switch c.shell {
	case "bash":
		return root.GenBashCompletionV2(e.Stdout, true)
	case "zsh":
		return root.GenZshCompletion(e.Stdout)
	case "fish":
		return root.GenFishCompletion(e.Stdout, true)
	}
	return root.GenPowerShellCompletionWithDesc(e.Stdout)
}
