package target

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Launch is what the supervisor told the agent in whose shell the command runs; nil in a shell of a person.
func (t *Target) Launch() *launch.File { return t.launch }

// Hints for a command in the shell of an agent.
const (
	ownShell     = "this shell belongs to an agent: a command in it acts as that agent and never as anybody else"
	anotherShell = "to act as somebody else, use a shell of your own, without " + launch.Env
)

// NoAgent refuses, in the shell of an agent, a command that works from the trust records of a mesh.
//
// Errors: permission-denied, or what is wrong with the agent's launch file.
func NoAgent(e *command.Env) error {
	path := e.Getenv(launch.Env)
	if path == "" {
		return nil
	}
	f, err := readLaunch(path)
	if err != nil {
		return err
	}
	return noRecords(f)
}

func readLaunch(path string) (launch.File, error) {
	f, err := launch.Read(path)
	if err != nil {
		return launch.File{}, command.Hint(err, ownShell, anotherShell)
	}
	return f, nil
}

func noRecords(f launch.File) error {
	return command.Hint(wire.Errorf(wire.CodePermissionDenied, "agent %s does not work with the trust records of a mesh", f.Principal), ownShell, anotherShell)
}

// openLaunch opens the target of a command in the shell of an agent, which acts as that agent or not at all.
func openLaunch(e *command.Env, path string) (*Target, error) {
	f, err := readLaunch(path)
	if err != nil {
		return nil, err
	}
	if e.Records {
		return nil, noRecords(f)
	}
	life, err := f.Lifecycle()
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		flag    string
		differs bool
	}{
		{"--creds", e.Flags.Creds != ""}, {"--name", e.Flags.Name != "" && e.Flags.Name != life.Actor},
		{"--server", e.Flags.Server != "" && !sameAddress(e.Flags.Server, f.Server)},
		{"--space", e.Flags.Space != "" && e.Flags.Space != string(f.Space)},
	} {
		if c.differs {
			return nil, command.Hint(command.Usagef("%s in the shell of agent %s names somebody or somewhere else", c.flag, f.Principal), ownShell, anotherShell)
		}
	}
	cfg, err := config.Named(config.Input{Flags: config.Flags{CA: e.Flags.CA}, Dir: e.Dir, Getenv: machineOnly(e.Getenv)})
	if err != nil {
		return nil, err
	}
	src := config.Source("launch file " + path)
	value := func(key, v string) config.Value { return config.Value{Key: key, Value: v, Source: src} }
	cfg.Space, cfg.Server, cfg.Name = value(config.KeySpace, string(f.Space)), value(config.KeyServer, f.Server), value(config.KeyName, life.Actor)
	if cfg.CA.Value == "" && f.CAFile != "" {
		cfg.CA = value(config.KeyCA, f.CAFile)
	}
	cfg.TLSName = f.TLSName
	return &Target{Config: cfg, env: e, launch: &f, launchFile: path}, nil
}

// machineOnly hides from the configuration what the environment says of a mesh and of who speaks: the launch file says that.
func machineOnly(getenv func(string) string) func(string) string {
	return func(name string) string {
		switch name {
		case config.EnvSpace, config.EnvServer, config.EnvCreds, config.EnvCA, config.EnvName:
			return ""
		}
		return getenv(name)
	}
}

func sameAddress(a, b string) bool {
	x, errX := config.ServerURL(a)
	y, errY := config.ServerURL(b)
	return errX == nil && errY == nil && x == y
}

// joinLaunched joins as the agent that the launch file is for.
func (t *Target) joinLaunched(ctx context.Context, o *endpoint.Options) (*endpoint.Endpoint, error) {
	f := t.launch
	life, err := f.Lifecycle()
	if err != nil {
		return nil, err
	}
	if o.TLS, err = t.TLS(); err != nil {
		return nil, err
	}
	o.Principal, o.Locate = &life.Principal, t.locate()
	ep, err := endpoint.Connect(ctx, t.Config.Server.Value, LaunchSource(f), o)
	if err != nil {
		return nil, untouched(ctx, t.Explain(err))
	}
	if got := ep.Lifecycle(); got.UID != f.UID {
		_ = ep.Close()
		return nil, wire.Errorf(wire.CodeUnauthenticated, "agent %s: this shell is of the life %s, its credential of %s", f.Principal, f.UID, got.UID)
	}
	if f.Exchange != nil {
		id := ep.Identity()
		t.as = &id
	}
	return ep, nil
}

// LaunchSource is where an agent gets its credentials, a Source of package endpoint: the file that its supervisor keeps fresh or, in a
// space of people, the exchange.
func LaunchSource(f *launch.File) endpoint.Source {
	x := f.Exchange
	if x == nil {
		return launchedCreds{f.Creds}
	}
	var last *login.CredentialSource
	at := ""
	return endpoint.SourceFunc(func(ctx context.Context) (*trust.Credentials, error) {
		c, err := capabilityOf(x.CapabilityFile) // an exchange that starts again may listen elsewhere
		if err != nil {
			return nil, err
		}
		if last == nil || at != c.URL {
			ex, err := login.NewExchange(&login.ExchangeOptions{URL: c.URL, Capability: func(context.Context) (string, error) {
				now, err := capabilityOf(x.CapabilityFile)
				if err != nil {
					return "", err
				}
				return now.Cap(), nil
			}})
			if err != nil {
				return nil, err
			}
			at, last = c.URL, login.AgentSource(ex, login.AgentRequest{Owner: x.Owner, Actor: x.Actor, ActorToken: func() string { return string(x.Secret) }})
		}
		return last.Credentials(ctx)
	})
}

// capabilityOf reads how the exchange is reached. Where the node has left signing in to processes of its own, each of them has a file
// beside that of the node; the latest that can be read is taken.
func capabilityOf(path string) (login.Capability, error) {
	c, err := login.ReadCapability(path)
	if err == nil {
		return c, nil
	}
	beside, _ := filepath.Glob(strings.TrimSuffix(path, ".json") + ".*.json") // the pattern is well formed, or matches nothing
	var latest time.Time
	for _, file := range beside {
		info, serr := os.Stat(file)
		if serr != nil || !info.ModTime().After(latest) {
			continue
		}
		if other, rerr := login.ReadCapability(file); rerr == nil {
			c, err, latest = other, nil, info.ModTime()
		}
	}
	return c, err
}

// launchedCreds is the credential file of an agent, refused when others can read it.
type launchedCreds struct{ path string }

// Credentials implements endpoint.Source.
func (c launchedCreds) Credentials(ctx context.Context) (*trust.Credentials, error) {
	if info, err := os.Stat(c.path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "credential %q of the agent: others on this machine can read it", c.path)
	}
	return endpoint.File(c.path).Credentials(ctx)
}
