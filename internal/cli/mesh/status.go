package mesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/wire"
)

const statusLong = `
Asks the mesh what it is doing and shows the answer: the broker, every space with the state of its services, how the
delivery service of the space answers at this moment, and who is present. Nothing is taken from a file but the address to
ask, and an answer that does not come is told within ten seconds.

Exit code 0 means that every space is served; 7 that the mesh, one of its spaces or the delivery service does not serve, or does
not answer. With --creds only the space of the credential is shown.
`

const statusExample = `
  cotal status
  cotal status --space lab --json
`

// status shows a mesh.
type status struct{}

// NewStatus adds `cotal status`.
func NewStatus(t *command.Tree) *cobra.Command {
	return t.Add(command.Spec{Use: "status [flags]", Short: "Show what runs, asked live", Long: statusLong, Example: statusExample, Target: command.TargetPerson}, &status{})
}

// StatusResult is what `cotal status --json` prints.
type StatusResult struct {
	command.V
	Root string `json:"root,omitempty"`
	URL  string `json:"url"`
	// Node is the node's own answer; absent with --creds and for an open mesh, which has no node service.
	Node *cotal.Status `json:"node,omitempty"`
	// Delivery is what the delivery service of the space said about itself when it was asked just now; absent when it gave
	// no answer.
	Delivery *control.Health `json:"delivery,omitempty"`
	// Space is the space that was looked into, Present who is there.
	Space   string        `json:"space"`
	Present []target.Peer `json:"present"`
	// Stale is set when delivery itself has lost sight of the space since then.
	Stale time.Time `json:"staleSince,omitzero"`

	seen bool // somebody could say who is present
}

// Run asks the node, then the space.
func (s *status) Run(ctx context.Context, e *command.Env) error {
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	c := t.Config
	if err := t.Running(); err != nil {
		return err
	}
	res := StatusResult{V: command.V1, URL: c.Server.Value, Space: c.Space.Value, Present: []target.Peer{}}
	if c.Project != nil {
		res.Root = c.Project.Root
	}
	if !t.Foreign() {
		if err := s.askNode(ctx, t, &res); err != nil {
			return err
		}
	}
	problem := s.askSpace(ctx, t, &res)
	if errors.Is(problem, wire.ErrNotFound) {
		return problem // another space was meant
	}
	if err := e.Print(res, res.human); err != nil {
		return err
	}
	if res.Node != nil {
		if err := unserved(spaceLines(*res.Node)); err != nil {
			return err
		}
	}
	return problem
}

func (s *status) askNode(ctx context.Context, t *target.Target, res *StatusResult) error {
	node, err := t.Node(ctx)
	if err != nil {
		return err
	}
	st, err := node.Status(ctx)
	if err != nil {
		return t.Explain(err)
	}
	st.URL = t.Config.Server.Value
	res.Node = &st
	return nil
}

// healthWithin bounds the question to the delivery service, so that what is known is shown in time.
const healthWithin = 3 * time.Second

// askSpace fills in how delivery is and who is present. Its error is reported after what is known has been shown.
func (s *status) askSpace(ctx context.Context, t *target.Target, res *StatusResult) error {
	ep, err := t.Endpoint(ctx, target.Looking)
	if err != nil {
		return err
	}
	defer func() { _ = ep.Close() }()
	all, err := ep.Health(ctx, wire.DeliveryEndpoint, healthWithin, 1)
	if len(all) == 0 {
		return noAnswer(string(ep.Space()), err)
	}
	res.Delivery = &all[0]
	if res.Present, res.Stale, err = target.Roster(ctx, ep, false); err != nil {
		return err
	}
	res.seen = true
	return ailing(string(ep.Space()), res.Delivery)
}

// noAnswer is the error of a delivery service that gave no answer.
func noAnswer(space string, why error) error {
	if !target.Silent(why) {
		return why
	}
	err := wire.Errorf(wire.CodeUnavailable, "delivery of space %q does not answer within %s", space, healthWithin)
	return command.Hint(err, "its process hangs, is stopped or is not there; messages are stored meanwhile", "start the mesh again: cotal down, then cotal up --detach")
}

// ailing is an error when delivery says of itself that it does not serve.
func ailing(space string, h *control.Health) error {
	if h.Ready {
		return nil
	}
	why := string(h.State)
	for _, c := range h.Checks {
		if !c.OK {
			why += ", " + c.Name + ": " + c.Reason
		}
	}
	return wire.Errorf(wire.CodeUnavailable, "delivery of space %q answers and does not serve: %s", space, why)
}

func (r StatusResult) human(p *command.Printer) {
	p.Line("mesh %s", p.Bold(r.URL))
	if r.Root != "" {
		p.Line("  project: %s", r.Root)
	}
	if n := r.Node; n != nil {
		p.Line("  node: version %s, pid %d, up %s, %s", n.Version, n.PID, since(n.Started), n.Mode)
		p.Line("  broker: nats-server %s, %d connections, %s memory, %s stored", n.Broker.Version, n.Broker.Connections, size(uint64(n.Broker.ProcessBytes)), size(n.Broker.StoreBytes))
		p.Line("  durability: %s", durability(n.Durability))
		for _, s := range spaceLines(*n) {
			line := "  space " + s.Name + ": " + s.words()
			if s.Error != "" {
				line += ", " + command.Safe(s.Error)
			}
			p.Line("%s", line)
		}
	}
	if h := r.Delivery; h != nil {
		p.Line("delivery of %s: %s, answered just now; up %s, %d requests served", r.Space, h.State, since(h.Since), h.Stats.Served)
		for _, c := range h.Checks {
			if !c.OK {
				p.Line("  %s: %s", command.Safe(c.Name), command.Safe(c.Reason))
			}
		}
	}
	if !r.seen {
		return
	}
	p.Line("present in %s: %s", r.Space, count(len(r.Present)))
	if !r.Stale.IsZero() {
		p.Line("  as of %s: delivery has lost sight of the space since", r.Stale.Local().Format(time.TimeOnly))
	}
	if len(r.Present) > 0 {
		rows := make([][]string, len(r.Present))
		for i, m := range r.Present {
			rows[i] = []string{"  " + m.Principal, m.Status, m.Role, m.Activity}
		}
		p.Table([]string{"  principal", "status", "role", "activity"}, rows)
	}
}

func since(t time.Time) string { return time.Since(t).Round(time.Second).String() }

func count(n int) string {
	if n == 0 {
		return "nobody"
	}
	return fmt.Sprint(n)
}

// size writes bytes for a person.
func size(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 4 {
		v /= unit
		i++
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + []string{"KiB", "MiB", "GiB", "TiB", "PiB"}[i]
}
