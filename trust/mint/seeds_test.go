package mint_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// another returns a new seed of the kind of a seed.
func another(t *testing.T, seed []byte) []byte {
	t.Helper()
	prefix, _, err := nkeys.DecodeSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	var pair nkeys.KeyPair
	if prefix == nkeys.PrefixByteCurve {
		pair, err = nkeys.CreateCurveKeys()
	} else {
		pair, err = nkeys.CreatePair(prefix)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestCheckSeeds damages every seed in turn: each is named, none is shown.
func TestCheckSeeds(t *testing.T) {
	a, store, _ := withCallout(t)
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
		put(another(t, whole))
		if err := a.CheckSeeds(t.Context()); !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), key) {
			t.Errorf("another key in place of %q: %v", key, err)
		}
		put(whole)
	}
	if seeds < 10 {
		t.Errorf("found %d seeds, too few to prove anything", seeds)
	}
	if err := store.Delete(t.Context(), trust.OperatorKey); err != nil {
		t.Fatal(err)
	}
	if err := a.CheckSeeds(t.Context()); err != nil {
		t.Errorf("without the operator's identity: %v", err)
	}
}

// TestMissingCalloutSeeds: each seed of a callout account that is gone is named, all of them together too; one that is damaged is an error.
func TestMissingCalloutSeeds(t *testing.T) {
	a, store, _ := withCallout(t)
	if got, err := a.MissingCalloutSeeds(t.Context(), lab); err != nil || len(got) != 0 {
		t.Fatalf("MissingCalloutSeeds of a whole account = %q, %v", got, err)
	}
	all := []string{trust.CalloutUserKey(lab), trust.CalloutXKey(lab)}
	for _, kind := range trust.CalloutKinds() {
		all = append(all, trust.CalloutSigningKey(lab, kind))
	}
	slices.Sort(all)
	for i, key := range all {
		if err := store.Put(t.Context(), key, []byte("garbage")); err != nil {
			t.Fatal(err)
		}
		if got, err := a.MissingCalloutSeeds(t.Context(), lab); !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), key) {
			t.Errorf("MissingCalloutSeeds with garbage in %q = %q, %v", key, got, err)
		}
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got, err := a.MissingCalloutSeeds(t.Context(), lab); err != nil || !slices.Equal(got, all[:i+1]) {
			t.Errorf("MissingCalloutSeeds = %q, %v, want %q", got, err, all[:i+1])
		}
	}
	static, _ := withSpace(t)
	if got, err := static.MissingCalloutSeeds(t.Context(), lab); err != nil || len(got) != 0 {
		t.Errorf("MissingCalloutSeeds without a callout account = %q, %v", got, err)
	}
	if _, err := a.MissingCalloutSeeds(t.Context(), "nowhere"); wire.CodeOf(err) != wire.CodeNotFound {
		t.Errorf("MissingCalloutSeeds of no space = %v", err)
	}
}
