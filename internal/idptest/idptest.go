package idptest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cotal-go/cotal/auth/oidc"
)

// Kind names an identity provider.
type Kind string

// The identity providers. Their values are the names of the products.
const (
	Zitadel    Kind = "zitadel"       // the provider of github.com/zitadel/oidc, in this process, RS256
	BetterAuth Kind = "better-auth"   // Better Auth in Node, EdDSA
	Panva      Kind = "oidc-provider" // oidc-provider in Node, ES256
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Zitadel, BetterAuth, Panva} }

// The shapes of an IdP: how a client finds its endpoints and gets a signed token.
const (
	ShapeOIDC       = "oidc"        // discovery, and an ID token from the token endpoint
	ShapeBetterAuth = "better-auth" // fixed paths, and a token from JWTEndpoint
)

// Options say what differs from a plain IdP. The zero value is one client "cotal-test".
type Options struct {
	// ClientID is the one client registered, public, for the device flow and refresh. Default "cotal-test".
	ClientID string
	// Audience is what tokens shall be for. Default ClientID. Panva puts the client into its ID tokens and nothing else, so it
	// ignores this: ask IdP.Audience.
	Audience string
	// TokenLife is how long an ID token, a token of JWTEndpoint and an access token live. Default 5 minutes, whole seconds, 1 s
	// at least.
	TokenLife time.Duration
}

// defaultTokenLife is long enough for any test that is not about the end of a token.
const defaultTokenLife = 5 * time.Minute

// An IdP is a running identity provider. Its fields are what a configuration of a client could hold; an endpoint that the
// product does not have is empty.
type IdP struct {
	Kind     Kind
	Issuer   string // the claim iss, byte for byte
	BaseURL  string // what the paths of the endpoints are appended to
	ClientID string
	Audience string // what the claim aud of its tokens contains
	Shape    string // ShapeOIDC or ShapeBetterAuth
	Alg      string // what its tokens are signed with: RS256, EdDSA or ES256

	DeviceEndpoint     string // device authorization, RFC 8628 section 3.1
	TokenEndpoint      string // where device codes, and refresh tokens if there are any, are spent
	JWTEndpoint        string // where a session of ShapeBetterAuth gets a signed token; else empty
	JWKSURI            string
	RevocationEndpoint string // RFC 7009; empty for ShapeBetterAuth, whose sessions end at POST BaseURL/sign-out

	front    *front
	provider provider
	client   *http.Client
}

// A provider is one product. Users are made on first use.
type provider interface {
	decide(ctx context.Context, userCode, user string, approve bool) error
	subject(ctx context.Context, user string) (string, error)
	rotate(ctx context.Context) error
	dropOldKeys(ctx context.Context) error
}

// Start starts an IdP that lives as long as the test. It fails the test when the product does not start, and skips it, or fails
// it in CI, when Node or the product is not installed. A nil o is the zero Options.
func Start(t testing.TB, k Kind, o *Options) *IdP {
	t.Helper()
	opts := Options{}
	if o != nil {
		opts = *o
	}
	if opts.ClientID == "" {
		opts.ClientID = "cotal-test"
	}
	if opts.Audience == "" {
		opts.Audience = opts.ClientID
	}
	if opts.TokenLife == 0 {
		opts.TokenLife = defaultTokenLife
	}
	if opts.TokenLife < time.Second || opts.TokenLife%time.Second != 0 {
		t.Fatalf("idptest: TokenLife %v is not a number of whole seconds, at least 1", opts.TokenLife)
	}
	f := &front{}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	i := &IdP{Kind: k, Issuer: server.URL, BaseURL: server.URL, ClientID: opts.ClientID, Audience: opts.Audience, Shape: ShapeOIDC, front: f}
	i.client = newClient(t)
	var handler http.Handler
	switch k {
	case Zitadel:
		handler = i.startZitadel(t, opts)
	case BetterAuth:
		handler = i.startBetterAuth(t, opts)
	case Panva:
		handler = i.startPanva(t, opts)
	default:
		t.Fatalf("idptest: no identity provider %q", k)
	}
	f.open(handler)
	return i
}

// newClient returns a client with connections of its own, which end with the test.
func newClient(t testing.TB) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// HTTP returns a client for tests: its connections end with the test, a request takes 30 s at most, redirects are followed.
func (i *IdP) HTTP() *http.Client { return i.client }

// Approve lets the person user allow the device that shows userCode, over HTTP. A user is a plain lower-case word ("ada") and
// exists from its first use on. Approve returns once the next poll of the device
// succeeds, and an error with what the product said when it does not know the code, or the code is used or too old.
func (i *IdP) Approve(ctx context.Context, userCode, user string) error {
	if err := i.provider.decide(ctx, userCode, user, true); err != nil {
		return fmt.Errorf("approve %q as %q: %w", userCode, user, err)
	}
	return nil
}

// Deny lets the person user refuse the device that shows userCode, over HTTP: the next poll is access_denied. Errors are those
// of Approve.
func (i *IdP) Deny(ctx context.Context, userCode, user string) error {
	if err := i.provider.decide(ctx, userCode, user, false); err != nil {
		return fmt.Errorf("deny %q as %q: %w", userCode, user, err)
	}
	return nil
}

// Subject returns the claim sub of the user's tokens.
func (i *IdP) Subject(ctx context.Context, user string) (string, error) {
	return i.provider.subject(ctx, user)
}

// Rotate makes a signing key. Tokens signed from now on use it; the keys before it stay published.
func (i *IdP) Rotate(ctx context.Context) error {
	if err := i.provider.rotate(ctx); err != nil {
		return fmt.Errorf("rotate keys: %w", err)
	}
	return nil
}

// DropOldKeys stops publishing every key but the one that signs.
func (i *IdP) DropOldKeys(ctx context.Context) error {
	if err := i.provider.dropOldKeys(ctx); err != nil {
		return fmt.Errorf("drop old keys: %w", err)
	}
	return nil
}

// Down begins an outage: every request is answered 503 with a page of HTML, as a load balancer does.
func (i *IdP) Down() { i.front.setOutage(outagePage) }

// Cut begins an outage in which connections are closed without an answer.
func (i *IdP) Cut() { i.front.setOutage(outageCut) }

// Up ends an outage. Nothing was lost.
func (i *IdP) Up() { i.front.setOutage(outageNone) }

// Requests returns how many requests for the path ("/keys") have come, from clients and from persons, those of an outage
// included.
func (i *IdP) Requests(path string) int { return i.front.count(path) }

// Keys returns the published keys as they are, without a request that Requests would count.
func (i *IdP) Keys(ctx context.Context) (*jose.JSONWebKeySet, error) {
	return i.front.keys(ctx, i.JWKSURI)
}

// Pin makes the pin of a mesh as an operator does: by discovery where there is any.
func (p *IdP) Pin(t testing.TB) oidc.Pin {
	t.Helper()
	base, opts := p.Issuer, &oidc.DiscoverOptions{HTTP: p.HTTP(), Shape: oidc.Shape(p.Shape)}
	if opts.Shape == oidc.ShapeBetterAuth {
		base, opts.Issuer = p.BaseURL, p.Issuer
	}
	meta, err := oidc.Discover(t.Context(), base, opts)
	if err != nil {
		t.Fatal(err)
	}
	pin, err := meta.Pin(p.ClientID, p.Audience, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pin
}
