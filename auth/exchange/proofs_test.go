package exchange_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/signer"
)

// TestProofsOfWhoGetsNothingAreNotRemembered: whoever has a login at the provider, and no grant here, or asks for what it does not
// get, or for more bearers than it may have, leaves the memory of proofs as it is. Once it is full nobody gets in.
func TestProofsOfWhoGetsNothingAreNotRemembered(t *testing.T) {
	t.Parallel()
	const room = 4
	k := newKit(t, func(o *exchange.Options) {
		o.Proofs = bearer.NewProofChecker(&bearer.ProofOptions{Memory: room})
		o.Limits = exchange.Limits{PerActor: room - 1, PerOwner: 1000, Refusals: 1000}
	})
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	send := func(body string) *reply {
		proof, err := bearer.Prove(t.Context(), key, http.MethodPost, "https://mesh.example/exchange", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return k.call(exchange.Public, ask{body: body, header: http.Header{"Dpop": {proof}}})
	}
	for range 2 * room {
		send(personBody("stranger", "")).want(t, 403, "not-granted")
		send(personBody(good, `,"actor":"bob"`)).want(t, 403, "not-granted")
		send(personBody(good, `,"scope":["supervise"]`)).want(t, 403, "scope-missing")
	}
	for range room - 1 {
		send(personBody(good, "")).want(t, 200, "")
	}
	for range 2 * room {
		send(personBody(good, "")).want(t, 429, "too-many-requests")
	}
	send(agentBody(agentToken, "")).want(t, 200, "")
	send(agentBody(agentToken, "")).want(t, 503, "busy") // it was the last place
}
