package auth_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// desk is an endpoint auth that serves, and a supervisor that asks it.
type desk struct {
	t      *testing.T
	m      *cotaltest.Mesh
	a      *auth.Authority
	s      wire.Space
	people bool
	caller *control.Caller
}

func newDesk(t *testing.T, people bool) *desk {
	t.Helper()
	m := cotaltest.New(t, nil)
	d := &desk{t: t, m: m, a: m.Node().Authority(), s: m.Space(), people: people}
	if people {
		if _, err := d.a.EnsurePeople(t.Context(), d.s); err != nil {
			t.Fatal(err)
		}
	}
	d.serve()
	d.caller = d.callerOf(d.service(trust.Supervisor))
	return d
}

// serve starts another body of the endpoint, and ends it with the test.
func (d *desk) serve() {
	d.t.Helper()
	nc := d.dial(d.service(trust.Authority))
	v := auth.NewService(d.a, nc, d.s, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	select {
	case <-v.Ready():
	case err := <-done:
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
	})
}

func (d *desk) service(p trust.Profile) *trust.Credentials {
	d.t.Helper()
	creds, err := d.a.ServiceCredential(d.t.Context(), d.s, p, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	return creds
}

func (d *desk) dial(creds *trust.Credentials) *nats.Conn {
	d.t.Helper()
	nc, err := d.m.Node().Dial(d.t.Context(), creds)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(nc.Close)
	return nc
}

func (d *desk) callerOf(creds *trust.Credentials) *control.Caller {
	d.t.Helper()
	id := creds.Identity()
	nc := d.dial(creds)
	c, err := control.NewCaller(nc, d.s, id.Lifecycle, wire.EndpointRef{ID: id.Principal.String(), Name: id.Actor}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if subject, ok := control.DeniedSubject(err); ok {
			c.Denied(subject)
		}
	})
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

func ask[Out any](d *desk, command string, args any) (Out, error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	var out Out
	err := d.caller.Call(ctx, control.Target{Endpoint: wire.AuthorityEndpoint, Command: command}, args, &out)
	return out, err
}

func sha(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// proof is what a supervisor made for one start.
type proof struct {
	pair  nkeys.KeyPair
	token string
	wire.AgentProof
}

func newProof(t *testing.T) proof {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	pub, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	token := wire.NewID() + wire.NewID()
	return proof{pair, token, wire.AgentProof{UserKey: pub, TokenHash: sha(token)}}
}

// connects tries what the agent starts with, and returns the error.
func (d *desk) connects(c wire.AgentCredential, p proof) (*nats.Conn, error) {
	d.t.Helper()
	if d.people {
		name, err := wire.ParsePrincipal(c.Principal)
		if err != nil {
			d.t.Fatal(err)
		}
		_, err = d.a.AdmitAgent(d.t.Context(), d.s, auth.AgentRequest{Owner: name.Owner, Actor: name.Actor, Token: []byte(p.token)})
		return nil, err
	}
	seed, err := p.pair.Seed()
	if err != nil {
		d.t.Fatal(err)
	}
	creds, err := trust.NewCredentials(c.JWT, seed)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.m.Node().Dial(d.t.Context(), creds)
}

func (d *desk) works(what string, c wire.AgentCredential, p proof) *nats.Conn {
	d.t.Helper()
	nc, err := d.connects(c, p)
	if err != nil {
		d.t.Fatalf("%s: %v", what, err)
	}
	if nc != nil {
		d.t.Cleanup(nc.Close)
	}
	return nc
}

func (d *desk) refused(what string, c wire.AgentCredential, p proof) {
	d.t.Helper()
	nc, err := d.connects(c, p)
	if err == nil {
		if nc != nil {
			nc.Close()
		}
		d.t.Errorf("%s: it is let in", what)
	}
}

// parent makes somebody who may start agents.
func (d *desk) parent(actor string, capabilities ...string) wire.Lifecycle {
	d.t.Helper()
	if d.people {
		req := personGrant(d.s, actor)
		req.Scope = capabilities
		return grant(d.t, d.a, req).Lifecycle()
	}
	creds, err := d.a.Issue(d.t.Context(), auth.Request{
		Space: d.s, Actor: actor, Subscribe: []string{"team.>"}, Publish: []string{"team.>"}, Capabilities: capabilities,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return creds.Identity().Lifecycle
}

func (d *desk) request(actor string, parent wire.Lifecycle, p proof) wire.AgentGrantRequest {
	return wire.AgentGrantRequest{
		Actor: actor, Parent: parent.Principal.String(), ParentUID: parent.UID, Subscribe: []string{"team.a"}, Publish: []string{"team.a"},
		Scope: []string{}, By: parent.Principal.String(), Proof: p.AgentProof,
	}
}

func (d *desk) grants() []wire.ManagedGrant {
	d.t.Helper()
	out, err := ask[wire.AgentGrantsReply](d, wire.CommandAgentGrants, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return out.Agents
}

// both runs a test in a space of credential files and in one of people.
func both(t *testing.T, fn func(t *testing.T, d *desk)) {
	for name, people := range map[string]bool{"files": false, "people": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, newDesk(t, people))
		})
	}
}

// TestC17ChildrenAreHeldUnderTheirParent: a child gets nothing that its parent does not hold, and ends with it.
func TestC17ChildrenAreHeldUnderTheirParent(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		lead := d.parent("lead", trust.ScopeSpawn, trust.ScopeRole("reviewer"))
		idle := d.parent("idle")
		refusals := map[string]struct {
			edit func(r *wire.AgentGrantRequest)
			want trust.Reason
		}{
			"reads beyond":         {func(r *wire.AgentGrantRequest) { r.Subscribe = []string{">"} }, trust.ReasonExceedsParent},
			"posts beyond":         {func(r *wire.AgentGrantRequest) { r.Publish = []string{"general"} }, trust.ReasonExceedsParent},
			"another role":         {func(r *wire.AgentGrantRequest) { r.Role = "writer" }, trust.ReasonExceedsParent},
			"a command beyond":     {func(r *wire.AgentGrantRequest) { r.Scope = []string{"com_acme.run"} }, trust.ReasonExceedsParent},
			"admin":                {func(r *wire.AgentGrantRequest) { r.Scope = []string{trust.ScopeAdmin} }, trust.ReasonScope},
			"a parent without it":  {func(r *wire.AgentGrantRequest) { r.Parent, r.ParentUID = idle.Principal.String(), idle.UID }, trust.ReasonScope},
			"an earlier life":      {func(r *wire.AgentGrantRequest) { r.ParentUID = wire.NewUID() }, trust.ReasonParent},
			"a parent that is not": {func(r *wire.AgentGrantRequest) { r.Parent = lead.Owner + ".nobody" }, trust.ReasonParent},
		}
		for name, c := range refusals {
			req := d.request("child", lead, newProof(t))
			c.edit(&req)
			if _, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, req); trust.ReasonOf(err) != c.want {
				t.Errorf("%s = %v (reason %q), want reason %q", name, err, trust.ReasonOf(err), c.want)
			}
		}
		if all := d.grants(); len(all) != 0 {
			t.Fatalf("refusals left grants: %+v", all)
		}
		p, q := newProof(t), newProof(t)
		req := d.request("child", lead, p)
		req.Role, req.Scope = "reviewer", []string{trust.ScopeSpawn}
		child, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, req)
		if err != nil {
			t.Fatal(err)
		}
		if child.Principal != lead.Owner+".child" || child.Exchange != d.people || (child.JWT == "") != d.people {
			t.Fatalf("credential %+v", child)
		}
		below := d.request("grandchild", wire.Lifecycle{Principal: wire.Principal{Owner: lead.Owner, Actor: "child"}, UID: child.UID}, q)
		beyond, advice := below, "cotal stop child --force; cotal spawn … --name child --capability 'spawn,role:writer'"
		if beyond.Role = "writer"; d.people {
			advice = "cotal actor grant child --owner " + lead.Owner + " --scope 'spawn,role:writer'"
		}
		if _, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, beyond); trust.ReasonOf(err) != trust.ReasonExceedsParent || !strings.HasSuffix(err.Error(), advice) {
			t.Errorf("beyond an agent = %v, want the advice %s", err, advice)
		}
		grandchild, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, below)
		if err != nil {
			t.Fatal(err)
		}
		open := []*nats.Conn{d.works("child", child, p), d.works("grandchild", grandchild, q)}
		if len(d.grants()) != 2 {
			t.Errorf("grants %+v", d.grants())
		}
		done, err := d.a.Revoke(t.Context(), d.s, lead.Principal)
		if err != nil || len(done.Below) != 2 {
			t.Fatalf("revoke of the parent = %+v, %v", done, err)
		}
		d.refused("child", child, p)
		d.refused("grandchild", grandchild, q)
		for _, nc := range open {
			if nc != nil && nc.IsConnected() {
				closed := nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
				if nc.IsConnected() {
					<-closed
				}
			}
		}
		if all := d.grants(); len(all) != 0 {
			t.Errorf("after the parent: %+v", all)
		}
		start := wire.AgentStartRequest{Principal: child.Principal, UID: child.UID, Proof: newProof(t).AgentProof}
		for _, command := range []string{wire.CommandAgentStart, wire.CommandAgentRenew} {
			if _, err := ask[wire.AgentCredential](d, command, start); trust.ReasonOf(err) != trust.ReasonRevoked {
				t.Errorf("%s of a child that was revoked = %v", command, err)
			}
		}
	})
}

