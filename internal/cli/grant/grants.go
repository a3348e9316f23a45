package grant

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const grantsLong = `
Lists who is granted what in the space, as the authority's records say now, and when the newest credential of each name
expires. An active name stays granted when all its credentials have expired: cotal mint <name> --renew makes another.
Names that were revoked are shown with --all.

The scope is what a name may do besides: spawn starts agents, role:<role> hands that role on to them, the rest are commands.

The lists are those of the grant. The profile may go beyond them: an observer receives every channel, an operator posts to
every channel.
`

const grantsExample = `
  cotal grants
  cotal grants --all --json
`

// grants lists the grants of a space.
type grants struct {
	all bool
}

// NewGrants adds `cotal grants`.
func NewGrants(t *command.Tree) *cobra.Command {
	g := &grants{}
	c := t.Add(command.Spec{Use: "grants [flags]", Short: "List who is granted what", Long: grantsLong, Example: grantsExample}, g)
	c.Flags().BoolVar(&g.all, "all", false, "also names that were revoked")
	return c
}

// GrantsResult is what `cotal grants --json` prints.
type GrantsResult struct {
	command.V
	Space  wire.Space `json:"space"`
	Grants []Line     `json:"grants"`
}

// Line is one grant.
type Line struct {
	Principal string   `json:"principal"`
	UID       wire.UID `json:"uid"`
	Kind      string   `json:"kind"`
	State     string   `json:"state"`
	Profile   string   `json:"profile,omitempty"` // of credential files
	Role      string   `json:"role,omitempty"`
	Subscribe []string `json:"allowSubscribe"`
	Publish   []string `json:"allowPublish"`
	Commands  []string `json:"commands"` // the scope: commands and capabilities
	// Capabilities are those of the scope alone: spawn, and role:<role> for each role that agents under it may have.
	Capabilities []string `json:"capabilities"`

	Label   string     `json:"label,omitempty"`
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"` // of the newest credential that has not expired
	By      string     `json:"by,omitempty"`
	// Refused says that it is of before people signed in at the space: its credentials are refused, whenever they end.
	Refused bool `json:"refused,omitempty"`
}

func (r GrantsResult) human(p *command.Printer) {
	if len(r.Grants) == 0 {
		p.Line("nobody is granted anything in space %s", r.Space)
		return
	}
	rows := make([][]string, len(r.Grants))
	for i, g := range r.Grants {
		state := g.State
		if g.Refused {
			state = "refused"
		}
		rows[i] = []string{g.Principal, g.Kind, state, dash(g.Profile), dash(g.Role), patterns(g.Commands), patterns(g.Subscribe), patterns(g.Publish), g.Created.Local().Format(time.DateTime), g.expires(), g.Label}
	}
	p.Table([]string{"principal", "kind", "state", "profile", "role", "scope", "read list", "post list", "since", "expires", "label"}, rows)
	if slices.ContainsFunc(r.Grants, func(g Line) bool { return g.Refused }) {
		p.Line("refused: people sign in at space %s now, and a static grant, of a credential file, lets nobody in any more", r.Space)
	}
}

// expires is when the newest credential ends, in words.
func (l Line) expires() string {
	switch {
	case l.State != string(trust.GrantActive) || l.Refused:
		return "-"
	case l.Expires == nil:
		return "expired"
	}
	return l.Expires.Local().Format(time.DateTime)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func patterns(s []string) string { return dash(strings.Join(s, ",")) }

// Run lists.
func (g *grants) Run(ctx context.Context, e *command.Env) error {
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	node, err := t.Node(ctx)
	if err != nil {
		return err
	}
	people, err := node.Authority().People(ctx, t.Space())
	if err != nil {
		return t.Explain(err)
	}
	all, err := node.Authority().List(ctx, t.Space())
	if err != nil {
		return t.Explain(err)
	}
	res := GrantsResult{V: command.V1, Space: t.Space(), Grants: []Line{}}
	for _, gr := range all {
		if gr.State == trust.GrantRetired && !g.all {
			continue
		}
		expires, err := newest(ctx, node.Authority(), t.Space(), gr)
		if err != nil {
			return t.Explain(err)
		}
		res.Grants = append(res.Grants, Line{
			Principal: gr.Principal().String(), UID: gr.UID, Kind: string(gr.Kind), State: string(gr.State), Profile: string(gr.Profile), Role: gr.Role,
			Subscribe: orEmpty(gr.AllowSubscribe), Publish: orEmpty(gr.AllowPublish), Commands: orEmpty(gr.Scope), Label: gr.Label,
			Capabilities: capabilities(gr.Scope), Created: gr.CreatedAt, Expires: expires, By: gr.By,
			Refused: people && gr.Kind == trust.KindStatic && gr.State == trust.GrantActive,
		})
	}
	return e.Print(res, res.human)
}

// capabilities are what a scope holds besides commands.
func capabilities(scope []string) []string {
	commands := trust.ScopeCommands(scope)
	return slices.DeleteFunc(append([]string{}, scope...), func(s string) bool { return slices.Contains(commands, s) })
}

// newest is when the last of the credentials of an active grant expires; nil when all have.
func newest(ctx context.Context, a *auth.Authority, s wire.Space, g trust.Grant) (*time.Time, error) {
	if g.State != trust.GrantActive {
		return nil, nil
	}
	mints, err := a.Credentials(ctx, s, g.UID)
	if err != nil {
		return nil, err
	}
	var last *time.Time
	for _, m := range mints {
		if m.Expires.After(time.Now()) && (last == nil || m.Expires.After(*last)) {
			last = &m.Expires
		}
	}
	return last, nil
}
