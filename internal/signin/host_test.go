package signin_test

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
)

// TestAHostServesTheExchangeItself: two spaces of one node, each under an address of the host's own listener, and people whom the
// host has signed in by its own means.
func TestAHostServesTheExchangeItself(t *testing.T) {
	t.Parallel()
	idp := idptest.Start(t, idptest.Zitadel, nil)
	pin := idp.Pin(t)
	var node *cotal.Node
	front := map[string]*httptest.Server{}
	for _, s := range []string{cotaltest.SpaceName, "other"} {
		front[s] = httptest.NewUnstartedServer(nil)
		defer front[s].Close()
	}
	address := func(space string) string { return "http://" + front[space].Listener.Addr().String() }
	store := memstore.New()
	w := &world{idp: idp, pin: pin, dir: t.TempDir()}
	w.Mesh = cotaltest.New(t, &cotaltest.Options{
		Listen: true, StateDir: w.dir, Store: store, Spaces: []string{"other"},
		People: cotal.PeopleOptions{Provider: &pin, HTTP: idp.HTTP(), MountedURL: address},
	})
	node = w.Node()
	for s, f := range front {
		f.Config.Handler = node.ExchangeHandler(s)
		f.Start()
	}
	info, err := login.Mesh(t.Context(), address("other"), nil)
	if err != nil || info.Space != "other" || info.ExchangeURL != address("other") || info.Provider.Issuer != pin.Issuer {
		t.Fatalf("well-known document of the other space = %+v, %v", info, err)
	}
	g := w.grant(t, "ada", "ada", nil)
	x, err := login.NewExchange(&login.ExchangeOptions{URL: address(cotaltest.SpaceName)})
	if err != nil {
		t.Fatal(err)
	}
	src := w.signIn(t, "ada")
	if b := bearerOf(t, x, src); b.Owner != g.Owner {
		t.Errorf("signed in as %s, want %s", b.Owner, g.Owner)
	}
	y, err := login.NewExchange(&login.ExchangeOptions{URL: address("other")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := login.HumanSource(y, src, login.HumanRequest{Actor: "ada"}).Bearer(t.Context()); trust.ReasonOf(err) != trust.ReasonNotGranted {
		t.Errorf("at the other space: %v, want not-granted: each space has grants of its own", err)
	}
	// The host's own people come by an issuer of its own.
	secret, err := trust.LoadOwnerSecret(t.Context(), store, w.Space())
	if err != nil {
		t.Fatal(err)
	}
	owner, err := secret.Owner("https://host.example", "bob")
	if err != nil {
		t.Fatal(err)
	}
	w.grantOwner(t, owner, "bob")
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := node.Vouch(t.Context(), cotaltest.SpaceName, exchange.Vouched{
		Issuer: "https://host.example", Subject: "bob", Until: time.Now().Add(time.Hour), Key: public,
	})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Owner, Actor, Token string }
	if err := json.Unmarshal(b.JSON(), &answer); err != nil || answer.Owner != owner || answer.Actor != "bob" || answer.Token == "" {
		t.Errorf("vouched for bob = %s.%s, %v", answer.Owner, answer.Actor, err)
	}
}
