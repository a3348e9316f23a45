package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const statusLong = `
Asks the mesh what it is doing and shows the answer: the broker, every space with the state of its services, how the
delivery service of the space answers at this moment, and who is present. Nothing is taken from a file but the address to
ask, and an answer that does not come is told within ten seconds. A mesh whose folder was moved while it ran is said to be one.

Agents are counted by their states; cotal ps shows each of them. Supervisors in processes of their own are named, also those that do not
answer or left while their agents went on.

Of a space where people sign in it says at which provider, and how what signs them in is. Who is present there is shown to who
has signed in.

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
	// MovedFrom is where the mesh was started and still writes, when its folder was moved since.
	MovedFrom string `json:"movedFrom,omitempty"`
	URL       string `json:"url"`
	// Node is the node's own answer; absent with --creds and for an open mesh, which has no node service.
	Node *cotal.Status `json:"node,omitempty"`
	// Delivery is what the delivery service of the space said about itself when it was asked just now; absent when it gave
	// no answer.
	Delivery *control.Health `json:"delivery,omitempty"`
	// Deliveries are the answers of all its processes when more than one answered, Silent counts those that are connected
	// and gave none.
	Deliveries []control.Health `json:"deliveries,omitempty"`
	Silent     int              `json:"silent,omitempty"`
	// Authorities counts, for each space that processes of their own sign people in at, how many of them are connected.
	Authorities map[string]int `json:"authorities,omitempty"`
	// Supervisors are, by space, the supervisors beside the mesh's own, and SupervisorsUnknown why they could not be asked.
	Supervisors        map[string][]cotal.SupervisorPeer `json:"supervisors,omitempty"`
	SupervisorsUnknown map[string]string                 `json:"supervisorsUnknown,omitempty"`
	// Space is the space that was looked into, Present who is there; absent when nobody could say.
	Space   string        `json:"space"`
	Present []target.Peer `json:"present,omitzero"`
	// Withheld is why who is present is not shown although somebody could say.
	Withheld string `json:"withheld,omitempty"`
	// Stale is set when delivery itself has lost sight of the space since then.
	Stale time.Time `json:"staleSince,omitzero"`

	answers []control.Health
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
	res := StatusResult{V: command.V1, URL: c.Server.Value, Space: c.Space.Value}
	if c.Project != nil {
		res.Root, res.MovedFrom = c.Project.Root, target.Moved(c)
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
		if err := unserved(res.spaces()); err != nil {
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
	askSupervisors(ctx, node, res)
	for _, s := range st.Spaces {
		if s.People == nil || s.People.Exchange != stateElsewhere {
			continue
		}
		if n, err := node.Authorities(ctx, s.Name); err == nil { // else nothing can be said
			if res.Authorities == nil {
				res.Authorities = map[string]int{}
			}
			res.Authorities[s.Name] = n
		}
	}
	return nil
}

// spaces are those of the node, with what the broker says of who signs people in.
func (r StatusResult) spaces() []SpaceLine {
	lines := spaceLines(*r.Node)
	for i, s := range lines {
		if n, counted := r.Authorities[s.Name]; counted && n == 0 {
			lines[i].shut = true
		}
		lines[i].beside, lines[i].unasked = r.Supervisors[s.Name], r.SupervisorsUnknown[s.Name]
	}
	return lines
}

// Bounds of the questions to the delivery service, so that what is known is shown in time.
const (
	healthWithin = 3 * time.Second
	rosterWithin = 3 * time.Second
)

// askSpace fills in how delivery is and who is present. Its error is reported after what is known has been shown.
func (s *status) askSpace(ctx context.Context, t *target.Target, res *StatusResult) error {
	ep, err := t.Endpoint(ctx, target.Looking)
	if err != nil && res.Node != nil && trust.ReasonOf(err) != "" {
		res.Withheld = err.Error()
		ep, err = t.Probe(ctx)
	}
	if err != nil {
		return err
	}
	defer func() { _ = ep.Close() }()
	processes := 1
	if res.Node != nil {
		node, err := t.Node(ctx)
		if err != nil {
			return err
		}
		// Without the count the first answer has to do.
		if n, err := node.Deliveries(ctx, string(ep.Space())); err == nil && n > 1 {
			processes = n
		}
	}
	all, err := ep.Health(ctx, wire.DeliveryEndpoint, healthWithin, processes)
	if len(all) == 0 {
		return noAnswer(t, res, err)
	}
	res.Delivery, res.answers = &all[0], all
	if len(all) > 1 {
		res.Deliveries = all
	}
	res.Silent = max(0, processes-len(all))
	if err := s.roster(ctx, t, ep, res); err != nil {
		return err
	}
	if res.Silent > 0 {
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "%s of %d delivery processes of space %q %s not answer", number(res.Silent), processes, ep.Space(), does(res.Silent)),
			"it hangs or is stopped: end it, and the others serve alone")
	}
	for i := range all {
		if err := ailing(string(ep.Space()), &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// roster fills in who is present.
func (s *status) roster(ctx context.Context, t *target.Target, ep *endpoint.Endpoint, res *StatusResult) error {
	if res.Withheld != "" {
		return nil
	}
	// Any of the processes may be given the question, also one that does not answer.
	asked, cancel := context.WithTimeout(ctx, rosterWithin)
	defer cancel()
	present, stale, err := target.Roster(asked, ep, false)
	switch {
	case err == nil:
		res.Present, res.Stale = present, stale
	case res.Silent == 0 && wire.CodeOf(err) == wire.CodeDeadlineExceeded:
		return wire.Errorf(wire.CodeUnavailable, "one delivery process of space %q answers, and another one does not", ep.Space())
	case res.Silent == 0:
		return t.Explain(err)
	}
	return nil
}

func number(n int) string {
	if n == 1 {
		return "one"
	}
	return strconv.Itoa(n)
}

func does(n int) string {
	if n == 1 {
		return "does"
	}
	return "do"
}

// noAnswer is the error of a delivery service that gave no answer.
func noAnswer(t *target.Target, res *StatusResult, why error) error {
	space := string(t.Space())
	switch wire.CodeOf(why) {
	case wire.CodeUnavailable:
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "delivery of space %q does not run", space), t.StartDelivery(false))
	case wire.CodeDeadlineExceeded:
	default:
		return why
	}
	err := wire.Errorf(wire.CodeUnavailable, "delivery of space %q does not answer within %s", space, healthWithin)
	own := func(s cotal.SpaceStatus) bool { return s.Name == space && s.Delivery != stateElsewhere }
	if res.Node != nil && slices.ContainsFunc(res.Node.Spaces, own) {
		return command.Hint(err, "the mesh hangs; messages are stored meanwhile", "start it again: cotal down, then cotal up --detach")
	}
	return command.Hint(err, t.StartDelivery(true))
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
	if r.MovedFrom != "" {
		p.Line("  moved since it was started in %s, and still writes there; start it here: %s", command.Safe(r.MovedFrom), target.StartHere)
	}
	if n := r.Node; n != nil {
		p.Line("  node: version %s, pid %d, up %s, %s", n.Version, n.PID, since(n.Started), mode(n.Mode))
		p.Line("  broker: nats-server %s, %s, %s memory, %s stored", n.Broker.Version, view.Plural(uint64(max(n.Broker.Connections, 0)), "connection"), size(uint64(n.Broker.ProcessBytes)), size(n.Broker.StoreBytes))
		p.Line("  durability: %s", durability(n.Durability))
		for _, s := range r.spaces() {
			line := "  space " + s.Name + ": " + s.words()
			if s.Error != "" {
				line += ", " + command.Safe(s.Error)
			}
			p.Line("%s", line)
			if s.mode == modeFiles {
				p.Line("    works with credential files (cotal mint)")
			}
			s.signing(p)
			s.running(p)
			s.supervisors(p)
		}
	}
	for _, h := range r.answers {
		p.Line("delivery of %s: %s, answered just now; up %s, %s served", r.Space, h.State, since(h.Since), view.Plural(uint64(h.Stats.Served), "request"))
		for _, c := range h.Checks {
			if !c.OK {
				p.Line("  %s: %s", command.Safe(c.Name), command.Safe(c.Reason))
			}
		}
	}
	if r.Withheld != "" {
		p.Line("present in %s: not shown; %s", r.Space, command.Safe(r.Withheld))
	}
	if r.Present == nil {
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

// mode is how the mesh knows who speaks, in words.
func mode(m string) string {
	if m == modeOpen {
		return "open: no authentication"
	}
	return "authenticated by the records of the project (" + m + ")"
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
