package config

import (
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// Defaults of a machine that knows nothing yet.
const (
	DefaultSpace  = "main"
	DefaultServer = "nats://127.0.0.1:4222"
	DefaultPort   = 4222
)

// Keys of the values that Resolve answers.
const (
	KeySpace  = "space"
	KeyServer = "server"
	KeyCreds  = "creds"
	KeyCA     = "ca"
	KeyName   = "name"
	KeyHome   = "home"
	KeyRoot   = "project"
)

// Environment variables that supply values.
const (
	EnvSpace  = "COTAL_SPACE"
	EnvServer = "COTAL_SERVER"
	EnvCreds  = "COTAL_CREDS"
	EnvCA     = "COTAL_CA"
	// EnvDetachKey is the key that leaves an agent's terminal, such as ctrl-b.
	EnvDetachKey = "COTAL_DETACH_KEY"
	EnvName      = "COTAL_NAME"
	EnvHome      = "COTAL_HOME"
)

// Source says where a value came from, in words for a person.
type Source string

// SourceDefault is the source of values that nobody set; SourceNone that of values that are not set at all.
const (
	SourceDefault Source = "default"
	SourceNone    Source = "not set"
)

func fromFlag(key string) Source          { return Source("flag --" + key) }
func fromEnv(name string) Source          { return Source("environment " + name) }
func fromProject(p *Project) Source       { return Source("project " + p.Root) }
func fromMesh(m *Mesh, why string) Source { return Source(why + " mesh " + m.Root) }
func fromSignIn(s *SignIn, why string) Source {
	return Source(why + " mesh " + s.URL)
}

// explicit reports whether a person named the value for this command or shell.
func (s Source) explicit() bool {
	return strings.HasPrefix(string(s), "flag ") || strings.HasPrefix(string(s), "environment ")
}

// Value is one resolved value.
type Value struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Explicit reports whether a flag or the environment set the value.
func (v Value) Explicit() bool { return v.Source.explicit() }

// Flagged reports whether a flag set the value.
func (v Value) Flagged() bool { return strings.HasPrefix(string(v.Source), "flag ") }

// Flags are the values named on the command line; empty means not given.
type Flags struct {
	Space, Server, Creds, CA, Name string
}

// Input is what Resolve looks at.
type Input struct {
	Flags  Flags
	Getenv func(string) string
	Dir    string // working folder, absolute
}

// Config is the answer. The values never hold a secret: a credential is a path, and an address loses the user
// part that a link may carry.
type Config struct {
	Space, Server, Creds, CA, Name Value

	// Machine is this machine's list of meshes.
	Machine Machine
	// Home is the value behind Machine.
	Home Value
	// Project holds the records that belong to the target: the one found from the working folder, or that of the
	// mesh the target was found through. Nil when there is none.
	Project *Project
	// Remote is the mesh elsewhere that the target is, where somebody signed in; nil for one of this machine. Then there is no
	// project.
	Remote *SignIn
	// Run is the project's record of its last start, nil when it does not run.
	Run *Run
	// TLSName is the name that the certificate of Server is for, when it is not the host of the address.
	TLSName string
	// Open says that the target is a mesh without authentication.
	Open bool
	// Guessed says that the project is that of a mesh which nobody named and which is not that of the working folder:
	// the current mesh of the machine, or its only one.
	Guessed bool
}

// Values lists all values in the order in which they are shown.
func (c *Config) Values() []Value {
	root := Value{Key: KeyRoot, Source: SourceNone}
	if c.Project != nil {
		root.Value, root.Source = c.Project.Root, "found"
	}
	return []Value{c.Space, c.Server, c.Creds, c.CA, c.Name, root, c.Home}
}

// KnownSpaces lists, sorted, the spaces that the records of this machine name. It asks nobody, so it may be wrong.
func (c *Config) KnownSpaces() []string {
	var out []string
	if c.Project != nil {
		if own, err := c.Project.Spaces(); err == nil {
			out = own
		}
	}
	if c.Run != nil {
		out = append(out, c.Run.Spaces...)
	}
	if meshes, err := c.Machine.Meshes(); err == nil {
		for _, m := range meshes {
			out = append(out, m.Spaces...)
		}
	}
	if remotes, err := c.Machine.remotes(); err == nil {
		for _, s := range remotes {
			out = append(out, s.Space)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Resolve answers for one command.
//
// Errors: bad-request for a value that is not well formed; failed-precondition for a file that cannot be read;
// conflict when the named space lives in several meshes of this machine and nothing says which is meant.
func Resolve(in Input) (*Config, error) {
	r := resolver{in: in, cfg: &Config{Home: machineDir(in.Getenv)}}
	r.cfg.Machine = Machine{Dir: r.cfg.Home.Value}
	r.explicit()
	if err := r.check(); err != nil {
		return nil, err
	}
	var err error
	if r.meshes, err = r.cfg.Machine.Meshes(); err != nil {
		return nil, err
	}
	if r.remotes, err = r.cfg.Machine.remotes(); err != nil {
		return nil, err
	}
	if r.cfg.Project, err = FindProject(in.Dir, r.cfg.Machine); err != nil {
		return nil, err
	}
	if err := r.pick(); err != nil {
		return nil, err
	}
	r.fill()
	return r.cfg, nil
}

// Named answers only what flags and environment name. A command that makes a mesh, rather than meaning one, uses it.
func Named(in Input) (*Config, error) {
	r := resolver{in: in, cfg: &Config{Home: machineDir(in.Getenv)}}
	r.cfg.Machine = Machine{Dir: r.cfg.Home.Value}
	r.explicit()
	return r.cfg, r.check()
}

type resolver struct {
	in       Input
	cfg      *Config
	meshes   []Mesh
	remotes  []SignIn
	mesh     *Mesh  // the mesh of the machine that the target was found through
	why      string // "current" or the like, for the source
	settings Settings
}

// explicit takes what flags and environment say.
func (r *resolver) explicit() {
	f := r.in.Flags
	r.cfg.Space = r.named(KeySpace, f.Space, EnvSpace)
	r.cfg.Server = r.named(KeyServer, f.Server, EnvServer)
	r.cfg.Creds = r.named(KeyCreds, f.Creds, EnvCreds)
	r.cfg.CA = r.named(KeyCA, f.CA, EnvCA)
	r.cfg.Name = r.named(KeyName, f.Name, EnvName)
	for _, v := range []*Value{&r.cfg.Creds, &r.cfg.CA} {
		if v.Value != "" && !filepath.IsAbs(v.Value) {
			v.Value = filepath.Join(r.in.Dir, v.Value)
		}
	}
}

func (r *resolver) named(key, flag, env string) Value {
	if flag != "" {
		return Value{Key: key, Value: flag, Source: fromFlag(key)}
	}
	if v := r.in.Getenv(env); v != "" {
		return Value{Key: key, Value: v, Source: fromEnv(env)}
	}
	return Value{Key: key, Source: SourceNone}
}

func (r *resolver) check() error {
	if v := r.cfg.Space; v.Value != "" {
		if _, err := wire.ParseSpace(v.Value); err != nil {
			return err
		}
	}
	if v := r.cfg.Name; v.Value != "" {
		if err := (wire.Principal{Owner: wire.LocalOwner, Actor: v.Value}).Validate(); err != nil {
			return err
		}
	}
	if v := &r.cfg.Server; v.Value != "" {
		u, err := ServerURL(v.Value)
		if err != nil {
			return err
		}
		v.Value = u
	}
	return nil
}

// pick finds the project or mesh that the target means.
func (r *resolver) pick() error {
	if r.cfg.Project != nil {
		if err := r.readProject(r.cfg.Project); err != nil {
			return err
		}
	}
	switch {
	case r.cfg.Server.Value != "":
		return r.pickByServer()
	case r.cfg.Space.Value != "":
		return r.pickBySpace()
	case r.cfg.Project != nil:
		return nil
	}
	cur, err := r.cfg.Machine.Current(r.meshes)
	if err != nil {
		return err
	}
	remote, err := r.cfg.Machine.currentRemote(r.remotes)
	if err != nil {
		return err
	}
	one := len(r.meshes)+len(r.remotes) == 1
	switch {
	case cur != nil:
		r.cfg.Guessed = true
		return r.take(cur, "current")
	case remote != nil:
		r.away(remote, "current")
	case one && len(r.meshes) == 1:
		r.cfg.Guessed = true
		return r.take(&r.meshes[0], "only")
	case one:
		r.away(&r.remotes[0], "only")
	}
	return nil
}

// away makes a mesh elsewhere the target.
func (r *resolver) away(s *SignIn, why string) {
	r.cfg.Remote, r.why = s, why
	r.cfg.Project, r.cfg.Run, r.settings = nil, nil, Settings{}
}

// pickByServer prefers the project that runs there, then the mesh of the machine that does. Otherwise the records of
// the local project are offered: the broker may be one that was set up from them and is reached by another name.
func (r *resolver) pickByServer() error {
	if r.cfg.Run != nil && sameServer(r.cfg.Run.URL, r.cfg.Server.Value) {
		return nil
	}
	for i := range r.meshes {
		if sameServer(r.meshes[i].URL, r.cfg.Server.Value) {
			return r.take(&r.meshes[i], "registered")
		}
	}
	for i := range r.remotes {
		s := &r.remotes[i]
		if sameServer(s.Server, r.cfg.Server.Value) && (r.cfg.Space.Value == "" || r.cfg.Space.Value == s.Space) {
			r.away(s, "registered")
			return nil
		}
	}
	r.cfg.Run = nil
	return nil
}

// pickBySpace prefers the project when it holds the space or nobody else does.
func (r *resolver) pickBySpace() error {
	name := r.cfg.Space.Value
	if r.cfg.Project != nil {
		own, err := r.projectSpaces()
		if err != nil {
			return err
		}
		if slices.Contains(own, name) {
			return nil
		}
	}
	var hits []int
	for i := range r.meshes {
		if slices.Contains(r.meshes[i].Spaces, name) {
			hits = append(hits, i)
		}
	}
	var away []int
	for i := range r.remotes {
		if r.remotes[i].Space == name {
			away = append(away, i)
		}
	}
	switch {
	case len(hits)+len(away) == 0:
		return nil
	case len(hits) == 1 && len(away) == 0:
		return r.take(&r.meshes[hits[0]], "registered")
	case len(hits) == 0 && len(away) == 1:
		r.away(&r.remotes[away[0]], "registered")
		return nil
	}
	roots := make([]string, 0, len(hits)+len(away))
	for _, i := range hits {
		roots = append(roots, r.meshes[i].Root)
	}
	for _, i := range away {
		roots = append(roots, r.remotes[i].URL)
	}
	e := wire.Errorf(wire.CodeConflict, "space %q is in several meshes of this machine: %s", name, strings.Join(roots, ", "))
	e.Details = map[string]any{"roots": roots}
	return e
}

func (r *resolver) projectSpaces() ([]string, error) {
	own, err := r.cfg.Project.Spaces()
	if err != nil {
		return nil, err
	}
	if r.cfg.Run != nil {
		own = append(own, r.cfg.Run.Spaces...)
	}
	if r.settings.Space != "" {
		own = append(own, r.settings.Space)
	}
	return own, nil
}

// take makes a mesh of the machine the target.
func (r *resolver) take(m *Mesh, why string) error {
	r.mesh, r.why = m, why
	r.cfg.Project = NewProject(m.Root)
	r.cfg.Run = nil
	return r.readProject(r.cfg.Project)
}

func (r *resolver) readProject(p *Project) (err error) {
	if r.settings, err = p.Settings(); err != nil {
		return err
	}
	r.cfg.Run, err = p.Run()
	return err
}

// fill answers what is still open from what was picked.
func (r *resolver) fill() {
	c := r.cfg
	src := SourceDefault
	switch {
	case r.mesh != nil:
		src = fromMesh(r.mesh, r.why)
	case c.Remote != nil:
		src = fromSignIn(c.Remote, r.why)
	case c.Project != nil:
		src = fromProject(c.Project)
	}
	set := func(v *Value, s string) {
		if v.Value == "" && s != "" {
			v.Value, v.Source = s, src
		}
	}
	if r.mesh != nil {
		c.Open = r.mesh.Open
	} else {
		c.Open = r.settings.Open
	}
	if run := c.Run; run != nil {
		c.Open = run.Open
		set(&c.Server, run.URL)
		set(&c.CA, run.CA)
		c.TLSName = run.TLSName
	}
	if r.mesh != nil {
		set(&c.Server, r.mesh.URL)
		set(&c.CA, r.mesh.CA)
		c.TLSName = r.mesh.TLSName
	}
	if c.Remote != nil {
		set(&c.Server, c.Remote.Server)
		set(&c.Space, c.Remote.Space)
		set(&c.CA, c.Remote.CA)
	}
	set(&c.Space, r.defaultSpace())
	src = SourceDefault
	set(&c.Space, DefaultSpace)
	set(&c.Server, DefaultServer)
	src = sourceLogin
	set(&c.Name, login())
}

// defaultSpace is the space of the picked project or mesh when none was named.
func (r *resolver) defaultSpace() string {
	if r.settings.Space != "" {
		return r.settings.Space
	}
	if r.mesh != nil && r.mesh.Space != "" {
		return r.mesh.Space
	}
	if r.cfg.Run != nil && len(r.cfg.Run.Spaces) > 0 {
		return r.cfg.Run.Spaces[0]
	}
	if r.cfg.Project != nil {
		if own, err := r.cfg.Project.Spaces(); err == nil && len(own) == 1 {
			return own[0]
		}
	}
	return ""
}

// ServerURL puts an address into the one form in which addresses are compared: scheme nats or tls, host, port. It
// takes host, host:port and URLs, and refuses user parts and paths.
func ServerURL(s string) (string, error) {
	raw := s
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", wire.Errorf(wire.CodeBadRequest, "server %q: want host, host:port, nats://host:port or tls://host:port", redact(raw))
	}
	switch u.Scheme {
	case "nats", "tls":
	default:
		return "", wire.Errorf(wire.CodeBadRequest, "server %q: scheme %q, allowed nats and tls", redact(raw), u.Scheme)
	}
	port := u.Port()
	if port == "" {
		port = "4222"
	}
	return u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port), nil
}

// sameServer compares two addresses of ServerURL's form.
func sameServer(a, b string) bool {
	plain := func(s string) string { return strings.Replace(s, "://localhost:", "://127.0.0.1:", 1) }
	return plain(a) == plain(b)
}

// redact drops everything before the last @, where a link would carry a token or a password.
func redact(s string) string {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return "…" + s[i:]
	}
	return s
}
