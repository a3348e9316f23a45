package login

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

const logoutLong = `
Ends your session at the identity provider of a mesh, where that can be told (RFC 7009), and deletes it here in any case. Tokens that the
mesh gave last for some minutes more; the operator ends them at once with cotal actor revoke.

The mesh is remembered, so that cotal login finds it again; with --forget it is not.
`

const logoutExample = `
  cotal logout
  cotal logout https://mesh.example --forget
`

// logout ends a session.
type logout struct {
	address string
	forget  bool
}

// NewLogout adds `cotal logout`.
func NewLogout(t *command.Tree) *cobra.Command {
	l := &logout{}
	c := t.Add(command.Spec{
		Use: "logout [mesh] [flags]", Short: "End your session", Long: logoutLong, Example: logoutExample,
		Args: command.Maybe("mesh", &l.address), Target: command.TargetSpace, Complete: addresses,
	}, l)
	c.Flags().BoolVar(&l.forget, "forget", false, "forget the mesh, too")
	return c
}

// LogoutResult is what `cotal logout --json` prints.
type LogoutResult struct {
	command.V
	Space  string `json:"space"`
	Mesh   string `json:"mesh"`
	Issuer string `json:"issuer"`
	// Provider is told when the provider ended the session, unable when it has no way to be told, untold when it did not answer.
	Provider string `json:"provider"`
	Forgot   bool   `json:"forgot"`
}

// What became of the session at the provider.
const (
	providerTold   = "told"
	providerUnable = "unable"
	providerUntold = "untold"
)

// Run ends the session.
func (l *logout) Run(ctx context.Context, e *command.Env) error {
	p, err := find(ctx, e, l.address)
	if err != nil {
		return err
	}
	src, _, err := p.Source(ctx)
	if err != nil {
		return err
	}
	res := LogoutResult{V: command.V1, Space: p.Record.Space, Mesh: p.Where(), Issuer: p.Record.Issuer, Provider: providerTold, Forgot: l.forget}
	if s, err := src.Session(ctx); err == nil && s.Provider.RevocationEndpoint == "" {
		res.Provider = providerUnable
	}
	err = src.Logout(ctx)
	nobody := errors.Is(err, wire.ErrNotFound)
	switch {
	case nobody && !l.forget:
		return command.Hint(wire.Errorf(wire.CodeNotFound, "nobody is signed in at space %q", p.Record.Space), "sign in: "+p.LoginCommand())
	case nobody:
		res.Provider = providerUnable
	case errors.Is(err, wire.ErrUnavailable):
		if _, left := src.Session(ctx); !errors.Is(left, wire.ErrNotFound) {
			return err
		}
		res.Provider = providerUntold
	case err != nil:
		return err
	}
	if l.forget {
		if err := p.Forget(); err != nil {
			return err
		}
	}
	return e.Print(res, func(pr *command.Printer) {
		if !nobody {
			pr.Line("signed out of space %s", pr.Bold(res.Space))
		}
		if res.Provider == providerUntold {
			pr.Line("  the provider %s could not be told; there the session ends by itself", command.Safe(res.Issuer))
		}
		if l.forget {
			pr.Line("  forgot %s", command.Safe(res.Mesh))
		}
	})
}
