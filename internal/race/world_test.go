package race_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

const issuer = "https://idp.example"

// provider knows who somebody is by what they say.
type provider struct{}

func (provider) Verify(_ context.Context, token string) (oidc.Claims, error) {
	return oidc.Claims{Issuer: issuer, Subject: token, Expires: time.Now().Add(time.Hour)}, nil
}

// office is one authority with its own connections, its exchange and its callout, as a process has them.
type office struct {
	w    *world
	name string
	auth *auth.Authority
	url  string
	cap  exchange.Capability
	// decide, when it is not nil, decides about connections instead of the authority.
	decide func(ctx context.Context, s wire.Space, req auth.ConnectRequest) (string, auth.Admission, error)
}

// world is a mesh of people, with two authorities over the same records and one broker, and what happens in it.
type world struct {
	*cotaltest.Mesh
	offices  [2]*office
	ctl      *broker.Control
	account  string
	owner    func(sub string) string
	js       jetstream.JetStream // as the authority
	sentinel string

	mu  sync.Mutex // guards run
	run run
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Mesh: cotaltest.New(t, &cotaltest.Options{Listen: true, People: cotal.PeopleOptions{Elsewhere: true}})}
	ctx, s := t.Context(), w.Space()
	client, err := cotal.DialNode(ctx, w.URL(), w.Store(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	rec, err := client.Authority().EnsurePeople(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	w.account = rec.Public
	secret, err := trust.EnsureOwnerSecret(ctx, w.Store(), s)
	if err != nil {
		t.Fatal(err)
	}
	w.owner = func(sub string) string {
		owner, err := secret.Owner(issuer, sub)
		if err != nil {
			panic(err)
		}
		return owner
	}
	m := client.Authority().Mint()
	w.ctl, err = broker.Dial(ctx, w.URL(), func(ctx context.Context) (*trust.Credentials, error) {
		return m.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl})
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.ctl.Close() })
	if w.sentinel, err = m.Sentinel(ctx, s, time.Hour); err != nil {
		t.Fatal(err)
	}
	w.keepHistory(t)
	w.js = w.service(t, trust.Authority)
	for i, a := range []*auth.Authority{w.Node().Authority(), client.Authority()} {
		w.offices[i] = w.open(t, fmt.Sprintf("office %d", i), a, secret)
	}
	return w
}

