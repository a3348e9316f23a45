package mesh

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/team"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

const upLong = `
Brings up the mesh of this project: the broker, its trust, and the services of every space. The project is the
nearest folder with a .cotal folder, or the working folder, which then becomes one.

The first start makes the trust records and remembers its settings in .cotal/config.json; later starts bring the
same mesh back. Run again while the mesh is up, it says what runs, asked of the mesh itself, and starts what does
not. Without --port, now or before, it listens on the port of the last start, on 4222 or on a free port, in that order, and
other commands find it. It listens on this machine only unless --host says otherwise, which needs a certificate.

The role of delivery can be left to processes of its own with --no-delivery, at each start; a mesh that runs with it
otherwise refuses the flag. So can running agents, with --no-supervisor. Agents outlive the mesh: Ctrl-C and cotal down leave them
working, the next start takes them up again, and cotal down --with-agents ends them.

With --idp people sign in at the space: nobody gets a credential file, everybody runs cotal login, and the grants of
cotal actor say what they may do. The provider is asked about itself once; what it said then is kept, later starts need
neither the flag nor the provider, and another one is refused. The space of a mesh that worked with credential files
refuses all of them from then on, so that is asked about first; --yes says yes.

Sign-ins are exchanged for tokens of the mesh at an address that programs of this user find by themselves. For people elsewhere
--exchange-public-port opens a second one on this machine, for a proxy with TLS that --exchange-public-url names. Signing in
can be left to processes of its own with --no-authority, at each start.

With --file it then makes the channels and agents of a team file, and waits for them; --dry-run shows what that would be and starts
nothing. What a team file says: cotal spawn --help.

Without --detach it stays in the foreground and ends with Ctrl-C. With --detach a small process beside it starts it again when it is
killed or fails, within a second and more slowly while starts fail; cotal down ends both. Where that process was killed itself, cotal up
--detach puts another one beside the mesh that runs. What was acknowledged is kept in any case.
`

const upExample = `
  cotal up --detach
  cotal up --space lab --port 4300
  cotal up --host 0.0.0.0 --tls-cert mesh.pem --tls-key mesh.key --detach
  cotal up --idp https://idp.example --detach
  cotal up --detach -f cotal.yaml
`

// up brings a mesh up.
type up struct {
	detach    bool
	host      string
	port      int
	ported    bool // the command line says it; 0 is any
	cert, key string
	open      bool
	apart     bool  // delivery runs in processes of its own
	placed    bool  // the command line says whether it does
	strict    *bool // nil: as the project remembers
	storeDir  string
	wait      time.Duration
	report    bool // set in the detached child: answer the parent with one line on standard output
	keep      bool // set in the process between: run the mesh as a child, and again when it ends unasked
	adopt     bool // with keep: the mesh runs already
	once      bool // with detach: no such process

	provider target.Provider
	exchange target.Exchange
	away     bool // signing in is left to processes of its own
	parted   bool // the command line says whether it is

	noAgents bool // running agents is left to processes of its own
	agented  bool // the command line says whether it is
	most     int  // agents that have not ended; 0: as the project remembers

	team team.Options
}

