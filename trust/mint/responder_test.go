package mint_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/signer/signertest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func TestResponder(t *testing.T) {
	a, store, rec := withCallout(t)
	r, err := a.CalloutResponder(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	if r.Account() != rec.Callout.Public || r.XKey() != rec.Callout.XKey {
		t.Errorf("responder for account %s, key %s", r.Account(), r.XKey())
	}
	server, err := nkeys.CreateServer()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := server.PublicKey()
	answer := func() *jwt.AuthorizationResponseClaims {
		c := jwt.NewAuthorizationResponseClaims(someUser(t))
		c.Audience, c.Error = id, "no"
		return c
	}
	token, err := r.SignResponse(t.Context(), answer())
	if err != nil {
		t.Fatal(err)
	}
	c, err := jwt.DecodeAuthorizationResponseClaims(token)
	if err != nil || c.Issuer != rec.Callout.KeysOf(trust.CalloutResponder)[0] || c.IssuerAccount != rec.Callout.Public || c.Error != "no" {
		t.Errorf("answer %+v, %v", c, err)
	}
	for name, edit := range map[string]func(c *jwt.AuthorizationResponseClaims){
		"no audience":   func(c *jwt.AuthorizationResponseClaims) { c.Audience = "" },
		"no server":     func(c *jwt.AuthorizationResponseClaims) { c.Audience = rec.Public },
		"no user":       func(c *jwt.AuthorizationResponseClaims) { c.Subject = rec.Public },
		"no decision":   func(c *jwt.AuthorizationResponseClaims) { c.Error = "" },
		"two decisions": func(c *jwt.AuthorizationResponseClaims) { c.Jwt = "x" },
	} {
		c := answer()
		edit(c)
		if _, err := r.SignResponse(t.Context(), c); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %v, want a bad request", name, err)
		}
	}
	secrets := [][]byte{}
	for _, key := range []string{trust.CalloutXKey(lab), trust.CalloutUserKey(lab), trust.CalloutSigningKey(lab, trust.CalloutResponder)} {
		seed, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, seed)
	}
	type holder struct {
		r *mint.Responder
		v mint.Responder
		a *mint.Authority
	}
	for _, v := range []any{r, *r, holder{r, *r, a}, []any{holder{r, *r, a}}} {
		signertest.CheckHidden(t, v, secrets...)
	}
	if got := fmt.Sprint(r); got != `[responder of space "lab"]` {
		t.Errorf("a responder prints as %q", got)
	}
	if err := a.RemoveSpace(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	if _, err := a.AddSpace(t.Context(), lab, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.EnsureCallout(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	if _, err := r.SignResponse(t.Context(), answer()); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("the responder of a space that was removed and made again: %v, want failed-precondition", err)
	}
}

// TestSealsAsNkeysDo: brokers seal and open with nkeys.
func TestSealsAsNkeysDo(t *testing.T) {
	a, _, rec := withCallout(t)
	r, err := a.CalloutResponder(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	server, err := nkeys.CreateCurveKeys()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := server.PublicKey()
	for _, text := range []string{"x", strings.Repeat("question ", 1000)} {
		for range 2 { // the second time with the key that was kept
			sealed, err := server.Seal([]byte(text), rec.Callout.XKey)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Open(sealed, public); err != nil || string(got) != text {
				t.Errorf("Open of %d bytes = %d bytes, %v", len(text), len(got), err)
			}
			back, err := r.Seal([]byte(text), public)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := server.Open(back, rec.Callout.XKey); err != nil || string(got) != text {
				t.Errorf("a server opens %d bytes as %d bytes, %v", len(text), len(got), err)
			}
		}
	}
	sealed, err := server.Seal([]byte("question"), rec.Callout.XKey)
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(sealed)
	changed[len(changed)-1] ^= 1
	stranger, _ := nkeys.CreateCurveKeys()
	strange, _ := stranger.PublicKey()
	for name, c := range map[string]struct {
		sealed []byte
		peer   string
	}{
		"nothing": {nil, public}, "short": {sealed[:20], public}, "head alone": {sealed[:28], public}, "plain": {[]byte(strings.Repeat("eyJ", 40)), public},
		"changed": {changed, public}, "another server": {sealed, strange}, "no key": {sealed, ""}, "key of an account": {sealed, rec.Public},
	} {
		if got, err := r.Open(c.sealed, c.peer); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %q, %v, want a bad request", name, got, err)
		}
	}
	if _, err := r.Seal([]byte("x"), "X"); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("Seal to nobody = %v, want a bad request", err)
	}
}
