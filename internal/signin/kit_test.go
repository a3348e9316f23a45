package signin_test

import (
	"context"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/trust"
)

// world is a mesh whose people sign in at a real identity provider.
type world struct {
	*cotaltest.Mesh
	idp *idptest.IdP
	pin oidc.Pin
	dir string
}

// newWorld starts an identity provider of a kind and a mesh that is pinned to it.
func newWorld(t *testing.T, k idptest.Kind, o *idptest.Options) *world {
	t.Helper()
	w := &world{idp: idptest.Start(t, k, o), dir: t.TempDir()}
	w.pin = w.idp.Pin(t)
	w.Mesh = cotaltest.New(t, &cotaltest.Options{Listen: true, StateDir: w.dir, People: cotal.PeopleOptions{Provider: &w.pin, HTTP: w.idp.HTTP()}})
	return w
}

// capability is how programs of this user reach the exchange.
func (w *world) capability(t *testing.T) login.Capability {
	t.Helper()
	c, err := login.ReadCapability(filepath.Join(w.dir, "authority.74657374.json"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// exchange is a client of the loopback face with a key of its own.
func (w *world) exchange(t *testing.T) *login.Exchange {
	t.Helper()
	c := w.capability(t)
	x, err := login.NewExchange(&login.ExchangeOptions{URL: c.URL, Capability: func(context.Context) (string, error) { return c.Cap(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// signIn is `cotal login` of a user of the identity provider, who approves at once.
func (w *world) signIn(t *testing.T, user string) *login.Source {
	t.Helper()
	p := providerOf(w.pin)
	session, err := login.Device(t.Context(), p, &login.DeviceOptions{HTTP: w.idp.HTTP(), Prompt: func(ctx context.Context, pr login.Prompt) error {
		return w.idp.Approve(ctx, pr.UserCode, user)
	}})
	if err != nil {
		t.Fatalf("sign in as %s at %s: %v", user, w.idp.Kind, err)
	}
	dir := t.TempDir()
	sessions, err := login.Open(t.Context(), &login.StoreOptions{Dir: dir, Prefer: login.KindFile})
	if err != nil {
		t.Fatal(err)
	}
	src := login.NewSource(sessions, login.Key{Mesh: w.dir, Issuer: p.Issuer}, dir, &login.SourceOptions{HTTP: w.idp.HTTP()})
	if err := src.SignIn(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	return src
}

// owner is what the mesh calls a user of the identity provider.
func (w *world) owner(t *testing.T, user string) string {
	t.Helper()
	sub, err := w.idp.Subject(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := trust.LoadOwnerSecret(t.Context(), w.Store(), w.Space())
	if err != nil {
		t.Fatal(err)
	}
	owner, err := secret.Owner(w.idp.Issuer, sub)
	if err != nil {
		t.Fatal(err)
	}
	return owner
}

// grant is `cotal actor grant` for a user of the identity provider.
func (w *world) grant(t *testing.T, user, actor string, edit func(*auth.GrantRequest)) trust.Grant {
	t.Helper()
	req := auth.GrantRequest{
		Space: w.Space(), Owner: w.owner(t, user), Actor: actor, Subscribe: []string{"general", "team.>"}, Publish: []string{"general", "team.>"},
		Scope: []string{trust.ScopeSpawn},
	}
	if edit != nil {
		edit(&req)
	}
	c, err := w.Node().Authority().Grant(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return c.Grant
}

// grantOwner grants an owner of any issuer one actor.
func (w *world) grantOwner(t *testing.T, owner, actor string) trust.Grant {
	t.Helper()
	c, err := w.Node().Authority().Grant(t.Context(), auth.GrantRequest{Space: w.Space(), Owner: owner, Actor: actor, Subscribe: []string{"general"}})
	if err != nil {
		t.Fatal(err)
	}
	return c.Grant
}

// join connects an endpoint as a person who signed in.
func (w *world) join(t *testing.T, src endpoint.Source) *endpoint.Endpoint {
	t.Helper()
	ep, err := endpoint.Connect(t.Context(), w.URL(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ep.Close() })
	return ep
}

// providerOf is what the login client is told of an identity provider.
func providerOf(pin oidc.Pin) login.Provider {
	return login.Provider{
		Issuer: pin.Issuer, ClientID: pin.ClientID, Audience: pin.Audience, Shape: string(pin.Shape), DeviceEndpoint: pin.DeviceEndpoint,
		TokenEndpoint: pin.TokenEndpoint, JWTEndpoint: pin.JWTEndpoint, RevocationEndpoint: pin.RevocationEndpoint, Scopes: pin.Scopes,
	}
}

// keysPath is where an identity provider publishes its keys, as a path.
func keysPath(t *testing.T, idp *idptest.IdP) string {
	t.Helper()
	u, err := url.Parse(idp.JWKSURI)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path
}

// bearerOf exchanges the proof of somebody who signed in as actor ada.
func bearerOf(t *testing.T, x *login.Exchange, src *login.Source) login.Bearer {
	t.Helper()
	b, err := login.HumanSource(x, src, login.HumanRequest{Actor: "ada"}).Bearer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// knock connects once with a credential.
func knock(t *testing.T, w *world, creds *trust.Credentials) error {
	t.Helper()
	nc, err := dial.Connect(t.Context(), dial.Options{URL: w.URL(), Creds: creds, Name: "knock"})
	if err == nil {
		nc.Close()
	}
	return err
}
