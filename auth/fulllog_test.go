package auth_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// fullLog is a mesh of credential files on which somebody wide was granted something before the issuance log became full.
func fullLog(t *testing.T) (m *cotaltest.Mesh, wide *trust.Credentials) {
	t.Helper()
	m = cotaltest.New(t, &cotaltest.Options{Space: &space.Options{Sizes: space.Sizes{Authority: 1 << 20}}})
	a, s, ctx := m.Node().Authority(), m.Space(), t.Context()
	wide, err := a.Issue(ctx, auth.Request{Space: s, Actor: "wide", Subscribe: []string{">"}, Publish: []string{">"}})
	if err != nil {
		t.Fatal(err)
	}
	service, err := a.ServiceCredential(ctx, s, trust.Authority, 0)
	if err != nil {
		t.Fatal(err)
	}
	js := as(t, m, service)
	for tries := 0; tries < 3; {
		grants := space.NewGrants(js, s) // it knows what is left, and does not reckon
		for tries++; ; tries = 0 {
			err := grants.LogMint(ctx, wire.NewUID(), space.Mint{UserKey: "U", Expires: time.Now().Add(time.Hour)})
			if errors.Is(err, wire.ErrExhausted) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(2 * time.Second) // what the authority knows of the room is a second old at most
	return m, wide
}

// TestNarrowingNeedsNoRoomInTheLog: a renewal that takes rights away hands nothing out where the issuance log is full, and refuses what
// was issued before all the same.
func TestNarrowingNeedsNoRoomInTheLog(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m, wide := fullLog(t)
		nc, err := m.Node().Dial(t.Context(), wide)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		creds, done, err := m.Node().Authority().Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "wide", Subscribe: []string{"team.a"}})
		wantExhausted(t, "renew", err, "earlier credentials refused; renew it again", "issuance log is full")
		if creds != nil || !done.Narrowed || done.Keys != 1 {
			t.Errorf("renew = %v, %+v, want no credential and the one before refused", creds, done)
		}
		if err := connects(t, m, wide); !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("connect with the credential of before = %v, want unauthenticated", err)
		}
	})
}

// TestNoNameIsTakenWithoutRoomInTheLog: what cannot be handed out leaves the name free.
func TestNoNameIsTakenWithoutRoomInTheLog(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m, _ := fullLog(t)
		a, ctx := m.Node().Authority(), t.Context()
		_, err := a.Issue(ctx, auth.Request{Space: m.Space(), Actor: "late", Subscribe: []string{">"}})
		wantExhausted(t, "issue", err, "issuance log is full")
		all, err := a.List(ctx, m.Space())
		if err != nil || slices.ContainsFunc(all, func(g trust.Grant) bool { return g.Actor == "late" && g.State != trust.GrantRetired }) {
			t.Errorf("grants %+v, %v, want the name free", all, err)
		}
	})
}
