package auth_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// revoked makes the account of the desk's space hold n revocations, as of agents that ended.
func (d *desk) revoked(n int) {
	d.t.Helper()
	rec, err := d.a.Mint().Account(d.t.Context(), d.s)
	if err != nil {
		d.t.Fatal(err)
	}
	revs := make([]mint.Revocation, n-len(rec.Revocations))
	for i := range revs {
		revs[i] = mint.Revocation{UserKey: userKey(d.t), Expires: time.Now().Add(24 * time.Hour)}
	}
	if _, err := d.a.Mint().Revoke(d.t.Context(), d.s, revs...); err != nil {
		d.t.Fatal(err)
	}
	if err := d.a.Push(d.t.Context(), d.s); err != nil {
		d.t.Fatal(err)
	}
}

func wantExhausted(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if wire.CodeOf(err) != wire.CodeResourceExhausted {
		t.Errorf("%s = %v, want resource-exhausted", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s = %v, want it to say %q", what, err, w)
		}
	}
}

// TestAgentsLeaveRevocationsForOthers: where those of agents that ended have used up their share no agent is granted or started, and
// nothing is written; what runs is renewed and ended, and anybody is revoked.
func TestAgentsLeaveRevocationsForOthers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, false)
	ctx := t.Context()
	lead := d.parent("lead", trust.ScopeSpawn)
	runs, p := d.granted("runs", lead)
	stops, _ := d.granted("stops", lead)
	mallory, err := d.a.Issue(ctx, auth.Request{Space: d.s, Actor: "mallory", Subscribe: []string{">"}, Publish: []string{">"}})
	if err != nil {
		t.Fatal(err)
	}
	d.revoked(mint.AgentRevocations + 1)

	before, err := d.a.List(ctx, d.s)
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"7501 revocations", "only up to 7500", "each agent that ended", "there is room again at "}
	_, err = ask[wire.AgentCredential](d, wire.CommandAgentGrant, d.request("more", lead, newProof(t)))
	wantExhausted(t, "grant", err, words...)
	_, err = d.start(1, runs, newProof(t))
	wantExhausted(t, "start", err, words...)
	after, err := d.a.List(ctx, d.s)
	if err != nil || !slices.EqualFunc(before, after, func(x, y trust.Grant) bool { return x.UID == y.UID && x.Epoch == y.Epoch }) {
		t.Errorf("the refusals changed the grants from %+v to %+v, %v", before, after, err)
	}
	d.works("the start before", runs, p)
	if _, err := d.renew(runs, p); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := d.stop(1, stops); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := d.retire(runs); err != nil {
		t.Errorf("retire: %v", err)
	}
	done, err := d.a.Revoke(ctx, d.s, mallory.Identity().Principal)
	if err != nil || done.Keys != 1 {
		t.Errorf("revoke of somebody else = %+v, %v", done, err)
	}
}

// TestRevokeWithoutRoomEndsConnections: where the account has no room for one more revocation the grant and the connections are ended
// all the same, and the error says what is left and when it can be done.
func TestRevokeWithoutRoomEndsConnections(t *testing.T) {
	t.Parallel()
	d := newDesk(t, false)
	ctx := t.Context()
	mallory, err := d.a.Issue(ctx, auth.Request{Space: d.s, Actor: "mallory", Subscribe: []string{">"}, Publish: []string{">"}})
	if err != nil {
		t.Fatal(err)
	}
	d.revoked(trust.MaxRevocations)
	// One that comes back, since its key is not refused, could be counted twice.
	nc, err := nats.Connect("", nats.InProcessServer(d.m.Node().InProcess()), nats.NoReconnect(), nats.Timeout(time.Minute),
		nats.UserJWT(func() (string, error) { return mallory.JWT(), nil }, mallory.Sign))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ended := nc.StatusChanged(nats.CLOSED)
	done, err := d.a.Revoke(ctx, d.s, mallory.Identity().Principal)
	wantExhausted(t, "revoke", err, "grant ended and 1 connection ended", "can come back before "+mallory.Identity().Expires.UTC().Format(time.RFC3339),
		"run it again", "10001 revocations, limit 10000", "there is room again at ")
	if done.Kicked != 1 || done.Keys != 0 {
		t.Errorf("revoke = %+v, want one connection ended and no key refused", done)
	}
	<-ended
	all, err := d.a.List(ctx, d.s)
	if err != nil || !slices.ContainsFunc(all, func(g trust.Grant) bool { return g.Actor == "mallory" && g.State == trust.GrantRetiring }) {
		t.Errorf("grants %+v, %v, want that of mallory retiring", all, err)
	}
}

