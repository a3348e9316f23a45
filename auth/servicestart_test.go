package auth_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func (d *desk) granted(actor string, parent wire.Lifecycle) (wire.AgentCredential, proof) {
	d.t.Helper()
	p := newProof(d.t)
	c, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, d.request(actor, parent, p))
	if err != nil {
		d.t.Fatal(err)
	}
	return c, p
}

func (d *desk) start(n uint64, c wire.AgentCredential, p proof) (wire.AgentCredential, error) {
	d.t.Helper()
	return ask[wire.AgentCredential](d, wire.CommandAgentStart, wire.AgentStartRequest{Principal: c.Principal, UID: c.UID, Start: n, Proof: p.AgentProof})
}

func (d *desk) renew(c wire.AgentCredential, p proof) (wire.AgentCredential, error) {
	d.t.Helper()
	return ask[wire.AgentCredential](d, wire.CommandAgentRenew, wire.AgentStartRequest{Principal: c.Principal, UID: c.UID, Proof: p.AgentProof})
}

func (d *desk) stop(n uint64, c wire.AgentCredential) error {
	d.t.Helper()
	_, err := ask[control.None](d, wire.CommandAgentStop, wire.AgentStopRequest{Principal: c.Principal, UID: c.UID, Start: n})
	return err
}

// TestAgentStartsRenewsAndStops: a start refuses what was before, a renewal does not, and after a stop nothing is let in.
func TestAgentStartsRenewsAndStops(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		lead := d.parent("lead", trust.ScopeSpawn)
		first, p := d.granted("child", lead)
		d.works("first start", first, p)

		q := newProof(t)
		second, err := d.start(1, first, q)
		if err != nil || second.UID != first.UID {
			t.Fatalf("start = %+v, %v", second, err)
		}
		d.refused("the first start after the second", first, p)
		d.works("second start", second, q)
		if again, err := d.start(1, first, q); err != nil || again.Expires != second.Expires {
			t.Errorf("the same start again = %+v, %v, want %+v", again, err, second)
		}

		renewal := newProof(t)
		stale := renewal
		renewal.token, renewal.TokenHash = q.token, q.TokenHash
		renewed, err := d.renew(first, renewal)
		if err != nil || renewed.UID != first.UID {
			t.Fatalf("renew = %+v, %v", renewed, err)
		}
		d.works("before the renewal", second, q)
		d.works("after the renewal", renewed, renewal)
		if _, err := d.renew(first, stale); trust.ReasonOf(err) != trust.ReasonSuperseded {
			t.Errorf("renewal of another start = %v, want reason %s", err, trust.ReasonSuperseded)
		}

		for range 2 {
			if err := d.stop(1, first); err != nil {
				t.Fatal(err)
			}
		}
		d.refused("second start after the stop", second, q)
		d.refused("renewed after the stop", renewed, renewal)
		if _, err := d.renew(first, renewal); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("renewal of what was stopped = %v, want failed-precondition", err)
		}
		if all := d.grants(); len(all) != 1 || all[0].Started {
			t.Errorf("grants after the stop: %+v", all)
		}
		if !d.people {
			if _, err := d.start(2, first, q); trust.ReasonOf(err) != trust.ReasonReplayed && trust.ReasonOf(err) != trust.ReasonRevoked {
				t.Errorf("start with the key of an earlier one = %v", err)
			}
		}
		r := newProof(t)
		third, err := d.start(3, first, r)
		if err != nil {
			t.Fatal(err)
		}
		d.works("start after the stop", third, r)
		d.auditHas(space.ActionGrant, space.ActionStart, space.ActionStop)
	})
}

