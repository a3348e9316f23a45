package field_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// idp is the issuer of the people of a [village]; exchangeURL is where its exchange would listen, had it a listener.
const (
	idp         = "https://idp.example"
	exchangeURL = "http://127.0.0.1:4280"
)

func villagePin() *oidc.Pin {
	return &oidc.Pin{
		Issuer: idp, Audience: "cotal-test", ClientID: "cotal-test", JWKSURI: idp + "/jwks", Algorithms: []string{"EdDSA"}, Shape: oidc.ShapeOIDC,
	}
}

// village is a mesh whose people sign in without a socket: the callout answers over a connection in this process and the exchange is
// a handler that is called. So a whole day of it fits into a bubble.
type village struct {
	*cotaltest.Mesh
	space   wire.Space
	x       *exchange.Server
	proof   atomic.Int64 // how long identity tokens last, a time.Duration
	given   atomic.Int64 // bearers that were given
	refused atomic.Int64 // that were not
	away    atomic.Int64 // how many connections are still to be refused because nothing can be asked

	mu      sync.Mutex // guards connect
	connect []callout.Decision

	stop func() // ends the callout
}

// newVillage boots a mesh of people, in a bubble or outside of one.
func newVillage(t testing.TB, opts *cotaltest.Options, edit ...func(*exchange.Options)) *village {
	t.Helper()
	var o cotaltest.Options
	if opts != nil {
		o = *opts
	}
	if o.Store == nil {
		o.Store = memstore.New()
	}
	o.People.Provider, o.People.Elsewhere = villagePin(), true
	v := &village{Mesh: cotaltest.New(t, &o), space: cotaltest.SpaceName}
	v.proof.Store(int64(24 * time.Hour))
	v.answer(t)
	v.x = v.openDesk(t, v.space, edit...)
	return v
}

func (v *village) authority() *auth.Authority { return v.Node().Authority() }

func (v *village) keys(t testing.TB, s wire.Space) *bearer.Keys {
	t.Helper()
	return must(bearer.EnsureKeys(t.Context(), v.Store(), s))(t)
}

// answer starts the callout of the space; it lives until stop is called, the test ends at the latest.
func (v *village) answer(t testing.TB) {
	t.Helper()
	v.stop = v.answerAt(t, v.space)
}