// TestAgentsCannotLockOthersOut: agents that come and go fill their share of the bucket of grants, and nothing else. People are let in,
// granted and revoked, and a refused agent leaves nothing.
func TestAgentsCannotLockOthersOut(t *testing.T) {
	for name, people := range map[string]bool{"files": false, "people": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cotaltest.Bubble(t, func(t *testing.T) {
				m := cotaltest.New(t, &cotaltest.Options{StateDir: dir, Space: &space.Options{Sizes: space.Sizes{Authority: 1 << 20}}})
				d := &desk{t: t, m: m, a: m.Node().Authority(), s: m.Space(), people: people}
				ctx := t.Context()
				if people {
					if _, err := d.a.EnsurePeople(ctx, d.s); err != nil {
						t.Fatal(err)
					}
				}
				lead := d.parent("lead", trust.ScopeSpawn)
				fill(ctx, t, d, lead)
				time.Sleep(2 * time.Second) // what is known of the room may be a second old
				request := auth.GrantRequest{Space: d.s, Actor: "one_more", Parent: &lead, Scope: []string{}}
				_, err := authtest.Grant(ctx, d.a, request)
				wantExhausted(t, "another agent", err, "records of agents are full", "7 days after the end of each")
				all, err := d.a.List(ctx, d.s)
				if err != nil {
					t.Fatal(err)
				}
				for _, g := range all {
					if g.Actor == "one_more" {
						t.Errorf("the refused agent left %+v", g)
					}
				}
				if people {
					bob := grant(t, d.a, personGrant(d.s, "bob"))
					if _, _, err := d.a.Connect(ctx, d.s, connection(t, bob)); err != nil {
						t.Errorf("a connection of somebody else: %v", err)
					}
					if _, err := d.a.Grant(ctx, auth.GrantRequest{Space: d.s, Owner: adasOwner, Actor: "bob", Publish: []string{}}); err != nil {
						t.Errorf("narrow: %v", err)
					}
				} else if _, err := d.a.Issue(ctx, auth.Request{Space: d.s, Actor: "bob", Subscribe: []string{">"}}); err != nil {
					t.Errorf("issue: %v", err)
				}
				if _, err := d.a.Revoke(ctx, d.s, lead.Principal); err != nil {
					t.Errorf("revoke: %v", err)
				}
			})
		})
	}
}

