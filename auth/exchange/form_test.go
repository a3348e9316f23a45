package exchange_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/signer"
)

const formKind = "application/x-www-form-urlencoded"

// TestForm speaks RFC 8693. Nobody names another audience, and nothing is minted without a subject token (field cases O22 and
// O23).
func TestForm(t *testing.T) {
	t.Parallel()
	const (
		grantType, subject, subjectType = "grant_type", "subject_token", "subject_token_type"
		tokenExchange                   = exchange.GrantType
		saml, refresh                   = "urn:ietf:params:oauth:token-type:saml2", "urn:ietf:params:oauth:token-type:refresh_token"
	)
	login := []string{grantType, tokenExchange, subject, good, subjectType, exchange.TypeIDToken}
	agent := []string{grantType, tokenExchange, subject, agentToken, subjectType, exchange.TypeActorToken, "owner", owner, "actor", "helper"}
	wrong, ownerless := slices.Clone(agent), append(slices.Clone(agent[:6]), "actor", "helper")
	wrong[3] = "x"
	from := func(token string) []string {
		return []string{grantType, tokenExchange, subject, token, subjectType, exchange.TypeIDToken}
	}
	with := func(base []string, more ...string) []string { return slices.Concat(base, more) }
	for _, c := range []struct {
		name   string
		pairs  []string
		status int
		err    string // the error of OAuth
		code   string
		scope  string
	}{
		{"an id token", login, 200, "", "", "admin spawn role:reviewer"},
		{"a jwt", []string{grantType, tokenExchange, subject, good, subjectType, exchange.TypeJWT}, 200, "", "", "admin spawn role:reviewer"},
		{"an access token", []string{grantType, tokenExchange, subject, good, subjectType, exchange.TypeAccessToken}, 200, "", "", "admin spawn role:reviewer"},
		{"an agent", agent, 200, "", "", "role:reviewer"},
		{"for the space", with(login, "audience", "main"), 200, "", "", "admin spawn role:reviewer"},
		{"an actor", with(login, "actor", "ada"), 200, "", "", "admin spawn role:reviewer"},
		{"a part of the scope", with(login, "scope", "spawn"), 200, "", "", "spawn"},
		{"empty parameters", with(login, "scope", "", "audience", "", "actor_token", "", "resource", ""), 200, "", "", "admin spawn role:reviewer"},
		{"unknown parameters", with(login, "client_id", "x", "client_secret", "y", "foo", "1", "foo", "2"), 200, "", "", "admin spawn role:reviewer"},

		{"nothing", nil, 400, "invalid_request", "malformed", ""},
		{"another grant", []string{grantType, "password", subject, good}, 400, "unsupported_grant_type", "malformed", ""},
		{"no subject token", []string{grantType, tokenExchange, subjectType, exchange.TypeIDToken}, 400, "invalid_request", "malformed", ""},
		{"no subject token of an agent", []string{grantType, tokenExchange, subjectType, exchange.TypeActorToken}, 400, "invalid_request", "malformed", ""},
		{"no subject token type", []string{grantType, tokenExchange, subject, good}, 400, "invalid_request", "malformed", ""},
		{"neither", []string{grantType, tokenExchange}, 400, "invalid_request", "malformed", ""},
		{"a type of something else", []string{grantType, tokenExchange, subject, good, subjectType, saml}, 400, "invalid_request", "malformed", ""},
		{"an actor token", with(login, "actor_token", "x", "actor_token_type", exchange.TypeJWT), 400, "invalid_request", "malformed", ""},
		{"an actor token's type", with(login, "actor_token_type", exchange.TypeJWT), 400, "invalid_request", "malformed", ""},
		{"another audience", with(login, "audience", "other"), 400, "invalid_target", "malformed", ""},
		{"the audience in another case", with(login, "audience", "Main"), 400, "invalid_target", "malformed", ""},
		{"two audiences", with(login, "audience", "main", "audience", "other"), 400, "invalid_target", "malformed", ""},
		{"a resource", with(login, "resource", "https://api.example"), 400, "invalid_target", "malformed", ""},
		{"two resources", with(login, "resource", "https://a.example", "resource", "https://b.example"), 400, "invalid_target", "malformed", ""},
		{"two subject tokens", with(login, subject, "x"), 400, "invalid_request", "malformed", ""},
		{"two scopes", with(login, "scope", "spawn", "scope", "admin"), 400, "invalid_request", "malformed", ""},
		{"another token type", with(login, "requested_token_type", saml), 400, "invalid_request", "malformed", ""},
		{"a refresh token", with(login, "requested_token_type", refresh), 400, "invalid_request", "malformed", ""},
		{"a scope that is none", with(login, "scope", "everything"), 400, "invalid_scope", "malformed", ""},
		{"a scope of two spaces", with(login, "scope", "spawn  admin"), 400, "invalid_scope", "malformed", ""},
		{"a wider scope", with(login, "scope", "spawn supervise"), 400, "invalid_scope", "scope-missing", ""},
		{"an owner with a login", with(login, "owner", owner), 400, "invalid_request", "malformed", ""},
		{"an agent without owner", ownerless, 400, "invalid_request", "malformed", ""},
		{"a view", with(login, "view", "admin"), 400, "invalid_request", "view-refused", ""},
		{"forged", from("forged"), 400, "invalid_request", "bad-signature", ""},
		{"another client's", from("other-client"), 400, "invalid_request", "wrong-audience", ""},
		{"not granted", from("stranger"), 400, "invalid_request", "not-granted", ""},
		{"an agent's wrong secret", wrong, 400, "invalid_request", "actor-token-refused", ""},
		{"the provider is away", from("outage"), 503, "temporarily_unavailable", "idp-unavailable", ""},
		{"an unknown failure", from("broken"), 500, "server_error", "internal", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t, nil)
			r := k.call(exchange.Public, ask{kind: formKind, body: formBody(c.pairs...)})
			r.want(t, c.status, c.code)
			m := r.members(t)
			if got, _ := m["error"].(string); got != c.err {
				t.Errorf("error = %q, want %q: %s", got, c.err, r.body)
			}
			if c.status != 200 {
				if k.bearers.signed.Load() != 0 {
					t.Error("a bearer was signed")
				}
				if text, _ := m["error_description"].(string); text == "" {
					t.Errorf("no description: %s", r.body)
				}
				return
			}
			if m["scope"] != c.scope || m["issued_token_type"] != exchange.TypeJWT || m["token_type"] != "N_A" {
				t.Errorf("answer = %s, want scope %q", r.body, c.scope)
			}
			token, _ := m["access_token"].(string)
			if _, err := bearer.NewValidator("main", k.keys, nil).Validate(t.Context(), token); err != nil {
				t.Errorf("the bearer is refused: %v", err)
			}
		})
	}
}

