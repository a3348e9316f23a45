package auth_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestAnAgentOfNobodyIsRefusedWherePeopleSignIn: an agent from before a space signed people in is told what to do, by whatever it
// asks, and can be stopped and retired.
func TestAnAgentOfNobodyIsRefusedWherePeopleSignIn(t *testing.T) {
	t.Parallel()
	d := newDesk(t, false)
	ctx := t.Context()
	p, q := newProof(t), newProof(t)
	req := wire.AgentGrantRequest{Actor: "helper", Subscribe: []string{"team.a"}, Publish: []string{"team.a"}, Scope: []string{}, Proof: p.AgentProof}
	c, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.a.EnsurePeople(ctx, d.s); err != nil {
		t.Fatal(err)
	}
	d.serve() // the credentials of before are refused
	d.caller = d.callerOf(d.service(trust.Supervisor))
	another := req
	another.Actor, another.Proof = "another", q.AgentProof
	start := wire.AgentStartRequest{Principal: c.Principal, UID: c.UID, Start: 1, Proof: q.AgentProof}
	renew := wire.AgentStartRequest{Principal: c.Principal, UID: c.UID, Proof: p.AgentProof}
	for command, c := range map[string]struct {
		args any
		name string
	}{
		wire.CommandAgentGrant: {another, "another"}, wire.CommandAgentStart: {start, "helper"}, wire.CommandAgentRenew: {renew, "helper"},
	} {
		advice := fmt.Sprintf("sign in with cotal login and begin it anew with: cotal stop %s --force; cotal spawn … --name %s", c.name, c.name)
		_, err := ask[wire.AgentCredential](d, command, c.args)
		if trust.ReasonOf(err) != trust.ReasonUserMode || !strings.HasSuffix(err.Error(), advice) {
			t.Errorf("%s = %v (reason %q); want reason user-mode and the advice %s", command, err, trust.ReasonOf(err), advice)
		}
	}
	_, err = d.a.AdmitAgent(ctx, d.s, auth.AgentRequest{Owner: wire.LocalOwner, Actor: "helper", Token: []byte(p.token)})
	wantReason(t, err, trust.ReasonRevoked)
	_, err = d.a.AdmitAgent(ctx, d.s, auth.AgentRequest{Owner: wire.LocalOwner, Actor: "helper", Token: []byte(q.token)})
	wantReason(t, err, trust.ReasonActorToken)
	if all := d.grants(); len(all) != 1 || all[0].UID != c.UID {
		t.Errorf("grants that stand: %+v", all)
	}
	if _, err := ask[control.None](d, wire.CommandAgentStop, wire.AgentStopRequest{Principal: c.Principal, UID: c.UID, Start: 1}); err != nil {
		t.Errorf("stop it: %v", err)
	}
	if err := d.retire(c); err != nil {
		t.Errorf("retire it: %v", err)
	}
}

// TestAScopeThatNoBearerHasRoomForIsNotGranted: it is refused when it is granted, to people and agents, and not when they sign in. What
// does not name the scope can still be taken away.
func TestAScopeThatNoBearerHasRoomForIsNotGranted(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a, s := m.Node().Authority(), m.Space()
	if _, err := a.EnsurePeople(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var long []string
	for i := range trust.MaxCommands {
		long = append(long, fmt.Sprintf("com_%s_%02d.%s%02d", strings.Repeat("n", 55), i, strings.Repeat("c", 28), i))
	}
	req := personGrant(s, "ada")
	req.Scope = long
	refused := func(what string, err error) {
		t.Helper()
		if wire.CodeOf(err) != wire.CodeResourceExhausted || !strings.Contains(err.Error(), "its scope takes") {
			t.Errorf("%s = %v, want resource-exhausted by its scope", what, err)
		}
	}
	_, err := a.Grant(t.Context(), req)
	refused("a new grant", err)
	ada := grant(t, a, personGrant(s, "ada"))
	_, err = a.Grant(t.Context(), req)
	refused("a wider one", err)
	life := ada.Lifecycle()
	_, err = authtest.Grant(t.Context(), a, auth.GrantRequest{Space: s, Actor: "helper", Parent: &life, Scope: long})
	refused("an agent", err)
	grants, err := a.List(t.Context(), s)
	if err != nil || len(grants) != 1 || grants[0].Epoch != ada.Epoch {
		t.Errorf("the refusals left %d grants, %v", len(grants), err)
	}
	service, err := a.ServiceCredential(t.Context(), s, trust.Authority, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	stored := space.NewGrants(as(t, m, service), s)
	before, rev, err := stored.Get(t.Context(), ada.Principal())
	if err != nil {
		t.Fatal(err)
	}
	before.Scope = long // as an earlier version granted it
	if _, err := stored.Update(t.Context(), before, rev); err != nil {
		t.Fatal(err)
	}
	less := auth.GrantRequest{Space: s, Owner: adasOwner, Actor: "ada", Publish: []string{}}
	if c, err := a.Grant(t.Context(), less); err != nil || !c.Narrowed {
		t.Errorf("taking away from one of before = %+v, %v", c, err)
	}
}
