// Package mcp is `cotal mcp`, the tools of an agent over the Model Context Protocol, and `cotal hook`, which hosts call.
//
// Both act as the agent that the launch file of their environment is for. Without one `cotal mcp` takes part as the person, in the
// mesh that any other command would find, so that any host that speaks the protocol can be given the tools; `cotal hook` then has
// nothing to tell and says so.
package mcp

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/wire"
)

const mcpLong = `
Serves the tools by which an agent takes part in a space, over the Model Context Protocol: a roster, an inbox, sending to
channels and participants, and starting other agents where the credential allows it. Hosts start it themselves; it speaks
with them over standard input and output until they close it; what was asked before that is still answered, for at most ten
seconds. A host that is started again meanwhile is served once that is over.

In the shell of an agent it is that agent. Anywhere else it takes part as you, or as the --name, in the mesh that every
other command finds. The end of the tools keeps the memberships of channels, as with cotal join, and the next start goes on
with all of them; cotal leave ends them, with the same --name. Nothing that others write is acknowledged before the host has
said that it was read.

With --http it listens on the loopback interface instead, for as long as it runs, and asks every client for the token that
is in a file of yours. The token is made with the file when there is none.
`

const mcpExample = `
  cotal mcp
  cotal mcp --name helper --join team.backend
  cotal mcp --http 127.0.0.1:0 --token-file helper.token
  claude mcp add cotal -- cotal mcp --space main
`

// serve is the command.
type serve struct {
	http, tokenFile string
	join            []string
	channel         bool
}

// New adds `cotal mcp`.
func New(t *command.Tree) *cobra.Command {
	m := &serve{}
	c := t.Add(command.Spec{
		Use: "mcp [flags]", Short: "Serve the tools of an agent", Long: mcpLong, Example: mcpExample, Target: command.TargetPerson,
	}, m)
	f := c.Flags()
	f.StringVar(&m.http, "http", "", "listen at this loopback address instead of using standard input and output, such as 127.0.0.1:0")
	f.StringVar(&m.tokenFile, "token-file", "", "file of the token that clients bring with --http (default: one in the state folder of the project)")
	f.StringSliceVar(&m.join, "join", nil, "channel or pattern to join, may be repeated (default general; in the shell of an agent what it was started with)")
	f.BoolVar(&m.channel, "notices", false, "send notices of new messages as claude/channel notifications, also to a client that does not announce it; not with --http")
	return c
}

// Serving is the line that `cotal mcp --http --json` prints once it listens.
type Serving struct {
	command.V
	URL       string `json:"url"`
	TokenFile string `json:"tokenFile"`
	Principal string `json:"principal"`
}

// Run serves until the host closes its end, or ctx ends.
func (m *serve) Run(ctx context.Context, e *command.Env) error {
	if m.tokenFile != "" && m.http == "" {
		return command.Usagef("--token-file is for --http")
	}
	if m.channel && m.http != "" {
		return command.Usagef("--notices is not for --http: clients there are told by log messages and the resource cotal://inbox")
	}
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	var news mcpserver.News
	opts := &mcpserver.Options{News: &news, Join: m.join, Channel: m.channel, Logger: e.Quiet()}
	m.launched(t, opts)
	ep, err := t.Endpoint(ctx, target.Joining, func(o *endpoint.Options) { mcpserver.Prepare(o, &news, opts.Wake != nil) })
	if err != nil {
		return err
	}
	defer func() { _ = ep.Close() }() // what was not acknowledged is given back by now
	s := mcpserver.New(ep, opts)
	if m.http != "" {
		return m.overHTTP(ctx, e, t, ep, s)
	}
	return together(ctx, s.Run, func(ctx context.Context) error {
		out := newOpen(e.Stdout)
		defer context.AfterFunc(ctx, out.end)()
		return s.Serve(ctx, finishing{&sdk.IOTransport{Reader: &lines{in: bufio.NewReader(e.Stdin), out: out}, Writer: out}})
	})
}

// launched fills in what the launch file says, if there is one.
func (m *serve) launched(t *target.Target, opts *mcpserver.Options) {
	f := t.Launch()
	if f == nil {
		if opts.Join == nil {
			opts.Join = []string{"general"}
		}
		return
	}
	if opts.Join == nil {
		opts.Join = f.Subscribe
	}
	opts.Persona, opts.Model, opts.Manager, opts.HostSocket = f.Persona, f.Model, f.Manager, f.HostSocket
	opts.TakeOver = takeOver
	if f.Wakes && f.Seat != "" {
		opts.Wake = waker(f.Seat)
	}
}

// together runs functions until one of them returns, ends the others and waits for them. Its error is that of the one that returned
// first: what the others say then comes of being ended.
func together(ctx context.Context, fns ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, fn := range fns {
		wg.Go(func() {
			err := fn(ctx)
			once.Do(func() { first = err })
			cancel()
		})
	}
	wg.Wait()
	return first
}

func (m *serve) overHTTP(ctx context.Context, e *command.Env, t *target.Target, ep *endpoint.Endpoint, s *mcpserver.Server) error {
	path, err := m.tokenPath(t, ep.Principal())
	if err != nil {
		return err
	}
	token, err := mcpserver.ReadToken(path)
	if err != nil {
		return err
	}
	l, err := mcpserver.Listen(m.http)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: s.Handler(l.Addr(), token), ReadHeaderTimeout: 10 * time.Second}
	res := Serving{V: command.V1, URL: "http://" + l.Addr().String() + mcpserver.HTTPPath, TokenFile: path, Principal: ep.Principal().String()}
	return together(ctx, s.Run, func(ctx context.Context) error {
		select {
		case <-s.Ready():
		case <-ctx.Done():
			return l.Close()
		}
		if err := e.Print(res, func(p *command.Printer) {
			p.Line("tools of %s at %s; the token of clients is in %s; Ctrl-C stops", res.Principal, res.URL, command.Safe(res.TokenFile))
		}); err != nil {
			_ = l.Close() // nobody knows of it
			return err
		}
		return listen(ctx, srv, l)
	})
}

// listen serves until ctx ends, and returns after every request.
func listen(ctx context.Context, srv *http.Server, l net.Listener) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = srv.Close() // streams of clients have no end of their own
	})
	err := srv.Serve(l)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return wire.Errorf(wire.CodeUnavailable, "serve tools: %v", err)
}

// tokenPath is the file of the token: the one that was named, or one of this identity in the state folder of the project.
func (m *serve) tokenPath(t *target.Target, p wire.Principal) (string, error) {
	if m.tokenFile != "" {
		return filepath.Abs(m.tokenFile)
	}
	project := t.Config.Project
	if project == nil || t.Launch() != nil {
		return "", command.Usagef("--http needs --token-file where there is no project")
	}
	s, err := project.Settings()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(project.StateOf(s), "mcp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", wire.Errorf(wire.CodeFailedPrecondition, "make folder for the token: %v", err)
	}
	return filepath.Join(dir, string(t.Space())+"-"+p.String()+".token"), nil
}
