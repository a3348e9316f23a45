package delivery_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func TestReach(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		ctx := t.Context()
		ada := asker(t, m, agent(t, m, "ada", ""))
		bobs := agent(t, m, "bob", "reviewer")
		reach := func(in wire.ReachRequest) wire.ReachReply {
			t.Helper()
			r, err := ada.Reach(ctx, in)
			if err != nil {
				t.Fatalf("reach %+v: %v", in, err)
			}
			return r
		}
		want := func(what string, in wire.ReachRequest, tier string, live int, waiting uint64, reason string) {
			t.Helper()
			if r := reach(in); r.Tier != tier || r.Live != live || r.Waiting != waiting || r.Reason != reason || r.StaleSince != 0 {
				t.Errorf("%s: reach %+v = %+v, want %s, %d live, %d waiting, %q", what, in, r, tier, live, waiting, reason)
			}
		}
		toBob, toRole := wire.ReachRequest{To: "local.bob"}, wire.ReachRequest{Role: "reviewer"}
		want("never existed", wire.ReachRequest{To: "local.zoe"}, wire.ReachNobody, 0, 0, "nobody of that name was ever here")
		want("cannot exist", wire.ReachRequest{To: "elsewhere.zoe"}, wire.ReachNobody, 0, 0, "no participant can have that owner")
		want("no such role", wire.ReachRequest{Role: "cook"}, wire.ReachNobody, 0, 0, "nobody holds the role")
		want("never seen", toBob, wire.ReachStored, 0, 0, "it was not seen lately")
		want("granted, nobody there", toRole, wire.ReachStored, 0, 0, "no holder of the role is there")

		bob := start(t, m, bobs, endpoint.Options{}, func(*endpoint.Delivery) {})
		soon()
		want("there", toBob, wire.ReachLive, 1, 0, "")
		want("a holder is there", toRole, wire.ReachLive, 1, 0, "")
		for range 2 {
			if _, err := ada.Direct(ctx, bob.Principal(), endpoint.Text("hello")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ada.Ask(ctx, "reviewer", endpoint.Text("hello")); err != nil {
			t.Fatal(err)
		}
		soon()
		want("it holds two", toBob, wire.ReachLive, 1, 2, "")
		want("nobody takes the job", toRole, wire.ReachLive, 1, 1, "")

		bob.kill()
		ended()
		r := reach(toBob)
		if since, err := time.Parse("it is away since 2006-01-02T15:04:05Z", r.Reason); err != nil || time.Since(since) > 2*wire.LivenessWindow || r.Tier != wire.ReachStored || r.Live != 0 || r.Waiting != 2 {
			t.Errorf("away: reach = %+v, want stored, two waiting, and since when", r)
		}
		want("the holder died", toRole, wire.ReachStored, 0, 1, "no holder of the role is there")

		if _, err := m.Node().Authority().Revoke(ctx, m.Space(), bob.Principal()); err != nil {
			t.Fatal(err)
		}
		want("revoked", toBob, wire.ReachNobody, 0, 0, "its grant has ended")
		want("the only holder was revoked", toRole, wire.ReachNobody, 0, 1, "nobody holds the role")

		for _, in := range []wire.ReachRequest{{}, {To: "local.bob", Role: "reviewer"}, {To: "bob"}, {Role: "a b"}, {Channel: "a.*"}} {
			if r, err := ada.Reach(ctx, in); !errors.Is(err, wire.ErrBadRequest) {
				t.Errorf("reach %+v = %+v, %v, want bad-request", in, r, err)
			}
		}
	})
}

