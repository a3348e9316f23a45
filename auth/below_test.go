package auth_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// closed waits until a connection is none any more.
func closed(nc *nats.Conn) {
	end := nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	if nc.IsConnected() {
		<-end
	}
}

// TestAProfileThatStartsNoAgentsHasNoneBelow: the holder of a credential file becomes an observer. Those below post no more, are not
// started again and are not joined by others, until what the refusals name is done.
func TestAProfileThatStartsNoAgentsHasNoneBelow(t *testing.T) {
	t.Parallel()
	for _, profile := range []trust.Profile{trust.Observer, trust.Admin} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, false)
			lead := d.parent("lead", trust.ScopeSpawn)
			p, q := newProof(t), newProof(t)
			req := d.request("child", lead, p)
			req.Scope = []string{trust.ScopeSpawn}
			child, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, req)
			if err != nil {
				t.Fatal(err)
			}
			below := wire.Lifecycle{Principal: wire.Principal{Owner: lead.Owner, Actor: "child"}, UID: child.UID}
			grandchild, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, d.request("grandchild", below, q))
			if err != nil {
				t.Fatal(err)
			}
			open := []*nats.Conn{d.works("child", child, p), d.works("grandchild", grandchild, q)}
			_, done, err := d.a.Renew(t.Context(), auth.Request{Space: d.s, Actor: "lead", Profile: profile})
			if want := []wire.Principal{below.Principal, {Owner: lead.Owner, Actor: "grandchild"}}; err != nil || !slices.Equal(done.Exceeding, want) {
				t.Fatalf("renew as %s = %+v, %v; want %v to exceed it", profile, done, err, want)
			}
			for _, nc := range open {
				closed(nc)
			}
			d.refused("child", child, p)
			d.refused("grandchild", grandchild, q)

			again := newProof(t)
			start := wire.AgentStartRequest{Principal: child.Principal, UID: child.UID, Start: 1, Proof: again.AgentProof}
			renew := wire.AgentStartRequest{Principal: child.Principal, UID: child.UID, Proof: p.AgentProof}
			another := d.request("another", lead, newProof(t))
			const advice = "ask the operator to run: cotal mint lead --renew --profile agent"
			for command, c := range map[string]struct {
				args any
				want trust.Reason
			}{
				wire.CommandAgentStart: {start, trust.ReasonExceedsParent},
				wire.CommandAgentRenew: {renew, trust.ReasonExceedsParent},
				wire.CommandAgentGrant: {another, trust.ReasonScope},
			} {
				_, err := ask[wire.AgentCredential](d, command, c.args)
				if trust.ReasonOf(err) != c.want || !strings.HasSuffix(err.Error(), advice) {
					t.Errorf("%s under the %s = %v, want reason %q and the advice %s", command, profile, err, c.want, advice)
				}
			}
			if _, _, err := d.a.Renew(t.Context(), auth.Request{Space: d.s, Actor: "lead", Profile: trust.Agent}); err != nil {
				t.Fatalf("what the refusals name: %v", err)
			}
			next, err := ask[wire.AgentCredential](d, wire.CommandAgentStart, start)
			if err != nil {
				t.Fatal(err)
			}
			d.works("the child after it", next, again)
			if _, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, another); err != nil {
				t.Errorf("another agent after it: %v", err)
			}
		})
	}
}

// TestAnOperatorKeepsItsAgents: an operator starts agents itself, so those from before it was one stay.
func TestAnOperatorKeepsItsAgents(t *testing.T) {
	t.Parallel()
	d := newDesk(t, false)
	lead := d.parent("lead", trust.ScopeSpawn)
	p := newProof(t)
	child, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, d.request("child", lead, p))
	if err != nil {
		t.Fatal(err)
	}
	if _, done, err := d.a.Renew(t.Context(), auth.Request{Space: d.s, Actor: "lead", Profile: trust.Operator}); err != nil || len(done.Exceeding) != 0 {
		t.Fatalf("renew as operator = %+v, %v; want nobody to exceed it", done, err)
	}
	d.works("child", child, p)
}

// TestAHolderWithoutSpawnIsToldACommandThatIsTaken: what a refusal names for the holder of a credential file is not refused itself, whatever
// its profile.
func TestAHolderWithoutSpawnIsToldACommandThatIsTaken(t *testing.T) {
	t.Parallel()
	d := newDesk(t, false)
	for _, c := range []struct {
		actor   string
		profile trust.Profile
		advice  string
	}{
		{"plain", trust.Agent, "cotal mint plain --renew --capability 'spawn'"},
		{"seer", trust.Observer, "cotal mint seer --renew --profile agent --capability 'spawn'"},
		{"boss", trust.Operator, "cotal mint boss --renew --profile agent --capability 'spawn'"},
	} {
		creds, err := d.a.Issue(t.Context(), auth.Request{Space: d.s, Actor: c.actor, Profile: c.profile, Subscribe: []string{"team.>"}, Publish: []string{"team.>"}})
		if err != nil {
			t.Fatal(err)
		}
		req := d.request("helper_of_"+c.actor, creds.Identity().Lifecycle, newProof(t))
		if _, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, req); trust.ReasonOf(err) != trust.ReasonScope || !strings.HasSuffix(err.Error(), c.advice) {
			t.Errorf("an agent under %s = %v, want the advice %s", c.actor, err, c.advice)
		}
		renewal := auth.Request{Space: d.s, Actor: c.actor, Capabilities: []string{trust.ScopeSpawn}}
		if strings.Contains(c.advice, "--profile") {
			renewal.Profile = trust.Agent
		}
		if _, _, err := d.a.Renew(t.Context(), renewal); err != nil {
			t.Errorf("what is advised for %s: %v", c.actor, err)
		}
		if _, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, req); err != nil {
			t.Errorf("an agent under %s after it: %v", c.actor, err)
		}
	}
}

// TestARevokedAgentIsToldHowItBegins: a life of an agent that is over is not begun by granting its name, in neither kind of space.
func TestARevokedAgentIsToldHowItBegins(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		lead := d.parent("lead", trust.ScopeSpawn)
		child, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, d.request("child", lead, newProof(t)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.a.Revoke(t.Context(), d.s, wire.Principal{Owner: lead.Owner, Actor: "child"}); err != nil {
			t.Fatal(err)
		}
		start := wire.AgentStartRequest{Principal: child.Principal, UID: child.UID, Start: 1, Proof: newProof(t).AgentProof}
		const advice = "begin it anew with: cotal stop child --force; cotal spawn … --name child"
		if _, err := ask[wire.AgentCredential](d, wire.CommandAgentStart, start); trust.ReasonOf(err) != trust.ReasonRevoked || !strings.HasSuffix(err.Error(), advice) {
			t.Errorf("starting it = %v, want the advice %s", err, advice)
		}
	})
}

// TestANameInUseIsFreedByWhatTheRefusalNames: an agent is not granted a name that somebody has.
func TestANameInUseIsFreedByWhatTheRefusalNames(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		lead := d.parent("lead", trust.ScopeSpawn)
		other := d.parent("other")
		advice := "cotal revoke other"
		if d.people {
			advice = "cotal actor revoke other --owner " + other.Owner
		}
		_, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, d.request("other", lead, newProof(t)))
		if wire.CodeOf(err) != wire.CodeAlreadyExists || !strings.HasSuffix(err.Error(), "take another, or free it with: "+advice) {
			t.Errorf("an agent of a name in use = %v, want the advice %s", err, advice)
		}
	})
}