// TestLateStartsAndStops: what was asked long ago, or twice, and comes after a later start of the same life takes nothing from it.
func TestLateStartsAndStops(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		lead := d.parent("lead", trust.ScopeSpawn)
		first, p := d.granted("child", lead)
		q, r := newProof(t), newProof(t)
		if _, err := d.start(1, first, q); err != nil {
			t.Fatal(err)
		}
		second, err := d.start(3, first, r)
		if err != nil {
			t.Fatal(err)
		}
		open := d.works("the start that is the last", second, r)
		unharmed := func(what string) {
			t.Helper()
			if open != nil && !open.IsConnected() {
				t.Errorf("%s: the connection of the last start has ended", what)
			}
			d.works(what, second, r)
		}
		for n := range uint64(3) {
			if err := d.stop(n, first); err != nil {
				t.Errorf("stop of start %d, which is over = %v", n, err)
			}
			unharmed(fmt.Sprintf("after a late stop of start %d", n))
		}
		for what, late := range map[string]struct {
			n uint64
			p proof
		}{"the first again": {1, q}, "one that never came": {2, newProof(t)}, "another of the same number": {3, newProof(t)}} {
			if _, err := d.start(late.n, first, late.p); !errors.Is(err, wire.ErrConflict) || trust.ReasonOf(err) != trust.ReasonSuperseded {
				t.Errorf("late start, %s = %v, want a conflict with reason %s", what, err, trust.ReasonSuperseded)
			}
			unharmed("after a late start, " + what)
		}
		d.refused("the grant", first, p)
		lost := newProof(t)
		if err := d.stop(4, first); err != nil { // that start is still under way
			t.Fatal(err)
		}
		d.refused("the last start after the stop of one that is under way", second, r)
		if _, err := d.start(4, first, lost); trust.ReasonOf(err) != trust.ReasonSuperseded {
			t.Errorf("a start that comes after its stop = %v, want reason %s", err, trust.ReasonSuperseded)
		}
		if all := d.grants(); len(all) != 1 || all[0].Started {
			t.Errorf("grants after the stop: %+v", all)
		}
		next := newProof(t)
		third, err := d.start(5, first, next)
		if err != nil {
			t.Fatal(err)
		}
		d.works("the start after the stop", third, next)
	})
}

// auditHas wants a record of each action about the child.
func (d *desk) auditHas(actions ...string) {
	d.t.Helper()
	events, _, err := d.a.Audit(d.t.Context(), d.s, space.AuditQuery{})
	if err != nil {
		d.t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		if name, err := wire.ParsePrincipal(e.Target); err == nil && name.Actor == "child" && e.Outcome == space.OutcomeOK && e.By == "local.supervisor" {
			got = append(got, e.Action)
		}
	}
	for _, a := range actions {
		if !slices.Contains(got, a) {
			d.t.Errorf("no audit record %q of the supervisor about the child; there are %q", a, got)
		}
	}
}

// TestRevokeRacesAgentStart starts an agent from several sides while it is revoked: whatever was handed out, nothing of it is let in
// once Revoke has returned.
func TestRevokeRacesAgentStart(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		lead := d.parent("lead", trust.ScopeSpawn)
		type out struct {
			wire.AgentCredential
			proof
		}
		for round := range 3 {
			c, p := d.granted(fmt.Sprintf("racer_%d", round), lead)
			var mu sync.Mutex
			all := []out{{c, p}}
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			var last atomic.Uint64
			for range 3 {
				wg.Go(func() {
					for ctx.Err() == nil {
						q := newProof(t)
						got, err := d.start(last.Add(1), c, q)
						if err != nil {
							continue
						}
						mu.Lock()
						all = append(all, out{got, q})
						mu.Unlock()
					}
				})
			}
			name, err := wire.ParsePrincipal(c.Principal)
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.a.Revoke(t.Context(), d.s, name)
			for errors.Is(err, wire.ErrConflict) {
				_, err = d.a.Revoke(t.Context(), d.s, name)
			}
			cancel()
			wg.Wait()
			if err != nil {
				t.Fatal(err)
			}
			for i, o := range all {
				d.refused(fmt.Sprintf("round %d, start %d of %d", round, i, len(all)), o.AgentCredential, o.proof)
			}
		}
	})
}

// TestANarrowedParentTakesItsAgentsAlong: a credential file below is refused once it holds more than the one above, and its agent gets
// another when it fits again.
func TestANarrowedParentTakesItsAgentsAlong(t *testing.T) {
	t.Parallel()
	d := newDesk(t, false)
	lead := d.parent("lead", trust.ScopeSpawn)
	c, p := d.granted("child", lead)
	d.works("before", c, p)
	renew := auth.Request{Space: d.s, Actor: "lead", Subscribe: []string{"team.b"}}
	_, ref, err := d.a.Renew(t.Context(), renew)
	if err != nil || !ref.Narrowed || len(ref.Exceeding) != 1 || ref.Exceeding[0].Actor != "child" {
		t.Fatalf("narrowing = %+v, %v", ref, err)
	}
	d.refused("after its parent was narrowed", c, p)
	q := newProof(t)
	q.token, q.TokenHash = p.token, p.TokenHash
	_, err = d.renew(c, q)
	if trust.ReasonOf(err) != trust.ReasonExceedsParent {
		t.Errorf("renewal meanwhile = %v", err)
	}
	renew.Subscribe = []string{"team.>"}
	if _, _, err := d.a.Renew(t.Context(), renew); err != nil {
		t.Fatal(err)
	}
	renewed, err := d.renew(c, q)
	if err != nil {
		t.Fatal(err)
	}
	d.works("after its parent was widened", renewed, q)
}

