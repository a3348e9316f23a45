package auth_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestSweepEndsOrphans: a grant that was written under a life which is over, by somebody who ended before the second look, is
// taken down; one whose parent stands, or has only ended for now, is left alone.
func TestSweepEndsOrphans(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		a, s, ctx := m.Node().Authority(), m.Space(), t.Context()
		if _, err := a.EnsurePeople(ctx, s); err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(time.Minute)
		short := personGrant(s, "short")
		short.Expires = &end
		parents := map[string]trust.Grant{"gone": grant(t, a, personGrant(s, "gone")), "stands": grant(t, a, personGrant(s, "stands")), "short": grant(t, a, short)}
		if _, err := a.Revoke(ctx, s, parents["gone"].Principal()); err != nil {
			t.Fatal(err)
		}
		service, err := a.ServiceCredential(ctx, s, trust.Authority, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		grants := space.NewGrants(as(t, m, service), s)
		for name, parent := range parents {
			_, err := grants.Create(ctx, trust.Grant{
				Ver: trust.GrantVersion, Owner: adasOwner, Actor: "under_" + name, UID: wire.NewUID(), Epoch: 1, Kind: trust.KindManaged, State: trust.GrantActive,
				Parent: parent.Principal().String(), ParentUID: parent.UID, CreatedAt: time.Now().UTC(), By: "test",
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		sweeper := a.NewSweeper(s)
		for i, want := range []int{0, 1, 0} {
			if n, err := sweeper.Sweep(ctx, nil); err != nil || n != want {
				t.Errorf("sweep %d finished %d, %v; want %d", i, n, err, want)
			}
			time.Sleep(2 * time.Minute)
		}
		for name, want := range map[string]trust.GrantState{"gone": trust.GrantRetired, "stands": trust.GrantActive, "short": trust.GrantActive} {
			if g, _, err := grants.Get(ctx, wire.Principal{Owner: adasOwner, Actor: "under_" + name}); err != nil || g.State != want {
				t.Errorf("the grant under %q is %s, %v; want %s", name, g.State, err, want)
			}
		}
	})
}
