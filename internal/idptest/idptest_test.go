package idptest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/internal/idptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDeviceFlow(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		token, renew := login(t, i, "ada")
		c, kid := check(t, i, token)
		sub, err := i.Subject(t.Context(), "ada")
		if err != nil {
			t.Fatal(err)
		}
		if c.Issuer != i.Issuer || c.Subject != sub || !slices.Contains(c.Audience, i.Audience) {
			t.Errorf("claims %+v, want iss %q, sub %q, aud with %q", c, i.Issuer, sub, i.Audience)
		}
		if life := c.Expiry.Time().Sub(c.IssuedAt.Time()); life != 2*time.Minute {
			t.Errorf("the token lives for %v, want 2 minutes", life)
		}
		again, _ := renewed(t, i, renew)
		if c2, kid2 := check(t, i, again); c2.Subject != sub || kid2 != kid {
			t.Errorf("renewed: sub %q, kid %q; before: %q, %q", c2.Subject, kid2, sub, kid)
		}
		other, _ := login(t, i, "bob")
		if c, _ := check(t, i, other); c.Subject == sub {
			t.Errorf("bob and ada have the same sub %q", sub)
		}
	})
}

func TestAudienceAndParty(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		token, _ := login(t, i, "ada")
		c, _ := check(t, i, token)
		want := map[idptest.Kind]string{
			idptest.Zitadel:    "[urn:mesh cotal-main-1a2b3c4d] azp=cotal-main-1a2b3c4d",
			idptest.BetterAuth: "[urn:mesh] azp=",
			idptest.Panva:      "[cotal-main-1a2b3c4d] azp=",
		}[i.Kind]
		if got := fmt.Sprintf("%v azp=%s", c.Audience, c.AuthorizedParty); got != want {
			t.Errorf("aud %s, want %s", got, want)
		}
	})
}

func TestPolling(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		code := begin(t, i)
		wantInterval := i.Kind != idptest.Panva
		if (code.Interval != nil) != wantInterval || wantInterval && *code.Interval != 1 {
			t.Errorf("interval %v", code.Interval)
		}
		began := time.Now()
		if a := poll(t, i, code.DeviceCode); a.Status != http.StatusBadRequest || a.Error != "authorization_pending" {
			t.Errorf("before approval: %+v", a)
		}
		again := poll(t, i, code.DeviceCode)
		wantSoon := "authorization_pending"
		if i.Kind == idptest.BetterAuth {
			wantSoon = "slow_down"
			if time.Since(began) >= time.Second { // a busy machine: the product may have seen them further apart
				wantSoon = again.Error
			}
		}
		if again.Status != http.StatusBadRequest || again.Error != wantSoon {
			t.Errorf("polled again: %+v, want %s", again, wantSoon)
		}
		wantUnknown := "invalid_grant"
		if i.Kind == idptest.Zitadel {
			wantUnknown = "access_denied"
		}
		if a := poll(t, i, "unknown"); a.Status != http.StatusBadRequest || a.Error != wantUnknown {
			t.Errorf("unknown device code: %+v, want %s", a, wantUnknown)
		}
		a := post(t, i, i.DeviceEndpoint, "client_id", "another")
		wantStatus := http.StatusUnauthorized
		if i.Kind == idptest.BetterAuth {
			wantStatus = http.StatusBadRequest
		}
		if a.Status != wantStatus || a.Error != "invalid_client" {
			t.Errorf("unknown client: %+v, want status %d", a, wantStatus)
		}
	})
}

func TestDeviceCodeIsGoodOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		code := begin(t, i)
		if err := i.Approve(t.Context(), code.UserCode, "ada"); err != nil {
			t.Fatal(err)
		}
		if err := i.Approve(t.Context(), code.UserCode, "bob"); err == nil {
			t.Error("approved twice")
		}
		if a := poll(t, i, code.DeviceCode); a.Status != http.StatusOK {
			t.Fatalf("first: %+v", a)
		}
		if a := poll(t, i, code.DeviceCode); a.Status != http.StatusBadRequest || a.Error == "" {
			t.Errorf("second: %+v", a)
		}
		if err := i.Approve(t.Context(), "NOPE-NOPE", "ada"); err == nil {
			t.Error("approved a code that nobody asked for")
		}
	})
}

