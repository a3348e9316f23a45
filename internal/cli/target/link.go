package target

import (
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

// OpenLink is Open for a command that may be given a link; nil is no link. The link says where to go; flags that say
// something else contradict it. Without a credential it leads to an open mesh.
func OpenLink(e *command.Env, link *wire.Link) (*Target, error) {
	if link == nil {
		return Open(e)
	}
	if e.Flags.Server != "" || e.Flags.Space != "" {
		return nil, command.Usagef("a link and --server or --space exclude each other")
	}
	named := *e
	named.Flags.Server, named.Flags.Space = link.URL(), string(link.Space)
	t, err := Open(&named)
	if err != nil {
		return nil, err
	}
	t.link = link
	const source config.Source = "link"
	t.Config.Server.Source, t.Config.Space.Source = source, source
	return t, nil
}