// service is a connection of a role of the deployment.
func (w *world) service(t *testing.T, p trust.Profile) jetstream.JetStream {
	t.Helper()
	creds, err := w.Node().Authority().ServiceCredential(t.Context(), w.Space(), p, 0)
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(w.dial(t, creds))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func (w *world) dial(t *testing.T, creds *trust.Credentials) *nats.Conn {
	t.Helper()
	nc, err := dial.Connect(t.Context(), dial.Options{URL: w.URL(), Creds: creds, Name: creds.Identity().Actor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (w *world) grants() string { return space.BucketStream(wire.AuthorityBucket(w.Space())) }

// keepHistory makes the broker keep every version of a grant, with its sequence and time. Reads see the last one all the same.
func (w *world) keepHistory(t *testing.T) {
	t.Helper()
	js := w.service(t, trust.Provisioner)
	st, err := js.Stream(t.Context(), w.grants())
	if err != nil {
		t.Fatal(err)
	}
	c := st.CachedInfo().Config
	c.MaxMsgsPerSubject = -1
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// history reads every version of every grant.
func (w *world) history(t *testing.T) map[wire.Principal][]version {
	t.Helper()
	st, err := w.js.Stream(t.Context(), w.grants())
	if err != nil {
		t.Fatal(err)
	}
	prefix := wire.RecordPrefix(wire.AuthorityBucket(w.Space())) + "grant."
	out := map[wire.Principal][]version{}
	for seq := uint64(1); ; {
		m, err := st.GetMsg(t.Context(), seq, jetstream.WithGetMsgSubject(prefix+">"))
		if err != nil {
			break
		}
		seq = m.Sequence + 1
		g, err := trust.DecodeGrant(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		out[g.Principal()] = append(out[g.Principal()], version{m.Sequence, m.Time, g})
	}
	for p := range out {
		out[p] = sorted(out[p])
	}
	return out
}

// open starts the exchange and the callout of an authority.
func (w *world) open(t *testing.T, name string, a *auth.Authority, secret trust.OwnerSecret) *office {
	t.Helper()
	ctx, s := t.Context(), w.Space()
	o := &office{w: w, name: name, auth: a}
	keys, err := bearer.EnsureKeys(ctx, w.Store(), s)
	if err != nil {
		t.Fatal(err)
	}
	if o.cap, err = exchange.NewCapability(strings.Repeat("5a", 32)); err != nil {
		t.Fatal(err)
	}
	const many = 60_000
	x, err := exchange.New(exchange.Options{
		Space: s, Authority: o, Identity: provider{}, Owner: secret.Owner, Bearers: bearer.NewIssuer(s, keys), Keys: keys,
		Sentinel: func(context.Context) (string, error) { return w.sentinel, nil }, Mesh: func() exchange.WellKnown { return exchange.WellKnown{} },
		Proofs: bearer.NewProofChecker(nil), Capability: o.cap, Limits: exchange.Limits{Refusals: many, PerOwner: many, PerActor: many},
	})
	if err != nil {
		t.Fatal(err)
	}
	responder, err := a.Mint().CalloutResponder(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := a.Mint().CalloutUser(ctx, s, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := callout.New(w.dial(t, creds), callout.Options{
		Space: s, Responder: responder, Validator: bearer.NewValidator(s, keys, nil), Authority: o, RequireKeyProof: true,
		Servers: func(ctx context.Context) (ids []string, err error) {
			all, err := w.ctl.Ping(ctx)
			for _, srv := range all {
				ids = append(ids, srv.ID)
			}
			return ids, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, r := range []func(context.Context) error{x.Run, c.Run} {
		wg.Go(func() {
			if err := r(run); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	t.Cleanup(func() { stop(); wg.Wait() })
	<-x.Ready()
	<-c.Ready()
	o.url = x.URL()
	return o
}

// AdmitPerson implements exchange.Authority.
func (o *office) AdmitPerson(ctx context.Context, req auth.PersonRequest) (auth.Admission, error) {
	return o.auth.AdmitPerson(ctx, o.w.Space(), req)
}

// AdmitAgent implements exchange.Authority.
func (o *office) AdmitAgent(ctx context.Context, req auth.AgentRequest) (auth.Admission, error) {
	return o.auth.AdmitAgent(ctx, o.w.Space(), req)
}

// Connect implements callout.Authority, and writes down what was decided.
func (o *office) Connect(ctx context.Context, s wire.Space, req auth.ConnectRequest) (string, auth.Admission, error) {
	rec := &op{
		kind: opConnect, id: o.name, begin: time.Now(), principal: req.Principal, life: req.Lifecycle, epoch: req.Epoch, scope: req.Scope, key: req.UserKey,
	}
	decide := o.auth.Connect
	if o.decide != nil {
		decide = o.decide
	}
	token, adm, err := decide(ctx, s, req)
	rec.end, rec.err, rec.given = time.Now(), err, adm.Grant
	o.w.note(rec)
	return token, adm, err
}

func (w *world) note(o *op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.ops = append(w.run.ops, o)
}

// exchange is a client of an office with a key of its own.
func (o *office) exchange(t *testing.T) *login.Exchange {
	t.Helper()
	x, err := login.NewExchange(&login.ExchangeOptions{URL: o.url, Capability: func(context.Context) (string, error) { return o.cap.Reveal(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// list writes down which connections under a bearer the broker has now.
func (w *world) list(ctx context.Context) error {
	l := listing{begin: time.Now()}
	all, err := w.ctl.Connections(ctx, w.account)
	if err != nil {
		return err
	}
	l.end = time.Now()
	for _, c := range all {
		if c.HasTags("profile:agent") {
			l.keys = append(l.keys, c.User)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.listings = append(w.run.listings, l)
	return nil
}

// epochOf reads the epoch that a bearer names.
func epochOf(token string) (uint64, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return 0, fmt.Errorf("bearer of %d parts", len(parts))
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return 0, err
	}
	var body struct {
		Act struct {
			Epoch uint64 `json:"epoch"`
		} `json:"act"`
	}
	err = json.Unmarshal(data, &body)
	return body.Act.Epoch, err
}
