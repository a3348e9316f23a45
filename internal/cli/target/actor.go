package target

import (
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// CheckActor refuses what cannot be the name of an actor, in words for a person, with a name near it that can.
func CheckActor(name string) error {
	err := wire.ValidateActor(name)
	if err == nil {
		return nil
	}
	near := strings.Map(func(r rune) rune {
		if wire.ValidateActor(string(r)) == nil {
			return r
		}
		return '_'
	}, name)
	if len(near) > wire.MaxToken {
		near = near[:wire.MaxToken]
	}
	try := ""
	if strings.Trim(near, "_") != "" && wire.ValidateActor(near) == nil {
		try = "; try " + near
	}
	shown := name
	if len(shown) > 2*wire.MaxToken {
		shown = shown[:2*wire.MaxToken] + "…"
	}
	return command.Usagef("name %q: letters, digits and _ only, at most %d%s", shown, wire.MaxToken, try)
}
