package mint_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestCheckSeeds damages every seed in turn: each is named, none is shown.
func TestCheckSeeds(t *testing.T) {
	a, store := withSpace(t)
	if err := a.CheckSeeds(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, err := store.List(t.Context(), "auth/")
	if err != nil {
		t.Fatal(err)
	}
	seeds := 0
	for _, key := range keys {
		if !strings.HasSuffix(key, ".nk") {
			continue
		}
		seeds++
		whole, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		put := func(value []byte) {
			t.Helper()
			if err := store.Put(t.Context(), key, value); err != nil {
				t.Fatal(err)
			}
		}
		put(whole[:20])
		if err := a.CheckSeeds(t.Context()); !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), string(whole[:8])) {
			t.Errorf("truncated %q: %v", key, err)
		}
		put(whole)
	}
	if seeds < 6 {
		t.Errorf("found %d seeds, too few to prove anything", seeds)
	}
	if err := store.Delete(t.Context(), trust.OperatorKey); err != nil {
		t.Fatal(err)
	}
	if err := a.CheckSeeds(t.Context()); err != nil {
		t.Errorf("without the operator's identity: %v", err)
	}
}
