package oidc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/wire"
)

// TestPinIsChosenOnce: what names people cannot change, what only reaches the provider changes by Repin alone.
func TestPinIsChosenOnce(t *testing.T) {
	t.Parallel()
	store, ctx := memstore.New(), t.Context()
	const lab = wire.Space("lab")
	if _, err := oidc.LoadPin(ctx, store, lab); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("no pin yet: %v", err)
	}
	if err := oidc.Repin(ctx, store, lab, newPin()); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("repin before there is one: %v", err)
	}
	kept, err := oidc.EnsurePin(ctx, store, lab, newPin())
	if err != nil || !cmp.Equal(kept, newPin()) {
		t.Fatalf("ensure = %+v, %v", kept, err)
	}
	moved := newPin()
	moved.JWKSURI, moved.Algorithms = "https://idp.example/keys", []string{"EdDSA"}
	if kept, err = oidc.EnsurePin(ctx, store, lab, moved); err != nil || !cmp.Equal(kept, newPin()) {
		t.Errorf("ensure with another key set = %+v, %v, want the first", kept, err)
	}
	for name, change := range map[string]func(*oidc.Pin){
		"issuer":          func(p *oidc.Pin) { p.Issuer = "https://evil.example" },
		"issuer by slash": func(p *oidc.Pin) { p.Issuer += "/" },
		"audience":        func(p *oidc.Pin) { p.Audience = "other" },
		"client":          func(p *oidc.Pin) { p.ClientID = "other" },
	} {
		p := newPin()
		change(&p)
		if _, err := oidc.EnsurePin(ctx, store, lab, p); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("ensure with another %s = %v", name, err)
		}
		if err := oidc.Repin(ctx, store, lab, p); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("repin with another %s = %v", name, err)
		}
	}
	if err := oidc.Repin(ctx, store, lab, moved); err != nil {
		t.Fatal(err)
	}
	if kept, err = oidc.LoadPin(ctx, store, lab); err != nil || !cmp.Equal(kept, moved) {
		t.Errorf("pin after repin = %+v, %v", kept, err)
	}
	if err := store.Put(ctx, oidc.PinKey("old"), []byte(`{"ver":2}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := oidc.LoadPin(ctx, store, "old"); !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("a pin that cannot be read = %v", err)
	}
}
