package js_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// How many checks the scenario of people makes.
const wantPeopleChecks = 39

// capabilityFile is the name of the capability file of the space in its state folder.
const capabilityFile = "authority.74657374.json"

// crowd is a space of people with a public and a loopback address, another one that trusts the same identity provider, and the Go
// person bob.
type crowd struct {
	*cotaltest.Mesh
	idp      *idptest.IdP
	pin      oidc.Pin
	public   string
	dir      string
	other    *cotaltest.Mesh
	otherDir string
	bob      *endpoint.Endpoint
	heard    mailbox[*endpoint.Delivery]
}

func newCrowd(t *testing.T, kind idptest.Kind) *crowd {
	t.Helper()
	c := &crowd{idp: idptest.Start(t, kind, nil), dir: t.TempDir(), otherDir: t.TempDir()}
	c.pin = c.idp.Pin(t)
	front := httptest.NewUnstartedServer(nil)
	c.public = "http://" + front.Listener.Addr().String()
	c.Mesh = cotaltest.New(t, &cotaltest.Options{Listen: true, StateDir: c.dir, People: cotal.PeopleOptions{
		Provider: &c.pin, HTTP: c.idp.HTTP(), MountedURL: func(string) string { return c.public },
	}})
	front.Config.Handler = c.Node().ExchangeHandler(cotaltest.SpaceName)
	front.Start()
	t.Cleanup(front.Close)
	elsewhere := c.pin
	elsewhere.ClientID, elsewhere.Audience = "another-mesh", "another-mesh"
	elsewhere.Scopes, elsewhere.JWTEndpoint, elsewhere.RevocationEndpoint = []string{"profile"}, c.idp.Issuer+"/jwt", c.idp.Issuer+"/revoke"
	c.other = cotaltest.New(t, &cotaltest.Options{Listen: true, StateDir: c.otherDir, People: cotal.PeopleOptions{Provider: &elsewhere, HTTP: c.idp.HTTP()}})
	return c
}

// TestPeopleInJavaScript drives a space of people with a client in JavaScript, at each identity provider.
func TestPeopleInJavaScript(t *testing.T) {
	for _, kind := range []idptest.Kind{idptest.Zitadel, idptest.BetterAuth} { // one of each shape
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			cmd := node(t, "peopledrive.mjs")
			c := newCrowd(t, kind)
			cmd.Args = append(cmd.Args, c.public, filepath.Join(c.dir, capabilityFile), filepath.Join(c.otherDir, capabilityFile))
			drive(t, cmd, wantPeopleChecks, func(raw json.RawMessage) (answer, error) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				var a peopleAsk
				if err := json.Unmarshal(raw, &a); err != nil {
					return nil, err
				}
				return c.act(ctx, t, a)
			})
		})
	}
}

// peopleAsk is what the scenario asks.
type peopleAsk struct {
	Do, User, Actor, Code, Role, ID, Channel, To, Text string
	Issuer, Sub                                        string
	Deny                                               bool
	Subscribe, Publish, Scope                          []string
}

func (c *crowd) act(ctx context.Context, t *testing.T, a peopleAsk) (answer, error) {
	switch a.Do {
	case "pin":
		return answer{"issuer": c.pin.Issuer, "clientId": c.pin.ClientID, "audience": c.pin.Audience, "server": c.URL()}, nil
	case "other":
		return answer{"server": c.other.URL()}, nil
	case "derive":
		return derive(a.Issuer, a.Sub)
	case "owner":
		return c.owner(ctx, a.User)
	case "approve":
		if a.Deny {
			return answer{}, c.idp.Deny(ctx, a.Code, a.User)
		}
		return answer{}, c.idp.Approve(ctx, a.Code, a.User)
	case "bob":
		return c.bobComes(ctx, t)
	case "post":
		return receipt(c.bob.Post(ctx, a.Channel, draft(ask{ID: a.ID, Text: a.Text})))
	case "direct":
		to, err := wire.ParsePrincipal(a.To)
		if err != nil {
			return nil, err
		}
		return receipt(c.bob.Direct(ctx, to, draft(ask{ID: a.ID, Text: a.Text})))
	case "heard":
		return delivered(ctx, &c.heard, ask{ID: a.ID})
	}
	return c.operate(ctx, a)
}

