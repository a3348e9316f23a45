package auth_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestOneBearerCannotFillTheBucketOfGrants: each connection is a record beside the grants for as long as its bearer lives. Somebody
// who connects in a loop, also after having been revoked, must not keep the others from being let in or the operator from
// revoking.
func TestOneBearerCannotFillTheBucketOfGrants(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{Space: &space.Options{Sizes: space.Sizes{Authority: 1 << 20}}})
		a, s, ctx := m.Node().Authority(), m.Space(), t.Context()
		if _, err := a.EnsurePeople(ctx, s); err != nil {
			t.Fatal(err)
		}
		eve, bob := grant(t, a, personGrant(s, "eve")), grant(t, a, personGrant(s, "bob"))
		knock := func() (in int, refused error) {
			for ; in < 4000; in++ {
				req := connection(t, eve)
				req.Expires = time.Now().Add(15 * time.Minute)
				if _, _, err := a.Connect(ctx, s, req); err != nil {
					return in, err
				}
			}
			return in, nil
		}
		in, err := knock()
		wantReason(t, err, trust.ReasonTooMany)
		if in < 500 || in > 700 {
			t.Errorf("%d connections of one life at once, want about 600", in)
		}
		if _, _, err := a.Connect(ctx, s, connection(t, bob)); err != nil {
			t.Errorf("somebody else meanwhile: %v", err)
		}
		time.Sleep(2 * time.Second)
		if in, _ = knock(); in < 9 || in > 11 {
			t.Errorf("%d connections two seconds later, want about 10", in)
		}
		for _, g := range []trust.Grant{eve, bob} {
			if _, err := a.Revoke(ctx, s, g.Principal()); err != nil {
				t.Errorf("revoke %q: %v", g.Principal(), err)
			}
		}
		if _, err := a.Grant(ctx, auth.GrantRequest{Space: s, Owner: adasOwner, Actor: "carol"}); err != nil {
			t.Errorf("grant: %v", err)
		}
	})
}

// TestManyLivesCannotFillTheBucketOfGrants: the issuance log leaves room for what takes rights away, whoever connects how often.
func TestManyLivesCannotFillTheBucketOfGrants(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, &cotaltest.Options{Space: &space.Options{Sizes: space.Sizes{Authority: 1 << 20}}})
	a, s, ctx := m.Node().Authority(), m.Space(), t.Context()
	if _, err := a.EnsurePeople(ctx, s); err != nil {
		t.Fatal(err)
	}
	var lives []trust.Grant
	for i := range 8 {
		lives = append(lives, grant(t, a, personGrant(s, fmt.Sprintf("agent%d", i))))
	}
	var full error
	for i := 0; full == nil && i < 4000; i++ {
		req := connection(t, lives[i%len(lives)])
		req.Expires = time.Now().Add(15 * time.Minute)
		_, _, full = a.Connect(ctx, s, req)
	}
	if wire.CodeOf(full) != wire.CodeResourceExhausted || !strings.Contains(full.Error(), "issuance log is full") {
		t.Fatalf("after thousands of connections: %v, want that the log is full", full)
	}
	for i := range 100 {
		grant(t, a, personGrant(s, fmt.Sprintf("next%d", i)))
	}
	if _, err := a.Revoke(ctx, s, lives[0].Principal()); err != nil {
		t.Errorf("revoke: %v", err)
	}
}
