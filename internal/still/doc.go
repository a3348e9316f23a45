// Package still keeps the processes that stand beside an agent from working while it is idle.
//
// They are the same program as everything else, so packages are initialised in them that they never use. One of them, server/pse of
// nats-server, begins at its initialisation to read its own processor time from /proc once a second, for ever, unless the first reading
// fails. A hundred idle seats would spend 3 % of a core on that.
//
// So in a process that is started as one of [Commands] no file can be opened from the initialisation of this package until [Release],
// which main calls first. The language initialises packages that depend on nothing open in the order of their paths, and this one
// depends on the standard library alone and comes before that of nats-server.
package still

import (
	"os"
	"slices"
)

// Commands returns those that run as long as an agent does and no broker.
func Commands() []string { return []string{"seat", "script", "mcp"} }

func wanted() bool { return len(os.Args) > 1 && slices.Contains(Commands(), os.Args[1]) }