// TestARepeatedGrantIsTheSame: the answer to a grant was lost. The same request is answered with the same life and credential; with
// another proof or other lists the name is in use.
func TestARepeatedGrantIsTheSame(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		lead := d.parent("lead", trust.ScopeSpawn)
		p := newProof(t)
		req := d.request("child", lead, p)
		first, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, req)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, req)
		if err != nil || again.UID != first.UID || again.Expires != first.Expires || again.Exchange != first.Exchange {
			t.Errorf("the same request = %+v, %v, want %+v", again, err, first)
		}
		d.works("the first answer", first, p)
		d.works("the second answer", again, p)
		other := d.request("child", lead, newProof(t))
		wider := req
		wider.Subscribe = []string{"team.b"}
		for name, r := range map[string]wire.AgentGrantRequest{"another proof": other, "other lists": wider} {
			if _, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, r); !errors.Is(err, wire.ErrExists) {
				t.Errorf("%s = %v, want already-exists", name, err)
			}
		}
		if err := d.retire(first); err != nil {
			t.Fatal(err)
		}
		if err := d.retire(first); err != nil {
			t.Errorf("retiring again = %v", err)
		}
		next, err := ask[wire.AgentCredential](d, wire.CommandAgentGrant, other)
		if err != nil || next.UID == first.UID {
			t.Fatalf("the name after it was retired = %+v, %v", next, err)
		}
		if err := d.retire(first); err != nil {
			t.Errorf("retiring the life before = %v", err)
		}
		if all := d.grants(); len(all) != 1 || all[0].UID != next.UID {
			t.Errorf("after retiring the life before: %+v, want life %s", all, next.UID)
		}
	})
}

func (d *desk) retire(c wire.AgentCredential) error {
	d.t.Helper()
	_, err := ask[control.None](d, wire.CommandAgentRetire, wire.AgentRequest{Principal: c.Principal, UID: c.UID})
	return err
}
