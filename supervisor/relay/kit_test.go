package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/term"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// TestMain lets a copy of the test binary be a seat.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "seat" {
		if err := seat.Main(context.Background(), os.Args[2], slog.New(slog.DiscardHandler)); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const instance = "sup1"

// world is a mesh with the connection of a supervisor and its relay.
type world struct {
	*cotaltest.Mesh
	mint  *mint.Authority
	nc    *nats.Conn
	relay *relay.Relay
}

func newWorld(t *testing.T, opts *relay.Options) *world {
	t.Helper()
	w := &world{Mesh: cotaltest.New(t, nil)}
	var err error
	if w.mint, err = mint.Open(t.Context(), w.Store(), nil); err != nil {
		t.Fatal(err)
	}
	w.nc = w.supervisor(t)
	w.relay = w.serve(t, w.nc, instance, opts)
	return w
}

func (w *world) supervisor(t *testing.T) *nats.Conn {
	t.Helper()
	creds, err := w.mint.User(t.Context(), mint.UserRequest{
		Space: w.Space(), Profile: trust.Supervisor, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "supervisor"},
	})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := dial.Connect(t.Context(), dial.Options{InProcess: w.InProcess(), Creds: creds, Name: "supervisor"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (w *world) serve(t *testing.T, nc *nats.Conn, instance string, opts *relay.Options) *relay.Relay {
	t.Helper()
	r := relay.New(nc, w.Space(), instance, opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

// viewer connects an endpoint whose connections can be cut.
func (w *world) viewer(t *testing.T, actor string) (*endpoint.Endpoint, *cutter) {
	t.Helper()
	c := &cutter{next: w.InProcess()}
	creds, err := w.Node().Authority().Issue(t.Context(), auth.Request{Space: w.Space(), Actor: actor, Capabilities: []string{trust.ScopeSpawn}})
	if err != nil {
		t.Fatal(err)
	}
	ep, err := endpoint.Connect(t.Context(), "", endpoint.Static(creds), &endpoint.Options{Name: actor, Quiet: true, InProcess: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ep.Close() })
	return ep, c
}

// cutter makes connections that can be cut, and holds new ones back for as long as the test wants.
type cutter struct {
	next nats.InProcessConnProvider

	mu    sync.Mutex
	conns []net.Conn
	shut  bool
}

func (c *cutter) InProcessConn() (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return nil, errors.New("no route")
	}
	conn, err := c.next.InProcessConn()
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

// cut ends what there is, and with stay what comes too.
func (c *cutter) cut(stay bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = stay
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

func (c *cutter) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = false
}

// stage is a terminal of a test: what is typed is kept, what is written is shown.
type stage struct {
	mu     sync.Mutex
	screen *term.Screen
	typed  []byte
	sizes  [][2]int
	views  map[*look]struct{}
	exit   *wire.SessionExit
	block  chan struct{} // if not nil, typing waits for it
	heard  chan struct{} // capacity 1, after something was typed or resized
}

func newStage(cols, rows int) *stage {
	return &stage{screen: term.New(cols, rows), views: map[*look]struct{}{}, heard: make(chan struct{}, 1)}
}

type look struct {
	s      *stage
	mu     sync.Mutex
	frames []relay.Frame
	size   int
	wakeup chan struct{}
}

const lookLimit = 64 << 10

func (s *stage) View(context.Context) (relay.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &look{s: s, wakeup: make(chan struct{}, 1)}
	v.push(s.snapshot())
	if s.exit != nil {
		v.push(relay.Frame{Kind: relay.Ended, Exit: s.exit})
	}
	s.views[v] = struct{}{}
	return v, nil
}

func (s *stage) snapshot() relay.Frame {
	cols, rows := s.screen.Size()
	return relay.Frame{Kind: relay.Snapshot, Data: s.screen.Snapshot(), Cols: cols, Rows: rows}
}

func (v *look) push(f relay.Frame) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.size += len(f.Data); v.size > lookLimit && f.Kind == relay.Output {
		v.frames = []relay.Frame{v.s.snapshot()}
		v.size = len(v.frames[0].Data) - lookLimit
	} else {
		v.frames = append(v.frames, f)
	}
	select {
	case v.wakeup <- struct{}{}:
	default:
	}
}

func (v *look) Next(ctx context.Context) (relay.Frame, error) {
	for {
		v.mu.Lock()
		if len(v.frames) > 0 {
			f := v.frames[0]
			v.frames = v.frames[1:]
			v.size -= len(f.Data)
			v.mu.Unlock()
			return f, nil
		}
		v.mu.Unlock()
		select {
		case <-v.wakeup:
		case <-ctx.Done():
			return relay.Frame{}, ctx.Err()
		}
	}
}

func (v *look) Close() error {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	delete(v.s.views, v)
	return nil
}

func (s *stage) show(f relay.Frame) {
	for v := range s.views {
		v.push(f)
	}
}

// write is output of the agent.
func (s *stage) write(p string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if out := slices.Clone(s.screen.Feed([]byte(p))); len(out) > 0 {
		s.show(relay.Frame{Kind: relay.Output, Data: out})
	}
}

// end is the end of the agent.
func (s *stage) end(x wire.SessionExit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exit = &x
	s.show(relay.Frame{Kind: relay.Ended, Exit: &x})
}

func (s *stage) Input(ctx context.Context, data []byte) error {
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.typed = append(s.typed, data...)
	s.tell()
	return nil
}

func (s *stage) Resize(_ context.Context, cols, rows int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.screen.Resize(cols, rows)
	s.sizes = append(s.sizes, [2]int{cols, rows})
	s.show(relay.Frame{Kind: relay.Resized, Cols: cols, Rows: rows})
	s.tell()
	return nil
}

func (s *stage) tell() {
	select {
	case s.heard <- struct{}{}:
	default:
	}
}

func (s *stage) Size(context.Context) (cols, rows int, err error) {
	cols, rows = s.screen.Size()
	return cols, rows, nil
}

// until waits until done holds.
func (s *stage) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		ok := done()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-s.heard:
		case <-limit:
			t.Fatalf("%s did not come about; typed %q, sizes %v", what, s.typed, s.sizes)
		}
	}
}

