package endpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lab = wire.Space("lab")

// world is an operator-mode broker with one space whose streams exist, and the authority that mints for it.
type world struct {
	tb   testing.TB
	mint *mint.Authority
	srv  *broker.Server
	ctl  *broker.Control
}

// newWorld boots a broker that does not listen, so that it also works inside a synctest bubble. Options may change how
// it starts.
func newWorld(tb testing.TB, change ...func(*broker.Options)) *world {
	tb.Helper()
	ctx := tb.Context()
	w := &world{tb: tb}
	w.mint = must(mint.Init(ctx, memstore.New(), nil))(tb)
	rec := must(w.mint.AddSpace(ctx, lab, nil))(tb)
	opts := &broker.Options{NoListen: true, StoreDir: tb.TempDir(), MaxMemory: 1 << 30, MaxStore: 8 << 30, SyncInterval: time.Hour}
	for _, c := range change {
		c(opts)
	}
	w.srv = must(broker.Start(ctx, w.trust(rec), opts))(tb)
	tb.Cleanup(w.srv.Shutdown)
	system := must(w.mint.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl}))(tb)
	w.ctl = must(w.srv.Control(ctx, broker.Static(system), nil))(tb)
	tb.Cleanup(func() { _ = w.ctl.Close() })
	js, done := w.jetstream(trust.Provisioner)
	defer done()
	if err := space.Ensure(ctx, js, lab, &space.Options{}); err != nil {
		tb.Fatalf("create space: %v", err)
	}
	return w
}

func (w *world) trust(rec trust.AccountRecord) broker.Trust {
	return broker.Trust{
		OperatorJWT: w.mint.OperatorJWT(), SystemPublic: w.mint.SystemPublic(), SystemJWT: w.mint.SystemJWT(),
		Accounts: map[string]string{rec.Public: rec.JWT},
	}
}

// user mints a credential of an agent that may read and write every channel, unless the changes say otherwise.
func (w *world) user(actor string, change ...func(*mint.UserRequest)) *trust.Credentials {
	w.tb.Helper()
	r := mint.UserRequest{
		Space: lab, Profile: trust.Agent, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: actor},
		Subscribe: []string{">"}, Publish: []string{">"},
	}
	for _, c := range change {
		c(&r)
	}
	return must(w.mint.User(w.tb.Context(), r))(w.tb)
}

// again mints a newer credential of the same life.
func (w *world) again(c *trust.Credentials, ttl time.Duration) *trust.Credentials {
	w.tb.Helper()
	id := c.Identity()
	return w.user(id.Actor, func(r *mint.UserRequest) {
		r.UID, r.Role, r.TTL, r.Profile = id.UID, id.Role, ttl, id.Profile
		r.Subscribe, r.Publish = id.Subscribe, id.Publish
	})
}

func reader(patterns ...string) func(*mint.UserRequest) {
	return func(r *mint.UserRequest) { r.Subscribe = patterns }
}

func writer(patterns ...string) func(*mint.UserRequest) {
	return func(r *mint.UserRequest) { r.Publish = patterns }
}

func role(name string) func(*mint.UserRequest) { return func(r *mint.UserRequest) { r.Role = name } }

func lasting(ttl time.Duration) func(*mint.UserRequest) {
	return func(r *mint.UserRequest) { r.TTL = ttl }
}

// connect makes an endpoint that is closed with the test.
func (w *world) connect(creds *trust.Credentials, opts *endpoint.Options) *endpoint.Endpoint {
	w.tb.Helper()
	return w.connectFrom(endpoint.Static(creds), opts)
}

func (w *world) connectFrom(src endpoint.Source, opts *endpoint.Options) *endpoint.Endpoint {
	w.tb.Helper()
	ep, err := endpoint.Connect(w.tb.Context(), "", src, w.inProcess(opts))
	if err != nil {
		w.tb.Fatalf("connect: %v", err)
	}
	w.tb.Cleanup(func() {
		if err := ep.Close(); err != nil {
			w.tb.Errorf("close: %v", err)
		}
	})
	return ep
}

func (w *world) inProcess(opts *endpoint.Options) *endpoint.Options {
	var o endpoint.Options
	if opts != nil {
		o = *opts
	}
	o.InProcess = w.srv.InProcess()
	return &o
}

// durables makes the queues of a lifecycle, as the authority does.
func (w *world) durables(creds *trust.Credentials) {
	w.tb.Helper()
	js, done := w.jetstream(trust.Authority)
	defer done()
	id := creds.Identity()
	if err := space.EnsureDurables(w.tb.Context(), js, lab, id.Lifecycle, id.Role); err != nil {
		w.tb.Fatalf("create durables: %v", err)
	}
}

// jetstream connects with a profile of the services.
func (w *world) jetstream(p trust.Profile) (jetstream.JetStream, func()) {
	w.tb.Helper()
	nc := w.raw(must(w.mint.User(w.tb.Context(), mint.UserRequest{
		Space: lab, Profile: p, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "service"},
	}))(w.tb))
	return must(jetstream.New(nc))(w.tb), func() { shut(nc) }
}

