package login_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestO27EachDelegationGetsAFreshToken: a task of three times the life of a token delegates three times.
func TestO27EachDelegationGetsAFreshToken(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p, e := newIDP(), newExchange(t)
		p.life = 5 * time.Minute
		proof, _ := source(t, p, p.provider(), p.life)
		src := login.HumanSource(newClient(t, e), proof, login.HumanRequest{Actor: "ada"})
		seen := map[string]bool{}
		for range 3 {
			b, err := src.Bearer(t.Context())
			if err != nil || seen[b.Reveal()] || time.Until(b.Expires) != 5*time.Minute {
				t.Fatalf("bearer until %s, seen before %t: %v", b.Expires, seen[b.Reveal()], err)
			}
			seen[b.Reveal()] = true
			time.Sleep(5 * time.Minute)
		}
		proofs := map[any]bool{}
		for _, body := range e.bodies {
			proofs[body["idpToken"]] = true
		}
		if len(proofs) != 3 || p.refreshes != 2 {
			t.Errorf("%d id tokens after %d refreshes, want three after two", len(proofs), p.refreshes)
		}
	})
}

// TestC39AGetterThatFailedRecovers: the source fails twice, each time at the end of its patience, and works the third time; its errors
// are what happened.
func TestC39AGetterThatFailedRecovers(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		e := newExchange(t)
		e.script = []func(http.ResponseWriter){refusal(500, "internal", nil), refusal(403, trust.ReasonNotGranted, nil)}
		src := login.AgentSource(newClient(t, e), login.AgentRequest{Owner: ada, Actor: "bob", ActorToken: held("s")})
		if _, err := src.Credentials(t.Context()); !errors.Is(err, wire.ErrInternal) {
			t.Errorf("first = %v", err)
		}
		if _, err := src.Credentials(t.Context()); !errors.Is(err, wire.ErrPermissionDenied) || trust.ReasonOf(err) != trust.ReasonNotGranted {
			t.Errorf("second = %v", err)
		}
		if creds, err := src.Credentials(t.Context()); err != nil || creds.Identity().Actor != "bob" {
			t.Errorf("third = %v, %v", creds, err)
		}
	})
}

// TestN1DenialHasAStableReason: whoever is refused learns a stable reason, and nothing secret is in the error.
func TestN1DenialHasAStableReason(t *testing.T) {
	t.Parallel()
	p, e := newIDP(), newExchange(t)
	e.script = []func(http.ResponseWriter){refusal(403, trust.ReasonRevoked, nil)}
	proof, _ := source(t, p, p.provider(), time.Hour)
	_, err := login.HumanSource(newClient(t, e), proof, login.HumanRequest{Actor: "ada"}).Next(t.Context())
	if !errors.Is(err, wire.ErrPermissionDenied) || trust.ReasonOf(err) != trust.ReasonRevoked {
		t.Errorf("denial = %v (%q)", err, trust.ReasonOf(err))
	}
	sent, _ := e.bodies[0]["idpToken"].(string)
	if text := fmt.Sprintf("%v %+v", err, err); sent == "" || strings.Contains(text, sent) {
		t.Errorf("the denial shows the id token: %s", text)
	}
	p.ended = true
	dir := t.TempDir()
	over := login.NewSource(files(t, dir), demo, dir, &login.SourceOptions{HTTP: overWire(p)})
	if err := over.SignIn(t.Context(), signedIn(t, p, p.provider(), time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = login.HumanSource(newClient(t, e), over, login.HumanRequest{Actor: "ada"}).Next(t.Context())
	if trust.ReasonOf(err) != trust.ReasonExpired || len(e.bodies) != 1 {
		t.Errorf("a session that ended = %v, %d requests to the exchange", err, len(e.bodies))
	}
}
