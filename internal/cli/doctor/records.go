package doctor

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// records looks at the records of the project, over the running mesh if there is one.
func (x *examination) records(ctx context.Context) {
	x.files()
	store, err := x.t.Store()
	if err != nil {
		x.read([]auth.Finding{{Check: checkFiles, Status: auth.FindingFail, Repair: hint(err), Text: err.Error()}})
		return
	}
	node, away := x.t.Node(ctx)
	a := (*auth.Authority)(nil)
	if away == nil {
		a = node.Authority()
	} else {
		m, err := mint.Open(ctx, store, nil)
		if err != nil {
			x.read([]auth.Finding{{Check: auth.CheckRecords, Status: auth.FindingFail, Repair: "restore the record from a backup", Text: err.Error()}})
			return
		}
		a = auth.New(m, offline{away}, offline{away}.dial, &auth.Options{Logger: x.e.Quiet()})
		defer func() { _ = a.Close() }()
	}
	x.read(a.Diagnose(ctx, x.t.Space(), &auth.DiagnoseOptions{Store: store, Fix: x.fix}))
	if people, err := a.People(ctx, x.t.Space()); err == nil && people && away == nil {
		x.serving(ctx, node)
	}
}

// hint is the first of what can be done about an error.
func hint(err error) string {
	if h := command.Hints(err); len(h) > 0 {
		return h[0]
	}
	return ""
}

// offline stands in for a broker that does not answer.
type offline struct{ why error }

var _ auth.Control = offline{}

func (o offline) PutAccount(context.Context, string, string) error    { return o.why }
func (o offline) RemoveAccount(context.Context, string, string) error { return o.why }
func (o offline) EvictTagged(context.Context, string, ...string) (int, error) {
	return 0, o.why
}
func (o offline) EvictKeys(context.Context, string, ...string) (int, error) { return 0, o.why }
func (o offline) Lookup(context.Context, string) (string, error)            { return "", o.why }
func (o offline) dial(context.Context, *trust.Credentials) (*nats.Conn, error) {
	return nil, o.why
}

// restart is what repairs a mesh that runs.
const restart = "start the mesh again: cotal down, then cotal up --detach"

// serving looks at whether people can sign in at this moment.
func (x *examination) serving(ctx context.Context, node *cotal.NodeClient) {
	st, err := node.Status(ctx)
	if err != nil {
		x.add(auth.FindingFail, checkCallout, restart, "the node does not say how it is: %v", err)
		return
	}
	for _, sp := range st.Spaces {
		if sp.Name != string(x.t.Space()) {
			continue
		}
		switch p := sp.People; {
		case p == nil:
			x.add(auth.FindingFail, checkCallout, restart, "the node does not sign people in at this space")
		case p.Error != "":
			x.add(auth.FindingFail, checkCallout, restart, "callout %s, exchange %s: %s", p.Callout, p.Exchange, p.Error)
		default:
			x.add(auth.FindingOK, checkCallout, "", "callout %s, exchange %s", p.Callout, p.Exchange)
		}
	}
	x.exchanges(ctx)
}

// exchanges asks every process of this machine that left word of its exchange how it is.
func (x *examination) exchanges(ctx context.Context) {
	settings, err := x.t.Config.Project.Settings()
	if err != nil {
		x.add(auth.FindingFail, checkExchange, hint(err), "%v", err)
		return
	}
	own := cotal.CapabilityFile(x.t.Config.Project.StateOf(settings), string(x.t.Space()))
	beside, _ := filepath.Glob(globbed(strings.TrimSuffix(own, ".json")) + ".*.json")
	answers := 0
	for _, path := range append([]string{own}, beside...) {
		err := x.exchange(ctx, path)
		switch {
		case err == nil:
			answers++
		case path != own || wire.CodeOf(err) != wire.CodeNotFound: // the node may leave it to others
			repair := "rm " + command.Quote(path) + ", unless its process is only starting"
			if path == own { // the node leaves another when it starts
				repair = restart
			}
			x.add(auth.FindingWarn, checkExchange, repair, "%v", err)
		}
	}
	if answers == 0 {
		x.add(auth.FindingFail, checkExchange, restart+"; where it leaves signing in to others: cotal serve authority", "no exchange answers on this machine, so nobody can sign in here")
		return
	}
	x.add(auth.FindingOK, checkExchange, "", "asked just now, %d of this machine answered", answers)
}

// globbed keeps the characters of a path from being read as a pattern.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// exchange asks one.
func (x *examination) exchange(ctx context.Context, path string) error {
	file, err := exchange.LoadCapabilityFile(path)
	if err != nil {
		return err
	}
	if _, err := process.Of(file.PID); errors.Is(err, process.ErrGone) {
		return wire.Errorf(wire.CodeUnavailable, "%s is of process %d, which is gone", path, file.PID)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, file.URL+"/health", nil)
	if err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "%s holds no address", path)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return wire.Errorf(wire.CodeUnavailable, "the exchange of process %d does not answer at %s", file.PID, file.URL)
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"space":"`+string(x.t.Space())+`"`) {
		return wire.Errorf(wire.CodeUnavailable, "what answers at %s is not the exchange of space %q", file.URL, x.t.Space())
	}
	return nil
}
