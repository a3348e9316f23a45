package mesh

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

const upLong = `
Brings up the mesh of this project: the broker, its trust, and the services of every space. The project is the
nearest folder with a .cotal folder, or the working folder, which then becomes one.

The first start makes the trust records and remembers its settings in .cotal/config.json; later starts bring the
same mesh back. Run again while the mesh is up, it says what runs, asked of the mesh itself, and starts what does
not. Without --port it listens on the port of the last start, on 4222 or on a free port, in that order, and other
commands find it. It listens on this machine only unless --host says otherwise, which needs a certificate.

The role of delivery can be left to processes of its own with --no-delivery, at each start; a mesh that runs with it
otherwise refuses the flag.

Without --detach it stays in the foreground and ends with Ctrl-C. What was acknowledged is kept in any case.
`

const upExample = `
  cotal up --detach
  cotal up --space lab --port 4300
  cotal up --host 0.0.0.0 --tls-cert mesh.pem --tls-key mesh.key --detach
`

// up brings a mesh up.
type up struct {
	detach    bool
	host      string
	port      int
	cert, key string
	open      bool
	apart     bool  // delivery runs in processes of its own
	placed    bool  // the command line says whether it does
	strict    *bool // nil: as the project remembers
	storeDir  string
	wait      time.Duration
	report    bool // set in the detached child: answer the parent with one line on standard output
}

// NewUp adds `cotal up`.
func NewUp(t *command.Tree) *cobra.Command {
	u := &up{}
	var strict bool
	c := t.Add(command.Spec{Use: "up [flags]", Short: "Bring the mesh of this project up", Long: upLong, Example: upExample, Target: command.TargetSpace},
		runFunc(func(ctx context.Context, e *command.Env) error { return u.Run(ctx, e) }))
	f := c.Flags()
	f.BoolVarP(&u.detach, "detach", "d", false, "run in the background, return when it is ready; the log is .cotal/log/up.log")
	f.StringVar(&u.host, "host", "", "listening address (default 127.0.0.1)")
	f.IntVar(&u.port, "port", 0, "listening port (default: the last one, 4222, or a free one)")
	f.StringVar(&u.cert, "tls-cert", "", "certificate file; clients must then use TLS")
	f.StringVar(&u.key, "tls-key", "", "key file of the certificate, readable by its owner only")
	f.BoolVar(&u.open, "open", false, "no authentication, this machine only; for throw-away experiments")
	f.BoolVar(&strict, "strict", false, "sync every write to disk before it is acknowledged; about ten times slower")
	f.BoolVar(&u.apart, "no-delivery", false, "leave the delivery role to processes of its own: cotal serve delivery")
	f.StringVar(&u.storeDir, "store-dir", "", "folder of the broker's files (default .cotal/broker)")
	f.DurationVar(&u.wait, "wait", 30*time.Second, "with --detach, how long to wait until it is ready")
	f.BoolVar(&u.report, "report", false, "")
	_ = f.MarkHidden("report")
	c.PreRun = func(c *cobra.Command, _ []string) {
		if c.Flags().Changed("strict") {
			u.strict = &strict
		}
		u.placed = c.Flags().Changed("no-delivery")
	}
	return c
}

// Run decides between three ways: the mesh runs already, it is started in the background, it is run here.
func (u *up) Run(ctx context.Context, e *command.Env) error {
	if u.report {
		return u.runReporting(ctx, e)
	}
	if u.wait <= 0 {
		return command.Usagef("--wait %s: want more than 0s", u.wait)
	}
	p, err := u.newPlan(e)
	if err != nil {
		return err
	}
	release, running, err := u.claim(ctx, e, p)
	if err != nil {
		return err
	}
	if running != nil {
		return running.show(e)
	}
	if u.detach {
		release() // the child takes it
		err := u.runDetached(ctx, e, p)
		if p.made && refusedToStart(err) {
			p.unmake()
		}
		return err
	}
	err = p.run(ctx, e, func(r UpResult) error {
		if err := e.Print(r, r.human); err != nil {
			return err
		}
		nextSteps(e)
		e.Note("press Ctrl-C to stop")
		return nil
	})
	release()
	if p.made && refusedToStart(err) {
		p.unmake()
	}
	return err
}

// nextSteps tells a person what to do with a mesh that has just come up.
func nextSteps(e *command.Env) {
	e.Note("next: cotal send msg general \"hello\"   then: cotal history general, cotal status")
	e.Note("      cotal mint <name> makes a credential for an agent; cotal down stops the mesh")
}

