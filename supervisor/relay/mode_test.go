package relay_test

import (
	"testing"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// TestSessionsOfEachMode: each profile takes the offers of the modes in which it may ask for a session, drives there, and is told at once
// that others are not its own.
func TestSessionsOfEachMode(t *testing.T) {
	w := newWorld(t, nil)
	modes := []wire.Mode{wire.ModeNone, wire.ModeOwner, wire.ModeAny}
	for profile, reach := range map[trust.Profile]int{trust.Agent: 1, trust.Deployer: 2, trust.Operator: 3} {
		creds, err := w.mint.User(t.Context(), mint.UserRequest{
			Space: w.Space(), Profile: profile, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}, Spawns: profile == trust.Agent,
		})
		if err != nil {
			t.Fatal(err)
		}
		ep, err := endpoint.Connect(t.Context(), "", endpoint.Static(creds), &endpoint.Options{Name: "ada", Quiet: true, InProcess: w.InProcess()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ep.Close() })
		for i, mode := range modes {
			s := newStage(80, 24)
			by := relay.Caller{Life: ep.Lifecycle(), Mode: mode}
			offer, err := w.relay.Offer(t.Context(), by, agent, s, wire.AttachRequest{UID: agent, Drive: true})
			if err != nil || offer.Mode != mode {
				t.Fatalf("offer of mode %q: %+v, %v", mode, offer, err)
			}
			if i >= reach {
				if _, err := ep.Session(t.Context(), offer, nil); wire.CodeOf(err) != wire.CodePermissionDenied {
					t.Errorf("%s takes a session of mode %q: %v, want permission-denied", profile, mode, err)
				}
				continue
			}
			v := open(t, ep, offer, nil)
			if err := v.Input([]byte("x")); err != nil {
				t.Error(err)
			}
			s.until(t, string(profile)+" types in mode "+string(mode), func() bool { return string(s.typed) == "x" })
		}
	}
	by := relay.Caller{Life: wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}, UID: wire.NewUID()}, Mode: wire.ModeExact}
	if _, err := w.relay.Offer(t.Context(), by, agent, newStage(80, 24), wire.AttachRequest{UID: agent}); wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("offer of mode %q: %v, want bad-request", wire.ModeExact, err)
	}
}
