package target

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/filestore"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Target is the mesh, space and identity of one command.
type Target struct {
	Config *config.Config

	env   *command.Env
	creds *trust.Credentials // of --creds, read once
	link  *wire.Link         // nil unless the command was given one
	node  *cotal.NodeClient

	launch     *launch.File // of the agent in whose shell the command runs, and its path
	launchFile string
	people     *People         // found once
	as         *trust.Identity // of the person that the command speaks as, in a space of people
}

// Open resolves what the command means. With --creds the credential must be readable, and its space must be the one
// that was named, if one was. In the shell of an agent, which [launch.Env] says, the command acts as that agent alone.
func Open(e *command.Env) (*Target, error) {
	if path := e.Getenv(launch.Env); path != "" {
		return openLaunch(e, path)
	}
	if name := cmp.Or(e.Flags.Name, e.Getenv(config.EnvName)); name != "" {
		if err := CheckActor(name); err != nil {
			return nil, err
		}
	}
	cfg, err := e.Config()
	if err != nil {
		return nil, explainConfig(err)
	}
	t := &Target{Config: cfg, env: e}
	if e.Records {
		cfg.Creds = config.Value{Key: cfg.Creds.Key, Source: config.SourceNone}
	}
	if cfg.Creds.Value != "" {
		if err := t.readCreds(); err != nil {
			return nil, err
		}
	}
	if e.Changes && cfg.Guessed {
		e.Note("note: no project at or above %q, so this goes to the mesh of %q; to name one: --server %s", e.Dir, cfg.Project.Root, command.Quote(cfg.Server.Value))
	}
	return t, nil
}

func explainConfig(err error) error {
	if errors.Is(err, wire.ErrConflict) {
		return command.Hint(err, "run the command inside the project you mean, or name its address with --server")
	}
	if errors.Is(err, wire.ErrPrecondition) {
		return command.Hint(err, "correct the file, or move it away and start again with: cotal up")
	}
	return err
}

func (t *Target) readCreds() error {
	path := t.Config.Creds.Value
	data, err := os.ReadFile(path)
	if err != nil {
		code := wire.CodeFailedPrecondition
		if errors.Is(err, os.ErrNotExist) {
			code = wire.CodeNotFound
		}
		return wire.Errorf(code, "read credential %q: %v", path, fserr.Cause(err))
	}
	if t.creds, err = trust.ParseCredentials(data); err != nil {
		return wire.Errorf(wire.CodeUnauthenticated, "read credential %q: %v", path, err)
	}
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		t.env.Note("warning: others on this machine can read credential %s, and speak as its holder; take that back: chmod 600 %s", path, command.Quote(path))
	}
	own := string(t.creds.Identity().Space)
	switch s := &t.Config.Space; {
	case !s.Explicit():
		s.Value, s.Source = own, config.Source("credential "+path)
	case s.Value != own:
		return wire.Errorf(wire.CodeBadRequest, "credential %q is for space %q, not %q", path, own, s.Value)
	}
	return nil
}

// Space is the space that the command means.
func (t *Target) Space() wire.Space { return wire.Space(t.Config.Space.Value) }

// Close ends what the target opened.
func (t *Target) Close() {
	if t.node != nil {
		_ = t.node.Close()
		t.node = nil
	}
}

