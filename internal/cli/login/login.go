package login

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	signin "github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const loginLong = `
Signs you in at the identity provider of a mesh: it shows an address and a code, you approve there in a browser, on any device. Then
every command works as you, until the provider ends the session. Without an operand it is the mesh that other commands mean here; with
the address that its operator gave you it is a mesh elsewhere, which becomes the current one of this machine.

The session is kept sealed in the folder of this machine, its key in the keyring of the system where there is one; COTAL_SESSIONS=file
or =keyring chooses. It holds no credential of the mesh: those are asked for as they are needed and last minutes.

What you may do is granted by the operator. When that is nothing yet, the command says what to ask for, and you stay signed in.
Ctrl-C ends it and leaves nothing.
`

const loginExample = `
  cotal login
  cotal login https://mesh.example --as ada
  cotal login https://mesh.internal --ca company.pem
`

// login signs a person in.
type login struct {
	address   string
	actor     string
	noBrowser bool
}

// NewLogin adds `cotal login`.
func NewLogin(t *command.Tree) *cobra.Command {
	l := &login{}
	c := t.Add(command.Spec{
		Use: "login [mesh] [flags]", Short: "Sign in at a mesh", Long: loginLong, Example: loginExample,
		Args: command.Maybe("mesh", &l.address), Target: command.TargetSpace, Complete: addresses,
	}, l)
	f := c.Flags()
	f.StringVar(&l.actor, "as", "", "actor to act under, one that you were granted (default: the only one)")
	f.StringVar(&t.Env.Flags.CA, "ca", "", "file of certificates to trust besides the system's; remembered for this mesh")
	f.BoolVar(&l.noBrowser, "no-browser", false, "only print the address, do not open a browser")
	return c
}

// addresses proposes the meshes elsewhere that this machine remembers.
func addresses(_ context.Context, e *command.Env, args []string) []string {
	cfg, err := e.Config()
	if err != nil || len(args) > 0 {
		return nil
	}
	all, err := cfg.Machine.SignIns()
	if err != nil {
		return nil
	}
	var out []string
	for _, s := range all {
		if s.Remote() {
			out = append(out, s.URL)
		}
	}
	return out
}

// Code is the first line that `cotal login --json` prints: what the person has to approve.
type Code struct {
	command.V
	Issuer          string    `json:"issuer"`
	ClientID        string    `json:"clientId"`
	UserCode        string    `json:"userCode"`
	VerificationURI string    `json:"verificationUri"`
	Complete        string    `json:"verificationUriComplete,omitempty"`
	Expires         time.Time `json:"expires"`
}

// Run signs in, keeps the session, and says who that is.
func (l *login) Run(ctx context.Context, e *command.Env) error {
	if l.actor != "" {
		if err := target.CheckActor(l.actor); err != nil {
			return err
		}
	}
	p, info, err := l.find(ctx, e)
	if err != nil {
		return err
	}
	src, kind, err := p.Source(ctx)
	if err != nil {
		return err
	}
	before, err := src.Session(ctx)
	if err != nil && !errors.Is(err, wire.ErrNotFound) && !errors.Is(err, wire.ErrPrecondition) { // what cannot be read is replaced
		return err
	}
	hc, err := p.HTTP()
	if err != nil {
		return err
	}
	session, err := signin.Device(ctx, info.Provider, &signin.DeviceOptions{
		HTTP:   hc,
		Prompt: func(_ context.Context, pr signin.Prompt) error { return l.show(e, info, pr) },
		Progress: func(pr signin.Progress) {
			if pr.Err != nil {
				e.Progress("%v; going on until %s", pr.Err, pr.Expires.Local().Format(time.TimeOnly))
			}
		},
	})
	if errors.Is(ctx.Err(), context.Canceled) {
		return command.Undonef("cancelled; nobody was signed in")
	}
	if err != nil {
		return target.Unverified(err)
	}
	if err := src.SignIn(ctx, session); err != nil {
		return err
	}
	if l.actor != "" || before.Subject != session.Subject {
		p.Record.Actor = l.actor // of somebody else the choice says nothing
	}
	if err := p.Save(); err != nil {
		return err
	}
	res := newResult(p, session, kind)
	asked := res.ask(ctx, p)
	if err := e.Print(res, func(pr *command.Printer) {
		pr.Line("signed in at space %s", pr.Bold(res.Space))
		res.human(pr)
		if res.Denied != nil { // being granted something comes after signing in
			pr.Line("%s", command.Safe(res.Denied.Message))
			for _, h := range command.Hints(res.denial) {
				pr.Line("%s", command.Safe(h))
			}
		}
	}); err != nil {
		return err
	}
	return asked
}

// find is the space to sign in at, and how.
func (l *login) find(ctx context.Context, e *command.Env) (*target.People, signin.MeshInfo, error) {
	if l.address != "" {
		return target.Elsewhere(ctx, e, l.address)
	}
	t, p, err := people(ctx, e)
	if err != nil {
		return nil, signin.MeshInfo{}, err
	}
	if err := t.Running(); err != nil {
		return nil, signin.MeshInfo{}, err
	}
	p.TrustCA(e)
	info, err := p.Describe(ctx)
	return p, info, err
}

// people is the space that the command means, as one where people sign in.
func people(ctx context.Context, e *command.Env) (*target.Target, *target.People, error) {
	t, err := target.Open(e)
	if err != nil {
		return nil, nil, err
	}
	p, err := t.People(ctx)
	if err != nil || p != nil {
		return t, p, err
	}
	if c := t.Config; c.Project == nil {
		return nil, nil, command.Hint(wire.Errorf(wire.CodeNotFound, "no project at or above %q, and nobody of this machine signed in at a mesh elsewhere", e.Dir),
			"sign in at one: cotal login https://<mesh>", "or start one of your own: cotal up --idp <issuer>")
	}
	if err := t.Known(ctx); err != nil {
		return nil, nil, err
	}
	refusal := trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode, "space %q works with credential files and signs nobody in", t.Space())
	if t.Config.Open {
		refusal = trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode, "the mesh at %s asks nobody who they are", t.Config.Server.Value)
	}
	return nil, nil, command.Hint(refusal, "commands work there without signing in", "the operator makes people sign in: cotal up --idp <issuer>")
}

// show tells the person what to approve.
func (l *login) show(e *command.Env, info signin.MeshInfo, pr signin.Prompt) error {
	if e.JSON {
		return e.Each(Code{
			V: command.V1, Issuer: info.Provider.Issuer, ClientID: info.Provider.ClientID, UserCode: pr.UserCode, VerificationURI: pr.VerificationURI, Complete: pr.VerificationURIComplete,
			Expires: pr.Expires.UTC().Truncate(time.Second),
		}, nil)
	}
	e.Note("to sign in at %s for space %s, approve client %s at %s:", command.Safe(info.Provider.Issuer), info.Space, command.Safe(info.Provider.ClientID), command.Safe(pr.VerificationURI))
	e.Note("  code: %s", command.Safe(pr.UserCode))
	address := pr.VerificationURI
	if pr.VerificationURIComplete != "" {
		address = pr.VerificationURIComplete
		e.Note("  link: %s", command.Safe(address))
	}
	if !l.noBrowser && e.Interactive() && browse(e, address) {
		e.Note("a browser opens; the code there must be the same")
	}
	e.Progress("waiting until %s; Ctrl-C ends", pr.Expires.Local().Format(time.TimeOnly))
	return nil
}
