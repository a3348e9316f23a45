package auth_test

import (
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestDiagnoseTellsWhatOtherSpacesLack: the mesh does not start without it either.
func TestDiagnoseTellsWhatOtherSpacesLack(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	const other wire.Space = "other"
	ctx := t.Context()
	if _, err := p.a.Mint().AddSpace(ctx, other, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.a.Mint().EnsureCallout(ctx, other); err != nil {
		t.Fatal(err)
	}
	p.well()
	for key, check := range map[string]string{trust.SigningKey(other, trust.Delivery): auth.CheckSigning, trust.CalloutXKey(other): auth.CheckCalloutSeeds} {
		have, err := p.store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.store.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		ill := p.look(true)
		if p.only(ill, check, auth.FindingFail, key); ill[check].Subject != string(other) {
			t.Errorf("finding %+v; want it about space %s", ill[check], other)
		}
		if err := p.store.Put(ctx, key, have); err != nil {
			t.Fatal(err)
		}
	}
	p.well()
}
