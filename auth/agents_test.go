package auth_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestARevokedAgentIsNotStarted: a supervisor that does not know yet, or does not care, starts or stops an agent whose life has ended.
// That begins no other life, and one that began meanwhile is left alone.
func TestARevokedAgentIsNotStarted(t *testing.T) {
	t.Parallel()
	a, s := people(t)
	ctx := t.Context()
	ada := grant(t, a, personGrant(s, "ada")).Lifecycle()
	helper, err := authtest.Grant(ctx, a, auth.GrantRequest{Space: s, Actor: "helper", Parent: &ada})
	if err != nil {
		t.Fatal(err)
	}
	life := helper.Lifecycle
	if _, err := a.Revoke(ctx, s, life.Principal); err != nil {
		t.Fatal(err)
	}
	_, err = helper.Start(ctx, a, s)
	wantReason(t, err, trust.ReasonRevoked)
	wantReason(t, helper.Stop(ctx, a, s), trust.ReasonRevoked)
	all, err := a.List(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		if g.Principal() == life.Principal && (g.UID != life.UID || g.State != trust.GrantRetired || g.TokenHash != "") {
			t.Errorf("after it was started and stopped: %+v", g)
		}
	}
}

// TestStartingAnAgentRacesItsNextLife: whoever starts a life gets its secret, or none, and never that of the life after it.
func TestStartingAnAgentRacesItsNextLife(t *testing.T) {
	t.Parallel()
	a, s := people(t)
	ctx := t.Context()
	ada := grant(t, a, personGrant(s, "ada")).Lifecycle()
	req := auth.GrantRequest{Space: s, Actor: "helper", Parent: &ada}
	helper, err := authtest.Grant(ctx, a, req)
	if err != nil {
		t.Fatal(err)
	}
	life := helper.Lifecycle
	var starting sync.WaitGroup
	over := make(chan struct{})
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				secret, err := helper.Start(ctx, a, s)
				if err != nil {
					continue
				}
				adm, err := a.AdmitAgent(ctx, s, auth.AgentRequest{Owner: life.Owner, Actor: life.Actor, Token: []byte(secret())})
				if err == nil && adm.Grant.UID != life.UID {
					t.Errorf("the secret of life %s is that of %s", life.UID, adm.Grant.UID)
					return
				}
			}
		})
	}
	for again := 0; again < 3; {
		if _, err := a.Revoke(ctx, s, life.Principal); errors.Is(err, wire.ErrConflict) {
			continue
		} else if err != nil {
			t.Error(err)
		}
		if _, err := authtest.Grant(ctx, a, req); err != nil {
			t.Error(err)
			break
		}
		again++
	}
	close(over)
	starting.Wait()
}