// TestAParentThatMayNotStartAgentsHasNone: with the right to start agents everybody who was started by it loses theirs, at every depth,
// until it is given back.
func TestAParentThatMayNotStartAgentsHasNone(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		lead := d.parent("lead", trust.ScopeSpawn, trust.ScopeRole("reviewer"))
		holds := func(capabilities ...string) (exceeding []wire.Principal) {
			t.Helper()
			if d.people {
				c, err := d.a.Grant(t.Context(), auth.GrantRequest{Space: d.s, Owner: lead.Owner, Actor: "lead", Scope: capabilities})
				if err != nil {
					t.Fatal(err)
				}
				return c.Exceeding
			}
			_, ref, err := d.a.Renew(t.Context(), auth.Request{Space: d.s, Actor: "lead", Capabilities: capabilities})
			if err != nil {
				t.Fatal(err)
			}
			return ref.Exceeding
		}
		p, q := newProof(t), newProof(t)
		req := d.request("child", lead, p)
		req.Scope = []string{trust.ScopeSpawn}
		child, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, req)
		if err != nil {
			t.Fatal(err)
		}
		below := d.request("grandchild", wire.Lifecycle{Principal: wire.Principal{Owner: lead.Owner, Actor: "child"}, UID: child.UID}, q)
		grandchild, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, below)
		if err != nil {
			t.Fatal(err)
		}
		leaf, r := d.granted("leaf", lead)
		d.works("child before", child, p)
		d.works("grandchild before", grandchild, q)
		open := d.works("leaf before", leaf, r)

		if got := holds(trust.ScopeRole("reviewer")); len(got) != 3 {
			t.Errorf("it lost the right to start agents, and refused are %v", got)
		}
		d.refused("child", child, p)
		d.refused("grandchild", grandchild, q)
		d.refused("leaf", leaf, r)
		if open != nil && open.IsConnected() {
			t.Error("the connection of the leaf stays")
		}
		again := newProof(t)
		again.token, again.TokenHash = r.token, r.TokenHash
		if _, err := d.renew(leaf, again); trust.ReasonOf(err) != trust.ReasonExceedsParent {
			t.Errorf("renewal meanwhile = %v, want reason %s", err, trust.ReasonExceedsParent)
		}
		if _, err := d.start(1, leaf, newProof(t)); trust.ReasonOf(err) != trust.ReasonExceedsParent {
			t.Errorf("start meanwhile = %v, want reason %s", err, trust.ReasonExceedsParent)
		}

		if got := holds(trust.ScopeRole("reviewer"), trust.ScopeSpawn); len(got) != 0 {
			t.Errorf("it has the right again, and refused are %v", got)
		}
		renewed, err := d.renew(leaf, again)
		if err != nil {
			t.Fatal(err)
		}
		d.works("leaf after", renewed, again)
	})
}