// Store is the secret store of the project.
//
// Errors: not-found when the target has no project or the project holds no trust records; failed-precondition for a
// mesh without authentication.
func (t *Target) Store() (secret.Store, error) {
	c := t.Config
	switch {
	case t.launch != nil:
		return nil, wire.Errorf(wire.CodePermissionDenied, "agent %s does not work with the trust records of a mesh", t.launch.Principal)
	case c.Open:
		return nil, command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "the mesh at %q has no authentication, so it has no records to work with", c.Server.Value),
			"a mesh with authentication starts with: cotal up")
	case c.Remote != nil:
		return nil, command.Hint(wire.Errorf(wire.CodeNotFound, "the mesh at %s runs elsewhere, and so do its records", c.Remote.URL), "this works from the records of the project; run it there")
	case c.Project == nil && c.Server.Explicit():
		return nil, command.Hint(wire.Errorf(wire.CodeNotFound, "no mesh that this machine knows is at %q, and no project is at or above %q", c.Server.Value, t.env.Dir), t.elsewhere()...)
	case c.Project == nil:
		return nil, command.Hint(wire.Errorf(wire.CodeNotFound, "no project at or above %q, and no mesh is known on this machine", t.env.Dir), t.elsewhere()...)
	case !c.Project.Trusted():
		return nil, command.Hint(wire.Errorf(wire.CodeNotFound, "project %q holds no trust records", c.Project.Root), "make them: cotal up --detach")
	}
	return OpenStore(c.Project)
}

// elsewhere says what to do where there is no project.
func (t *Target) elsewhere() []string {
	if t.env.Records {
		return []string{"this works from the records of the project; run it there", "or start one here: cotal up --detach"}
	}
	return []string{"start one here: cotal up --detach", "sign in at one elsewhere: cotal login https://…", "or join one with a credential: --server <address> --creds <file>"}
}

// OpenStore opens the secret store of a project.
func OpenStore(p *config.Project) (secret.Store, error) {
	s, err := filestore.New(p.Dir)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "open secret store: %v", err)
	}
	return s, nil
}

// TLS is the configuration for tls:// addresses: the system's roots and the certificate file of --ca or of the
// project's own run. It is nil for an address without TLS, unless --ca asks for it.
func (t *Target) TLS() (*tls.Config, error) {
	c := t.Config
	encrypted := t.launch != nil && t.launch.TLS
	if strings.HasPrefix(c.Server.Value, "nats://") && !c.CA.Flagged() && !encrypted {
		return nil, nil
	}
	tc, err := TLSConfig(c.CA.Value, c.TLSName)
	if tc == nil && encrypted && err == nil {
		tc = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return tc, err
}

// TLSConfig trusts the system's roots and, if given, the certificates of a file. With a name the certificate must be for
// that instead of the address that is dialled. Nil means the defaults.
func TLSConfig(caFile, name string) (*tls.Config, error) {
	if caFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read certificates %q: %v", caFile, fserr.Cause(err))
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read certificates %q: no certificate in it", caFile)
	}
	return &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}, nil
}

// Node connects to the node over the system account, once per command.
func (t *Target) Node(ctx context.Context) (*cotal.NodeClient, error) {
	if t.node != nil {
		return t.node, nil
	}
	if err := t.Running(); err != nil {
		return nil, err
	}
	store, err := t.Store()
	if err != nil {
		return nil, err
	}
	if t.Config.Space.Flagged() {
		if err := t.Known(ctx); err != nil {
			return nil, err
		}
	}
	if err := checkTransport(t.Config.Server.Value); err != nil {
		return nil, err
	}
	tc, err := t.TLS()
	if err != nil {
		return nil, err
	}
	node, err := cotal.DialNode(ctx, t.Config.Server.Value, store, &cotal.DialOptions{
		TLS: tc, Locate: t.locate(), By: t.Config.Name.Value, Logger: t.env.Quiet(),
	})
	if err != nil {
		return nil, untouched(ctx, t.Explain(err))
	}
	t.node = node
	return node, nil
}

// checkTransport refuses to speak in clear text with another machine.
func checkTransport(server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return wire.Errorf(wire.CodeBadRequest, "server %q: %v", server, err)
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "tls" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "connect to broker %q: plaintext outside loopback is refused", server),
		"use its TLS address: --server tls://"+u.Host)
}

