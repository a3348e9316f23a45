package auth_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// watched is a store that tells a test of each read of one record, before it.
type watched struct {
	secret.Store
	key    string
	before atomic.Pointer[func()]
}

func (w *watched) Get(ctx context.Context, key string) ([]byte, error) {
	if f := w.before.Load(); f != nil && key == w.key {
		(*f)()
	}
	return w.Store.Get(ctx, key)
}

// TestNoAgentsFileOutlivesTheSwitchToPeople: a space becomes one of people at each step of making the credential file of an agent, from
// the look at the mode on. Whatever is handed out is refused by the switch, which is over before the second of its signature.
func TestNoAgentsFileOutlivesTheSwitchToPeople(t *testing.T) {
	for name, renewing := range map[string]bool{"granted": false, "renewed": true} {
		t.Run(name, func(t *testing.T) {
			cotaltest.Bubble(t, func(t *testing.T) {
				step := 0
				for more := true; more; {
					step++
					more = switchAt(t, step, renewing)
				}
				if step < 3 {
					t.Errorf("the mode was read at %d steps", step)
				}
			})
		})
	}
}

// switchAt makes the space one of people right before the nth read of its record, and reports whether there was such a read.
func switchAt(t *testing.T, step int, renewing bool) bool {
	t.Helper()
	store := memstore.New()
	m := cotaltest.New(t, &cotaltest.Options{Store: store})
	defer m.Stop()
	a, s, ctx := m.Node().Authority(), m.Space(), t.Context()
	p := newProof(t)
	req := wire.AgentGrantRequest{Actor: "helper", Subscribe: []string{"team.a"}, Publish: []string{"team.a"}, Proof: p.AgentProof}
	var first wire.AgentCredential
	var err error
	if renewing {
		if first, err = a.GrantAgent(ctx, s, "", req); err != nil {
			t.Fatal(err)
		}
	}
	// Another process of the authority, which reads the same records.
	slow := &watched{Store: store, key: trust.AccountKey(s)}
	mm, err := mint.Open(ctx, slow, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := auth.New(mm, noPush{}, m.Node().Dial, nil)
	defer other.Close()
	if _, err := other.List(ctx, s); err != nil { // connects
		t.Fatal(err)
	}
	reads := 0
	before := func() {
		if reads++; reads == step {
			if _, err := a.Mint().SwitchToCallout(ctx, s); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second) // nothing is signed in the second of the switch
		}
	}
	slow.before.Store(&before)
	var got wire.AgentCredential
	if renewing {
		q := newProof(t).AgentProof
		q.TokenHash = p.TokenHash
		got, err = auth.AgentRenew(other, ctx, s, wire.AgentStartRequest{Principal: first.Principal, UID: first.UID, Proof: q})
	} else {
		got, err = other.GrantAgent(ctx, s, "", req)
	}
	slow.before.Store(nil)
	switch {
	case reads < step:
		return false
	case trust.ReasonOf(err) != trust.ReasonUserMode || got.JWT != "":
		t.Errorf("with the switch at read %d = a credential file: %t, %v; want reason user-mode", step, got.JWT != "", err)
	}
	return true
}
