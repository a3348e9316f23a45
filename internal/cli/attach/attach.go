package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/wire"
)

const attachLong = `
Shows the terminal of an agent on yours, from any machine of the mesh, and types what you type. The agent's terminal takes the size of
yours; with --view you only look, nothing is changed and no key is passed on, and a terminal of another size shows the part around the
cursor.

Ctrl-] leaves, and the agent goes on; the last line says so at first. --detach-key or COTAL_DETACH_KEY choose another key, such as
ctrl-b. Every other key goes to the agent, Ctrl-C too. Your terminal is given back as it was. Nobody looks at the terminal that they look
in: that is refused, also through a pipe, and allowed into a file.

When the connection or the supervisor is gone, the last screen stays and the command tries again after 1, 2, 5, 10 and then every 30
seconds. What is typed meanwhile is dropped. When the agent has ended, the command says how and ends.

Without a terminal the text of the output is printed, and what is piped in is typed as fast as the agent reads it: without a connection it
waits. The command ends once all of it was written to the agent's terminal; with --follow, and when nothing was piped in, it shows what the
agent does until that ends or you press Ctrl-C. When some of it did not reach the agent the command says so and ends with exit code 6; when
the connection is lost before the last of what was sent is known to have been written, with exit code 8. A terminal in line mode drops what
a line has beyond 4,095 bytes, and nobody learns of it. When the agent ends first, the command says how, and what was not
said to be written.

A supervisor or an agent that an earlier build started does not tell what was written. Then the command types as fast as it can, takes what
was sent within the 10 seconds before a loss for unknown, and does not end by itself.
`

const attachExample = `
  cotal attach reviewer
  cotal attach reviewer --view
  cotal attach reviewer < commands.txt
  COTAL_DETACH_KEY=ctrl-b cotal attach reviewer
`

// attach is the command.
type attach struct {
	name, key         string
	view, noReconnect bool
	follow            bool
}

// New adds `cotal attach`.
func New(t *command.Tree) *cobra.Command {
	a := &attach{}
	c := t.Add(command.Spec{
		Use: "attach <agent> [flags]", Short: "See and drive an agent's terminal", Long: attachLong, Example: attachExample,
		Args: command.One("agent", &a.name), Target: command.TargetPerson,
		Complete: command.First(target.CompleteAgents),
	}, a)
	f := c.Flags()
	f.BoolVar(&a.view, "view", false, "only look: type nothing and change no size")
	f.StringVar(&a.key, "detach-key", "", "key that leaves, ctrl- and one more (default "+defaultKey+", or COTAL_DETACH_KEY)")
	f.BoolVar(&a.follow, "follow", false, "stay when all that was piped in was written to the agent's terminal")
	f.BoolVar(&a.noReconnect, "no-reconnect", false, "end when the connection or the supervisor is gone")
	return c
}

// Run attaches until the person leaves or the agent ends.
func (a *attach) Run(ctx context.Context, e *command.Env) error {
	if err := target.Named(a.name); err != nil {
		return err
	}
	key, err := parseKey(cmp.Or(a.key, e.Getenv(config.EnvDetachKey), defaultKey))
	if err != nil {
		return err
	}
	if e.JSON {
		return command.Usagef("attach shows a terminal, which --json cannot; cotal ps --json tells of agents")
	}
	t, ep, leave, err := target.Enter(ctx, e, target.Managing)
	if err != nil {
		return err
	}
	defer leave()
	v := &visit{name: strings.TrimPrefix(a.name, "@"), in: t.Launch(), key: key, view: a.view, once: a.noReconnect, follow: a.follow, ep: ep, m: manager.New(ep)}
	first, err := v.open(ctx, e) // before the terminal is touched, so that a refusal is told as any other
	switch {
	case err == nil:
		if a.view && given(e) {
			e.Note("with --view nothing is typed: what is piped in is not passed on")
		}
		err = v.sit(ctx, e, first)
	case errors.Is(err, wire.ErrNotFound):
		err = target.UnknownAgent(ctx, v.m, v.name, err)
	}
	v.tell(e)
	if err == nil || v.exit != nil {
		return nil
	}
	if a.noReconnect && v.greeted && !v.cut && wire.CodeOf(err) == wire.CodeUnavailable { // the mesh is there
		return command.Hint(err, "the supervisor of the agent does not answer; see which do: cotal ps")
	}
	return t.Explain(err)
}

