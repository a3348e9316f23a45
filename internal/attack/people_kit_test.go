package attack_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// idp is the issuer of the people of a [town].
const idp = "https://idp.example"

func townPin() *oidc.Pin {
	return &oidc.Pin{
		Issuer: idp, Audience: "cotal-test", ClientID: "cotal-test", JWKSURI: idp + "/jwks", Algorithms: []string{"EdDSA"}, Shape: oidc.ShapeOIDC,
	}
}

// proofs stands for the verifier of identity tokens, which the tests of auth/oidc attack: "proof <sub>" is of subject <sub>.
type proofs struct{}

func (proofs) Verify(_ context.Context, token string) (oidc.Claims, error) {
	sub, ok := strings.CutPrefix(token, "proof ")
	if !ok {
		return oidc.Claims{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonMalformed, "not an identity token")
	}
	return oidc.Claims{Issuer: idp, Subject: sub, Expires: time.Now().Add(time.Hour)}, nil
}

// town is a mesh whose people sign in, with the callout and the exchange of the node.
type town struct {
	*cotaltest.Mesh
	dir string
}

// newTown boots a mesh of people; opts may be nil.
func newTown(t testing.TB, opts *cotaltest.Options) *town {
	t.Helper()
	var o cotaltest.Options
	if opts != nil {
		o = *opts
	}
	w := &town{dir: t.TempDir()}
	o.StateDir, o.People.Provider = w.dir, townPin()
	o.People.Identity = func(string) exchange.Identity { return proofs{} }
	w.Mesh = cotaltest.New(t, &o)
	return w
}

func (w *town) authority() *auth.Authority { return w.Node().Authority() }

// owner is what the mesh calls the person sub.
func (w *town) owner(t testing.TB, s wire.Space, sub string) string {
	t.Helper()
	secret := must[trust.OwnerSecret](t)(trust.LoadOwnerSecret(t.Context(), w.Store(), s))
	return must[string](t)(secret.Owner(idp, sub))
}

// grant lets the person sub act under a name in the space of the mesh.
func (w *town) grant(t testing.TB, sub, actor string, edit func(*auth.GrantRequest)) trust.Grant {
	t.Helper()
	req := auth.GrantRequest{
		Space: w.Space(), Owner: w.owner(t, w.Space(), sub), Actor: actor, Subscribe: []string{"general", "team.>"}, Publish: []string{"general", "team.>"},
		Scope: []string{trust.ScopeSpawn},
	}
	if edit != nil {
		edit(&req)
	}
	return must[auth.GrantChange](t)(w.authority().Grant(t.Context(), req)).Grant
}

// desk is where programs of this user reach the exchange of a space.
func (w *town) desk(t testing.TB, s wire.Space) login.Capability {
	t.Helper()
	return must[login.Capability](t)(login.ReadCapability(cotal.CapabilityFile(w.dir, string(s))))
}

// exchange is a client of the exchange of a space with a key of its own.
func (w *town) exchange(t testing.TB, s wire.Space) *login.Exchange {
	t.Helper()
	c := w.desk(t, s)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return must[*login.Exchange](t)(login.NewExchange(&login.ExchangeOptions{
		URL: c.URL, HTTP: &http.Client{Transport: transport}, Capability: func(context.Context) (string, error) { return c.Cap(), nil },
	}))
}

// ask is the request of the person sub to act under a name.
func ask(sub, actor string) login.HumanRequest {
	return login.HumanRequest{IDToken: func() string { return "proof " + sub }, Actor: actor}
}

// signIn gives the person sub a bearer for a name.
func (w *town) signIn(t testing.TB, sub, actor string) login.Bearer {
	t.Helper()
	return must[login.Bearer](t)(w.exchange(t, w.Space()).Human(t.Context(), ask(sub, actor)))
}

// credentials is signIn as something to connect with.
func (w *town) credentials(t testing.TB, sub, actor string) *trust.Credentials {
	t.Helper()
	return must[*trust.Credentials](t)(w.signIn(t, sub, actor).Credentials())
}

// knock connects once.
func (w *town) knock(t testing.TB, creds *trust.Credentials) error {
	t.Helper()
	nc, err := dial.Connect(t.Context(), dial.Options{InProcess: w.InProcess(), Creds: creds, Name: "knock"})
	if err == nil {
		nc.Close()
	}
	return err
}

// stolen is what a thief makes of a bearer that it saw, with a key of its own.
func stolen(t testing.TB, sentinel, token string, id trust.Identity) *trust.Credentials {
	t.Helper()
	key := must[*signer.Local](t)(signer.Generate(signer.User))
	id.UserKey = ""
	return must[*trust.Credentials](t)(trust.NewBearerCredentials(trust.Bearer{Sentinel: sentinel, Token: token, Seed: key.Seed().Reveal(), Identity: id}))
}

// rude connects as no client of ours does: every part of the CONNECT is the test's.
type rude struct {
	jwt, token, name string
	url              string // of the broker; empty connects in process
	sign             func(nonce []byte) ([]byte, error)
}

func (r rude) connect(p nats.InProcessConnProvider, more ...nats.Option) (*nats.Conn, error) {
	sign := r.sign
	if sign == nil {
		sign = func([]byte) ([]byte, error) { return []byte("no signature"), nil }
	}
	opts := []nats.Option{nats.InProcessServer(p), nats.NoReconnect(), nats.Timeout(10 * time.Second), nats.Name(r.name)}
	if r.jwt != "" {
		opts = append(opts, nats.UserJWT(func() (string, error) { return r.jwt, nil }, sign))
	}
	if r.token != "" {
		opts = append(opts, nats.Token(r.token))
	}
	if r.url != "" {
		opts = opts[1:]
	}
	return nats.Connect(r.url, append(opts, more...)...)
}

// actorIDs numbers names of actors.
func actorIDs(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s_%d", prefix, i)
	}
	return out
}

// seedOf reads a seed as somebody does who got into the secret store.
func (w *town) seedOf(t testing.TB, key string) []byte {
	t.Helper()
	return must[[]byte](t)(w.Store().Get(t.Context(), key))
}

// requestOf is a grant for an owner.
func requestOf(w *town, owner string) auth.GrantRequest {
	return auth.GrantRequest{Space: w.Space(), Owner: owner, Actor: "desk", Subscribe: []string{"general"}, Publish: []string{"general"}}
}
