package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cotal-go/cotal/internal/cli/command"
)

// wanted says what a flag takes, by its name or else by its type.
var wanted = map[string]string{
	"port":   "a number from 1 to 65535",
	"int":    "a number",
	"uint64": "a number, 0 or more",
	"bool":   "true or false", "duration": "a duration such as 30m, 12h or 7d",
}

// flagError puts an error of the flag parser into our words.
func flagError(c *cobra.Command, err error) error {
	see := "see: " + c.CommandPath() + " --help"
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := bad.GetFlag()
		want, known := wanted[f.Name]
		if !known {
			want, known = wanted[f.Value.Type()]
		}
		if known {
			return command.Hint(command.Usagef("--%s %q: want %s", f.Name, bad.GetValue(), want), see)
		}
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := nearFlags(c, unknown.GetSpecifiedName()); len(near) > 0 {
			return command.Hint(command.Usagef("%v", err), "did you mean: "+strings.Join(near, ", "), see)
		}
	}
	return command.Hint(command.Usagef("%v", err), see)
}

// nearFlags are the flags of the command whose names are near.
func nearFlags(c *cobra.Command, name string) []string {
	var out []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && len(name) > 1 && (strings.HasPrefix(f.Name, name) || command.Near(name, f.Name) ||
			len(name) > 2 && strings.HasSuffix(f.Name, "-"+name)) {
			out = append(out, "--"+f.Name)
		}
	})
	return out
}