// TestOnlySupervisorsReachTheAuthority: the broker lets nobody else through, and whoever it lets through is looked at again.
func TestOnlySupervisorsReachTheAuthority(t *testing.T) {
	t.Parallel()
	d := newDesk(t, false)
	lead := d.parent("lead", trust.ScopeSpawn)
	_, p := d.granted("child", lead)
	operator, err := d.a.Personal(t.Context(), d.s, trust.Operator, "op", 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.a.Mint().User(t.Context(), mint.UserRequest{Space: d.s, Profile: trust.Supervisor, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "mallory"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, creds := range map[string]*trust.Credentials{
		"an operator": operator, "an observer": d.service(trust.Observer), "the authority itself": d.service(trust.Authority),
		"delivery": d.service(trust.Delivery), "a supervisor of another name": other,
	} {
		caller := d.callerOf(creds)
		for _, mode := range []wire.Mode{wire.ModeNone, wire.ModeAny} {
			target := control.Target{Endpoint: wire.AuthorityEndpoint, Command: wire.CommandAgentGrants, Mode: mode}
			if mode == wire.ModeAny {
				target.Of.Principal = wire.Principal{Owner: wire.LocalOwner, Actor: "child"}
			}
			if err := caller.Call(t.Context(), target, nil, nil); !errors.Is(err, wire.ErrPermissionDenied) {
				t.Errorf("%s, mode %q: %v, want permission-denied", name, mode, err)
			}
		}
	}
	if _, err := ask[wire.AgentCredential](d, wire.CommandAgentRenew, wire.AgentStartRequest{Principal: lead.Principal.String(), UID: lead.UID, Proof: p.AgentProof}); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("renewal of what no supervisor runs = %v, want permission-denied", err)
	}
	if _, err := ask[control.None](d, wire.CommandAgentRetire, wire.AgentRequest{Principal: lead.Principal.String(), UID: lead.UID}); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("retirement of what no supervisor runs = %v, want permission-denied", err)
	}
}

// TestNobodyElseIsNamedAsTheSupervisor: the authority knows a supervisor by its name, so nobody is granted that, in either mode and by
// whomever; a name that was counted on is told to be taken.
func TestNobodyElseIsNamedAsTheSupervisor(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		ctx, name := t.Context(), wire.Principal{Owner: wire.LocalOwner, Actor: string(trust.Supervisor)}
		tries := map[string]func() error{
			"an operator's agent": func() error {
				_, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, wire.AgentGrantRequest{
					Actor: name.Actor, Subscribe: []string{}, Publish: []string{}, Scope: []string{}, Proof: newProof(t).AgentProof,
				})
				return err
			},
		}
		if d.people {
			for _, kind := range []trust.GrantKind{trust.KindInteractive, trust.KindService, trust.KindManaged} {
				tries[string(kind)] = func() error {
					_, err := d.a.Grant(ctx, auth.GrantRequest{Space: d.s, Owner: name.Owner, Actor: name.Actor, Kind: kind})
					return err
				}
			}
		} else {
			lead := d.parent("lead", trust.ScopeSpawn)
			tries["an agent's agent"] = func() error {
				_, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, d.request(name.Actor, lead, newProof(t)))
				return err
			}
			for _, profile := range []trust.Profile{trust.Agent, trust.Observer, trust.Operator} {
				tries["a file of profile "+string(profile)] = func() error {
					_, err := d.a.Issue(ctx, auth.Request{Space: d.s, Actor: name.Actor, Profile: profile})
					return err
				}
				tries["a person's "+string(profile)] = func() error {
					_, err := d.a.Personal(ctx, d.s, profile, name.Actor, 0)
					return err
				}
			}
		}
		for what, try := range tries {
			if err := try(); !errors.Is(err, wire.ErrExists) || !strings.Contains(err.Error(), "supervisors of the space") {
				t.Errorf("%s = %v, want already-exists, which says whose the name is", what, err)
			}
		}
		for _, profile := range trust.Profiles() {
			_, err := d.a.Mint().User(ctx, mint.UserRequest{Space: d.s, Profile: profile, Principal: name})
			if profile == trust.Supervisor && err != nil || profile != trust.Supervisor && !errors.Is(err, wire.ErrBadRequest) {
				t.Errorf("credential of profile %s with the name = %v", profile, err)
			}
		}
		if all, err := d.a.List(ctx, d.s); err != nil || slices.ContainsFunc(all, func(g trust.Grant) bool { return g.Principal() == name }) {
			t.Errorf("grants %+v, %v", all, err)
		}
	})
}

// TestAnAgentWithoutParent: what an operator asked for is held under nobody, in both modes, and two bodies of the endpoint share the work.
func TestAnAgentWithoutParent(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		d.serve()
		owner := wire.LocalOwner
		if d.people {
			owner = adasOwner
		}
		for i := range 4 {
			p := newProof(t)
			c, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, wire.AgentGrantRequest{
				Owner: owner, Actor: fmt.Sprintf("solo_%d", i), Subscribe: []string{">"}, Publish: []string{">"}, Scope: []string{trust.ScopeSpawn}, Label: "i1", Proof: p.AgentProof,
			})
			if err != nil {
				t.Fatal(err)
			}
			d.works("solo", c, p)
		}
		all := d.grants()
		if len(all) != 4 || all[0].Principal != owner+".solo_0" || all[0].Label != "i1" || all[0].Parent != "" || !all[0].Started {
			t.Errorf("grants %+v", all)
		}
	})
}