// Running refuses a target that no address leads to: the project runs no mesh and none was named. Another mesh may
// listen at the default address, or where one that was killed did, and it is not the one that was meant.
func (t *Target) Running() error {
	c := t.Config
	if c.Server.Explicit() || t.launch != nil || t.link != nil || c.Remote != nil {
		return nil
	}
	if c.Run != nil && !gone(c.Project, c.Run) || c.Run == nil && t.creds != nil {
		return nil
	}
	if c.Project == nil && c.Space.Explicit() {
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "no mesh that this machine knows has a space %q", c.Space.Value), t.elsewhere()...)
	}
	if c.Project == nil {
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "no mesh runs: no project here, and none is known on this machine"), t.elsewhere()...)
	}
	if Starting(c.Project) {
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "the mesh of %q is starting and not ready yet", c.Project.Root), "look again in a moment")
	}
	if id, kept := Keeper(c.Project); kept {
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "the mesh of %q ended, and process %d starts it again", c.Project.Root, id.PID),
			"look again in a moment; its log: "+c.Project.LogFile(), "to end that too: cotal down")
	}
	if c.Run != nil {
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "the mesh of %q is not running: process %d, which ran it, ended without a clean stop", c.Project.Root, c.Run.PID),
			"start it again: cotal up --detach")
	}
	return command.Hint(wire.Errorf(wire.CodeUnavailable, "the mesh of %q is not running", c.Project.Root), "start it: cotal up --detach")
}

// Explain adds to an error of the mesh what a person can do about it.
func (t *Target) Explain(err error) error {
	if away := t.away(err); away != nil {
		return away
	}
	switch wire.CodeOf(err) {
	case wire.CodeUnavailable:
		switch e, ok := errors.AsType[*wire.Error](err); {
		case ok && e.Details[control.DetailEndpoint] == wire.ManagerEndpoint:
			return command.Hint(err, t.startSupervisor())
		case ok && e.Details[manager.DetailSilent] != nil:
			return command.Hint(err, "start the supervisor that is silent, on its host: cotal up --detach, or cotal serve supervisor with the --state that it had",
				t.letGo())
		case ok && e.Details[manager.DetailUnreadable] != nil:
			return command.Hint(err, "mend the file agent.json in the folder of that name below .cotal/run/agents and start the supervisor anew, or end what runs and take the folder away")
		case ok && e.Details[manager.DetailRefused] != nil: // it runs
			return err
		}
		return command.Hint(err, t.unavailableHint())
	case wire.CodePermissionDenied:
		return t.denied(err)
	case wire.CodeUnauthenticated:
		if trust.ReasonOf(err) != "" { // it says what to do
			return err
		}
		if t.launch != nil {
			return command.Hint(err, "agent "+t.launch.Principal+" may have been stopped: its supervisor starts agents anew with: cotal spawn")
		}
		if t.creds == nil {
			return command.Hint(err, "the broker at "+t.Config.Server.Value+" belongs to other trust records; name the right one with --server or --space")
		}
		name := t.creds.Identity().Principal.Actor
		return command.Hint(err, "the credential may be revoked or of another mesh; ask for a later one: cotal mint "+name+" --renew"+t.into()+"; after a revocation: cotal mint "+name+t.over())
	case wire.CodeExpired:
		if trust.ReasonOf(err) != "" {
			return err
		}
		if t.launch != nil {
			return command.Hint(err, "its supervisor keeps the credential of an agent fresh; who runs the mesh looks whether that runs: cotal status")
		}
		name := "<name>"
		if t.creds != nil {
			name = t.creds.Identity().Principal.Actor
		}
		return command.Hint(err, "ask for a later credential: cotal mint "+name+" --renew"+t.into())
	}
	return err
}

// letGo is the hint how a supervisor is forgotten that never comes back.
func (t *Target) letGo() string {
	revoke, list := "cotal revoke <name>", "cotal grants"
	if t.as != nil {
		revoke, list = "cotal actor revoke <name> --owner <owner>", "cotal actor list"
	}
	return "one whose host is gone for good is forgotten once its agents hold nothing, and an hour after it was last heard if it fell silent: " + revoke + " of each; names are in: " + list
}

// into makes a mint write the file that the command named, unless that is where it writes anyhow.
func (t *Target) into() string {
	v := t.Config.Creds.Value
	if t.creds == nil || v == "" {
		return ""
	}
	name := t.creds.Identity().Principal.Actor
	if p := t.Config.Project; p != nil && v == p.CredsFile(t.Config.Space.Value, name) {
		return ""
	}
	return " --out " + command.Quote(v)
}

