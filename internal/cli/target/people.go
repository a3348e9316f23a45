package target

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// People is a space where people sign in, as a command of one of them sees it.
type People struct {
	// Record is what the machine remembers of it, or would.
	Record config.SignIn

	t      *Target
	state  string // folder of the node's files, where its exchange leaves how it is reached; of a mesh of this machine
	source *login.Source
	kind   string // where the session is sealed
}

// People returns the target as a space where people sign in, or nil when it works with credential files.
//
// Errors: those of reading the records of the project.
func (t *Target) People(ctx context.Context) (*People, error) {
	c := t.Config
	switch {
	case t.launch != nil:
		return nil, nil
	case t.people != nil:
		return t.people, nil
	case c.Remote != nil:
		t.people = &People{Record: *c.Remote, t: t}
		return t.people, nil
	case c.Open || !t.trusted():
		return nil, nil
	}
	pin, err := t.pin(ctx, t.Space())
	if err != nil || pin == nil {
		return nil, err
	}
	settings, err := c.Project.Settings()
	if err != nil {
		return nil, err
	}
	rec, err := c.Machine.SignInOf(config.SignIn{Root: c.Project.Root, Space: c.Space.Value})
	if err != nil {
		return nil, err
	}
	rec.Issuer = pin.Issuer
	t.people = &People{Record: rec, t: t, state: c.Project.StateOf(settings)}
	return t.people, nil
}

// pin is where people sign in at a space of the project's records, nil for a space of credential files or none at all.
func (t *Target) pin(ctx context.Context, s wire.Space) (*oidc.Pin, error) {
	store, err := t.Store()
	if err != nil {
		return nil, err
	}
	m, err := mint.Open(ctx, store, nil)
	if err != nil {
		return nil, err
	}
	rec, err := m.Account(ctx, s)
	switch {
	case errors.Is(err, wire.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case rec.Callout == nil:
		return nil, nil
	}
	pin, err := oidc.LoadPin(ctx, store, s)
	if err != nil {
		return nil, err
	}
	return &pin, nil
}

// Elsewhere returns the space at an address that a person was given, https://mesh.example, with what the mesh says about it.
// Without a scheme it is https.
//
// Errors: those of [login.Mesh]; bad-request when the flags name another space; failed-precondition when the mesh names another
// identity provider than before.
func Elsewhere(ctx context.Context, e *command.Env, address string) (*People, login.MeshInfo, error) {
	base, err := meshURL(address)
	if err != nil {
		return nil, login.MeshInfo{}, err
	}
	t, err := openAt(e)
	if err != nil {
		return nil, login.MeshInfo{}, err
	}
	before, err := remembered(t, base)
	if err != nil {
		return nil, login.MeshInfo{}, err
	}
	ca := cmp.Or(namedCA(e), before.CA)
	hc, err := httpClient(ca)
	if err != nil {
		return nil, login.MeshInfo{}, err
	}
	info, err := login.Mesh(ctx, base, hc)
	if err != nil {
		return nil, info, command.Hint(Unverified(err), "the address is that of the mesh's public exchange; ask its operator")
	}
	if s := e.Flags.Space; s != "" && s != string(info.Space) {
		return nil, info, wire.Errorf(wire.CodeBadRequest, "the mesh at %s is space %q, not %q", base, info.Space, s)
	}
	rec, err := t.Config.Machine.SignInOf(config.SignIn{URL: base, Space: string(info.Space), Issuer: info.Provider.Issuer})
	if err != nil {
		return nil, info, err
	}
	rec.CA = ca
	p := &People{Record: rec, t: t}
	return p, info, p.learn(info)
}

// remembered is what this machine knows of the mesh at an address, the zero value for nothing.
func remembered(t *Target, base string) (config.SignIn, error) {
	all, err := t.Config.Machine.SignIns()
	for _, rec := range all {
		if rec.URL == base {
			return rec, err
		}
	}
	return config.SignIn{}, err
}

// Known returns the space at an address that somebody of this machine signed in at. It asks nobody.
//
// Errors: not-found.
func Known(e *command.Env, address string) (*People, error) {
	base, err := meshURL(address)
	if err != nil {
		return nil, err
	}
	t, err := openAt(e)
	if err != nil {
		return nil, err
	}
	rec, err := remembered(t, base)
	if err != nil {
		return nil, err
	}
	if rec.URL != "" {
		return &People{Record: rec, t: t}, nil
	}
	return nil, command.Hint(wire.Errorf(wire.CodeNotFound, "nobody of this machine signed in at %s", base), "sign in: cotal login "+command.Quote(base))
}

// openAt is the target of a command that is about an address, wherever it runs.
func openAt(e *command.Env) (*Target, error) {
	cfg, err := config.Named(config.Input{Getenv: e.Getenv, Dir: e.Dir})
	if err != nil {
		return nil, err
	}
	return &Target{Config: cfg, env: e}, nil
}

func meshURL(s string) (string, error) {
	if !strings.Contains(s, "://") {
		s = "https://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", command.Usagef("mesh address %q: want https://host[:port][/path]", clip(s))
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func clip(s string) string {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return "…" + s[i:] // before it a password would stand
	}
	return s
}

// learn takes up what the mesh says now.
func (p *People) learn(info login.MeshInfo) error {
	rec := &p.Record
	if rec.Issuer != info.Provider.Issuer {
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "the mesh at %s signed people in at %q until now and names %q", p.Where(), rec.Issuer, info.Provider.Issuer),
			"if its operator says so: cotal logout "+command.Quote(rec.URL)+" --forget, then sign in again")
	}
	if !rec.Remote() {
		return nil
	}
	rec.Exchange, rec.Server = info.ExchangeURL, ""
	if info.Server != "" {
		server, err := config.ServerURL(info.Server)
		if err != nil {
			return wire.Errorf(wire.CodeFailedPrecondition, "the mesh at %s names a broker that cannot be used: %v", p.Where(), err)
		}
		rec.Server = server
	}
	return nil
}