func (v *village) answerAt(t testing.TB, s wire.Space) (stop func()) {
	t.Helper()
	m := v.authority().Mint()
	responder := must(m.CalloutResponder(t.Context(), s))(t)
	nc := must(dial.Connect(t.Context(), dial.Options{InProcess: v.InProcess(), Creds: must(m.CalloutUser(t.Context(), s, 0))(t), Name: "callout"}))(t)
	svc := must(callout.New(nc, callout.Options{
		Space: s, Responder: responder, Validator: bearer.NewValidator(s, v.keys(t, s), nil), Authority: grants{v, s},
		Servers: func(ctx context.Context) ([]string, error) {
			st, err := v.Node().Status(ctx)
			return []string{st.Broker.ID}, err
		},
		OnDecision: func(ctx context.Context, d callout.Decision) {
			v.mu.Lock()
			v.connect = append(v.connect, d)
			v.mu.Unlock()
			if a := v.authority(); a != nil {
				e := auth.Entry{Action: space.ActionConnect, Life: d.Lifecycle, From: d.Host}
				if !d.OK {
					e.Denied = trust.Deny(wire.CodePermissionDenied, d.Reason, "connection %q refused: %s", d.ConnectionName, d.Reason)
				}
				a.NoteEntry(ctx, s, e)
			}
		},
	}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- svc.Run(ctx) }()
	select {
	case <-svc.Ready():
	case err := <-done:
		cancel()
		t.Fatalf("serve callout: %v", err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		nc.Close()
	})
	t.Cleanup(stop)
	return stop
}

// beside is another space of the same mesh, with a callout and an exchange of its own.
func (v *village) beside(t testing.TB, s wire.Space) *village {
	t.Helper()
	o := &village{Mesh: v.Mesh, space: s}
	o.proof.Store(v.proof.Load())
	o.answer(t)
	o.x = o.openDesk(t, s)
	return o
}

// decided returns what the callout decided since the last call.
func (v *village) decided() []callout.Decision {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := v.connect
	v.connect = nil
	return out
}

// openDesk makes the exchange of a space.
func (v *village) openDesk(t testing.TB, s wire.Space, edit ...func(*exchange.Options)) *exchange.Server {
	t.Helper()
	keys := v.keys(t, s)
	owners := must(trust.EnsureOwnerSecret(t.Context(), v.Store(), s))(t)
	o := exchange.Options{
		Space: s, Authority: grants{v, s}, Identity: v, Owner: owners.Owner, Bearers: bearer.NewIssuer(s, keys), Keys: keys,
		Proofs: bearer.NewProofChecker(nil), Loopback: strings.TrimPrefix(exchangeURL, "http://"),
		Sentinel: func(ctx context.Context) (string, error) { return v.authority().Mint().Sentinel(ctx, s, 0) },
		Mesh: func() exchange.WellKnown {
			return exchange.WellKnown{UserAuth: exchange.UserAuth{IDP: exchange.IDPOf(*villagePin())}}
		},
		OnDecision: func(_ context.Context, d exchange.Decision) {
			if d.Allowed() {
				v.given.Add(1)
			} else {
				v.refused.Add(1)
			}
		},
	}
	o.Capability = must(exchange.NewCapability(strings.Repeat("ab", 32)))(t)
	for _, e := range edit {
		e(&o)
	}
	return must(exchange.New(o))(t)
}

// grants decides by the node that runs at the moment.
type grants struct {
	v *village
	s wire.Space
}

func (g grants) authority() (*auth.Authority, error) {
	if a := g.v.authority(); a != nil {
		return a, nil
	}
	return nil, cotal.ErrNotReady
}

func (g grants) AdmitPerson(ctx context.Context, req auth.PersonRequest) (auth.Admission, error) {
	a, err := g.authority()
	if err != nil {
		return auth.Admission{}, wire.Errorf(wire.CodeUnavailable, "%v", err)
	}
	return a.AdmitPerson(ctx, g.s, req)
}

func (g grants) AdmitAgent(ctx context.Context, req auth.AgentRequest) (auth.Admission, error) {
	a, err := g.authority()
	if err != nil {
		return auth.Admission{}, wire.Errorf(wire.CodeUnavailable, "%v", err)
	}
	return a.AdmitAgent(ctx, g.s, req)
}

func (g grants) Connect(ctx context.Context, s wire.Space, req auth.ConnectRequest) (string, auth.Admission, error) {
	a, err := g.authority()
	if g.v.away.Add(-1) >= 0 {
		err = cotal.ErrNotReady
	}
	if err != nil {
		return "", auth.Admission{}, wire.Errorf(wire.CodeUnavailable, "%v", err)
	}
	return a.Connect(ctx, s, req)
}

// Verify stands for the verifier of identity tokens: "proof <sub>" is of subject <sub>, and "until <time> <sub>" as well until then.
func (v *village) Verify(_ context.Context, token string) (oidc.Claims, error) {
	if sub, ok := strings.CutPrefix(token, "proof "); ok {
		return oidc.Claims{Issuer: idp, Subject: sub, Expires: time.Now().Add(time.Duration(v.proof.Load()))}, nil
	}
	if rest, ok := strings.CutPrefix(token, "until "); ok {
		stamp, sub, _ := strings.Cut(rest, " ")
		end, err := time.Parse(time.RFC3339, stamp)
		if err == nil && time.Now().Before(end) {
			return oidc.Claims{Issuer: idp, Subject: sub, Expires: end}, nil
		}
		return oidc.Claims{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonExpired, "the login has expired; log in again")
	}
	return oidc.Claims{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonMalformed, "not an identity token")
}

// desk is the transport to a handler: no socket, and so nothing that stops a fake clock.
type desk struct{ http.Handler }

// RoundTrip implements [http.RoundTripper].
func (d desk) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	in.RemoteAddr, in.RequestURI = "127.0.0.1:9", r.URL.RequestURI()
	out := httptest.NewRecorder()
	d.ServeHTTP(out, in)
	return out.Result(), nil
}

