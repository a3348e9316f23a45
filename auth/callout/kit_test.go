package callout_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const owner = "u_g5mclrofwa6pirb3p4yeigemze"

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// responder answers for a callout account and remembers what it signed.
type responder struct {
	*mint.Responder

	mu     sync.Mutex // guards signed
	signed []jwt.AuthorizationResponseClaims
}

func (r *responder) SignResponse(ctx context.Context, c *jwt.AuthorizationResponseClaims) (string, error) {
	token, err := r.Responder.SignResponse(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signed = append(r.signed, *c)
	return token, err
}

func (r *responder) answers() []jwt.AuthorizationResponseClaims {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.signed)
}

// decider changes what the records decide about a connection. A token that it returns is handed out as it is.
type decider func(ctx context.Context, c *mint.ConnectionRequest) (token string, err error)

// records decide like the authority of a space, with the same grant for everybody.
type records struct {
	mint   *mint.Authority
	space  wire.Space
	decide decider // may be nil

	mu    sync.Mutex // guards keys
	keys  map[string]int
	calls []wire.Lifecycle
}

func (r *records) Connect(ctx context.Context, _ wire.Space, req auth.ConnectRequest) (string, auth.Admission, error) {
	r.mu.Lock()
	r.keys[req.UserKey]++
	seen := r.keys[req.UserKey] > 1
	r.calls = append(r.calls, req.Lifecycle)
	r.mu.Unlock()
	if seen {
		return "", auth.Admission{}, trust.Deny(wire.CodeConflict, trust.ReasonReplayed, "the key was used before")
	}
	c := mint.ConnectionRequest{UserKey: req.UserKey, Expires: req.Expires, UserRequest: mint.UserRequest{
		Profile: trust.Agent, Principal: req.Principal, UID: req.UID, Subscribe: []string{"general"}, Publish: []string{"general"},
	}}
	if r.decide != nil {
		if token, err := r.decide(ctx, &c); token != "" || err != nil {
			return token, auth.Admission{}, err
		}
	}
	token, err := r.mint.ConnectionJWT(ctx, r.space, c)
	return token, auth.Admission{Profile: trust.Agent}, err
}

// asked is about whom the records were asked, in order.
func (r *records) asked() []wire.Lifecycle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// world is one space that signs people in.
type world struct {
	space     wire.Space
	account   trust.AccountRecord
	records   *records
	responder *responder
	issuer    *bearer.Issuer
	validator *bearer.Validator
	creds     *trust.Credentials // of the callout user
	sentinel  string
}

func newWorld(t testing.TB, m *mint.Authority, store secret.Store, s wire.Space) *world {
	t.Helper()
	ctx := context.Background()
	must(m.AddSpace(ctx, s, nil))(t)
	keys := must(bearer.EnsureKeys(ctx, store, s))(t)
	return &world{
		space: s, account: must(m.EnsureCallout(ctx, s))(t), records: &records{mint: m, space: s, keys: map[string]int{}},
		responder: &responder{Responder: must(m.CalloutResponder(ctx, s))(t)},
		issuer:    bearer.NewIssuer(s, keys), validator: bearer.NewValidator(s, keys, nil),
		creds: must(m.CalloutUser(ctx, s, 0))(t), sentinel: must(m.Sentinel(ctx, s, 0))(t),
	}
}

// mesh is a broker with spaces that sign people in.
type mesh struct {
	srv    *broker.Server
	mint   *mint.Authority
	worlds map[wire.Space]*world
}

// newMesh boots a broker that only this process reaches.
func newMesh(t testing.TB, spaces ...wire.Space) *mesh {
	t.Helper()
	ctx := context.Background()
	store := memstore.New()
	m := &mesh{mint: must(mint.Init(ctx, store, nil))(t), worlds: map[wire.Space]*world{}}
	accounts := map[string]string{}
	for _, s := range spaces {
		w := newWorld(t, m.mint, store, s)
		m.worlds[s] = w
		for _, a := range w.account.Accounts() {
			accounts[a.Public] = a.JWT
		}
	}
	m.srv = must(broker.Start(ctx, broker.Trust{
		OperatorJWT: m.mint.OperatorJWT(), SystemPublic: m.mint.SystemPublic(), SystemJWT: m.mint.SystemJWT(), Accounts: accounts,
	}, &broker.Options{StoreDir: t.TempDir(), NoListen: true}))(t)
	t.Cleanup(m.srv.Shutdown)
	return m
}

func public(t testing.TB, k nkeys.KeyPair) string {
	t.Helper()
	return must(k.PublicKey())(t)
}

