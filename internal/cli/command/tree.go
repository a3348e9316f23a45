package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

// Runner is a command: a struct of flags whose Run knows nothing of parsing.
type Runner interface {
	Run(ctx context.Context, e *Env) error
}

// Spec describes a command to the person who reads its help.
type Spec struct {
	// Use is the line after the parent's name: the verb, then its operands.
	Use string
	// Short is one line without a full stop; Long says what happens and what is refused; Examples are real.
	Short, Long, Example string
	// Args checks and takes the operands; nil allows none.
	Args func(args []string) error
	// Complete proposes operands, given those before; nil proposes none.
	Complete func(ctx context.Context, e *Env, args []string) []string
	// Target says which of the flags that choose a mesh the command has.
	Target TargetFlags
	// Changes is as in Env. A command that does so under some flags alone sets it there.
	Changes bool
}

// TargetFlags says which of the flags that choose a mesh a command has.
type TargetFlags int

// The sets of flags: those of a command that works from the trust records of a project, which no credential stands for; of
// one that speaks in a mesh as somebody, of one that does so and has another use for --name, of one that only names a space, of one
// that looks at no mesh.
const (
	TargetRecords TargetFlags = iota
	TargetPerson
	TargetSelf
	TargetSpace
	TargetNone
)

// addTarget gives c the flags that choose a mesh.
func (t *Tree) addTarget(c *cobra.Command, set TargetFlags) {
	f, v := c.Flags(), &t.Env.Flags
	if set == TargetNone {
		return
	}
	f.StringVar(&v.Space, "space", "", "space to work in")
	_ = c.RegisterFlagCompletionFunc("space", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return t.Spaces(), cobra.ShellCompDirectiveNoFileComp
	})
	if set == TargetSpace {
		return
	}
	f.StringVar(&v.Server, "server", "", "address of the broker, nats://host:port or tls://host:port")
	f.StringVar(&v.Creds, "creds", "", "credential file to connect with, instead of a short one from the project")
	f.StringVar(&v.CA, "ca", "", "file of certificates to trust besides the system's")
	if set == TargetRecords {
		_ = f.MarkHidden("creds") // known, so that it is refused with a reason
	}
	if set == TargetPerson {
		f.StringVar(&v.Name, "name", "", "speak as local.<name>, where people sign in as that actor of yours (default: your login name)")
	}
}

// Spaces proposes the spaces that this machine has records of. It asks nobody.
func (t *Tree) Spaces() []string {
	cfg, err := t.Env.Config()
	if err != nil {
		return nil
	}
	return cfg.KnownSpaces()
}

// First proposes what fn does for the first operand, and nothing for those after it.
func First(fn func(ctx context.Context, e *Env) []string) func(ctx context.Context, e *Env, args []string) []string {
	return func(ctx context.Context, e *Env, args []string) []string {
		if len(args) > 0 {
			return nil
		}
		return fn(ctx, e)
	}
}

// Tree builds the tree of commands around one Env.
type Tree struct {
	Env *Env
	// Ran is set once parsing is over and a command runs: errors before that are about the command line.
	Ran bool
}

// Group makes a node that only holds others, for example `cotal space`.
func (t *Tree) Group(use, short, long string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: strings.TrimSpace(long),
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Hint(Usagef("%s: a verb is missing", c.Name()), "name one of: "+strings.Join(verbs(c), ", "), "see: "+c.CommandPath()+" --help")
			}
			err := Hint(Usagef("%s: no verb %q", c.Name(), args[0]), "see: "+c.CommandPath()+" --help")
			if meant := Meant(args[0], verbs(c)); meant != "" {
				return Hint(err, meant)
			}
			return err
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	c.AddCommand(children...)
	return c
}

// verbs are the names of the commands that a group holds.
func verbs(c *cobra.Command) []string {
	var out []string
	for _, child := range c.Commands() {
		if child.IsAvailableCommand() {
			out = append(out, child.Name())
		}
	}
	return out
}

// Add makes the command that runs r.
func (t *Tree) Add(s Spec, r Runner) *cobra.Command {
	c := &cobra.Command{
		Use: s.Use, Short: s.Short, Long: strings.TrimSpace(s.Long), Example: strings.Trim(s.Example, "\n"),
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
	}
	t.addTarget(c, s.Target)
	c.Args = func(c *cobra.Command, args []string) error {
		if s.Args != nil {
			return Hint(s.Args(args), "usage: "+c.UseLine(), "see: "+c.CommandPath()+" --help")
		}
		if len(args) > 0 {
			return Hint(Usagef("%s: unexpected operand %q", c.Name(), args[0]), "usage: "+c.UseLine())
		}
		return nil
	}
	if s.Complete != nil {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			t.Env.Records = s.Target == TargetRecords
			return s.Complete(c.Context(), t.Env, args), cobra.ShellCompDirectiveNoFileComp
		}
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		t.Ran, t.Env.Changes = true, s.Changes
		if t.Env.Records = s.Target == TargetRecords; t.Env.Records && c.Flags().Changed("creds") {
			return Usagef("--creds does not reach the node; %s works from the project's trust records", strings.TrimPrefix(c.CommandPath(), "cotal "))
		}
		return r.Run(c.Context(), t.Env)
	}
	return c
}

// One takes exactly one operand.
func One(name string, into *string) func([]string) error {
	return func(args []string) error {
		if len(args) != 1 {
			return Usagef("want one operand <%s>, got %d", name, len(args))
		}
		*into = args[0]
		return nil
	}
}

// Maybe takes at most one operand.
func Maybe(name string, into *string) func([]string) error {
	return func(args []string) error {
		if len(args) > 1 {
			return Usagef("want at most one operand <%s>, got %d", name, len(args))
		}
		if len(args) == 1 {
			*into = args[0]
		}
		return nil
	}
}
