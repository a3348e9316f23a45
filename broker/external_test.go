package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/broker/brokertest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/brokerconf"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// natsServer builds the nats-server that this module is built with, once, and returns the program.
var natsServer = sync.OnceValues(func() (string, error) {
	name := "nats-server"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	program := filepath.Join(scratch, name)
	cmd := exec.Command("go", "build", "-o", program, "github.com/nats-io/nats-server/v2")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build nats-server: %w\n%s", err, out)
	}
	return program, nil
})

func TestExternalBroker(t *testing.T) {
	brokertest.Run(t, func(t testing.TB, a *mint.Authority) *brokertest.Broker {
		p := newProcess(t, a, "cotal", "")
		p.start(t)
		return &brokertest.Broker{URL: p.url(), Control: external(t, p, a), Restart: p.restart}
	})
}

// external is a control over the network.
func external(t testing.TB, p *process, a *mint.Authority, adjust ...func(*broker.DialOptions)) *broker.Control {
	t.Helper()
	opts := &broker.DialOptions{OperatorJWT: a.OperatorJWT(), Timeout: time.Minute}
	for _, f := range adjust {
		f(opts)
	}
	ctl, err := broker.Dial(context.Background(), p.url(), brokertest.Source(a), opts)
	if err != nil {
		t.Fatalf("Dial: %v\n%s", err, p.log())
	}
	t.Cleanup(func() { _ = ctl.Close() })
	return ctl
}

// process is one nats-server under a rendered configuration.
type process struct {
	program, config, address string
	store                    string
	cmd                      *exec.Cmd

	mu     sync.Mutex // guards output
	output bytes.Buffer
}

// newProcess renders the configuration of a server that knows all accounts of the authority. extra is appended to it.
func newProcess(t testing.TB, a *mint.Authority, name, extra string) *process {
	t.Helper()
	program, err := natsServer()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	port := freePort(t)
	c := brokerconf.Config{OperatorJWT: a.OperatorJWT(), StoreDir: dir, Transport: brokerconf.Plaintext, Port: port, ServerName: name}
	text, err := brokerconf.Render(c)
	if err != nil {
		t.Fatalf("render configuration: %v", err)
	}
	tokens := []string{a.SystemJWT()}
	for _, token := range records(t, a).Accounts {
		tokens = append(tokens, token)
	}
	if err := brokerconf.WriteAccounts(filepath.Join(dir, "accounts"), tokens...); err != nil {
		t.Fatalf("write accounts: %v", err)
	}
	config := filepath.Join(t.TempDir(), "nats.conf")
	write(t, config, string(text)+extra)
	return &process{program: program, config: config, store: dir, address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
}

// freePort asks the system for a port that nobody uses now.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func (p *process) url() string { return "nats://" + p.address }

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// start runs the server until the test ends or stop is called, and returns when it accepts connections.
func (p *process) start(t testing.TB) {
	t.Helper()
	cmd := exec.Command(p.program, "-c", p.config)
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		t.Fatalf("start nats-server: %v", err)
	}
	p.cmd = cmd
	t.Cleanup(func() { p.end(cmd) })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var d net.Dialer
	for {
		if c, err := d.DialContext(ctx, "tcp", p.address); err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("nats-server does not listen on %s:\n%s", p.address, p.log())
		}
	}
}

// end kills the very process that was started, as a power cut would, and waits for it.
func (p *process) end(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func (p *process) restart(t testing.TB) {
	t.Helper()
	p.end(p.cmd)
	p.start(t)
}

func authority(t testing.TB) *mint.Authority {
	t.Helper()
	a, err := mint.Init(context.Background(), memstore.New(), nil)
	if err != nil {
		t.Fatalf("make trust: %v", err)
	}
	return a
}

// member mints a credential of a profile in space team, as connect options.
func member(t testing.TB, a *mint.Authority, p trust.Profile) nats.Option {
	t.Helper()
	creds, err := a.User(context.Background(), mint.UserRequest{Space: "team", Profile: p, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}})
	if err != nil {
		t.Fatalf("mint %s: %v", p, err)
	}
	return func(o *nats.Options) error {
		o.InboxPrefix = wire.InboxPrefix(creds.Identity().Inbox)
		return nats.UserJWT(func() (string, error) { return creds.JWT(), nil }, creds.Sign)(o)
	}
}

// TestEmbeddedTakesOverTheStoreOfAnExternalBroker moves a mesh from one kind of broker to the other.
func TestEmbeddedTakesOverTheStoreOfAnExternalBroker(t *testing.T) {
	a := authority(t)
	if _, err := a.AddSpace(t.Context(), "team", nil); err != nil {
		t.Fatal(err)
	}
	p := newProcess(t, a, "cotal", "")
	p.start(t)
	nc, err := nats.Connect(p.url(), member(t, a, trust.Provisioner), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := must(jetstream.New(nc))(t)
	chat := must(wire.ChannelFilter("team", ">"))(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: wire.ChatStream("team"), Subjects: []string{chat}}); err != nil {
		t.Fatal(err)
	}
	p.end(p.cmd)

	opts := options(t)
	opts.StoreDir, opts.MaxStore, opts.MaxMemory = p.store, 0, 0
	refusal(t, newChain(t).trust, opts, wire.CodeFailedPrecondition,
		`store directory "$" belongs to a broker of an unknown operator: choose another directory, or the trust records it was made with`)
	js = must(jetstream.New(connect(t, start(t, records(t, a), opts), member(t, a, trust.Provisioner))))(t)
	if _, err := js.Stream(t.Context(), wire.ChatStream("team")); err != nil {
		t.Errorf("stream after the move: %v", err)
	}
}