// over is into for a name that is granted anew: the file that somebody named is still there, and replaced only when that is asked for.
func (t *Target) over() string {
	if out := t.into(); out != "" {
		return out + " --force"
	}
	return ""
}

func (t *Target) unavailableHint() string {
	p := t.Config.Project
	switch {
	case t.Config.Remote != nil:
		return "the mesh at " + t.Config.Remote.URL + " named this address of its broker; ask its operator whether it runs"
	case t.launch != nil:
		return "the mesh at " + t.Config.Server.Value + " does not answer; who runs it starts it again: cotal up --detach"
	case t.link != nil:
		return "ask who gave you the link whether its mesh still runs"
	case t.Kept():
		return "the mesh of " + p.Root + " ended and is being started again; look again in a moment, its log: " + p.LogFile()
	case t.Config.Server.Explicit() || p == nil:
		return "is a mesh running at " + t.Config.Server.Value + "? start one here: cotal up --detach"
	case t.Config.Run == nil:
		return "the mesh of " + p.Root + " is not running; start it: cotal up --detach"
	}
	return "the mesh of " + p.Root + " does not answer; start it again: cotal up --detach; if it hangs: cotal down first"
}

// Kept reports whether the mesh of the project is down and a keeper starts it again.
func (t *Target) Kept() bool {
	c := t.Config
	if c.Project == nil || c.Server.Explicit() && c.Run == nil { // an address that was named is not the project's
		return false
	}
	if _, kept := Keeper(c.Project); !kept {
		return false
	}
	run, err := c.Project.Run()
	if err != nil || run == nil {
		return err == nil
	}
	alive, err := process.Running(process.Identity{PID: run.PID, Start: run.Start})
	return err == nil && !alive
}

// askAfter bounds the question why a message was not acknowledged.
const askAfter = 2 * time.Second

// ExplainSilence adds to an error about an answer that did not come what the node says about itself, when the command
// speaks with the node anyway.
func (t *Target) ExplainSilence(ctx context.Context, err error) error {
	if wire.CodeOf(err) != wire.CodeDeadlineExceeded {
		return err
	}
	if why := t.degraded(ctx); why != "" {
		return command.Hint(err, "space "+string(t.Space())+" is degraded: "+why)
	}
	return err
}

// unstored is the error of a command whose credential could not be written down, when that is because the broker cannot store; nil
// otherwise. Such a credential is not handed out, so that nothing was done.
func (t *Target) unstored(ctx context.Context, err error) error {
	switch wire.CodeOf(err) {
	case wire.CodeDeadlineExceeded, wire.CodeUnavailable:
	default:
		return nil
	}
	const other = "a credential is written down before it is used; one that you have works: --creds <file>"
	if why := t.degraded(ctx); why != "" {
		e := wire.Errorf(wire.CodeUnavailable, "space %q is degraded: %s; nothing was done", t.Space(), why)
		e.Outcome = wire.OutcomeNotExecuted
		return command.Hint(e, HintRoom, other)
	}
	if errors.Is(err, space.ErrUnstored) { // of what the broker refuses at once it says nothing of itself
		return command.Hint(err, HintRoom, other)
	}
	return nil
}

// HintRoom is what to do about a mesh whose disk is full.
const HintRoom = "make room on the disk; the mesh then stores again by itself within half a minute, at once with: cotal up --detach"

// degraded is why the broker cannot store for the space, as the node says; empty when it can, or the node does not say.
func (t *Target) degraded(ctx context.Context) string {
	if t.node == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askAfter)
	defer cancel()
	st, err := t.node.Status(ctx)
	if err != nil {
		return ""
	}
	for _, sp := range st.Spaces {
		if sp.Name == string(t.Space()) && sp.Delivery == cotal.Degraded {
			return sp.Error
		}
	}
	return ""
}