// NewUp adds `cotal up`.
func NewUp(t *command.Tree) *cobra.Command {
	u := &up{}
	var strict bool
	c := t.Add(command.Spec{Use: "up [flags]", Short: "Bring the mesh of this project up", Long: upLong, Example: upExample, Target: command.TargetSpace},
		runFunc(func(ctx context.Context, e *command.Env) error { return roomless(u.Run(ctx, e), e.Dir) }))
	f := c.Flags()
	f.BoolVarP(&u.detach, "detach", "d", false, "run in the background, return when it is ready; the log is .cotal/log/up.log")
	f.StringVar(&u.host, "host", "", "listening address (default 127.0.0.1)")
	f.IntVar(&u.port, "port", 0, "listening port, which is remembered; 0 for any (default: the last one, 4222, or a free one)")
	f.StringVar(&u.cert, "tls-cert", "", "certificate file; clients must then use TLS")
	f.StringVar(&u.key, "tls-key", "", "key file of the certificate, readable by its owner only")
	f.BoolVar(&u.open, "open", false, "no authentication, this machine only, and without agents, which need credentials; for throw-away experiments")
	f.BoolVar(&strict, "strict", false, "sync every write to disk before it is acknowledged; about ten times slower")
	f.BoolVar(&u.apart, "no-delivery", false, "leave the delivery role to processes of its own: cotal serve delivery")
	f.StringVar(&u.storeDir, "store-dir", "", "folder of the broker's files (default .cotal/broker)")
	f.DurationVar(&u.wait, "wait", 30*time.Second, "with --detach, how long to wait until it is ready")
	f.BoolVar(&u.report, "report", false, "")
	_ = f.MarkHidden("report")
	f.BoolVar(&u.keep, "keep", false, "")
	_ = f.MarkHidden("keep")
	f.BoolVar(&u.adopt, "adopt", false, "")
	_ = f.MarkHidden("adopt")
	f.BoolVar(&u.once, "no-restart", false, "with --detach, do not start the mesh again when its process is killed")
	u.provider.AddFlags(c)
	u.exchange.AddFlags(c)
	f.BoolVar(&u.away, "no-authority", false, "leave signing people in to processes of its own: cotal serve authority")
	f.BoolVar(&u.noAgents, "no-supervisor", false, "leave running agents to processes of its own: cotal serve supervisor")
	f.IntVar(&u.most, "max-agents", 0, "most agents that run at a time (default: the last one, 64)")
	u.team.AddFlags(c, "team file whose channels and agents are made once the mesh is up")
	u.team.AddReplace(c)
	c.PreRun = func(c *cobra.Command, _ []string) {
		if c.Flags().Changed("strict") {
			u.strict = &strict
		}
		u.agented = c.Flags().Changed("no-supervisor")
		u.ported = c.Flags().Changed("port")
		u.placed, u.parted = c.Flags().Changed("no-delivery"), c.Flags().Changed("no-authority")
	}
	return c
}

// Run decides between three ways: the mesh runs already, it is started in the background, it is run here.
func (u *up) Run(ctx context.Context, e *command.Env) error {
	switch {
	case u.keep:
		return u.runKeeping(ctx, e)
	case u.report:
		return u.runReporting(ctx, e)
	case u.once && !u.detach:
		return command.Usagef("--no-restart goes with --detach: without it nothing starts the mesh again")
	}
	if u.wait <= 0 {
		return command.Usagef("--wait %s: want more than 0s", u.wait)
	}
	if err := target.NoAgent(e); err != nil {
		return err
	}
	deploy, err := u.deploying(e)
	if err != nil {
		return err
	}
	if u.team.DryRun {
		return deploy(ctx, false)
	}
	p, err := u.newPlan(ctx, e)
	if err != nil {
		return err
	}
	if err := u.endsFiles(ctx, e, p); err != nil {
		return err
	}
	release, running, err := u.claim(ctx, e, p)
	if err != nil {
		return err
	}
	if running != nil {
		note := u.keepAgain(ctx, e, p, running)
		if err := running.show(e); err != nil {
			return err
		}
		if note != "" {
			e.Note("%s", note)
		}
		return deploy(ctx, false)
	}
	if err := u.letGo(ctx, p); err != nil {
		release()
		return err
	}
	if u.detach {
		err := u.runDetached(ctx, e, p, release)
		if p.undone(err) {
			p.unmake()
		}
		if err != nil {
			return err
		}
		return deploy(ctx, true)
	}
	err = p.run(ctx, e, func(r UpResult) error {
		if err := e.Print(r, r.human); err != nil {
			return err
		}
		nextSteps(e, r)
		e.Note("press Ctrl-C to stop")
		if err := deploy(ctx, true); err != nil {
			command.Report(e, err) // the mesh is up all the same
		}
		return nil
	})
	release()
	if p.undone(err) {
		p.unmake()
	}
	return err
}

// letGo ends the keeper of an earlier run, which waits to start the mesh again: this start does that. The caller holds the lock.
func (u *up) letGo(ctx context.Context, p *plan) error {
	ctx, cancel := context.WithTimeout(ctx, u.wait)
	defer cancel()
	_, err := letGo(ctx, p.project)
	return err
}

// deploying reads the team file, before anything is started, and returns what makes it. Without one that does nothing.
func (u *up) deploying(e *command.Env) (func(ctx context.Context, begun bool) error, error) {
	if err := u.team.Check(); err != nil {
		return nil, err
	}
	if u.team.File == "" {
		return func(context.Context, bool) error { return nil }, nil
	}
	t, err := team.Load(e, u.team.File)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, begun bool) error {
		if u.team.DryRun {
			return team.DryRun(ctx, e, t, u.team)
		}
		o := u.team
		o.Begun, o.Wait = begun, team.DefaultWait
		return team.Deploy(ctx, e, t, o)
	}, nil
}

