package deadletter

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
)

// letters proposes the numbers of dead letters that were not named yet, each with who it is for and from.
func letters(ctx context.Context, e *command.Env, args []string) []string {
	return found(ctx, e, func(l Letter) string {
		if slices.Contains(args, utoa(l.Number)) {
			return ""
		}
		return utoa(l.Number) + "\tto " + command.Safe(l.to()) + ", from " + command.Safe(l.Sender)
	})
}

// recipients completes --to with whom dead letters are for.
func recipients(t *command.Tree, c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("to", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return found(c.Context(), t.Env, func(l Letter) string { return command.Safe(l.Recipient) }), cobra.ShellCompDirectiveNoFileComp
	})
}

func found(ctx context.Context, e *command.Env, text func(Letter) string) []string {
	return target.CompleteNode(ctx, e, func(ctx context.Context, t *target.Target, node *cotal.NodeClient) []string {
		all, err := read(ctx, t, node, "")
		if err != nil {
			return nil
		}
		var out []string
		for _, l := range all {
			if s := text(l); s != "" && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
		return out
	})
}