// refusedToStart reports whether a start ended in a refusal: nothing of it ran.
func refusedToStart(err error) bool {
	return errors.Is(err, wire.ErrConflict) || errors.Is(err, wire.ErrPrecondition) || errors.Is(err, wire.ErrBadRequest)
}

func (p *plan) lock() (func(), error) {
	if _, err := os.Lstat(p.project.Dir); errors.Is(err, fs.ErrNotExist) {
		p.made = true
	}
	if err := p.project.Create(); err != nil {
		return nil, err
	}
	return p.project.Lock()
}

// unmake takes a project folder away again that this start made and that holds nothing yet but what every start writes.
// With records in it, or with another start at work, it stays.
func (p *plan) unmake() {
	if p.project.Trusted() {
		return
	}
	release, err := p.project.Lock()
	if err != nil || release == nil {
		return
	}
	defer release()
	dir := p.project.Dir
	for _, name := range []string{"log/up.log", "log", "run/up.lock", "run", "auth"} {
		_ = os.Remove(filepath.Join(dir, filepath.FromSlash(name))) // a folder that is not empty stays
	}
	if left, err := os.ReadDir(dir); err == nil && len(left) == 1 && left[0].Name() == ".gitignore" {
		_ = os.Remove(filepath.Join(dir, ".gitignore"))
		_ = os.Remove(dir)
	}
}

// UpResult is what `cotal up --json` prints.
type UpResult struct {
	command.V
	State   string      `json:"state"` // started, healed or running
	URL     string      `json:"url"`
	Root    string      `json:"root"`
	Space   string      `json:"space"` // default space of the project
	Spaces  []SpaceLine `json:"spaces"`
	PID     int         `json:"pid"`
	Mode    string      `json:"mode"`       // static or open
	Storage string      `json:"durability"` // window or strict
	Healed  []string    `json:"healed,omitempty"`
	Log     string      `json:"log,omitempty"`
}

// SpaceLine is one space with the state of its services.
type SpaceLine struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Error string `json:"error,omitempty"`
}

// words is the state for a person.
func (s SpaceLine) words() string {
	if s.State == stateElsewhere {
		return "served by processes of its own (cotal serve delivery)"
	}
	return s.State
}

// States of UpResult.
const (
	stateStarted = "started"
	stateHealed  = "healed"
	stateRunning = "running"
)

func (r UpResult) human(p *command.Printer) {
	switch r.State {
	case stateRunning:
		p.Line("already up at %s (pid %d)", p.Bold(r.URL), r.PID)
	default:
		p.Line("up at %s (pid %d)", p.Bold(r.URL), r.PID)
	}
	for _, h := range r.Healed {
		p.Line("  healed: %s", command.Safe(h))
	}
	for _, s := range r.Spaces {
		line := "  space " + s.Name + ": " + s.words()
		if s.Name == r.Space {
			line += " (default)"
		}
		if s.Error != "" {
			line += ", " + command.Safe(s.Error)
		}
		p.Line("%s", line)
	}
	p.Line("  durability: %s", durability(r.Storage))
	if r.Mode == modeOpen {
		p.Line("  open: no authentication; anyone on this machine can read and write everything")
	}
	if r.Log != "" {
		p.Line("  log: %s", r.Log)
	}
}

const modeOpen = "open"

func durability(mode string) string {
	if mode == "strict" {
		return "strict, every acknowledged message survives a power cut"
	}
	return "every acknowledged message survives a crash of any process; a power cut may lose the last 250 ms"
}

// unserved is an error when a space is not served, nil otherwise.
func unserved(spaces []SpaceLine) error {
	for _, s := range spaces {
		if s.State != stateServing && s.State != stateElsewhere {
			why := s.Error
			if why == "" {
				why = "no reason given"
			}
			err := wire.Errorf(wire.CodeUnavailable, "space %q is %s: %s", s.Name, s.State, why)
			if s.State == cotal.Degraded {
				return command.Hint(err, "make room on the disk; the mesh then stores again by itself within half a minute, at once with: cotal up --detach")
			}
			return command.Hint(err, "it is started again by itself; look again with: cotal status")
		}
	}
	return nil
}

// States of a space that is served: by the node, or by processes that answer for themselves.
const (
	stateServing   = "serving"
	stateElsewhere = "elsewhere"
)

// runFunc makes a function a command.
type runFunc func(ctx context.Context, e *command.Env) error

// Run calls f.
func (f runFunc) Run(ctx context.Context, e *command.Env) error { return f(ctx, e) }
