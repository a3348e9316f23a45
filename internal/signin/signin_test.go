package signin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// everyProvider runs a test against the three real identity providers.
func everyProvider(t *testing.T, fn func(t *testing.T, k idptest.Kind)) {
	t.Helper()
	for _, k := range idptest.Kinds() {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			fn(t, k)
		})
	}
}

// TestO24APersonSignsInAndSpeaks is the whole way with nothing made by hand: device login, exchange, connection, a message.
func TestO24APersonSignsInAndSpeaks(t *testing.T) {
	t.Parallel()
	everyProvider(t, func(t *testing.T, k idptest.Kind) {
		w := newWorld(t, k, nil)
		src := w.signIn(t, "ada")
		x := w.exchange(t)
		person := login.HumanSource(x, src, login.HumanRequest{Actor: "ada"})
		if _, err := person.Credentials(t.Context()); trust.ReasonOf(err) != trust.ReasonNotGranted {
			t.Errorf("before the grant: %v, want not-granted", err)
		}
		g := w.grant(t, "ada", "ada", nil)
		ada := w.join(t, person)
		if got := ada.Principal(); got != g.Principal() {
			t.Errorf("signed in as %s, want %s", got, g.Principal())
		}
		heard := make(chan string, 1)
		if _, err := ada.Listen(t.Context(), "general", func(d *endpoint.Delivery) { heard <- d.Message.Parts[0].Text }); err != nil {
			t.Fatal(err)
		}
		if _, err := ada.Post(t.Context(), "general", endpoint.Text("hello")); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != "hello" {
			t.Errorf("heard %q", got)
		}
	})
}

// TestO3KeysOfTheProviderRotate rotates the signing key of each provider: a new login works after one look at its keys, and a
// token of before works as long as its key is published.
func TestO3KeysOfTheProviderRotate(t *testing.T) {
	t.Parallel()
	everyProvider(t, func(t *testing.T, k idptest.Kind) {
		w := newWorld(t, k, nil)
		w.grant(t, "ada", "ada", nil)
		x := w.exchange(t)
		before := w.signIn(t, "ada")
		bearerOf(t, x, before)
		looks := func() int { return w.idp.Requests(keysPath(t, w.idp)) }
		seen := looks()
		if err := w.idp.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := w.signIn(t, "ada")
		bearerOf(t, x, after)
		if n := looks() - seen; n != 1 {
			t.Errorf("the new key took %d looks at the keys of the provider, want 1", n)
		}
		bearerOf(t, x, before)
		bearerOf(t, x, after)
		if n := looks() - seen; n != 1 {
			t.Errorf("keys that are known took %d further looks", n-1)
		}
	})
}

// TestO28TheProviderIsDown: who has a proof goes on, nobody is signed out, and it works again afterwards.
func TestO28TheProviderIsDown(t *testing.T) {
	t.Parallel()
	everyProvider(t, func(t *testing.T, k idptest.Kind) {
		w := newWorld(t, k, &idptest.Options{TokenLife: 8 * time.Second}) // each use refreshes
		w.grant(t, "ada", "ada", nil)
		x := w.exchange(t)
		src := w.signIn(t, "ada")
		token, _, err := src.IDToken(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ask := login.HumanRequest{IDToken: func() string { return token }, Actor: "ada"}
		if _, err := x.Human(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		w.idp.Down()
		if _, err := x.Human(t.Context(), ask); err != nil {
			t.Errorf("a proof that was made before the outage, with a key that is known: %v", err)
		}
		for err = nil; err == nil && t.Context().Err() == nil; { // until the proof of before has ended
			_, _, err = src.IDToken(t.Context())
		}
		if !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("refresh during the outage = %v, want unavailable", err)
		}
		w.idp.Up()
		for {
			if _, _, err = src.IDToken(t.Context()); err == nil || !errors.Is(err, wire.ErrUnavailable) {
				break // a source leaves a provider that failed alone for a moment
			}
		}
		if err != nil {
			t.Errorf("after the outage: %v", err)
		}
		bearerOf(t, x, src)
	})
}

// TestAPersonRefuses: a login that the person denies ends with that, at each provider.
func TestAPersonRefuses(t *testing.T) {
	t.Parallel()
	everyProvider(t, func(t *testing.T, k idptest.Kind) {
		idp := idptest.Start(t, k, nil)
		_, err := login.Device(t.Context(), providerOf(idp.Pin(t)), &login.DeviceOptions{HTTP: idp.HTTP(), Prompt: func(ctx context.Context, p login.Prompt) error {
			return idp.Deny(ctx, p.UserCode, "ada")
		}})
		if !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("login that was refused = %v, want permission-denied", err)
		}
	})
}

