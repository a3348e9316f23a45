package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/buildinfo"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

const versionLong = `
Prints which build this is: its version and commit, the version of the wire contract it speaks, and the version of the
broker inside it.
`

const versionExample = `
  cotal version
  cotal version --json
`

type version struct{}

func newVersion(t *command.Tree) *cobra.Command {
	return t.Add(command.Spec{Use: "version [flags]", Short: "Print which build this is", Long: versionLong, Example: versionExample, Target: command.TargetNone}, version{})
}

// VersionResult is what `cotal version --json` prints.
type VersionResult struct {
	command.V
	buildinfo.Info
	Protocol string `json:"protocol"`
	Broker   string `json:"broker"` // of the embedded nats-server
}

// Run prints.
func (version) Run(_ context.Context, e *command.Env) error {
	res := VersionResult{V: command.V1, Info: buildinfo.Read(), Protocol: wire.ProtocolVersion, Broker: broker.Version}
	return e.Print(res, func(p *command.Printer) {
		p.Line("cotal %s", res.Version)
		if res.Revision != "" {
			changed := ""
			if res.Modified {
				changed = ", with changes"
			}
			p.Line("  commit: %s of %s%s", res.Revision, res.Time.Format(time.DateOnly), changed)
		}
		p.Line("  contract: %s", res.Protocol)
		p.Line("  broker: nats-server %s", res.Broker)
		p.Line("  built with: %s for %s", res.Go, res.Platform)
	})
}
