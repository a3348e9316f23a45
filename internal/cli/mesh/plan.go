package mesh

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

// plan is what a start will do: flags over what the project remembers over defaults.
type plan struct {
	project   *config.Project
	machine   config.Machine
	space     string
	host      string
	port      int  // 0: free to choose
	pinned    bool // an earlier start was given it
	cert, key string
	storeDir  string
	strict    bool
	open      bool
	apart     bool     // delivery runs in processes of its own
	noAgents  bool     // so does the supervisor
	most      int      // agents that have not ended; 0 for the default
	known     []string // spaces of the trust records
	made      bool     // this start made the project folder
	logLevel  slog.Level
	signing   signing
}

const defaultHost = "127.0.0.1"

// newPlan refuses what contradicts the project before anything is touched.
func (u *up) newPlan(ctx context.Context, e *command.Env) (*plan, error) {
	cfg, err := config.Named(config.Input{Flags: config.Flags{Space: e.Flags.Space}, Getenv: e.Getenv, Dir: e.Dir})
	if err != nil {
		return nil, err
	}
	p := &plan{machine: cfg.Machine, logLevel: slog.LevelWarn}
	if u.report {
		p.logLevel = slog.LevelInfo // standard error is a log file
	}
	if p.project, err = startProject(e.Dir, cfg.Machine); err != nil {
		return nil, err
	}
	s, err := p.project.Settings()
	if err != nil {
		return nil, command.Hint(err, "correct the file, or move it away and run again")
	}
	if p.known, err = p.project.Spaces(); err != nil {
		return nil, err
	}
	if err := u.merge(p, s, e.Dir); err != nil {
		return nil, err
	}
	if err := p.pickSpace(cfg.Space, s); err != nil {
		return nil, err
	}
	if err := u.planPeople(ctx, p, s); err != nil {
		return nil, err
	}
	return p, p.check()
}

// startProject is the project at or above dir, or a new one in dir.
func startProject(dir string, m config.Machine) (*config.Project, error) {
	p, err := config.FindProject(dir, m)
	if err != nil || p != nil {
		return p, err
	}
	p = config.NewProject(dir)
	if m.Owns(p.Dir) {
		return nil, command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "folder %q cannot hold a project: its %s is this machine's own list of meshes", dir, config.Folder),
			"make a folder for the project: mkdir mesh && cd mesh && cotal up")
	}
	return p, nil
}

func (u *up) merge(p *plan, s config.Settings, dir string) error {
	fresh := s.V == 0
	if u.open && !fresh && !s.Open {
		return wire.Errorf(wire.CodeFailedPrecondition, "project %q has authentication; it cannot be started --open", p.project.Root)
	}
	p.open, p.apart, p.noAgents = u.open || s.Open, u.apart, u.noAgents
	if p.open && p.apart {
		return wire.Errorf(wire.CodeFailedPrecondition, "an open mesh is served by one process: --no-delivery needs authentication")
	}
	if p.open && p.noAgents {
		return wire.Errorf(wire.CodeFailedPrecondition, "an open mesh runs no agents: --no-supervisor needs authentication")
	}
	p.host, p.port, p.cert, p.key, p.storeDir, p.strict = s.Host, s.Port, s.TLSCert, s.TLSKey, s.StoreDir, s.Strict
	if u.host != "" {
		p.host = u.host
	}
	if p.host == "" {
		p.host = defaultHost
	}
	p.pinned = p.port != 0 && !u.ported
	if u.ported {
		p.port = u.port
	}
	if (u.cert == "") != (u.key == "") {
		return command.Usagef("--tls-cert and --tls-key go together")
	}
	if u.cert != "" {
		p.cert, p.key = absolute(dir, u.cert), absolute(dir, u.key)
	}
	if u.storeDir != "" {
		want := absolute(dir, u.storeDir)
		if !fresh && want != p.stateDir() {
			return wire.Errorf(wire.CodeFailedPrecondition, "the broker files of project %q are in %q, not %q", p.project.Root, p.stateDir(), want)
		}
		p.storeDir = want
	}
	if u.strict != nil {
		p.strict = *u.strict
	}
	if p.most = s.MaxAgents; u.most != 0 {
		p.most = u.most
	}
	return nil
}

// pickSpace takes the named space, or the one the project remembers, or the only one it has. A start does not add a
// space to a mesh that has others: that is a decision of its own.
func (p *plan) pickSpace(named config.Value, s config.Settings) error {
	if !named.Explicit() {
		switch {
		case s.Space != "":
			p.space = s.Space
		case len(p.known) > 0:
			p.space = p.known[0]
		default:
			p.space = config.DefaultSpace
		}
		return nil
	}
	p.space = named.Value
	have := p.known
	if p.open && s.Space != "" {
		have = []string{s.Space}
	}
	if len(have) > 0 && !slices.Contains(have, p.space) {
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "project %q holds space %s, not %q", p.project.Root, quoted(have), p.space),
			"bring the project up, then add it: cotal up --detach && cotal space add "+p.space,
			"or start another mesh for it in a folder of its own")
	}
	return nil
}

// check refuses a listener that more people reach than its protection allows, in the words of the flags.
func (p *plan) check() error {
	if strings.Contains(p.host, "://") || strings.Contains(p.host, "/") {
		return command.Usagef("--host %q: want an address or a host name without scheme or port", p.host)
	}
	if _, _, err := net.SplitHostPort(p.host); err == nil {
		return command.Usagef("--host %q: the port goes into --port", p.host)
	}
	if p.port < 0 || p.port > 65535 {
		return command.Usagef("--port %d: allowed are 1 to 65535", p.port)
	}
	if p.most < 0 {
		return command.Usagef("--max-agents %d: want at least 1", p.most)
	}
	if loopback(p.host) {
		return nil
	}
	if p.open {
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "an open mesh lets everybody in, so it listens on this machine only, not on %q", p.host),
			"leave --open away to have authentication, and give a certificate")
	}
	if p.cert == "" {
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "listening on %q without TLS would send credentials and messages in clear text", p.host),
			"give a certificate: --tls-cert <file> --tls-key <file>", "or stay on this machine: --host 127.0.0.1")
	}
	return nil
}

// stateDir is where the broker keeps its files.
func (p *plan) stateDir() string {
	if p.storeDir != "" {
		return p.storeDir
	}
	return p.project.StateDir()
}

// remember is what the next start shall find again.
func (p *plan) remember() config.Settings {
	return config.Settings{
		Space: p.space, Host: unless(p.host, defaultHost), Port: p.port, TLSCert: p.cert, TLSKey: p.key,
		StoreDir: p.storeDir, Strict: p.strict, Open: p.open, MaxAgents: p.most, People: p.signing.exchange,
	}
}

func unless(v, def string) string {
	if v == def {
		return ""
	}
	return v
}

// hostOf is the host of an address, or "".
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// loopback reports whether host can only be reached from this machine.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = `"` + n + `"`
	}
	return strings.Join(out, ", ")
}
