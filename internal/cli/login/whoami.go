package login

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	signin "github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const whoamiLong = `
Says who you are, asked of the mesh anew. Where people sign in: the owner that the mesh derives from your sign-in, the actor that you
act under, what that was granted, and where the session is kept. Where credential files are used, and in the shell of an agent: the
name that commands here speak under, or the holder of --creds, what it may do, and what says so.

Exit code 3 means that nobody is signed in, or that nothing is granted; what is known is shown in any case.
`

const whoamiExample = `
  cotal whoami
  cotal whoami --creds ./nova.creds
  cotal whoami https://mesh.example --json
`

// whoami says who a person is.
type whoami struct{ address string }

// NewWhoami adds `cotal whoami`.
func NewWhoami(t *command.Tree) *cobra.Command {
	w := &whoami{}
	return t.Add(command.Spec{
		Use: "whoami [mesh] [flags]", Short: "Say who you are", Long: whoamiLong, Example: whoamiExample,
		Args: command.Maybe("mesh", &w.address), Target: command.TargetPerson, Complete: addresses,
	}, w)
}

// Result is what `cotal login --json`, at its end, and `cotal whoami --json` print.
type Result struct {
	command.V
	Space  string `json:"space"`
	Mesh   string `json:"mesh"` // its address, or the folder of its project
	Issuer string `json:"issuer"`
	// Owner and Actor are who speaks: <owner>.<actor>. Absent when the mesh let nobody in.
	Owner string `json:"owner,omitempty"`
	Actor string `json:"actor,omitempty"`
	// Granted is what the actor may do.
	Granted *Granted `json:"granted,omitempty"`
	// Denied is why the mesh lets nobody in.
	Denied  *Denied `json:"denied,omitempty"`
	Session Session `json:"session"`

	denial error
}

// Granted is what an actor may do.
type Granted struct {
	Role      string   `json:"role,omitempty"`
	Scope     []string `json:"scope"`
	Subscribe []string `json:"allowSubscribe"`
	Publish   []string `json:"allowPublish"`
	// Profile is that of a credential file, which may go beyond the lists: what its holder receives as it comes and may post to.
	Profile string   `json:"profile,omitempty"`
	Reads   []string `json:"reads,omitzero"`
	Posts   []string `json:"posts,omitzero"`
}

// Denied is a refusal of the mesh.
type Denied struct {
	Reason  trust.Reason `json:"reason"`
	Message string       `json:"message"`
}

// Session is the sign-in at the identity provider.
type Session struct {
	Kind     string    `json:"kind"` // keyring, file or passphrase: where its key is
	Dir      string    `json:"dir"`
	Obtained time.Time `json:"obtained"`
	Expires  time.Time `json:"expires,omitzero"` // absent when the provider did not say
}

func newResult(p *target.People, s signin.Session, kind string) *Result {
	return &Result{V: command.V1, Space: p.Record.Space, Mesh: p.Where(), Issuer: p.Record.Issuer, Session: Session{
		Kind: kind, Dir: p.SessionDir(), Obtained: s.Obtained.UTC().Truncate(time.Second), Expires: s.Expires.UTC().Truncate(time.Second),
	}}
}

// ask has the mesh say who the session is. A refusal is part of the result.
func (r *Result) ask(ctx context.Context, p *target.People) error {
	who, err := p.Person(ctx, trust.ViewNone)
	if err != nil {
		return err
	}
	b, err := who.Bearer(ctx)
	switch reason := trust.ReasonOf(err); {
	case err == nil:
	case reason == "" || wire.CodeOf(err) == wire.CodeUnavailable:
		return err
	default:
		r.Denied, r.denial = &Denied{Reason: reason, Message: err.Error()}, err
		return nil
	}
	r.Owner, r.Actor = b.Owner, b.Actor
	r.Granted = &Granted{Role: b.Role, Scope: list(b.Scope), Subscribe: list(b.Subscribe), Publish: list(b.Publish)}
	return nil
}

func list(in []string) []string {
	if in == nil {
		return []string{}
	}
	return in
}

// human writes the result but for a refusal.
func (r *Result) human(p *command.Printer) {
	if r.Owner != "" {
		you(p, r.Owner, r.Actor, r.Granted)
	}
	p.Line("  mesh:     %s", command.Safe(r.Mesh))
	p.Line("  provider: %s", command.Safe(r.Issuer))
	line := "in " + r.Session.Dir
	if r.Session.Kind == signin.KindKeyring {
		line += ", its key in the keyring of this system"
	}
	if !r.Session.Expires.IsZero() {
		line += ", until " + r.Session.Expires.Local().Format(time.RFC3339)
	}
	p.Line("  session:  %s", command.Safe(line))
}

// you writes who somebody is and, unless nothing limits it, what they may do.
func you(p *command.Printer, owner, actor string, g *Granted) {
	p.Line("  you are:  %s", p.Bold(command.Safe(owner+"."+actor)))
	if g == nil {
		return
	}
	if g.Profile == "" || g.Profile == string(trust.Agent) {
		p.Line("  read:     %s", channels(g.Subscribe))
		p.Line("  post:     %s", channels(g.Publish))
	} else {
		p.Line("  profile:  %s", command.Safe(g.Profile))
		p.Line("  read:     %s, as messages come", channels(g.Reads))
		p.Line("  history:  %s", channels(g.Subscribe))
		p.Line("  post:     %s", channels(g.Posts))
	}
	if g.Role != "" {
		p.Line("  role:     %s", command.Safe(g.Role))
	}
	if len(g.Scope) > 0 {
		p.Line("  scope:    %s", words(g.Scope))
	}
}

func channels(patterns []string) string {
	if slices.Contains(patterns, ">") {
		return "every channel"
	}
	return words(patterns)
}

func words(in []string) string {
	if len(in) == 0 {
		return "nothing"
	}
	return command.Safe(strings.Join(in, ", "))
}

// Run looks at the session, or at what stands for one, and asks the mesh.
func (w *whoami) Run(ctx context.Context, e *command.Env) error {
	if w.address != "" && (e.Flags.Creds != "" || e.Flags.Server != "") {
		return command.Usagef("whoami %s: an address asks about a session there, --creds and --server about a credential file", w.address)
	}
	if w.address == "" {
		if done, err := self(ctx, e); done || err != nil {
			return err
		}
	}
	p, err := find(ctx, e, w.address)
	if err != nil {
		return err
	}
	s, err := p.Session(ctx)
	if err != nil {
		return err
	}
	_, kind, err := p.Source(ctx)
	if err != nil {
		return err
	}
	res := newResult(p, s, kind)
	asked := res.ask(ctx, p)
	if err := e.Print(res, func(pr *command.Printer) {
		pr.Line("space %s", pr.Bold(res.Space))
		res.human(pr)
	}); err != nil {
		return err
	}
	if asked != nil {
		return asked
	}
	return res.denial
}

// find is the space that a command about a session means. Nobody is asked.
func find(ctx context.Context, e *command.Env, address string) (*target.People, error) {
	if address != "" {
		return target.Known(e, address)
	}
	_, p, err := people(ctx, e)
	return p, err
}
