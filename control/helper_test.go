package control_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const space = wire.Space("lab")

func lifecycle(actor string) wire.Lifecycle {
	return wire.Lifecycle{
		Principal: wire.Principal{Owner: wire.LocalOwner, Actor: actor},
		UID:       wire.UID((strings.ReplaceAll(actor, "_", "") + strings.Repeat("a", 26))[:26]),
	}
}

var ada = lifecycle("ada")

// bubble runs a test on fake time. The NATS client keeps timers in a pool of the process, and a timer belongs to the bubble
// it was made in: two collections empty the pool on the way in and on the way out.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	empty := func() {
		runtime.GC()
		runtime.GC()
	}
	empty()
	defer empty()
	faketime.Test(t, test)
}

// broker starts an embedded server that does not listen, so that it also works inside a synctest bubble.
func broker(tb testing.TB, users ...*server.User) *server.Server {
	tb.Helper()
	return start(tb, &server.Options{DontListen: true, NoSigs: true, NoLog: true, Users: users})
}

func start(tb testing.TB, opts *server.Options) *server.Server {
	tb.Helper()
	srv, err := server.NewServer(opts)
	if err != nil {
		tb.Fatalf("start broker: %v", err)
	}
	srv.Start()
	tb.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !opts.DontListen && !srv.ReadyForConnections(5*time.Second) {
		tb.Fatal("broker is not ready")
	}
	return srv
}

func dial(tb testing.TB, srv *server.Server, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect("", append([]nats.Option{nats.InProcessServer(srv), nats.Timeout(time.Minute)}, opts...)...)
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	tb.Cleanup(func() { shut(nc) })
	return nc
}

// shut closes a connection and waits for its goroutines.
func shut(nc *nats.Conn) {
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	if nc.IsClosed() {
		return
	}
	nc.Close()
	<-closed
}

// run serves until the test ends or stop is called, which returns Run's error.
func run(tb testing.TB, s *control.Service, nc *nats.Conn) (stop func() error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { err = s.Run(ctx, nc, space) })
	stop = func() error {
		cancel()
		wg.Wait()
		return err
	}
	tb.Cleanup(func() {
		if err := stop(); err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case <-time.After(10 * time.Second):
		tb.Fatal("service is not ready")
	}
	return stop
}

func caller(tb testing.TB, nc *nats.Conn, who wire.Lifecycle) *control.Caller {
	tb.Helper()
	c, err := control.NewCaller(nc, space, who, wire.EndpointRef{Name: who.Actor}, nil)
	if err != nil {
		tb.Fatalf("NewCaller: %v", err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// wantCode checks the code and the outcome of an error and returns it.
func wantCode(tb testing.TB, err error, code wire.Code, outcome wire.Outcome) *wire.Error {
	tb.Helper()
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		tb.Fatalf("error = %v, want code %s", err, code)
	}
	if e.Code != code || e.Outcome != outcome {
		tb.Fatalf("error = %s/%s (%v), want %s/%s", e.Code, e.Outcome, err, code, outcome)
	}
	return e
}

// logged keeps log records.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