// responderConn connects as the callout user of a space.
func (m *mesh) responderConn(t testing.TB, w *world) *nats.Conn {
	t.Helper()
	nc := must(dial.Connect(context.Background(), dial.Options{
		InProcess: m.srv.InProcess(), Creds: w.creds, Name: "callout",
		OnError: func(_ *nats.Conn, err error) { t.Errorf("callout connection: %v", err) },
	}))(t)
	t.Cleanup(nc.Close)
	return nc
}

// desk is a running service and what it decided.
type desk struct {
	*callout.Service
	nc   *nats.Conn
	told chan callout.Decision
	stop func() error // ends it and returns what Run returned; idempotent
}

func (m *mesh) options(w *world) callout.Options {
	return callout.Options{
		Space: w.space, Responder: w.responder, Validator: w.validator, Authority: w.records,
		Servers: func(context.Context) ([]string, error) { return []string{m.srv.ID()}, nil },
	}
}

// serve runs a service of the space until the test ends.
func (m *mesh) serve(t testing.TB, w *world, adjust ...func(*callout.Options)) *desk {
	t.Helper()
	o := m.options(w)
	for _, a := range adjust {
		a(&o)
	}
	return run(t, m.responderConn(t, w), o)
}

func run(t testing.TB, nc *nats.Conn, o callout.Options) *desk {
	t.Helper()
	d := &desk{nc: nc, told: make(chan callout.Decision, 1<<14)}
	if o.OnDecision == nil {
		o.OnDecision = func(_ context.Context, dec callout.Decision) { d.told <- dec }
	}
	d.Service = must(callout.New(nc, o))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	d.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = d.stop() })
	select {
	case <-d.Ready():
	case err := <-ended:
		ended <- err
		t.Fatalf("Run: %v", err)
	}
	return d
}

// person is who connects: one life of one actor, and the key of their client.
type person struct {
	wire.Lifecycle
	key nkeys.KeyPair
}

func newPerson(t testing.TB, actor string) *person {
	t.Helper()
	return &person{
		Lifecycle: wire.Lifecycle{Principal: wire.Principal{Owner: owner, Actor: actor}, UID: wire.NewUID()}, key: must(nkeys.CreateUser())(t),
	}
}

func (p *person) proof(t testing.TB) ed25519.PublicKey {
	t.Helper()
	return must(bearer.PublicKey(public(t, p.key)))(t)
}

// bearer signs a bearer of the person for the space. Without a key it can be used by anybody.
func (w *world) bearer(t testing.TB, p *person, bound bool, life time.Duration) string {
	t.Helper()
	c := bearer.Claims{
		Subject: p.Owner, Scope: []string{}, Act: bearer.Act{Owner: p.Owner, Actor: p.Actor, UID: p.UID, Epoch: 1, Inbox: string(p.UID)},
	}
	if bound {
		c.Confirmation = p.proof(t)
	}
	token, _, err := w.issuer.Sign(context.Background(), c, life)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// connect connects with the sentinel and a bearer, signing the nonce with a key.
func (m *mesh) connect(w *world, token string, key nkeys.KeyPair, opts ...nats.Option) (*nats.Conn, error) {
	opts = append([]nats.Option{
		nats.InProcessServer(m.srv.InProcess()), nats.Timeout(10 * time.Second), nats.NoReconnect(),
		nats.UserJWT(func() (string, error) { return w.sentinel, nil }, key.Sign), nats.Token(token),
	}, opts...)
	return nats.Connect("", opts...)
}

// login connects a person and fails the test when that is refused.
func (m *mesh) login(t testing.TB, w *world, p *person, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{nats.CustomInboxPrefix(wire.InboxPrefix(string(p.UID)))}, opts...)
	nc, err := m.connect(w, w.bearer(t, p, true, time.Minute), p.key, opts...)
	if err != nil {
		t.Fatalf("connect %q: %v", p.Actor, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// refused fails the test unless the broker refused the connection.
func refused(t testing.TB, nc *nats.Conn, err error) {
	t.Helper()
	if err == nil {
		nc.Close()
		t.Fatal("connected, want a refusal")
	}
	if !errors.Is(err, nats.ErrAuthorization) {
		t.Fatalf("connect: %v, want %v", err, nats.ErrAuthorization)
	}
}

// bubble runs a test on fake time. The NATS client keeps timers in a pool, and one of another bubble must not meet this one: two
// collections empty it.
func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	empty := func() {
		runtime.GC()
		runtime.GC()
	}
	empty()
	defer empty()
	faketime.Test(t, fn)
}
