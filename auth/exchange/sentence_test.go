package exchange_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
)

// inside is what only the operator is told.
const inside = "idp-7.internal.example"

// TestStrangersAreNotToldWhatIsInside: while the keys of the provider, or those of the space, cannot be had, a client is told that, and where and
// why stands in the log.
func TestStrangersAreNotToldWhatIsInside(t *testing.T) {
	enc := base64.RawURLEncoding.EncodeToString
	login := enc([]byte(`{"alg":"EdDSA","kid":"x"}`)) + "." + enc([]byte(`{"iss":"`+issuer+`"}`)) + "." + enc(make([]byte, 64))
	failed := errors.New("dial tcp " + inside + ": connection refused")
	for name, c := range map[string]struct {
		change func(t *testing.T, o *exchange.Options)
		ask    ask
		code   string
		says   string
	}{
		"key set of the provider": {func(t *testing.T, o *exchange.Options) {
			o.Identity = provides(t, "https://"+inside+"/jwks?tenant=main", func(*http.Request) (*http.Response, error) { return nil, failed })
		}, ask{body: personBody(login, "")}, "idp-unavailable", "cannot be read, next try in 2s"},
		"key set of the provider in a form": {func(t *testing.T, o *exchange.Options) {
			o.Identity = provides(t, "https://"+inside+"/jwks", func(*http.Request) (*http.Response, error) { return nil, failed })
		}, ask{kind: formKind, body: formBody("grant_type", exchange.GrantType, "subject_token_type", exchange.TypeIDToken, "subject_token", login)},
			"idp-unavailable", "cannot be read, next try in 2s"},
		"an address that is never asked": {func(t *testing.T, o *exchange.Options) {
			o.Identity = provides(t, "http://"+inside+"/jwks", nil)
		}, ask{body: personBody(login, "")}, "idp-unavailable", "cannot be read"},
		"a resolver of the host": {func(t *testing.T, o *exchange.Options) {
			o.Identity = verifier(t, resolver{failed})
		}, ask{body: personBody(login, "")}, "idp-unavailable", "cannot be read"},
		"keys of the space": {func(t *testing.T, o *exchange.Options) {
			o.Keys, _ = away(t, failed)
		}, ask{method: "GET", path: "/jwks"}, "unavailable", "cannot be had; try again"},
		"keys of the space in an exchange": {func(t *testing.T, o *exchange.Options) {
			_, o.Bearers = away(t, failed)
		}, ask{body: personBody(good, "")}, "unavailable", "cannot be had; try again"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				k := newKit(t, func(o *exchange.Options) { c.change(t, o) })
				for range 2 { // the second is refused without a try
					r := k.call(exchange.Public, c.ask)
					r.want(t, 503, c.code)
					if text := string(r.body); !strings.Contains(text, c.says) || strings.Contains(text, inside) || strings.Contains(text, "refused") {
						t.Errorf("answer = %s, want that it %s and nothing of %s", text, c.says, inside)
					}
				}
				for _, d := range k.decided() {
					if strings.Contains(d.Message, inside) {
						t.Errorf("the decision says %q, which the client is said to have read", d.Message)
					}
				}
				if log := k.log.String(); !strings.Contains(log, inside) {
					t.Errorf("the log does not say why: %s", log)
				}
			})
		})
	}
}

// TestTooLongAScopeIsSaid: a grant that the authority takes, and that names more than a bearer holds, is refused with what mends it, and not as
// something to try again.
func TestTooLongAScopeIsSaid(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	var scope []string
	for i := range trust.MaxCommands {
		scope = append(scope, fmt.Sprintf("com_%s_%02d.%s%02d", strings.Repeat("n", 55), i, strings.Repeat("c", 28), i))
	}
	admit := func(actor string, kind trust.GrantKind, asked []string) (auth.Admission, error) {
		g := grant(actor, kind)
		g.Scope = scope
		if err := g.Validate(); err != nil {
			t.Errorf("the grant is none: %v", err)
		}
		if asked == nil {
			asked = scope
		}
		return auth.Admission{Grant: g, Profile: trust.Agent, Scope: asked}, nil
	}
	k.office.person = func(_ context.Context, r auth.PersonRequest) (auth.Admission, error) {
		return admit("ada", trust.KindInteractive, r.Scope)
	}
	k.office.agent = func(_ context.Context, r auth.AgentRequest) (auth.Admission, error) {
		return admit("helper", trust.KindManaged, r.Scope)
	}
	for _, face := range faces() {
		for body, mend := range map[string]string{
			personBody(good, ""):      "cotal actor grant ada --owner " + owner + " --scope ",
			agentBody(agentToken, ""): "have the agent started with fewer",
		} {
			r := k.call(face, ask{body: body})
			r.want(t, 403, "resource-exhausted")
			if text, _ := r.members(t)["error"].(string); !strings.Contains(text, mend) || r.header.Get("Retry-After") != "" {
				t.Errorf("refusal = %s, retry after %q; want %q and no retry", text, r.header.Get("Retry-After"), mend)
			}
		}
	}
	r := k.call(exchange.Public, ask{kind: formKind, body: formBody(
		"grant_type", exchange.GrantType, "subject_token_type", exchange.TypeIDToken, "subject_token", good)})
	if r.want(t, 400, "resource-exhausted"); r.members(t)["error"] != "invalid_request" {
		t.Errorf("the form says %s, want invalid_request", r.body)
	}
	k.call(exchange.Public, ask{body: personBody(good, `,"scope":["`+scope[0]+`"]`)}).want(t, 200, "")
	if log := k.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the log calls it a defect: %s", log)
	}
}

type resolver struct{ err error }

func (r resolver) Keys(context.Context, string, string) ([]jose.JSONWebKey, error) { return nil, r.err }

// provides verifies with the key set at an address, which answers so.
func provides(t *testing.T, uri string, answers transport) exchange.Identity {
	t.Helper()
	set := oidc.NewKeySet(uri, &oidc.KeySetOptions{HTTP: &http.Client{Transport: answers}})
	t.Cleanup(func() { _ = set.Close() })
	return verifier(t, set)
}

func verifier(t *testing.T, keys oidc.KeyResolver) exchange.Identity {
	t.Helper()
	v, err := oidc.NewVerifier(oidc.Pin{
		Issuer: issuer, Audience: "a", ClientID: "a", JWKSURI: "https://idp.example/jwks", Algorithms: []string{"EdDSA"}, Shape: oidc.ShapeOIDC,
	}, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// away are keys of the space whose store fails since a time.
func away(t *testing.T, err error) (*bearer.Keys, *bearer.Issuer) {
	t.Helper()
	store := &failing{Store: memstore.New()}
	keys, kerr := bearer.EnsureKeys(t.Context(), store, "main")
	if kerr != nil {
		t.Fatal(kerr)
	}
	store.err = err
	time.Sleep(2 * bearer.JWKSMaxAge)
	return keys, bearer.NewIssuer("main", keys)
}

type failing struct {
	secret.Store
	err error
}

func (f *failing) Get(ctx context.Context, key string) ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.Get(ctx, key)
}
