package cotal_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
)

// TestALostOwnerSecretIsNotMadeAnew: everybody would be somebody else, and their grants nobody's.
func TestALostOwnerSecretIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	store, dir := memstore.New(), t.TempDir()
	start := func() error {
		pin := oidc.Pin{Issuer: "https://idp.example", Audience: "mesh", ClientID: "mesh", JWKSURI: "https://idp.example/jwks", Algorithms: []string{"EdDSA"}, Shape: oidc.ShapeOIDC}
		n := cotal.New(store, &cotal.Options{StateDir: dir, NoListen: true, Transport: broker.Plaintext(), Spaces: []string{"main"}, People: cotal.PeopleOptions{Provider: &pin}})
		return runUntilReady(t, n)
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), trust.OwnerSecretKey("main")); err != nil {
		t.Fatal(err)
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), trust.OwnerSecretKey("main")) {
		t.Errorf("start without the owner secret = %v, want an error that names the record", err)
	}
	if _, err := store.Get(t.Context(), trust.OwnerSecretKey("main")); err == nil {
		t.Error("the owner secret was made anew")
	}
}

// runUntilReady runs a node until it is ready, and ends it.
func runUntilReady(t *testing.T, n *cotal.Node) error {
	t.Helper()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- n.Run(ctx) }()
	select {
	case <-n.Ready():
		cancel()
		return <-done
	case err := <-done:
		cancel()
		return err
	}
}
