package actor

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
)

// grants are those of the space, or none when the mesh does not answer at once.
func grants(ctx context.Context, e *command.Env, text func(trust.Grant) string) []string {
	return target.CompleteNode(ctx, e, func(ctx context.Context, t *target.Target, node *cotal.NodeClient) []string {
		all, err := node.Authority().List(ctx, t.Space())
		if err != nil {
			return nil
		}
		var out []string
		for _, g := range all {
			if s := text(g); s != "" && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
		return out
	})
}

// names proposes the names that are granted, each with its owner.
func names(ctx context.Context, e *command.Env, args []string) []string {
	if len(args) > 0 {
		return nil
	}
	return grants(ctx, e, func(g trust.Grant) string {
		if g.State == trust.GrantRetired {
			return ""
		}
		return g.Actor + "\tof " + short(g.Owner)
	})
}

func completeOwners(t *command.Tree, c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("owner", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return grants(c.Context(), t.Env, func(g trust.Grant) string { return g.Owner }), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeList completes the last entry of a list with commas.
func completeList(t *command.Tree, c *cobra.Command, flag string, entries func(ctx context.Context, e *command.Env) []string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var out []string
		for _, en := range entries(c.Context(), t.Env) {
			if !slices.Contains(strings.Split(before, ","), en) {
				out = append(out, before+en)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// scopes proposes the words of a scope, and the roles that somebody serves or may hand on.
func scopes(ctx context.Context, e *command.Env) []string {
	out := []string{trust.ScopeSpawn, trust.ScopeSupervise, trust.ScopeAdmin}
	for _, role := range target.CompleteRoles(ctx, e) {
		out = append(out, trust.ScopeRole(role))
	}
	return out
}
