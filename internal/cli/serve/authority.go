package serve

import (
	"context"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

const authorityLong = `
Signs people in at the space until it is interrupted: answers the broker about each connection, and gives tokens for sign-ins at the
identity provider. It works beside the mesh's own part with --replica, or in its place when the mesh was started with
--no-authority. One process, the primary, also does the work that one does for all; a second one without --replica is refused, and
a replica takes over when the primary is gone.

It ends with an error when it cannot begin within 30 seconds, or when the secret store does not answer any more.
`

const authorityExample = `
  cotal serve authority
  cotal serve authority --replica --space main
`

type authority struct {
	replica  bool
	exchange target.Exchange
}

func newAuthority(t *command.Tree) *cobra.Command {
	a := &authority{}
	c := t.Add(command.Spec{
		Use: "authority [flags]", Short: "Sign people in at a space", Long: authorityLong, Example: authorityExample,
	}, a)
	c.Flags().BoolVar(&a.replica, "replica", false, "serve beside the primary, and take over from it")
	a.exchange.AddFlags(c)
	return c
}

// Signing is the line that `cotal serve authority --json` prints once it serves.
type Signing struct {
	command.V
	Space wire.Space `json:"space"`
	Role  string     `json:"role"`
	cotal.PeopleStatus
}

// Run serves until ctx ends.
func (a *authority) Run(ctx context.Context, e *command.Env) error {
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	opts, err := a.options(t)
	if err != nil {
		return err
	}
	node, err := t.Node(ctx)
	if err != nil {
		return err
	}
	var printed error
	err = node.ServeAuthority(ctx, string(t.Space()), a.replica, opts, func(st cotal.PeopleStatus) {
		printed = e.Print(Signing{V: command.V1, Space: t.Space(), Role: "authority", PeopleStatus: st}, func(p *command.Printer) {
			p.Line("signing people in at space %s, tokens at %s; Ctrl-C stops", t.Space(), st.URL)
			if st.PublicURL != "" {
				p.Line("  elsewhere: cotal login %s", command.Safe(st.PublicURL))
			}
		})
	})
	if err != nil {
		return t.Explain(err)
	}
	return printed
}

// options are what the project remembers for every process, and the flags for this one. It leaves how it is reached in a file of
// its own, beside that of the node.
func (a *authority) options(t *target.Target) (cotal.PeopleOptions, error) {
	var opts cotal.PeopleOptions
	p := t.Config.Project
	if p == nil {
		_, err := t.Store()
		return opts, err
	}
	s, err := p.Settings()
	if err != nil {
		return opts, err
	}
	flags, err := a.exchange.Over(config.People{Advertise: s.People.Advertise, RequireKeyProof: s.People.RequireKeyProof})
	if err != nil {
		return opts, err
	}
	opts = target.PeopleOptions(flags)
	state := p.StateOf(s)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return opts, wire.Errorf(wire.CodeFailedPrecondition, "make state folder: %v", err)
	}
	opts.CapabilityFile = func(space string) string { return target.CapabilityFile(state, space, strconv.Itoa(os.Getpid())) }
	return opts, nil
}