// raw is a plain NATS connection with a credential.
func (w *world) raw(creds *trust.Credentials) *nats.Conn {
	w.tb.Helper()
	return must(nats.Connect("", nats.InProcessServer(w.srv.InProcess()), nats.Timeout(time.Minute),
		nats.UserJWT(func() (string, error) { return creds.JWT(), nil }, creds.Sign),
		nats.CustomInboxPrefix(wire.InboxPrefix(creds.Identity().Inbox))))(w.tb)
}

// shut closes a connection and waits for its callbacks.
func shut(nc *nats.Conn) {
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	if nc.IsClosed() {
		return
	}
	nc.Close()
	<-closed
}

// kick ends every connection of a user, as an operator would.
func (w *world) kick(creds *trust.Credentials) {
	w.tb.Helper()
	rec := must(w.mint.Account(w.tb.Context(), lab))(w.tb)
	n, err := w.ctl.Evict(w.tb.Context(), rec.Public, func(c broker.Connection) bool {
		return c.UserKey == creds.Identity().UserKey
	})
	if err != nil && n == 0 {
		w.tb.Fatalf("kick: %v", err)
	}
}

// publish stores raw bytes on a channel's subject as a principal, without what an endpoint adds.
func (w *world) publish(nc *nats.Conn, subject string, header nats.Header, data []byte) {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), time.Minute)
	defer cancel()
	m, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Header: header, Data: data})
	if err != nil || strings.Contains(string(m.Data), "error") {
		w.tb.Fatalf("publish %q: %v %s", subject, err, m.Data)
	}
}

// encode makes the JSON of a channel message.
func encode(tb testing.TB, from wire.Principal, channel, id, text string) []byte {
	tb.Helper()
	m := &wire.Message{
		ID: id, TS: 1, Space: lab, From: wire.EndpointRef{ID: from.String(), Name: from.Actor}, Channel: channel,
		Parts: []wire.Part{wire.Text(text)},
	}
	return must(m.AppendJSON(nil))(tb)
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// wantError checks an error's code and outcome and returns it.
func wantError(tb testing.TB, err error, code wire.Code, outcome wire.Outcome) *wire.Error {
	tb.Helper()
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		tb.Fatalf("error = %v, want code %q", err, code)
	}
	if e.Code != code || e.Outcome != outcome {
		tb.Fatalf("error = %q/%q (%v), want %q/%q", e.Code, e.Outcome, err, code, outcome)
	}
	return e
}

// journal collects what handlers are given, and lets a test wait for it.
type journal[T any] struct {
	mu   sync.Mutex
	all  []T
	more chan struct{}
}

func newJournal[T any]() *journal[T] { return &journal[T]{more: make(chan struct{}, 1)} }

func (j *journal[T]) add(v T) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, v)
	select {
	case j.more <- struct{}{}:
	default:
	}
}

func (j *journal[T]) list() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.all)
}

// take returns what was collected since the last take.
func (j *journal[T]) take() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.all
	j.all = nil
	return all
}

// waitFor returns once ok holds of what was collected, and fails after a while of real time.
func (j *journal[T]) waitFor(tb testing.TB, what string, ok func([]T) bool) []T {
	tb.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		all := j.list()
		if ok(all) {
			return all
		}
		select {
		case <-j.more:
		case <-timeout.C:
			tb.Fatalf("waiting for %s, got %v", what, j.list())
		}
	}
}

func (j *journal[T]) waitLen(tb testing.TB, n int) []T {
	tb.Helper()
	return j.waitFor(tb, fmt.Sprintf("%d entries", n), func(all []T) bool { return len(all) >= n })
}

// wantEvent waits for an event of a type that ok accepts, and returns it.
func wantEvent[E endpoint.Event](tb testing.TB, j *journal[endpoint.Event], ok func(E) bool) E {
	tb.Helper()
	var found E
	j.waitFor(tb, fmt.Sprintf("%T", found), func(all []endpoint.Event) bool {
		for _, ev := range all {
			if e, is := ev.(E); is && (ok == nil || ok(e)) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func countEvents[E endpoint.Event](j *journal[endpoint.Event]) (n int) {
	for _, ev := range j.list() {
		if _, is := ev.(E); is {
			n++
		}
	}
	return n
}

// bubbled prepares a test that ends with a synctest bubble. nats.go pools timers for the process, and one made in a
// bubble must not be met by another test: two collections empty a pool.
func bubbled(t *testing.T) {
	t.Helper()
	drainPools()
	t.Cleanup(drainPools)
}

func drainPools() {
	runtime.GC()
	runtime.GC()
}

// counting counts the connections that got as far as presenting a credential.
type counting struct {
	provider  nats.InProcessConnProvider
	presented atomic.Int32
}

func (c *counting) InProcessConn() (net.Conn, error) {
	conn, err := c.provider.InProcessConn()
	if err != nil {
		return nil, err
	}
	return &watched{Conn: conn, c: c}, nil
}

type watched struct {
	net.Conn
	c *counting
}

func (w *watched) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(`"jwt":"ey`)) {
		w.c.presented.Add(1)
	}
	return w.Conn.Write(b)
}
