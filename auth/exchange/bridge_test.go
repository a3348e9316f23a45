package exchange_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/signer/signertest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestBridge: a program that signs people in by its own means gets bearers for them, by the same grants and limits.
func TestBridge(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := exchange.Vouched{Issuer: issuer, Subject: "user-1", Until: time.Now().Add(time.Hour), Key: public}
	b, err := k.Bridge(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Token, Owner, Actor string
		Exp, Iat            int64
	}
	if err := json.Unmarshal(b.JSON(), &answer); err != nil {
		t.Fatal(err)
	}
	signertest.CheckHidden(t, b, []byte(answer.Token))
	claims, err := bearer.NewValidator("main", k.keys, nil).Validate(t.Context(), answer.Token)
	if err != nil || answer.Owner != owner || answer.Actor != "ada" || answer.Exp-answer.Iat != 900 || !public.Equal(claims.Confirmation) {
		t.Errorf("bridged = %+v, %v, bound %t", answer, err, claims.Confirmation != nil)
	}
	for name, c := range map[string]struct {
		edit func(*exchange.Vouched)
		code error
		want trust.Reason
	}{
		"no issuer":  {func(v *exchange.Vouched) { v.Issuer = "" }, wire.ErrBadRequest, ""},
		"no subject": {func(v *exchange.Vouched) { v.Subject = "" }, wire.ErrBadRequest, ""},
		"no end":     {func(v *exchange.Vouched) { v.Until = time.Time{} }, wire.ErrBadRequest, ""},
		"no key":     {func(v *exchange.Vouched) { v.Key = ed25519.PublicKey("short") }, wire.ErrBadRequest, ""},
		"ended":      {func(v *exchange.Vouched) { v.Until = time.Now() }, wire.ErrExpired, trust.ReasonExpired},
		"a stranger": {func(v *exchange.Vouched) { v.Subject = "user-2" }, wire.ErrPermissionDenied, trust.ReasonNotGranted},
		"other host": {func(v *exchange.Vouched) { v.Issuer = "https://elsewhere.example" }, wire.ErrPermissionDenied, trust.ReasonNotGranted},
		"scope":      {func(v *exchange.Vouched) { v.Scope = []string{"role:root"} }, wire.ErrPermissionDenied, trust.ReasonScope},
	} {
		v := good
		c.edit(&v)
		if b, err := k.Bridge(t.Context(), v); !errors.Is(err, c.code) || trust.ReasonOf(err) != c.want || b.JSON() != nil {
			t.Errorf("%s: %v, want reason %q", name, err, c.want)
		}
	}
	told := k.decided()
	if len(told) != 9 || told[0].Code != "" || told[0].Kind != exchange.KindPerson && told[0].Kind != exchange.KindBridge {
		t.Errorf("told of %d decisions, the first %+v; want each", len(told), told[0])
	}
}
