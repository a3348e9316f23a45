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
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/filestore"
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
}

// Open resolves what the command means. With --creds the credential must be readable, and its space must be the one
// that was named, if one was.
func Open(e *command.Env) (*Target, error) {
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
		return wire.Errorf(code, "read credential %q: %v", path, cause(err))
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

// cause drops the doubled path of an error of the file system.
func cause(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
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
	case c.Open:
		return nil, command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "the mesh at %q has no authentication, so it has no records to work with", c.Server.Value),
			"a mesh with authentication starts with: cotal up")
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
	return []string{"start one here: cotal up --detach", "or join another one with a credential: --server <address> --creds <file>"}
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
	if strings.HasPrefix(c.Server.Value, "nats://") && !c.CA.Flagged() {
		return nil, nil
	}
	return TLSConfig(c.CA.Value, c.TLSName)
}

// TLSConfig trusts the system's roots and, if given, the certificates of a file. With a name the certificate must be for
// that instead of the address that is dialled. Nil means the defaults.
func TLSConfig(caFile, name string) (*tls.Config, error) {
	if caFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read certificates %q: %v", caFile, cause(err))
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
	if err := checkTransport(t.Config.Server.Value); err != nil {
		return nil, err
	}
	tc, err := t.TLS()
	if err != nil {
		return nil, err
	}
	node, err := cotal.DialNode(ctx, t.Config.Server.Value, store, &cotal.DialOptions{
		TLS: tc, By: t.Config.Name.Value, Logger: t.env.Quiet(),
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
// listen at the default address, and it is not the one that was meant.
func (t *Target) Running() error {
	c := t.Config
	if c.Run != nil || c.Server.Explicit() || t.link != nil || t.creds != nil {
		return nil
	}
	if c.Project == nil {
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "no mesh runs: no project here, and none is known on this machine"), t.elsewhere()...)
	}
	if release, err := c.Project.Lock(); err == nil && release == nil {
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "the mesh of %q is starting and not ready yet", c.Project.Root), "look again in a moment")
	} else if err == nil {
		release()
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
		return command.Hint(err, t.unavailableHint())
	case wire.CodePermissionDenied:
		return t.denied(err)
	case wire.CodeUnauthenticated:
		if t.creds == nil {
			return command.Hint(err, "the broker at "+t.Config.Server.Value+" belongs to other trust records; name the right one with --server or --space")
		}
		name := t.creds.Identity().Principal.Actor
		return command.Hint(err, "the credential may be revoked or of another mesh; ask for a later one: cotal mint "+name+" --renew; after a revocation: cotal mint "+name)
	case wire.CodeExpired:
		name := "<name>"
		if t.creds != nil {
			name = t.creds.Identity().Principal.Actor
		}
		return command.Hint(err, "ask for a later credential: cotal mint "+name+" --renew")
	}
	return err
}

func (t *Target) unavailableHint() string {
	p := t.Config.Project
	switch {
	case t.link != nil:
		return "ask who gave you the link whether its mesh still runs"
	case t.Config.Server.Explicit() || p == nil:
		return "is a mesh running at " + t.Config.Server.Value + "? start one here: cotal up --detach"
	case t.Config.Run == nil:
		return "the mesh of " + p.Root + " is not running; start it: cotal up --detach"
	}
	return "the mesh of " + p.Root + " does not answer; start it again: cotal up --detach"
}

// askAfter bounds the question why a message was not acknowledged.
const askAfter = 2 * time.Second

// ExplainSilence adds to an error about an answer that did not come what the node says about itself, when the command
// speaks with the node anyway.
func (t *Target) ExplainSilence(ctx context.Context, err error) error {
	if wire.CodeOf(err) != wire.CodeDeadlineExceeded || t.node == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askAfter)
	defer cancel()
	st, asked := t.node.Status(ctx)
	if asked != nil {
		return err
	}
	for _, sp := range st.Spaces {
		if sp.Name == string(t.Space()) && sp.Delivery == cotal.Degraded {
			return command.Hint(err, "space "+sp.Name+" is degraded: "+sp.Error)
		}
	}
	return err
}
