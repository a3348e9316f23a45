package endpoint_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// openWorld is a broker without accounts, where a test may play the broker's part on any subject, and its space. A
// small service stands in for delivery: it enrols.
type openWorld struct {
	tb   testing.TB
	srv  *server.Server
	opts *server.Options
	nc   *nats.Conn // may do anything
	js   jetstream.JetStream

	unserve func() // stops the service
}

func newOpenWorld(tb testing.TB, change ...func(*server.Options)) *openWorld {
	tb.Helper()
	opts := &server.Options{
		DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: tb.TempDir(), SyncInterval: time.Hour,
		JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 8 << 30,
	}
	for _, c := range change {
		c(opts)
	}
	w := &openWorld{tb: tb, opts: opts}
	w.start()
	tb.Cleanup(func() { w.stop() })
	login := nats.Token(opts.Authorization)
	if len(opts.Users) > 0 {
		login = nats.UserInfo(opts.Users[0].Username, opts.Users[0].Password)
	}
	w.nc = must(nats.Connect("", nats.InProcessServer(w.srv), nats.Timeout(time.Minute), login))(tb)
	tb.Cleanup(func() { shut(w.nc) })
	w.js = must(jetstream.New(w.nc))(tb)
	if err := space.Ensure(tb.Context(), w.js, lab, &space.Options{}); err != nil {
		tb.Fatalf("create space: %v", err)
	}
	w.serve(nil)
	return w
}

func (w *openWorld) start() {
	w.tb.Helper()
	opts := w.opts.Clone()
	w.srv = must(server.NewServer(opts))(w.tb)
	w.srv.Start()
	if !opts.DontListen && !w.srv.ReadyForConnections(10*time.Second) {
		w.tb.Fatal("broker is not ready")
	}
}

func (w *openWorld) stop() {
	w.srv.Shutdown()
	w.srv.WaitForShutdown()
}

// serve answers enrol, and what else is registered, until the test ends or unserve is called.
func (w *openWorld) serve(opts *control.Options, more ...func(*control.Service)) {
	w.tb.Helper()
	s := control.New(wire.DeliveryEndpoint, opts)
	for _, register := range more {
		register(s)
	}
	control.Handle(s, control.Command{Name: wire.CommandEnrol, Effect: control.Write},
		func(ctx context.Context, req *control.Request, in wire.EnrolRequest) (wire.EnrolReply, error) {
			err := space.EnsureDurables(ctx, w.js, lab, req.Caller, in.Role)
			return wire.EnrolReply{Principal: req.Caller.Principal.String(), UID: req.Caller.UID, Queues: []string{}}, err
		})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx, w.nc, lab); err != nil {
			w.tb.Errorf("serve: %v", err)
		}
	})
	<-s.Ready()
	w.unserve = func() {
		cancel()
		wg.Wait()
	}
	w.tb.Cleanup(w.unserve)
}

func (w *openWorld) connect(actor string, opts *endpoint.Options) *endpoint.Endpoint {
	w.tb.Helper()
	var o endpoint.Options
	if opts != nil {
		o = *opts
	}
	if o.Open == nil {
		o.Open = &endpoint.Open{}
	}
	open := *o.Open
	open.Space, open.Actor = lab, actor
	o.Open = &open
	if o.InProcess == nil {
		o.InProcess = w.srv
	}
	ep, err := endpoint.Connect(w.tb.Context(), "", nil, &o)
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

// gate is an authenticator that refuses everybody while it is shut.
type gate struct {
	shut    atomic.Bool
	refused atomic.Int32
	limit   int32 // refusals before it opens by itself; 0: never
}

func (g *gate) Check(server.ClientAuthentication) bool {
	if !g.shut.Load() {
		return true
	}
	if n := g.refused.Add(1); g.limit > 0 && n >= g.limit {
		g.shut.Store(false)
	}
	return false
}

func TestOpenMode(t *testing.T) {
	w := newOpenWorld(t)
	ada := w.connect("ada", nil)
	bob := w.connect("bob", &endpoint.Options{Open: &endpoint.Open{Role: "reviewer"}})
	if ada.Principal() != (wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}) || ada.Lifecycle().UID == bob.Lifecycle().UID {
		t.Errorf("lifecycles %v and %v", ada.Lifecycle(), bob.Lifecycle())
	}
	direct, asked := newJournal[*endpoint.Delivery](), newJournal[*endpoint.Delivery]()
	if err := bob.HandleDirect(t.Context(), direct.add); err != nil {
		t.Fatal(err)
	}
	if err := bob.HandleRole(t.Context(), asked.add); err != nil {
		t.Fatal(err)
	}
	if _, err := ada.Direct(t.Context(), bob.Principal(), endpoint.Text("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := ada.Ask(t.Context(), "reviewer", endpoint.Text("please")); err != nil {
		t.Fatal(err)
	}
	if d := direct.waitLen(t, 1)[0]; d.Sender != ada.Principal() || d.Kind != wire.KindDirect {
		t.Errorf("direct = %+v", d)
	}
	if d := asked.waitLen(t, 1)[0]; d.Sender != ada.Principal() || d.Kind != wire.KindRole || d.Role != "reviewer" {
		t.Errorf("asked = %+v", d)
	}
}

func TestFromLink(t *testing.T) {
	w := newOpenWorld(t, func(o *server.Options) {
		o.DontListen, o.Host, o.Port, o.Authorization = false, "127.0.0.1", -1, "tiger"
	})
	addr := w.srv.ClientURL()[len("nats://"):]
	connect := func(text string, opts *endpoint.Options) error {
		t.Helper()
		ep, err := endpoint.FromLink(t.Context(), must(wire.ParseLink(text))(t), nil, opts)
		if err != nil {
			return err
		}
		if ep.Space() != lab {
			t.Errorf("space = %q", ep.Space())
		}
		return ep.Close()
	}
	ada := &endpoint.Options{Open: &endpoint.Open{Actor: "ada"}}
	if err := connect("cotal://tiger@"+addr+"/lab?channel=team", ada); err != nil {
		t.Errorf("with the token: %v", err)
	}
	if err := connect("cotal://lion@"+addr+"/lab", ada); wire.CodeOf(err) != wire.CodeUnauthenticated {
		t.Errorf("with another token: %v", err)
	}
	if err := connect("cotal://tiger@"+addr+"/lab", nil); wire.CodeOf(err) != wire.CodeUnauthenticated {
		t.Errorf("without Open: %v", err)
	}
	if err := connect("cotal://tiger@"+addr+"/lab", &endpoint.Options{Space: "other", Open: ada.Open}); wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("with another space: %v", err)
	}
	if err := connect("cotals://tiger@"+addr+"/lab", ada); wire.CodeOf(err) != wire.CodeFailedPrecondition {
		t.Errorf("TLS towards plaintext: %v", err)
	}
	creds := newWorld(t).user("ada")
	_, err := endpoint.FromLink(t.Context(), must(wire.ParseLink("cotal://tiger@"+addr+"/lab"))(t), endpoint.Static(creds), nil)
	if wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("with a credential and a token: %v", err)
	}
	_, err = endpoint.FromLink(t.Context(), must(wire.ParseLink("cotal://"+addr+"/other"))(t), endpoint.Static(creds), nil)
	if wire.CodeOf(err) != wire.CodeFailedPrecondition {
		t.Errorf("with a credential for another space: %v", err)
	}
}