// operate does what an operator and a supervisor do.
func (c *crowd) operate(ctx context.Context, a peopleAsk) (answer, error) {
	authority := c.Node().Authority()
	who, err := c.owner(ctx, a.User)
	if err != nil {
		return nil, err
	}
	owner := who["owner"].(string)
	req := auth.GrantRequest{Space: c.Space(), Owner: owner, Actor: a.Actor, Subscribe: a.Subscribe, Publish: a.Publish, Scope: a.Scope}
	if a.Role != "" {
		req.Role, req.Scope = &a.Role, append(req.Scope, trust.ScopeRole(a.Role))
	}
	switch a.Do {
	case "grant":
		change, err := authority.Grant(ctx, req)
		return answer{"uid": change.Grant.UID, "epoch": change.Grant.Epoch}, err
	case "agent":
		grants, err := authority.List(ctx, c.Space())
		if err != nil {
			return nil, err
		}
		for _, g := range grants {
			if g.Owner == owner && g.Actor == a.User {
				life := g.Lifecycle()
				req.Parent = &life
			}
		}
		agent, err := authtest.Grant(ctx, authority, req)
		if reason := trust.ReasonOf(err); reason != "" {
			return answer{"refused": reason}, nil
		}
		if err != nil {
			return nil, err
		}
		return answer{"token": agent.Secret()}, nil
	case "revoke":
		_, err := authority.Revoke(ctx, c.Space(), wire.Principal{Owner: owner, Actor: a.Actor})
		return answer{}, err
	}
	return nil, fmt.Errorf("unknown ask %q", a.Do)
}

// owner is what the space calls a user of the identity provider.
func (c *crowd) owner(ctx context.Context, user string) (answer, error) {
	sub, err := c.idp.Subject(ctx, user)
	if err != nil {
		return nil, err
	}
	secret, err := trust.LoadOwnerSecret(ctx, c.Store(), c.Space())
	if err != nil {
		return nil, err
	}
	owner, err := secret.Owner(c.idp.Issuer, sub)
	return answer{"owner": owner, "sub": sub}, err
}

// derive is the owner under the key of the vector in SPEC.md.
func derive(issuer, sub string) (answer, error) {
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(i)
	}
	secret, err := trust.NewOwnerSecret(key)
	if err != nil {
		return nil, err
	}
	owner, err := secret.Owner(issuer, sub)
	return answer{"owner": owner}, err
}

// bobComes signs a Go person in, who listens to the channel general.
func (c *crowd) bobComes(ctx context.Context, t *testing.T) (answer, error) {
	who, err := c.owner(ctx, "bob")
	if err != nil {
		return nil, err
	}
	if _, err := c.Node().Authority().Grant(ctx, auth.GrantRequest{
		Space: c.Space(), Owner: who["owner"].(string), Actor: "bob", Subscribe: []string{"general"}, Publish: []string{"general"},
	}); err != nil {
		return nil, err
	}
	src, err := c.signIn(ctx, t, "bob")
	if err != nil {
		return nil, err
	}
	x, err := login.NewExchange(&login.ExchangeOptions{URL: c.public, HTTP: c.idp.HTTP()})
	if err != nil {
		return nil, err
	}
	c.bob, err = endpoint.Connect(ctx, c.URL(), login.HumanSource(x, src, login.HumanRequest{Actor: "bob"}), &endpoint.Options{Name: "Bob"})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.bob.Close() })
	_, err = c.bob.Listen(ctx, "general", c.heard.put)
	return answer{"principal": c.bob.Principal().String()}, err
}

// signIn is the login of a Go program.
func (c *crowd) signIn(ctx context.Context, t *testing.T, user string) (*login.Source, error) {
	p := login.Provider{
		Issuer: c.pin.Issuer, ClientID: c.pin.ClientID, Audience: c.pin.Audience, Shape: string(c.pin.Shape), DeviceEndpoint: c.pin.DeviceEndpoint,
		TokenEndpoint: c.pin.TokenEndpoint, JWTEndpoint: c.pin.JWTEndpoint, Scopes: c.pin.Scopes,
	}
	session, err := login.Device(ctx, p, &login.DeviceOptions{HTTP: c.idp.HTTP(), Prompt: func(ctx context.Context, pr login.Prompt) error {
		return c.idp.Approve(ctx, pr.UserCode, user)
	}})
	if err != nil {
		return nil, err
	}
	dir := t.TempDir()
	sessions, err := login.Open(ctx, &login.StoreOptions{Dir: dir, Prefer: login.KindFile})
	if err != nil {
		return nil, err
	}
	src := login.NewSource(sessions, login.Key{Mesh: dir, Issuer: p.Issuer}, dir, &login.SourceOptions{HTTP: c.idp.HTTP()})
	return src, src.SignIn(ctx, session)
}
