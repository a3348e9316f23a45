package actor

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const showLong = `
Shows everything about one name: its grant, everybody above it and whether what it holds is within what they hold, who is held under it,
the credentials and connections that the issuance log knows and that have not expired, and the last audit records about it.
`

const showExample = `
  cotal actor show ada
  cotal actor show ada --owner u_g5mclrofwa6pirb3p4yeigemze --json
`

// lastRecords is how many audit records are shown.
const lastRecords = 5

type show struct {
	whose
	name string
}

func newShow(t *command.Tree) *cobra.Command {
	s := &show{}
	c := t.Add(command.Spec{
		Use: "show <name> [flags]", Short: "Show everything about one name", Long: showLong, Example: showExample,
		Args: command.One("name", &s.name), Complete: names,
	}, s)
	s.whose.flags(t, c)
	return c
}

// ShowResult is what `cotal actor show --json` prints.
type ShowResult struct {
	command.V
	Space wire.Space `json:"space"`
	Grant Row        `json:"grant"`
	// Above are those that it is held under, nearest first.
	Above []Above `json:"above"`
	// Refused says why it may do nothing now, and Repair the command that narrows it to what those above hold, when that is why.
	Refused string `json:"refused,omitempty"`
	Repair  string `json:"repair,omitempty"`
	Below   []Row  `json:"below"`
	Live    []Live `json:"live"`
	// Audit are the last records about it, newest last.
	Audit []space.AuditEntry `json:"audit"`
}

// Above is one grant above, and what the one below it holds beyond it.
type Above struct {
	Row
	Excess *Rights `json:"excess,omitempty"`
}

// Live is a credential, or a connection that was let in, which has not expired.
type Live struct {
	Key        string    `json:"key"`
	Connection bool      `json:"connection,omitempty"`
	Issued     time.Time `json:"issued"`
	Expires    time.Time `json:"expires"`
}

// Run shows.
func (s *show) Run(ctx context.Context, e *command.Env) error {
	name, err := checkName(s.name, &s.whose)
	if err != nil {
		return err
	}
	t, node, err := target.OpenNode(ctx, e, "actor")
	if err != nil {
		return err
	}
	defer t.Close()
	g, _, err := s.chosen(ctx, t, node, name, "show")
	if err != nil {
		return t.Explain(err)
	}
	in, err := node.Authority().Inspect(ctx, t.Space(), g.Principal())
	if err != nil {
		return t.Explain(err)
	}
	res := shown(t.Space(), in)
	res.Audit, _, err = node.Authority().Audit(ctx, t.Space(), space.AuditQuery{Principal: g.Principal(), Limit: lastRecords, Newest: true})
	if err != nil {
		return t.Explain(err)
	}
	if res.Audit == nil {
		res.Audit = []space.AuditEntry{}
	}
	return e.Print(res, res.human)
}

// chosen returns the grant that a command means, and whether the space is one of people.
func (w *whose) chosen(ctx context.Context, t *target.Target, node *cotal.NodeClient, name, verb string) (trust.Grant, bool, error) {
	people, err := node.Authority().People(ctx, t.Space())
	if err != nil {
		return trust.Grant{}, false, err
	}
	all, err := node.Authority().List(ctx, t.Space())
	if err != nil {
		return trust.Grant{}, people, err
	}
	owner, err := w.resolve(ctx, t, people, all)
	if err != nil {
		return trust.Grant{}, people, err
	}
	g, err := find(all, name, owner, verb)
	return g, people, err
}

func shown(s wire.Space, in auth.Inspection) ShowResult {
	res := ShowResult{V: command.V1, Space: s, Grant: rowOf(in.Grant), Above: []Above{}, Below: []Row{}, Live: []Live{}, Repair: in.Fitting()}
	if in.Refused != nil {
		res.Refused = in.Refused.Error()
	}
	for _, l := range in.Above {
		a := Above{Row: rowOf(l.Grant)}
		if x := l.Excess; !x.Empty() {
			a.Excess = &Rights{Scope: x.Scope, Subscribe: x.Subscribe, Publish: x.Publish, Role: x.Role}
		}
		res.Above = append(res.Above, a)
	}
	for _, g := range in.Below {
		if g.State != trust.GrantRetired {
			res.Below = append(res.Below, rowOf(g))
		}
	}
	for _, m := range in.Live {
		res.Live = append(res.Live, Live{Key: m.UserKey, Connection: m.Connection, Issued: m.Issued, Expires: m.Expires})
	}
	return res
}

func (r ShowResult) human(p *command.Printer) {
	g := r.Grant
	p.Line("%s in space %s: %s, %s", p.Bold(g.who()), r.Space, g.Kind, g.state())
	g.lines(p, "  ")
	p.Line("  granted %s by %s, expires %s; life %s, epoch %d", view.When(g.Created), command.Safe(g.By), g.expires(), g.UID, g.Epoch)
	if g.Unfinished {
		p.Line("  rights were taken away, and what was open before may still be; finish it: cotal doctor auth --fix")
	}
	if r.Refused != "" {
		p.Line("  refused now: %s", command.Safe(r.Refused))
	}
	if r.Repair != "" {
		p.Line("  to narrow it to what those above hold: %s", command.Safe(r.Repair))
	}
	for _, a := range r.Above {
		p.Line("held under %s: %s, %s", a.who(), a.Kind, a.state())
		a.lines(p, "  ")
		for _, line := range a.Excess.lines() {
			p.Line("  below it more is held: %s", command.Safe(line))
		}
	}
	if len(r.Below) > 0 {
		p.Line("%s held under it:", plural(len(r.Below), "actor"))
		rows := make([][]string, len(r.Below))
		for i, b := range r.Below {
			rows[i] = []string{"  " + b.Name, b.Kind, b.state(), list(b.Scope), list(b.Subscribe), list(b.Publish), b.expires()}
		}
		p.Table([]string{"  name", "kind", "state", "scope", "read list", "post list", "expires"}, rows)
	}
	r.humanLive(p)
	if len(r.Audit) > 0 {
		p.Line("last audit records:")
	}
	for _, en := range r.Audit {
		p.Line("  %s", view.Audit(p, en))
	}
}

func (r ShowResult) humanLive(p *command.Printer) {
	if len(r.Live) == 0 {
		p.Line("no credential and no connection of it is alive")
		return
	}
	rows := make([][]string, len(r.Live))
	for i, l := range r.Live {
		kind := "credential"
		if l.Connection {
			kind = "connection"
		}
		rows[i] = []string{"  " + kind, l.Key, view.When(l.Issued), view.When(l.Expires)}
	}
	p.Line("issued and not expired, the newest last:")
	p.Table([]string{"  kind", "key", "issued", "expires"}, rows)
}

// lines says what the grant allows.
func (r Row) lines(p *command.Printer, indent string) {
	p.Line("%sreads %s; posts to %s; scope %s", indent, none(r.Subscribe), none(r.Publish), none(r.Scope))
	if r.Role != "" {
		p.Line("%stakes messages of role %s", indent, r.Role)
	}
	if r.Label != "" {
		p.Line("%slabel: %s", indent, command.Safe(r.Label))
	}
}

func none(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return list(s)
}
