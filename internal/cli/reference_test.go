package cli_test

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cotal-go/cotal/internal/cli"
	"github.com/cotal-go/cotal/wire"
)

var referenceDir = filepath.Join("..", "..", "docs", "reference")

// TestReference fails when a page of docs/reference no longer says what the program does.
func TestReference(t *testing.T) {
	golden(t, filepath.Join(referenceDir, "cli.md"), commandPage(cli.Root()))
	golden(t, filepath.Join(referenceDir, "errors.md"), errorPage())
}

// TestHelp holds every command to the rules of its help.
func TestHelp(t *testing.T) {
	walk(cli.Root(), func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short help %q must be there and have no full stop", path, c.Short)
		}
		if c.Long == "" {
			t.Errorf("%s: no long help", path)
		}
		if !runs(c) {
			return
		}
		if n := strings.Count(c.Example, "cotal"); n < 2 {
			t.Errorf("%s: %d examples, want two", path, n)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" && !f.Hidden {
				t.Errorf("%s: flag --%s has no help", path, f.Name)
			}
		})
	})
}

// runs reports whether a command does something itself; the others only hold commands.
func runs(c *cobra.Command) bool { return !c.HasSubCommands() || c.Example != "" }

func walk(c *cobra.Command, fn func(*cobra.Command)) {
	fn(c)
	for _, child := range c.Commands() {
		if !child.Hidden && child.Name() != "help" {
			walk(child, fn)
		}
	}
}

const generated = "<!-- Generated from the program: go test ./internal/cli -run TestReference -update -->\n\n"

func commandPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\n" + generated)
	fmt.Fprintf(&b, "%s\n\nEvery command also takes:\n\n", root.Long)
	writeFlags(&b, root.PersistentFlags())
	b.WriteString("\n")
	walk(root, func(c *cobra.Command) {
		if c == root {
			return
		}
		fmt.Fprintf(&b, "%s %s\n\n%s.\n\n", strings.Repeat("#", 1+strings.Count(c.CommandPath(), " ")), c.CommandPath(), c.Short)
		if runs(c) {
			fmt.Fprintf(&b, "```\n%s\n```\n\n", c.UseLine())
		}
		fmt.Fprintf(&b, "%s\n\n", prose(c.Long))
		local := c.NonInheritedFlags()
		local.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Hidden || f.Name == "help" })
		if local.HasAvailableFlags() {
			writeFlags(&b, local)
			b.WriteString("\n")
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "```\n%s\n```\n\n", unindent(c.Example))
		}
	})
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// prose keeps indented lines of a help text as blocks.
func prose(s string) string {
	var out []string
	in := false
	for _, line := range strings.Split(s, "\n") {
		indented := strings.HasPrefix(line, "  ")
		if indented && !in {
			out = append(out, "```")
		}
		if in && !indented {
			out = append(out, "```")
		}
		in = indented
		out = append(out, strings.TrimPrefix(line, "  "))
	}
	if in {
		out = append(out, "```")
	}
	return strings.Join(out, "\n")
}

func unindent(s string) string {
	return strings.TrimPrefix(strings.ReplaceAll(s, "\n  ", "\n"), "  ")
}

func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | default | meaning |\n| --- | --- | --- |\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if kind := f.Value.Type(); kind != "bool" {
			name += " <" + kind + ">"
		}
		def := f.DefValue
		if def == "" || def == "[]" || def == "false" || def == "0" || def == "0s" {
			def = ""
		} else {
			def = "`" + def + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, def, strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
}

const errorIntro = `Every refusal has one code, whether it comes from a service over the wire, from the library or from the command line.
The code decides the exit code of a command, the HTTP status where there is one, and whether trying again makes sense.
The text beside it is for a person and never parsed. Exit code 0 is success.

`

const errorOutro = "\nAn `outcome` says what state was left: `not-executed`, `executed`, or `unknown`, and then the thing to do is to look before\n" +
	"repeating. With `--json` a command prints its failure as one object on standard error:\n\n" +
	"```json\n" +
	`{"v":1,"error":{"code":"unavailable","message":"…","outcome":"not-executed","retry":"yes","exit":7,"details":{},"hints":["…"]}}` +
	"\n```\n"

func errorPage() string {
	codes := wire.Codes()
	slices.SortFunc(codes, func(a, b wire.Code) int {
		return cmp.Or(cmp.Compare(a.Exit(), b.Exit()), cmp.Compare(a.HTTP(), b.HTTP()), cmp.Compare(a, b))
	})
	var b strings.Builder
	b.WriteString("# Errors\n\n" + generated + errorIntro)
	b.WriteString("| code | meaning | retry | HTTP | exit |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range codes {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d | %d |\n", c, c.Sentence(), c.Retry(), c.HTTP(), c.Exit())
	}
	return b.String() + errorOutro
}
