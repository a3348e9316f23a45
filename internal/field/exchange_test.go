package field_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
)

// answered is what an exchange said.
type answered struct {
	status int
	code   string
	token  string
	scope  []string
}

// post asks a face of the exchange, as a client at an address.
func post(t testing.TB, h http.Handler, peer, kind, body string) answered {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, exchangeURL+"/exchange", strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer "+strings.Repeat("ab", 32))
	if peer != "" {
		req.Header.Set("X-Forwarded-For", peer)
	}
	resp := must(desk{h}.RoundTrip(req))(t)
	defer func() { _ = resp.Body.Close() }()
	data := must(io.ReadAll(resp.Body))(t)
	var doc struct {
		Code   string          `json:"code"`
		Token  string          `json:"token"`
		Access string          `json:"access_token"`
		Scope  json.RawMessage `json:"scope"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatalf("status %d: %q is no answer of an exchange", resp.StatusCode, data)
	}
	out := answered{status: resp.StatusCode, code: doc.Code, token: doc.Token + doc.Access}
	var text string
	if json.Unmarshal(doc.Scope, &text) == nil {
		out.scope = strings.Fields(text)
	} else {
		_ = json.Unmarshal(doc.Scope, &out.scope) // none is none
	}
	return out
}

const (
	asJSON = "application/json"
	asForm = "application/x-www-form-urlencoded"
)

// C41: behind the documented proxy a hundred bad requests come from an address, and then the login of somebody at the same one. It is served, as
// is everybody else, and so it goes on when the minute is over.
func TestC41JunkLocksNobodyOut(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil, func(o *exchange.Options) {
			o.Public, o.TrustedProxy, o.PublicURL = "127.0.0.1:4281", true, "https://mesh.example"
		})
		v.grant(t, "ada", "ada")
		face := v.x.PublicHandler()
		const good = `{"idpToken":"proof ada","actor":"ada"}`
		for round := range 3 {
			seen := map[int]int{}
			for range 100 {
				for _, junk := range []string{`{"idpToken":"junk","actor":"ada"}`, `{`, `{"owner":"x","actor":"y","actorToken":"z"}`} {
					seen[post(t, face, "203.0.113.9", asJSON, junk).status]++
				}
			}
			if seen[http.StatusTooManyRequests] == 0 || seen[http.StatusOK] != 0 {
				t.Errorf("round %d: junk was answered with %v", round, seen)
			}
			for _, peer := range []string{"203.0.113.9", "198.51.100.7"} {
				if got := post(t, face, peer, asJSON, good); got.status != http.StatusOK || got.token == "" {
					t.Errorf("round %d: a login from %s: %d %s", round, peer, got.status, got.code)
				}
			}
			time.Sleep(20 * time.Second)
		}
	})
}

// O22: nothing is given without a subject, whatever else is there.
func TestO22WithoutASubjectNothingIsGiven(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		life := v.grant(t, "ada", "ada").Lifecycle()
		agent, err := authtest.Grant(t.Context(), v.authority(), auth.GrantRequest{Space: v.space, Actor: "helper", Parent: &life})
		if err != nil {
			t.Fatal(err)
		}
		face := v.x.LoopbackHandler()
		form := func(pairs ...string) string {
			f := url.Values{}
			for i := 0; i < len(pairs); i += 2 {
				f.Add(pairs[i], pairs[i+1])
			}
			return f.Encode()
		}
		const idToken = "urn:ietf:params:oauth:token-type:id_token"
		for name, l := range map[string]struct{ kind, body string }{
			"nothing":                    {asJSON, `{}`},
			"an actor alone":             {asJSON, `{"actor":"ada"}`},
			"an owner and an actor":      {asJSON, `{"owner":"` + life.Owner + `","actor":"ada"}`},
			"an empty token":             {asJSON, `{"idpToken":"","actor":"ada"}`},
			"null for a token":           {asJSON, `{"idpToken":null,"actor":"ada"}`},
			"two proofs":                 {asJSON, `{"idpToken":"proof ada","owner":"` + agent.Owner + `","actor":"helper","actorToken":"` + agent.Secret() + `"}`},
			"a form without subject":     {asForm, form("grant_type", exchange.GrantType, "subject_token_type", idToken, "actor", "ada")},
			"a form with an empty one":   {asForm, form("grant_type", exchange.GrantType, "subject_token", "", "subject_token_type", idToken)},
			"a form with its type alone": {asForm, form("grant_type", exchange.GrantType, "subject_token", "proof ada")},
			"a form with an actor token": {asForm, form("grant_type", exchange.GrantType, "actor_token", "proof ada", "actor_token_type", idToken)},
			"a form that delegates to nobody": {asForm, form("grant_type", exchange.GrantType, "subject_token", "proof ada", "subject_token_type", idToken,
				"actor_token", agent.Secret(), "actor_token_type", exchange.TypeActorToken)},
		} {
			if got := post(t, face, "", l.kind, l.body); got.status != http.StatusBadRequest || got.token != "" {
				t.Errorf("%s: %d %s, want 400", name, got.status, got.code)
			}
		}
		if given := v.given.Load(); given != 0 {
			t.Errorf("%d bearers were given", given)
		}
		for name, l := range map[string]struct{ kind, body string }{
			"a person":  {asJSON, `{"idpToken":"proof ada","actor":"ada"}`},
			"an agent":  {asJSON, `{"owner":"` + agent.Owner + `","actor":"helper","actorToken":"` + agent.Secret() + `"}`},
			"by a form": {asForm, form("grant_type", exchange.GrantType, "subject_token", "proof ada", "subject_token_type", idToken, "actor", "ada")},
		} {
			if got := post(t, face, "", l.kind, l.body); got.status != http.StatusOK || got.token == "" {
				t.Errorf("%s: %d %s", name, got.status, got.code)
			}
		}
		synctest.Wait()
	})
}

// O23: who asks for a space or a scope beyond what they were granted gets nothing, and what they get is what they asked for.
func TestO23WhatIsGivenIsASubset(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, &cotaltest.Options{Spaces: []string{"other"}})
		v.grant(t, "ada", "ada", func(r *auth.GrantRequest) { r.Scope = []string{trust.ScopeSpawn, "role:clerk"} })
		face := v.x.LoopbackHandler()
		ask := func(more url.Values) answered {
			f := url.Values{
				"grant_type": {exchange.GrantType}, "subject_token": {"proof ada"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"}, "actor": {"ada"},
			}
			for k, vs := range more {
				f[k] = vs
			}
			return post(t, face, "", asForm, f.Encode())
		}
		for name, more := range map[string]url.Values{
			"another space":           {"audience": {"other"}},
			"two spaces":              {"audience": {"test", "other"}},
			"a space and a wildcard":  {"audience": {"*"}},
			"a resource":              {"resource": {"https://mesh.example/other"}},
			"a scope beyond":          {"scope": {"admin"}},
			"a scope beyond, too":     {"scope": {"spawn admin"}},
			"another role":            {"scope": {"role:judge"}},
			"every role":              {"scope": {"role:*"}},
			"a scope twice":           {"scope": {"spawn spawn"}},
			"another actor":           {"actor": {"bob"}},
			"a view":                  {"view": {"admin"}},
			"a scope of no such form": {"scope": {"SPAWN"}},
		} {
			if got := ask(more); got.status < 400 || got.token != "" {
				t.Errorf("%s: %d %s, want a refusal", name, got.status, got.code)
			}
		}
		for name, c := range map[string]struct {
			more url.Values
			want []string
		}{
			"all":        {nil, []string{"spawn", "role:clerk"}},
			"the space":  {url.Values{"audience": {"test"}}, []string{"spawn", "role:clerk"}},
			"a part":     {url.Values{"scope": {"role:clerk"}}, []string{"role:clerk"}},
			"both":       {url.Values{"scope": {"role:clerk spawn"}}, []string{"role:clerk", "spawn"}},
			"the JSON":   {nil, []string{"spawn", "role:clerk"}},
			"empty form": {url.Values{"scope": {""}, "audience": {""}}, []string{"spawn", "role:clerk"}},
		} {
			got := ask(c.more)
			if name == "the JSON" {
				got = post(t, face, "", asJSON, `{"idpToken":"proof ada","actor":"ada"}`)
			}
			if slices.Sort(got.scope); got.status != http.StatusOK || !slices.Equal(got.scope, slices.Sorted(slices.Values(c.want))) {
				t.Errorf("%s: %d, scope %q, want %q", name, got.status, got.scope, c.want)
			}
			adm := claimsOf(t, v, got.token)
			if !slices.Equal(slices.Sorted(slices.Values(adm)), slices.Sorted(slices.Values(c.want))) {
				t.Errorf("%s: the bearer holds %q, want %q", name, adm, c.want)
			}
		}
	})
}

// claimsOf is the scope that a bearer holds.
func claimsOf(t testing.TB, v *village, token string) []string {
	t.Helper()
	c, err := validator(v, t).Validate(context.Background(), token)
	if err != nil {
		t.Errorf("the bearer is not valid: %v", err)
	}
	return c.Scope
}
