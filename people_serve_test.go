package cotal_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/wire"
)

// TestAnAuthorityEndsWithItsSpace: a process that signs people in at a space that is removed does not stay to answer, with keys of
// the past, half of the questions of the next space of that name.
func TestAnAuthorityEndsWithItsSpace(t *testing.T) {
	t.Parallel()
	const idp = "https://idp.example"
	pin := oidc.Pin{Issuer: idp, Audience: "cotal-lab", ClientID: "cotal-lab", JWKSURI: idp + "/jwks", Algorithms: []string{"EdDSA"}, Shape: oidc.ShapeOIDC}
	m := cotaltest.New(t, &cotaltest.Options{Listen: true, Spaces: []string{"lab"}})
	node := m.Node()
	if err := node.SignIn(t.Context(), "lab", pin); err != nil {
		t.Fatal(err)
	}
	client, err := cotal.DialNode(t.Context(), m.URL(), m.Store(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- client.ServeAuthority(ctx, "lab", true, cotal.PeopleOptions{}, func(cotal.PeopleStatus) { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	if err := node.RemoveSpace(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	if err := node.AddSpace(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), `space "lab" was removed`) {
		t.Errorf("the authority ended with %v, want that its space was removed", err)
	}
}
