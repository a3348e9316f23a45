package mint_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// TestAgentsMayUseAPartOfTheRevocations: agents are refused at three quarters, everybody else is revoked up to the limit, and both
// refusals say when there is room again.
func TestAgentsMayUseAPartOfTheRevocations(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		a, _ := withSpace(t)
		ctx, began := t.Context(), time.Now()
		revoke := func(n int, life time.Duration) error {
			revs := make([]mint.Revocation, n)
			for i := range revs {
				revs[i] = mint.Revocation{UserKey: generate(t, signer.User).Public(), Expires: time.Now().Add(life)}
			}
			_, err := a.Revoke(ctx, lab, revs...)
			return err
		}
		refused := func(what string, err error, used, allowed int, again time.Time) {
			t.Helper()
			var we *wire.Error
			if !errors.Is(err, wire.ErrExhausted) || !errors.As(err, &we) || we.Details["used"] != used || we.Details["allowed"] != allowed {
				t.Errorf("%s = %v, want resource-exhausted with %d used and %d allowed", what, err, used, allowed)
			} else if at := again.UTC().Format(time.RFC3339); !strings.Contains(err.Error(), "there is room again at "+at) {
				t.Errorf("%s = %v, want room again at %s", what, err, at)
			}
		}
		for _, step := range []struct {
			n    int
			life time.Duration
		}{{10, time.Hour}, {10, 2 * time.Hour}, {mint.AgentRevocations - 20, 24 * time.Hour}} {
			if err := revoke(step.n, step.life); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.AgentRoom(ctx, lab); err != nil {
			t.Errorf("at the share of agents: %v", err)
		}
		if err := revoke(15, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		// Of the 15 that are too many ten go after the first hour and the others after the second, a grace later.
		again := began.Add(2*time.Hour + 5*time.Minute + 2*time.Second)
		refused("above the share of agents", a.AgentRoom(ctx, lab), mint.AgentRevocations+15, mint.AgentRevocations, again)
		if err := revoke(trust.MaxRevocations-mint.AgentRevocations-15, 24*time.Hour); err != nil {
			t.Fatalf("revoking up to the limit: %v", err)
		}
		refused("above the limit", revoke(1, time.Hour), trust.MaxRevocations+1, trust.MaxRevocations, began.Add(time.Hour+5*time.Minute+2*time.Second))
		time.Sleep(time.Until(began.Add(time.Hour + 5*time.Minute + 2*time.Second)))
		if err := revoke(1, time.Hour); err != nil {
			t.Errorf("when it says that there is room: %v", err)
		}
		time.Sleep(25 * time.Hour)
		if err := a.AgentRoom(ctx, lab); err != nil { // nobody has written the record since
			t.Errorf("a day later: %v", err)
		}
	})
}