// TestTakingAwayClosesWhatIsOpen narrows and revokes a person who is connected.
func TestTakingAwayClosesWhatIsOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idptest.Zitadel, nil)
	g := w.grant(t, "ada", "ada", nil)
	x := w.exchange(t)
	events := make(chan endpoint.Event, 64)
	ada, err := endpoint.Connect(t.Context(), w.URL(), login.HumanSource(x, w.signIn(t, "ada"), login.HumanRequest{Actor: "ada"}),
		&endpoint.Options{OnEvent: func(e endpoint.Event) { events <- e }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ada.Close() }()
	change, err := w.Node().Authority().Grant(t.Context(), auth.GrantRequest{
		Space: w.Space(), Owner: g.Owner, Actor: g.Actor, Publish: []string{"team.>"},
	})
	if err != nil || !change.Narrowed || change.Kicked == 0 {
		t.Fatalf("narrowing = %+v, %v; want its connection ended", change, err)
	}
	for e := range events {
		if _, ok := e.(endpoint.EventConnected); ok {
			break
		}
	}
	if _, err := ada.Post(t.Context(), "general", endpoint.Text("x")); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("post to a channel that was taken away = %v, want permission-denied", err)
	}
	if _, err := ada.Post(t.Context(), "team.a", endpoint.Text("x")); err != nil {
		t.Errorf("post to a channel that stayed: %v", err)
	}
	rev, err := w.Node().Authority().Revoke(t.Context(), w.Space(), g.Principal())
	if err != nil || rev.Kicked == 0 {
		t.Fatalf("Revoke = %+v, %v; want its connection ended", rev, err)
	}
	for e := range events {
		failed, ok := e.(endpoint.EventRenewalFailed)
		if ok && trust.ReasonOf(failed.Err) == trust.ReasonRevoked {
			break // case N1: the client learns the reason
		}
	}
	if ada.Connected() {
		t.Error("connected after the revocation")
	}
}

// TestRow13ATokenOfOneMeshIsWorthNothingAtAnother: two meshes, one identity provider, an audience each.
func TestRow13ATokenOfOneMeshIsWorthNothingAtAnother(t *testing.T) {
	t.Parallel()
	everyProvider(t, func(t *testing.T, k idptest.Kind) {
		w := newWorld(t, k, nil)
		w.grant(t, "ada", "ada", nil)
		pin := w.idp.Pin(t)
		pin.ClientID, pin.Audience = "another-mesh", "another-mesh"
		other := &world{idp: w.idp, dir: t.TempDir()}
		other.Mesh = cotaltest.New(t, &cotaltest.Options{Listen: true, StateDir: other.dir, People: cotal.PeopleOptions{Provider: &pin, HTTP: w.idp.HTTP()}})
		other.grant(t, "ada", "ada", nil)
		token, _, err := w.signIn(t, "ada").IDToken(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ask := login.HumanRequest{IDToken: func() string { return token }, Actor: "ada"}
		if _, err := other.exchange(t).Human(t.Context(), ask); trust.ReasonOf(err) != trust.ReasonAudience {
			t.Errorf("at the other mesh: %v, want wrong-audience", err)
		}
		b, err := w.exchange(t).Human(t.Context(), ask)
		if err != nil {
			t.Fatalf("at its own mesh: %v", err)
		}
		// Nor is a bearer: the other mesh has other keys, and this one's owner is somebody else there.
		creds, err := b.Credentials()
		if err != nil {
			t.Fatal(err)
		}
		if err := knock(t, other, creds); !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("a bearer of one mesh at another: %v", err)
		}
		if err := knock(t, w, creds); err != nil {
			t.Errorf("the same bearer at its own: %v", err)
		}
		if a, b := w.owner(t, "ada"), other.owner(t, "ada"); a == b {
			t.Errorf("one person is %s at both meshes", a)
		}
	})
}

// TestRow14ABearerAloneConnectsNobody: whoever sees a bearer lacks the key that it is bound to.
func TestRow14ABearerAloneConnectsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idptest.Zitadel, nil)
	w.grant(t, "ada", "ada", nil)
	src := w.signIn(t, "ada")
	x := w.exchange(t)
	b := bearerOf(t, x, src)
	own, err := b.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	thief, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	id := own.Identity()
	id.UserKey = ""
	stolen, err := trust.NewBearerCredentials(trust.Bearer{Sentinel: own.JWT(), Token: b.Reveal(), Seed: thief.Seed().Reveal(), Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	if err := knock(t, w, stolen); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("a stolen bearer with another key: %v, want unauthenticated", err)
	}
	if err := knock(t, w, own); err != nil {
		t.Errorf("the bearer with its own key: %v", err)
	}
}