// Where names the mesh for a person: its address, or the folder of its project.
func (p *People) Where() string { return cmp.Or(p.Record.URL, p.Record.Root) }

// LoginCommand is the command that signs in here.
func (p *People) LoginCommand() string {
	line := "cotal login"
	if p.Record.Remote() {
		return line + " " + command.Quote(p.Record.URL)
	}
	if p.t.Config.Space.Flagged() {
		line += " --space " + p.Record.Space
	}
	return line
}

// Describe asks the mesh how people sign in.
//
// Errors: unavailable when nothing serves that.
func (p *People) Describe(ctx context.Context) (login.MeshInfo, error) {
	if p.Record.Remote() {
		hc, err := p.HTTP()
		if err != nil {
			return login.MeshInfo{}, err
		}
		info, err := login.Mesh(ctx, p.Record.URL, hc)
		if err != nil {
			return info, Unverified(err)
		}
		return info, p.learn(info)
	}
	c, _, err := p.capability(ctx)
	if err != nil {
		return login.MeshInfo{}, err
	}
	info, err := login.Mesh(ctx, c.URL, &http.Client{Transport: withCapability{word: c.Cap}})
	if err != nil {
		return info, err
	}
	return info, p.learn(info)
}

// withCapability opens the loopback face.
type withCapability struct{ word func() string }

// RoundTrip implements [http.RoundTripper].
func (w withCapability) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.word())
	return http.DefaultTransport.RoundTrip(r)
}

// capability is how programs of this user reach an exchange of the space: that of the node, or of a process that serves it
// beside the node or in its place. Of several the first that listens is taken.
func (p *People) capability(ctx context.Context) (login.Capability, string, error) {
	own := cotal.CapabilityFile(p.state, p.Record.Space)
	files := []string{own}
	beside := strings.TrimSuffix(own, "json")
	entries, err := os.ReadDir(p.state)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return login.Capability{}, "", wire.Errorf(wire.CodeFailedPrecondition, "look for what signs people in: %v", err)
	}
	for _, e := range entries {
		if file := filepath.Join(p.state, e.Name()); file != own && strings.HasPrefix(file, beside) && strings.HasSuffix(file, ".json") {
			files = append(files, file)
		}
	}
	var first error
	for _, file := range files {
		c, err := login.ReadCapability(file)
		if err == nil {
			err = alive(c.PID) // what was left by one that crashed must not send a sign-in to whoever has its port now
		}
		if err == nil {
			err = Knock(ctx, c.URL)
		}
		if err == nil {
			return c, file, nil
		}
		if first == nil || errors.Is(first, wire.ErrNotFound) {
			first = err
		}
	}
	if c := wire.CodeOf(first); c != wire.CodeNotFound && c != wire.CodeUnavailable {
		return login.Capability{}, "", first
	}
	return login.Capability{}, "", command.Hint(trust.Deny(wire.CodeUnavailable, trust.ReasonUnavailable, "nothing signs people in at space %q at this moment", p.Record.Space),
		"what runs: cotal status", "start what does not: cotal up --detach, or without the node's part: cotal serve authority")
}

// alive is an error when no process has the number.
func alive(pid int) error {
	if _, err := process.Of(pid); errors.Is(err, process.ErrGone) {
		return wire.Errorf(wire.CodeUnavailable, "process %d is gone", pid)
	}
	return nil
}

// CapabilityFile is where a process that serves signing in beside others leaves how it is reached.
func CapabilityFile(state, space, process string) string {
	return strings.TrimSuffix(cotal.CapabilityFile(state, space), ".json") + "." + process + ".json"
}
