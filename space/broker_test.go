package space_test

import (
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files of this package")

const lab = wire.Space("lab")

// broker boots a real broker without a socket; everything ends with the test. It works inside synctest bubbles.
func broker(t testing.TB, change ...func(*server.Options)) *server.Server {
	t.Helper()
	opts := &server.Options{
		DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
		JetStreamMaxStore: 64 << 30, JetStreamMaxMemory: 4 << 30,
	}
	for _, c := range change {
		c(opts)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatalf("make broker: %v", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("broker is not ready")
	}
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	return srv
}

// connect returns a JetStream context of an in-process connection.
func connect(t testing.TB, srv *server.Server, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("", append([]nats.Option{nats.InProcessServer(&piped{srv}), nats.Timeout(time.Minute)}, opts...)...)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// piped counts on the broker reading on: good credentials only.
type piped struct{ srv *server.Server }

func (p *piped) InProcessConn() (net.Conn, error) { return p.srv.InProcessConn() }

func ctxFor(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func lifecycle(actor string) wire.Lifecycle {
	return wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: actor}, UID: wire.NewUID()}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs from what the broker has (-file +got); review and run with -update:\n%s", path, diff)
	}
}

// streamNames lists every stream of the account.
func streamNames(t testing.TB, js jetstream.JetStream) []string {
	t.Helper()
	var names []string
	l := js.StreamNames(ctxFor(t))
	for n := range l.Name() {
		names = append(names, n)
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}