// fill writes lives of agents that ended until there is no room for more.
func fill(ctx context.Context, t *testing.T, d *desk, parent wire.Lifecycle) {
	t.Helper()
	grants := space.NewGrants(as(t, d.m, d.service(trust.Authority)), d.s)
	for _, list := range [][]string{longLists(), nil} { // what is left is less than any of them needs
		for i := 0; ; i++ {
			g := trust.Grant{
				Ver: trust.GrantVersion, Owner: parent.Owner, Actor: fmt.Sprintf("ended%d_%d", len(list), i), UID: wire.NewUID(), Epoch: 1, Kind: trust.KindManaged,
				State: trust.GrantActive, AllowSubscribe: list, Parent: parent.Principal.String(), ParentUID: parent.UID, CreatedAt: time.Now().UTC(), By: "test",
			}
			rev, err := grants.Create(ctx, g)
			if errors.Is(err, wire.ErrExhausted) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			g.State = trust.GrantRetired
			if _, err := grants.Update(ctx, g, rev); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestNoAgentWithoutRoomForItsCredential: what could not be logged is not granted and not started, so that a refusal changes nothing.
func TestNoAgentWithoutRoomForItsCredential(t *testing.T) {
	dir := t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: dir, Space: &space.Options{Sizes: space.Sizes{Authority: 1 << 20}}})
		d := &desk{t: t, m: m, a: m.Node().Authority(), s: m.Space()}
		d.serve()
		d.caller = d.callerOf(d.service(trust.Supervisor))
		ctx := t.Context()
		lead := d.parent("lead", trust.ScopeSpawn)
		child, p := d.granted("child", lead)
		js := as(t, m, d.service(trust.Authority))
		grants := space.NewGrants(js, d.s)
		for i := range 190 { // an operator grants what agents may not
			g := trust.Grant{
				Ver: trust.GrantVersion, Owner: wire.LocalOwner, Actor: fmt.Sprintf("person%d", i), UID: wire.NewUID(), Epoch: 1, Kind: trust.KindStatic,
				State: trust.GrantActive, AllowSubscribe: longLists(), CreatedAt: time.Now().UTC(), By: "test",
			}
			if _, err := grants.Create(ctx, g); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second) // what is known of the room may be a second old
		before, rev, err := grants.Get(ctx, wire.Principal{Owner: lead.Owner, Actor: "child"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ask[wire.AgentCredential](d, wire.CommandAgentGrant, d.request("more", lead, newProof(t)))
		wantExhausted(t, "grant", err, "issuance log is full")
		if _, _, err := grants.Get(ctx, wire.Principal{Owner: lead.Owner, Actor: "more"}); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("the refused grant = %v, want none", err)
		}
		_, err = d.start(1, child, newProof(t))
		wantExhausted(t, "start", err, "issuance log is full")
		if after, now, err := grants.Get(ctx, before.Principal()); err != nil || now != rev {
			t.Errorf("the refused start made of %+v %+v, %v", before, after, err)
		}
		d.works("the start before", child, p)
		if err := d.retire(child); err != nil {
			t.Errorf("retire: %v", err)
		}
	})
}

// TestRecordsOfAnEarlierVersionGo: those of agents that ended are made to go by the primary, and by the doctor where there is none.
func TestRecordsOfAnEarlierVersionGo(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *desk) {
		ctx := t.Context()
		lead := d.parent("lead", trust.ScopeSpawn)
		js := as(t, d.m, d.service(trust.Authority))
		grants := space.NewGrants(js, d.s)
		old := func(actor string) {
			t.Helper()
			c, _ := d.granted(actor, lead)
			if err := d.retire(c); err != nil {
				t.Fatal(err)
			}
			name, err := wire.ParsePrincipal(c.Principal)
			if err != nil {
				t.Fatal(err)
			}
			g, _, err := grants.Get(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			body, err := g.Encode()
			if err == nil {
				_, err = js.Publish(ctx, wire.RecordPrefix(wire.AuthorityBucket(d.s))+"grant."+c.Principal, body)
			}
			if err != nil {
				t.Fatal(err)
			}
			if lasting, err := grants.Lasting(ctx); err != nil || len(lasting) != 1 {
				t.Fatalf("lasting = %v, %v, want %s", lasting, err, c.Principal)
			}
		}
		gone := func(who string) {
			t.Helper()
			if lasting, err := grants.Lasting(ctx); err != nil || len(lasting) != 0 {
				t.Errorf("after %s: lasting = %v, %v", who, lasting, err)
			}
		}
		old("first")
		if _, err := d.a.NewSweeper(d.s).Sweep(ctx, nil); err != nil {
			t.Error(err)
		}
		gone("the sweep")
		old("second")
		told := func(fix bool) bool {
			return slices.ContainsFunc(d.a.Diagnose(ctx, d.s, &auth.DiagnoseOptions{Fix: fix}), func(f auth.Finding) bool {
				return f.Check == auth.CheckGrants && strings.HasPrefix(f.Text, "the records of 1 agents") && f.Fixed == fix
			})
		}
		if !told(false) || !told(true) {
			t.Error("the doctor does not tell, or mend, that records stay for ever")
		}
		gone("the doctor")
	})
}

// longLists are those of a grant that fills a bucket soon.
func longLists() []string {
	var out []string
	for i := range 60 {
		out = append(out, fmt.Sprintf("team.%s.%d", strings.Repeat("a", 60), i))
	}
	return out
}