// exchange is a client of the exchange with a key of its own.
func (v *village) exchange(t testing.TB) *login.Exchange {
	t.Helper()
	return must(login.NewExchange(&login.ExchangeOptions{
		URL: exchangeURL, HTTP: &http.Client{Transport: desk{v.x.LoopbackHandler()}},
		Capability: func(context.Context) (string, error) { return strings.Repeat("ab", 32), nil },
	}))(t)
}

// owner is what the mesh calls the person sub.
func (v *village) owner(t testing.TB, sub string) string {
	t.Helper()
	return must(must(trust.LoadOwnerSecret(t.Context(), v.Store(), v.space))(t).Owner(idp, sub))(t)
}

// grant lets the person sub act under a name.
func (v *village) grant(t testing.TB, sub, actor string, edit ...func(*auth.GrantRequest)) trust.Grant {
	t.Helper()
	req := auth.GrantRequest{
		Space: v.space, Owner: v.owner(t, sub), Actor: actor, Subscribe: []string{">"}, Publish: []string{">"}, Scope: []string{trust.ScopeSpawn},
	}
	for _, e := range edit {
		e(&req)
	}
	return must(v.authority().Grant(t.Context(), req))(t).Grant
}

// proofOf is the sign-in of a person, which goes on for ever.
type proofOf string

// IDToken implements [login.Proof].
func (p proofOf) IDToken(context.Context) (string, time.Time, error) {
	return "proof " + string(p), time.Now().Add(time.Hour), nil
}

// person is where the credentials of a person come from.
func (v *village) person(t testing.TB, sub, actor string) *login.CredentialSource {
	t.Helper()
	return login.HumanSource(v.exchange(t), proofOf(sub), login.HumanRequest{Actor: actor})
}

// join connects an endpoint.
func (v *village) join(t testing.TB, src endpoint.Source, on func(endpoint.Event)) *endpoint.Endpoint {
	t.Helper()
	ep := must(endpoint.Connect(t.Context(), "", src, &endpoint.Options{InProcess: v.InProcess(), OnEvent: on}))(t)
	t.Cleanup(func() { _ = ep.Close() })
	return ep
}

// knock connects once.
func (v *village) knock(t testing.TB, creds *trust.Credentials) error {
	t.Helper()
	nc, err := v.dial(t, creds)
	if err == nil {
		nc.Close()
	}
	return err
}

func (v *village) dial(t testing.TB, creds *trust.Credentials) (*nats.Conn, error) {
	t.Helper()
	return dial.Connect(t.Context(), dial.Options{InProcess: v.InProcess(), Creds: creds, Name: "knock"})
}

// count counts the events of a kind that were told since the last take.
func count[E endpoint.Event](events []endpoint.Event) (n int) {
	for _, e := range events {
		if _, is := e.(E); is {
			n++
		}
	}
	return n
}

// anySeed is the seed of a key that nobody else has.
func anySeed(t testing.TB) []byte {
	t.Helper()
	return must(signer.Generate(signer.User))(t).Seed().Reveal()
}

// validator checks bearers of the space.
func validator(v *village, t testing.TB) *bearer.Validator {
	t.Helper()
	return bearer.NewValidator(v.space, v.keys(t, v.space), nil)
}

// someUser is the public key of a user that nobody has.
func someUser(t testing.TB) string {
	t.Helper()
	return must(signer.Generate(signer.User))(t).Public()
}