// visit is one person at one agent's terminal.
type visit struct {
	name       string
	in         *launch.File // of the agent in whose terminal or shell the command runs
	key        detachKey
	view, once bool
	follow     bool // stay when all that was piped in was written
	ep         *endpoint.Endpoint
	m          *manager.Client

	agent    wire.AgentStatus
	detached bool
	poured   bool // it is over since all that was piped in was written
	greeted  bool // the person was told which key leaves
	cut      bool // the connection to the mesh was lost, and that ended the visit
	exit     *wire.SessionExit
	rest     string // what of the piped input may not have reached an agent that has ended
}

// open locates the agent and opens a session at its terminal. When the agent has ended, what it ended with is kept.
func (v *visit) open(ctx context.Context, e *command.Env) (*endpoint.Session, error) {
	cols, rows := sizeOf(e)
	a, err := v.m.Find(ctx, v.name)
	if err != nil {
		return nil, err
	}
	v.agent = a
	if a.Ended() {
		p := a.Process
		v.exit = &wire.SessionExit{Code: p.Code, Signal: p.Signal, At: p.Ended, LastLines: p.LastLines, Lost: p.State != wire.ProcessExited}
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "attach to %q: it has ended", v.name)
	}
	if v.within(a) && comesBack(e) {
		return nil, wire.Errorf(wire.CodePermissionDenied, "attach to %q: it would show its own terminal in itself; look from another one, or into a file", v.name)
	}
	offer, err := v.m.Attach(ctx, a, wire.AttachRequest{Drive: !v.view, Cols: cols, Rows: rows})
	if err != nil {
		return nil, err
	}
	return v.ep.Session(ctx, offer, &endpoint.SessionOptions{Cols: cols, Rows: rows, Pace: pipedIn(e, v.view)})
}

// within reports whether the command runs at the terminal of the agent: as that agent, or as anybody in the session that its process leads.
func (v *visit) within(a wire.AgentStatus) bool {
	if v.in != nil && v.in.UID == a.UID {
		return true
	}
	host, err := os.Hostname()
	return err == nil && a.Host == host && a.Process.PID != 0 && a.Process.PID == sessionLeader()
}

// comesBack reports whether what is printed may come back to the terminal of the command: it is that, or passes through a pipe to who knows where.
func comesBack(e *command.Env) bool {
	if e.Shown() {
		return true
	}
	f, ok := e.Stdout.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0
}

// tell says how the visit ended.
func (v *visit) tell(e *command.Env) {
	name := command.Safe(target.AgentName(v.agent))
	switch {
	case v.exit == nil && v.poured:
		fmt.Fprintf(e.Stderr, "left %s, which goes on; --follow shows what it answers\n", name)
	case v.exit == nil && v.detached:
		fmt.Fprintf(e.Stderr, "left %s, which goes on\n", name)
	case v.exit != nil:
		fmt.Fprintf(e.Stderr, "%s is gone: %s\n", name, ending(v.exit))
		for _, l := range v.exit.LastLines {
			fmt.Fprintf(e.Stderr, "  %s\n", command.Safe(l))
		}
		if v.rest != "" {
			fmt.Fprintln(e.Stderr, v.rest)
		}
	}
}

// ending is how an agent ended, in words.
func ending(x *wire.SessionExit) string {
	what := fmt.Sprintf("it exited with code %d", x.Code)
	switch {
	case x.Lost:
		return "nobody knows how it ended"
	case x.Signal != "":
		what = "it was ended by " + command.Safe(x.Signal)
	}
	if x.At > 0 {
		what += " at " + time.UnixMilli(x.At).Format(time.DateTime)
	}
	return what
}

// passing reports whether another try may succeed.
func passing(err error) bool {
	switch wire.CodeOf(err) {
	case wire.CodeUnavailable, wire.CodeDeadlineExceeded, wire.CodeConflict, wire.CodeExpired, wire.CodeResourceExhausted:
		return !errors.Is(err, endpoint.ErrClosed) && !errors.Is(err, errInput)
	}
	return false
}