// nextSteps tells a person what to do with a mesh that has just come up.
func nextSteps(e *command.Env, r UpResult) {
	if r.people() {
		then := "      "
		switch {
		case r.parted():
			e.Note("next: cotal serve authority   in a terminal or a service of its own: until it runs nobody can sign in")
		case known(e, r):
			then = ""
		default:
			e.Note("next: cotal login   then, as it says: cotal actor grant NAME --owner u_… --full")
		}
		e.Note(then + "cotal status shows what runs; cotal down stops the mesh")
		return
	}
	e.Note("next: cotal send msg general \"hello\"   then: cotal history general, cotal status")
	if r.Mode == modeOpen { // neither agents nor credentials
		e.Note("      cotal down stops the mesh")
		return
	}
	e.Note("      cotal spawn scribe starts an agent that needs no model; cotal persona list shows the others, cotal persona new makes one")
	e.Note("      cotal mint <name> makes a credential for an agent; cotal down stops the mesh")
}

// known reports whether somebody of this machine has signed in at the default space.
func known(e *command.Env, r UpResult) bool {
	cfg, err := e.Config()
	if err != nil || r.Register != "" {
		return false
	}
	rec, err := cfg.Machine.SignInOf(config.SignIn{Root: r.Root, Space: r.Space})
	return err == nil && rec.V != 0
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

// undone reports whether nothing of a start is kept that ended with err: it made the folder, was refused, and recorded nothing yet.
func (p *plan) undone(err error) bool {
	return p.made && refusedToStart(err) && !p.project.Trusted()
}

// unmake takes a project folder away again that this start made and that holds nothing yet but what every start writes.
// With records in it, or with another start at work, it stays.
func (p *plan) unmake() {
	release, err := p.project.Lock()
	if err != nil || release == nil {
		return
	}
	defer release()
	dir := p.project.Dir
	for _, name := range []string{"log/up.log", "log", "run/up.lock", "run/starting.json", "run/place.json", "run", "auth"} {
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
	// Register is what to do at the identity provider after the first start with one; Warnings are about its settings, and about what did not
	// work and is not needed.
	Register string `json:"register,omitempty"`
	// Seeded are the agent files that this start wrote, since the project had none.
	Seeded   []string `json:"seeded,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// SpaceLine is one space with the state of its services.
type SpaceLine struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// People is what signs people in; absent for a space of credential files.
	People *cotal.PeopleStatus `json:"people,omitempty"`
	// Supervisor is what runs agents; absent where nothing does.
	Supervisor *cotal.SupervisorStatus `json:"supervisor,omitempty"`

	mode string
	shut bool // processes of its own sign people in, and none is connected
	// beside are the supervisors besides the mesh's own, unasked is why they are not known.
	beside  []cotal.SupervisorPeer
	unasked string
}

// people reports whether people sign in at the default space.
func (r UpResult) people() bool {
	return slices.ContainsFunc(r.Spaces, func(s SpaceLine) bool { return s.Name == r.Space && s.People != nil })
}

// parted reports whether signing in at the default space is left to processes of its own.
func (r UpResult) parted() bool {
	return slices.ContainsFunc(r.Spaces, func(s SpaceLine) bool {
		return s.Name == r.Space && s.People != nil && s.People.Exchange == stateElsewhere
	})
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
		s.signing(p)
		s.running(p)
	}
	if len(r.Seeded) > 0 {
		p.Line("  wrote agent files: %s", command.Safe(strings.Join(r.Seeded, ", ")))
	}
	if r.Register != "" {
		p.Line("  %s", p.Bold(command.Safe(r.Register)))
	}
	for _, w := range r.Warnings {
		p.Line("  warning: %s", command.Safe(w))
	}
	p.Line("  durability: %s", durability(r.Storage))
	if r.Mode == modeOpen {
		p.Line("  open: no authentication; anyone on this machine can read and write everything")
	}
	if r.Log != "" {
		p.Line("  log: %s", r.Log)
	}
}

// Modes of a mesh, and of a space.
const (
	modeOpen  = "open"
	modeFiles = "credentials"
)

func durability(mode string) string {
	if mode == "strict" {
		return "strict, every acknowledged message survives a power cut"
	}
	return "every acknowledged message survives a crash of any process; a power cut may lose the last 250 ms"
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
