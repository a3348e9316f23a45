package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
)

// Root is the whole tree, for the tests that walk it.
func Root() *cobra.Command {
	return newRoot(&command.Tree{Env: &command.Env{
		Stdin: strings.NewReader(""), Stdout: new(strings.Builder), Stderr: new(strings.Builder), Getenv: func(string) string { return "" }, Dir: ".",
	}})
}
