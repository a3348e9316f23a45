package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lab = wire.Space("lab")

// mesh is a broker with one space and its delivery. The broker checks nobody; grants decide all the same unless open.
type mesh struct {
	srv    *server.Server
	nc     *nats.Conn // of the tests themselves
	js     jetstream.JetStream
	grants *space.Grants
}

// newMesh boots it; everything ends with the test. It works inside synctest bubbles, where close must be called.
func newMesh(t testing.TB) *mesh {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
		JetStreamMaxStore: 64 << 30, JetStreamMaxMemory: 4 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("broker is not ready")
	}
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	m := &mesh{srv: srv, nc: dial(t, srv)}
	if m.js, err = jetstream.New(m.nc); err != nil {
		t.Fatal(err)
	}
	if err := space.Ensure(ctxFor(t), m.js, lab, nil); err != nil {
		t.Fatal(err)
	}
	m.grants = space.NewGrants(m.js, lab)
	return m
}

// serve runs a delivery until the test ends or stop is called.
func (m *mesh) serve(t testing.TB, opts *delivery.Options) (stop func()) {
	t.Helper()
	return m.serveOn(t, dial(t, m.srv), opts)
}

func (m *mesh) serveOn(t testing.TB, nc *nats.Conn, opts *delivery.Options) (stop func()) {
	t.Helper()
	d := delivery.New(nc, lab, opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	select {
	case <-d.Ready():
	case err := <-done:
		t.Fatalf("run delivery: %v", err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run delivery: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

type pipe struct{ srv *server.Server }

func (p *pipe) InProcessConn() (net.Conn, error) { return p.srv.InProcessConn() }

func dial(t testing.TB, srv *server.Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	opts = append([]nats.Option{nats.InProcessServer(&pipe{srv}), nats.Timeout(time.Minute), nats.ClosedHandler(func(*nats.Conn) { close(closed) }), nats.MaxReconnects(-1)}, opts...)
	nc, err := nats.Connect("", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); <-closed })
	return nc
}

func ctxFor(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func lifecycle(actor string) wire.Lifecycle {
	return wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: actor}, UID: wire.NewUID()}
}

// grant gives l a read list.
func (m *mesh) grant(t testing.TB, l wire.Lifecycle, read ...string) (trust.Grant, uint64) {
	t.Helper()
	g := trust.Grant{
		Ver: trust.GrantVersion, Owner: l.Owner, Actor: l.Actor, UID: l.UID, Epoch: 1, Kind: trust.KindStatic,
		State: trust.GrantActive, AllowSubscribe: read, AllowPublish: []string{"general"}, CreatedAt: time.Now().UTC(), By: "test",
	}
	rev, err := m.grants.Create(ctxFor(t), g)
	if err != nil {
		t.Fatal(err)
	}
	return g, rev
}

func (m *mesh) caller(t testing.TB, l wire.Lifecycle) *control.Caller {
	t.Helper()
	c, err := control.NewCaller(m.nc, lab, l, wire.EndpointRef{Name: l.Actor}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask calls a command of delivery and fails the test on an error.
func ask[Out any](t testing.TB, c *control.Caller, command string, args any) Out {
	t.Helper()
	out, err := try[Out](t, c, command, args)
	if err != nil {
		t.Fatalf("%s %+v: %v", command, args, err)
	}
	return out
}

func try[Out any](t testing.TB, c *control.Caller, command string, args any) (Out, error) {
	t.Helper()
	var out Out
	err := c.Call(ctxFor(t), control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, args, &out)
	return out, err
}

// message is a valid one from a sender on a channel.
func message(from wire.Principal, channel, text string) *wire.Message {
	return &wire.Message{
		ID: wire.NewID(), TS: time.Now().UnixMilli(), Space: lab, From: wire.EndpointRef{ID: from.String(), Name: from.Actor},
		Channel: channel, Parts: []wire.Part{wire.Text(text)},
	}
}

func encode(t testing.TB, msg *wire.Message) []byte {
	t.Helper()
	data, err := msg.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// post stores a message and returns its sequence.
func (m *mesh) post(t testing.TB, from wire.Principal, channel, text string) uint64 {
	t.Helper()
	return m.store(t, from, channel, encode(t, message(from, channel, text)))
}

// store stores any body as if from had published it.
func (m *mesh) store(t testing.TB, from wire.Principal, channel string, body []byte) uint64 {
	t.Helper()
	subject, err := wire.ChannelSubject(lab, from, channel)
	if err != nil {
		t.Fatal(err)
	}
	ack, err := m.js.Publish(ctxFor(t), subject, body)
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

// texts are the text parts of a page.
func texts(t testing.TB, r wire.HistoryReply) []string {
	t.Helper()
	var out []string
	for _, h := range r.Messages {
		msg, err := wire.DecodeMessage(h.Message)
		if err != nil {
			t.Fatalf("message %d of a page: %v", h.Sequence, err)
		}
		if msg.From.ID != h.Sender {
			t.Fatalf("message %d of %q is given as of %q", h.Sequence, msg.From.ID, h.Sender)
		}
		out = append(out, msg.Text())
	}
	return out
}

func presence(l wire.Lifecycle, status wire.Status, activity string) *wire.Presence {
	return &wire.Presence{
		Card:   wire.Card{ID: l.Principal.String(), Name: l.Actor, Kind: wire.CardAgent, ProtocolVersion: wire.ProtocolVersion},
		Status: status, Activity: activity, LifecycleUID: l.UID, TS: time.Now().UnixMilli(),
	}
}

// beat publishes a presence record as an endpoint does, without waiting.
func (m *mesh) beat(t testing.TB, l wire.Lifecycle, status wire.Status, activity string) {
	t.Helper()
	data := encodePresence(t, presence(l, status, activity))
	subject, err := wire.PresenceSubject(lab, l.Principal)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.nc.Publish(subject, data); err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// cutter is a way to the broker that can be cut: existing connections break and new ones are refused.
type cutter struct {
	srv *server.Server

	mu    sync.Mutex // guards the two below
	down  bool
	conns []net.Conn
}

func (c *cutter) InProcessConn() (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, errors.New("the way is cut")
	}
	conn, err := c.srv.InProcessConn()
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cutter) off() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

func (c *cutter) on() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
}

// runIn runs d until stop is called.
func runIn(d *delivery.Service) (stop func(), done chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	done = make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return cancel, done
}

// flush waits until the broker has all that was published. The client's own Flush shares timers between bubbles.
func (m *mesh) flush(t testing.TB) {
	t.Helper()
	if err := m.nc.FlushWithContext(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
}

func encodePresence(t testing.TB, rec *wire.Presence) []byte {
	t.Helper()
	data, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