// glass is what a viewer shows: a terminal of its own that is fed what the session tells.
type glass struct {
	*term.Screen
	overflows, snapshots, lost int
	dropped, written           uint64
	told                       int // how often it was told what was written
	exit                       *wire.SessionExit
}

// take applies one event.
func (g *glass) take(ev endpoint.SessionEvent) {
	switch ev.Kind {
	case endpoint.SessionSnapshot:
		if g.Screen == nil {
			g.Screen = term.New(ev.Cols, ev.Rows)
		}
		g.Resize(ev.Cols, ev.Rows)
		g.Write(ev.Data)
		g.snapshots++
		if ev.Overflow {
			g.overflows++
		}
	case endpoint.SessionOutput:
		g.Write(ev.Data)
	case endpoint.SessionResized:
		g.Resize(ev.Cols, ev.Rows)
	case endpoint.SessionDropped:
		g.dropped += ev.Bytes
	case endpoint.SessionWritten:
		g.written = ev.Bytes
		g.told++
	case endpoint.SessionLost:
		g.lost++
	case endpoint.SessionEnded:
		g.exit = ev.Exit
	}
}

// until takes events until done holds.
func (g *glass) until(t *testing.T, s *endpoint.Session, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for g.Screen == nil || !done() {
		ev, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("%s did not come about: %v\n%s", what, err, g)
		}
		g.take(ev)
	}
}

func (g *glass) String() string {
	if g.Screen == nil {
		return "(nothing shown)"
	}
	text := ""
	for _, l := range g.Lines(100) {
		text += l + "\n"
	}
	return text
}

func (w *world) offer(t *testing.T, ep *endpoint.Endpoint, s relay.Terminal, drive bool, cols, rows int) wire.AttachReply {
	t.Helper()
	offer, err := w.relay.Offer(t.Context(), relay.Caller{Life: ep.Lifecycle()}, agent, s, wire.AttachRequest{UID: agent, Drive: drive, Cols: cols, Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	return offer
}

func open(t *testing.T, ep *endpoint.Endpoint, offer wire.AttachReply, o *endpoint.SessionOptions) *endpoint.Session {
	t.Helper()
	s, err := ep.Session(t.Context(), offer, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var agent = wire.NewUID()