func TestDeny(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		code := begin(t, i)
		if err := i.Deny(t.Context(), code.UserCode, "ada"); err != nil {
			t.Fatal(err)
		}
		if a := poll(t, i, code.DeviceCode); a.Status != http.StatusBadRequest || a.Error != "access_denied" {
			t.Errorf("after the refusal: %+v", a)
		}
		if err := i.Deny(t.Context(), "NOPE-NOPE", "ada"); err == nil {
			t.Error("denied a code that nobody asked for")
		}
	})
}

// TestMediaTypes: no one body suits the token endpoint of all of them.
func TestMediaTypes(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		form := url.Values{"grant_type": {deviceGrant}, "device_code": {"unknown"}, "client_id": {i.ClientID}}.Encode()
		object, err := json.Marshal(map[string]string{"grant_type": deviceGrant, "device_code": "unknown", "client_id": i.ClientID})
		if err != nil {
			t.Fatal(err)
		}
		asForm := send(t, i, i.TokenEndpoint, "application/x-www-form-urlencoded", []byte(form))
		asJSON := send(t, i, i.TokenEndpoint, "application/json", object)
		got := fmt.Sprintf("form %d %s, JSON %d %s", asForm.Status, asForm.Error, asJSON.Status, asJSON.Error)
		want := map[idptest.Kind]string{
			idptest.Zitadel:    "form 400 access_denied, JSON 400 invalid_request",
			idptest.BetterAuth: "form 415 , JSON 400 invalid_grant",
			idptest.Panva:      "form 400 invalid_grant, JSON 400 invalid_request",
		}[i.Kind]
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// TestPKCE sends a challenge and, later, a verifier that does not fit: nobody looks.
func TestPKCE(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		code := post(t, i, i.DeviceEndpoint, "client_id", i.ClientID, "scope", "openid", "code_challenge", pkce, "code_challenge_method", "S256")
		if code.Status != http.StatusOK {
			t.Fatalf("with a challenge: %+v", code)
		}
		if err := i.Approve(t.Context(), code.UserCode, "ada"); err != nil {
			t.Fatal(err)
		}
		a := post(t, i, i.TokenEndpoint, "grant_type", deviceGrant, "device_code", code.DeviceCode, "client_id", i.ClientID,
			"code_verifier", strings.Repeat("x", 43))
		if a.Status != http.StatusOK {
			t.Errorf("with a verifier: %+v", a)
		}
	})
}

func TestRefreshRotates(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		_, first := login(t, i, "ada")
		_, second := renewed(t, i, first)
		if i.Shape == idptest.ShapeBetterAuth {
			renewed(t, i, first) // a session is good until it ends
			return
		}
		if first == second {
			t.Error("the refresh token is the same")
		}
		if a := tryRenew(t, i, first); a.Status != http.StatusBadRequest || a.Error != "invalid_grant" {
			t.Errorf("refresh token used twice: %+v", a)
		}
		a := tryRenew(t, i, second)
		if spared := i.Kind == idptest.Zitadel; (a.Status == http.StatusOK) != spared {
			t.Errorf("the successor of a token used twice: %+v", a)
		}
	})
}

func TestRevocation(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		_, renew := login(t, i, "ada")
		if i.Shape == idptest.ShapeBetterAuth {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, i.BaseURL+"/sign-out", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+renew)
			r.Header.Set("Content-Type", "application/json")
			if a := ask(t, i, r); a.Status != http.StatusOK {
				t.Errorf("sign out: %+v", a)
			}
			if a := tryRenew(t, i, renew); a.Status != http.StatusUnauthorized {
				t.Errorf("a session that has ended: %+v", a)
			}
			return
		}
		if a := post(t, i, i.RevocationEndpoint, "token", renew, "token_type_hint", "refresh_token", "client_id", i.ClientID); a.Status != http.StatusOK {
			t.Errorf("revoke: %+v", a)
		}
		if a := tryRenew(t, i, renew); a.Status != http.StatusBadRequest || a.Error != "invalid_grant" {
			t.Errorf("a revoked token: %+v", a)
		}
	})
}

