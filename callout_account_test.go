package cotal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestCalloutAccountFollowsItsSpace: the broker gets the callout account with that of the space, takes the operator's next
// signature of it, is started with it, and forgets it with the space.
func TestCalloutAccountFollowsItsSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := cotaltest.New(t, &cotaltest.Options{StateDir: dir})
	const guest wire.Space = "guest"
	if err := m.Node().AddSpace(t.Context(), string(guest)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Node().Authority().EnsurePeople(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	account := func() trust.AccountRecord {
		t.Helper()
		rec, err := m.Node().Authority().Mint().Account(t.Context(), guest)
		if err != nil {
			t.Fatal(err)
		}
		if len(rec.Accounts()) != 2 {
			t.Fatalf("the space has %d accounts, want two", len(rec.Accounts()))
		}
		return rec
	}
	held := func(what string, rec trust.AccountRecord) {
		t.Helper()
		for _, a := range rec.Accounts() {
			if got, err := os.ReadFile(filepath.Join(dir, "accounts", a.Public+".jwt")); err != nil || string(got) != a.JWT {
				t.Errorf("%s: the broker holds %d bytes for account %s, %v, want what the record says", what, len(got), a.Public, err)
			}
		}
	}
	held("after it was made", account())
	if err := m.Node().Authority().RotateOperatorKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	held("after a rotation", account())
	gone := account()
	again, err := cotal.BrokerAccounts(t.Context(), m.Node(), guest)
	if err != nil || len(again) != 2 || again[gone.Public] != gone.JWT || again[gone.Callout.Public] != gone.Callout.JWT {
		t.Errorf("a restart gives the broker %d accounts, %v, want both", len(again), err)
	}
	if err := m.Node().RemoveSpace(t.Context(), string(guest)); err != nil {
		t.Fatal(err)
	}
	for _, a := range gone.Accounts() {
		if _, err := os.Stat(filepath.Join(dir, "accounts", a.Public+".jwt")); !os.IsNotExist(err) {
			t.Errorf("account %s is left: %v", a.Public, err)
		}
	}
}
