package attack_test

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// TestTheSentinelOpensNothing: the public credential of a space is nobody, whatever is shown beside it; that of another space does not lead
// here; and one that ended does not lead anywhere.
func TestTheSentinelOpensNothing(t *testing.T) {
	t.Parallel()
	w := newTown(t, &cotaltest.Options{Spaces: []string{"other"}})
	m := w.authority().Mint()
	w.grant(t, "ada", "ada", nil)
	b := w.signIn(t, "ada", "ada")
	creds := must[*trust.Credentials](t)(b.Credentials())
	other := must[string](t)(m.Sentinel(t.Context(), "other", time.Hour))
	for name, r := range map[string]rude{
		"nothing":                      {},
		"the sentinel alone":           {jwt: creds.JWT()},
		"the sentinel with a password": {jwt: creds.JWT(), token: "x"},
		"a bearer alone":               {token: b.Reveal()},
		"a bearer at another space":    {jwt: other, token: b.Reveal(), sign: creds.Sign},
		"no signature":                 {jwt: creds.JWT(), token: b.Reveal()},
		"a signature of another nonce": {jwt: creds.JWT(), token: b.Reveal(), sign: func([]byte) ([]byte, error) { return creds.Sign([]byte("another nonce")) }},
		"an empty signature":           {jwt: creds.JWT(), token: b.Reveal(), sign: func([]byte) ([]byte, error) { return nil, nil }},
	} {
		nc, err := r.connect(w.InProcess())
		if err == nil {
			nc.Close()
			t.Errorf("%s connects", name)
		}
	}
	if err := w.present(t, creds, b.Reveal()); err != nil {
		t.Errorf("all of it together: %v", err)
	}
}

// TestNobodyHearsTheQuestions: what brokers ask about people, and the answers, are for the responder of the space alone: not for agents of it,
// not for the services of the space, not for the responder of another space, and nobody slips an answer in.
func TestNobodyHearsTheQuestions(t *testing.T) {
	t.Parallel()
	w := newTown(t, &cotaltest.Options{Spaces: []string{"other"}})
	s, m := w.Space(), w.authority().Mint()
	w.grant(t, "ada", "ada", nil)
	w.grant(t, "bob", "mallory", func(r *auth.GrantRequest) {
		r.Scope = []string{trust.ScopeSpawn, trust.ScopeAdmin, trust.ScopeSupervise}
	})
	listeners := map[string]*trust.Credentials{
		"an agent": w.credentials(t, "bob", "mallory"),
		"control":  must[*trust.Credentials](t)(m.SystemUser(t.Context(), mint.SystemRequest{Kind: trust.SystemControl})),
		"observer": must[*trust.Credentials](t)(m.SystemUser(t.Context(), mint.SystemRequest{Kind: trust.SystemObserver})),
	}
	for _, p := range []trust.Profile{trust.Admin, trust.Operator, trust.Delivery, trust.Authority, trust.Provisioner} {
		req := mint.UserRequest{Space: s, Profile: p, Principal: local("somebody")}
		if p.Lists() {
			req.Subscribe, req.Publish = []string{">"}, []string{">"}
		}
		listeners[string(p)] = must[*trust.Credentials](t)(m.User(t.Context(), req))
	}
	for name, creds := range listeners {
		t.Run(name, func(t *testing.T) {
			in := intrude(t, w.Mesh, creds)
			for _, subject := range []string{wire.CalloutSubject, "$SYS.REQ.USER.>", "$SYS.REQ.>", "$SYS._INBOX.>", "$SYS.>", ">"} {
				in.mustNotSubscribe(t, subject)
			}
			for _, subject := range []string{wire.CalloutSubject, "$SYS._INBOX.x.y"} {
				in.mustNotPublish(t, subject, []byte("a question of its own"))
			}
		})
	}

	// The responder of the other space takes part in the questions of its own and hears none of here.
	var mu sync.Mutex
	heard := 0
	spy := intrude(t, w.Mesh, must[*trust.Credentials](t)(m.CalloutUser(t.Context(), "other", 0)))
	must[*nats.Subscription](t)(spy.nc.QueueSubscribe(wire.CalloutSubject, wire.CalloutQueue, func(*nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		heard++
	}))
	spy.barrier(t)
	for range 20 {
		if err := w.knock(t, w.credentials(t, "ada", "ada")); err != nil {
			t.Fatal(err)
		}
	}
	spy.barrier(t)
	mu.Lock()
	defer mu.Unlock()
	if heard != 0 {
		t.Errorf("the responder of another space heard %d questions", heard)
	}
}