// A claim in the roster gives nobody a role.
func TestReachOfARoleThatIsOnlyClaimed(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, eve := lifecycle("ada"), lifecycle("eve")
	m.grantAs(t, ada, func(g *trust.Grant) { g.Role = "reviewer" })
	m.grantAs(t, eve, nil)
	m.durables(t, ada, "reviewer")
	rec := presence(eve, wire.StatusIdle, "")
	rec.Card.Role = "reviewer"
	subject, err := wire.PresenceSubject(lab, eve.Principal)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.nc.Publish(subject, encodePresence(t, rec)); err != nil {
		t.Fatal(err)
	}
	r := ask[wire.ReachReply](t, m.caller(t, eve), wire.CommandReach, wire.ReachRequest{Role: "reviewer"})
	if r.Tier != wire.ReachStored || r.Live != 0 {
		t.Errorf("reach = %+v, want stored: the one who claims the role was not given it", r)
	}
}

// Who is there under a name whose life is another one is somebody else.
func TestReachOfANameThatAnEarlierLifeHolds(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, earlier := lifecycle("ada"), lifecycle("ada")
	m.grantAs(t, ada, nil)
	m.durables(t, ada, "")
	bob := lifecycle("bob")
	m.grantAs(t, bob, nil)
	c := m.caller(t, bob)
	m.beat(t, earlier, wire.StatusIdle, "")
	m.flush(t)
	if r := ask[wire.ReachReply](t, c, wire.CommandReach, wire.ReachRequest{To: "local.ada"}); r.Tier != wire.ReachStored || r.Live != 0 {
		t.Errorf("reach while an earlier life is there = %+v, want stored", r)
	}
	m.beat(t, ada, wire.StatusIdle, "")
	m.flush(t)
	if r := ask[wire.ReachReply](t, c, wire.CommandReach, wire.ReachRequest{To: "local.ada"}); r.Tier != wire.ReachLive {
		t.Errorf("reach = %+v, want live", r)
	}
}

// While delivery does not hear the broker nobody is called offline.
func TestReachWhileTheRosterIsStale(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bob := agent(t, m, "bob", "")
		creds, err := m.Node().Authority().ServiceCredential(t.Context(), m.Space(), trust.Delivery, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		nc, err := m.Node().Dial(t.Context(), creds)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		d := delivery.New(nc, m.Space(), nil) // never run: it heard nothing
		r, err := delivery.ReachOf(t.Context(), d, bob.Identity().Lifecycle, wire.ReachRequest{To: "local.bob"})
		if err != nil || r.StaleSince == 0 || r.Tier != wire.ReachStored || r.Reason != "whether it is there is not known at the moment" {
			t.Errorf("reach = %+v, %v, want stale, and nobody called away", r, err)
		}
	})
}

// Who has no grant that stands learns nothing of anybody.
func TestReachNeedsAGrant(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	m.grantAs(t, lifecycle("ada"), nil)
	gone := lifecycle("gone")
	m.grantAs(t, gone, func(g *trust.Grant) { g.State = trust.GrantRetired })
	for _, l := range []wire.Lifecycle{lifecycle("nobody"), gone, lifecycle("ada")} {
		for _, in := range []wire.ReachRequest{{To: "local.ada"}, {Role: "reviewer"}, {Channel: "team"}} {
			if r, err := try[wire.ReachReply](t, m.caller(t, l), wire.CommandReach, in); !errors.Is(err, wire.ErrPermissionDenied) {
				t.Errorf("reach %+v of %s = %+v, %v, want permission-denied", in, l, r, err)
			}
		}
	}
}

// Who may neither read nor post to a channel learns nothing about it.
func TestReachOfAChannelNeedsARight(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	eve := m.Connect(t, issue(t, m, "eve", auth.Request{Subscribe: []string{"general"}, Publish: []string{"news"}}), nil)
	for channel, code := range map[string]wire.Code{"general": "", "news": "", "secret": wire.CodePermissionDenied} {
		r, err := eve.Reach(ctxFor(t), wire.ReachRequest{Channel: channel})
		if wire.CodeOf(err) != code || err == nil && r.Tier != wire.ReachNobody {
			t.Errorf("reach of channel %q = %+v, %v, want code %q", channel, r, err, code)
		}
	}
}
