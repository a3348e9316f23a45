package view

import (
	"fmt"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/supervisor/persona"
)

// shownProblems is how many problems of a file a person is told at once.
const shownProblems = 12

// Problems adds to an error about an agent or team file everything else that is wrong with it, so that one look at the file
// corrects all. Other errors stay as they are. With --json all of it is in the details.
func Problems(err error) error {
	all := persona.ProblemsOf(err)
	if len(all) < 2 {
		return err
	}
	var hints []string
	for i, p := range all[1:] {
		if i == shownProblems {
			hints = append(hints, fmt.Sprintf("and %d more", len(all)-1-i))
			break
		}
		hints = append(hints, p.String())
	}
	return command.Hint(err, hints...)
}