func TestKeysRotate(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		old, renew := login(t, i, "ada")
		_, oldKID := check(t, i, old)
		if n := len(published(t, i).Keys); n != 1 {
			t.Errorf("%d keys published at first", n)
		}
		for n := range 2 {
			if err := i.Rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := len(published(t, i).Keys); got != n+2 {
				t.Errorf("%d keys published after %d rotations", got, n+1)
			}
		}
		check(t, i, old)
		fresh, renew := renewed(t, i, renew)
		_, newKID := check(t, i, fresh)
		if newKID == oldKID {
			t.Error("signed with the old key")
		}
		before := i.Requests(pathOf(t, i.JWKSURI))
		if err := i.DropOldKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		set, err := i.Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(set.Keys) != 1 || set.Keys[0].KeyID != newKID {
			t.Errorf("published: %d keys, want %q alone", len(set.Keys), newKID)
		}
		if after := i.Requests(pathOf(t, i.JWKSURI)); after != before {
			t.Errorf("looking at the keys counted as %d requests", after-before)
		}
		again, _ := renewed(t, i, renew)
		if _, kid := check(t, i, again); kid != newKID {
			t.Errorf("signed with %q, want %q", kid, newKID)
		}
	})
}

func TestOutage(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		_, renew := login(t, i, "ada")
		path := pathOf(t, i.JWKSURI)
		i.Down()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.JWKSURI, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if a := ask(t, i, r); a.Status != http.StatusServiceUnavailable || !strings.HasPrefix(a.Type, "text/html") {
			t.Errorf("down: %+v", a)
		}
		if err := i.Approve(t.Context(), "ABCD", "ada"); err == nil {
			t.Error("approved during an outage")
		}
		i.Cut()
		if resp, err := i.HTTP().Do(r); err == nil {
			_ = resp.Body.Close()
			t.Errorf("cut off, yet answered %d", resp.StatusCode)
		}
		i.Up()
		if got := i.Requests(path); got < 2 {
			t.Errorf("%d requests counted for %s", got, path)
		}
		fresh, _ := renewed(t, i, renew)
		check(t, i, fresh)
	})
}

// TestDiscovery: what the configuration document says is what the fields say.
func TestDiscovery(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.Issuer+"/.well-known/openid-configuration", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := i.HTTP().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if i.Shape == idptest.ShapeBetterAuth {
			if resp.StatusCode != http.StatusNotFound {
				t.Errorf("status %d, want 404", resp.StatusCode)
			}
			return
		}
		var doc struct {
			Issuer     string   `json:"issuer"`
			Device     string   `json:"device_authorization_endpoint"`
			Token      string   `json:"token_endpoint"`
			JWKS       string   `json:"jwks_uri"`
			Revocation string   `json:"revocation_endpoint"`
			Algs       []string `json:"id_token_signing_alg_values_supported"`
			Grants     []string `json:"grant_types_supported"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		got := []string{doc.Issuer, doc.Device, doc.Token, doc.JWKS, doc.Revocation}
		want := []string{i.Issuer, i.DeviceEndpoint, i.TokenEndpoint, i.JWKSURI, i.RevocationEndpoint}
		if !slices.Equal(got, want) {
			t.Errorf("discovered %q, want %q", got, want)
		}
		if !slices.Contains(doc.Algs, i.Alg) || !slices.Contains(doc.Grants, deviceGrant) {
			t.Errorf("algorithms %q, grants %q", doc.Algs, doc.Grants)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, i *idptest.IdP) {
		codes := []answer{begin(t, i), begin(t, i), begin(t, i), begin(t, i)}
		failed := make(chan error, len(codes))
		for n, code := range codes {
			go func(ctx context.Context) { failed <- i.Approve(ctx, code.UserCode, fmt.Sprintf("user-%d", n%2)) }(t.Context())
		}
		for range codes {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		for _, code := range codes {
			if a := poll(t, i, code.DeviceCode); a.Status != http.StatusOK {
				t.Errorf("%+v", a)
			}
		}
	})
}

// TestLockNamesNoHost: packages come from whatever registry the machine uses, and are known by their digests. Addresses of
// sponsors are no hosts of packages.
func TestLockNamesNoHost(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "conformance", "idp", "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Resolved, Integrity string }
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		t.Fatal(err)
	}
	if len(lock.Packages) < 2 {
		t.Fatalf("%d packages", len(lock.Packages))
	}
	for name, p := range lock.Packages {
		if p.Resolved != "" || name != "" && !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("%s names an address or no digest", name)
		}
	}
}