// TestTokenTypes has what RFC 8693 section 2.2.1 and RFC 9449 section 5 say a client must be told.
func TestTokenTypes(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		requested string
		bound     bool
		issued    string
		use       string
	}{
		{"", false, exchange.TypeJWT, "N_A"},
		{exchange.TypeJWT, false, exchange.TypeJWT, "N_A"},
		{exchange.TypeAccessToken, false, exchange.TypeAccessToken, "Bearer"},
		{"", true, exchange.TypeJWT, "DPoP"},
		{exchange.TypeAccessToken, true, exchange.TypeAccessToken, "DPoP"},
	} {
		a := ask{kind: formKind, body: formBody("grant_type", exchange.GrantType, "subject_token", good, "subject_token_type", exchange.TypeIDToken,
			"requested_token_type", c.requested)}
		if c.bound {
			proof, err := bearer.Prove(t.Context(), key, "POST", "https://mesh.example/exchange", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			a.header = map[string][]string{"Dpop": {proof}}
		}
		m := k.call(exchange.Public, a).members(t)
		if m["issued_token_type"] != c.issued || m["token_type"] != c.use {
			t.Errorf("asked for %q, bound %t: %v of use %v, want %q of use %q", c.requested, c.bound, m["issued_token_type"], m["token_type"], c.issued, c.use)
		}
	}
	r := k.call(exchange.Public, ask{
		kind: formKind, header: map[string][]string{"Dpop": {"x"}},
		body: formBody("grant_type", exchange.GrantType, "subject_token", good, "subject_token_type", exchange.TypeIDToken),
	})
	if m := r.members(t); r.status != 400 || m["error"] != "invalid_dpop_proof" {
		t.Errorf("a bad proof = %d %s", r.status, r.body)
	}
}

// TestScopeIsASubset has what was asked for in the bearer and nothing else (field case O23).
func TestScopeIsASubset(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	for body, want := range map[string]int{
		personBody(good, ""):                      3,
		personBody(good, `,"scope":null`):         3,
		personBody(good, `,"scope":[]`):           0,
		personBody(good, `,"scope":["spawn"]`):    1,
		personBody(good, `,"scope":["x.purge"]`):  -1,
		personBody(good, `,"scope":["role:any"]`): -1,
	} {
		m := k.call(exchange.Public, ask{body: body}).members(t)
		if want < 0 {
			if m["code"] != "scope-missing" {
				t.Errorf("%s: %v, want a refusal", body, m)
			}
			continue
		}
		token, _ := m["token"].(string)
		claims, err := bearer.NewValidator("main", k.keys, nil).Validate(t.Context(), token)
		if err != nil || len(claims.Scope) != want {
			t.Errorf("%s: scope %q, %v, want %d entries", body, claims.Scope, err, want)
		}
	}
}
