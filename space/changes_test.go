package space_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// changes are what was written after a sequence, as "actor state", and where to go on.
func changes(t *testing.T, g *space.Grants, after uint64) (string, uint64) {
	t.Helper()
	var out []string
	next, err := g.Changes(t.Context(), after, func(p wire.Principal, grant *trust.Grant) {
		state := "unreadable"
		if grant != nil {
			state = string(grant.State)
		}
		out = append(out, p.Actor+" "+state)
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(out), next
}

func TestGrantChanges(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	grants := space.NewGrants(js, lab)
	ada, bob := grantOf(lifecycle("ada")), grantOf(lifecycle("bob"))
	if got, next := changes(t, grants, 0); got != "[]" || next != 0 {
		t.Errorf("changes of nothing = %s, %d", got, next)
	}
	rev := must(grants.Create(ctx, ada))(t)
	must(grants.Create(ctx, bob))(t)
	got, next := changes(t, grants, 0)
	if got != "[ada active bob active]" {
		t.Errorf("changes = %s", got)
	}
	if got, same := changes(t, grants, next); got != "[]" || same != next {
		t.Errorf("changes again = %s, %d, want none after %d", got, same, next)
	}
	ada.State = trust.GrantRetired
	must(grants.Update(ctx, ada, rev))(t)
	for i := range 20 { // what is no grant is passed over
		if err := grants.LogMint(ctx, bob.UID, space.Mint{UserKey: fmt.Sprintf("U%d", i), Expires: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	got, at := changes(t, grants, next)
	if got != "[ada retired]" || at < next+20 {
		t.Errorf("changes = %s up to %d, want that of ada up to the end", got, at)
	}
	if _, err := js.Publish(ctx, wire.RecordPrefix(wire.AuthorityBucket(lab))+"grant.local.bob", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if got, _ := changes(t, grants, at); got != "[bob unreadable]" {
		t.Errorf("changes = %s, want bob, unreadable", got)
	}
	if got, end := changes(t, grants, 10_000); got != "[]" || end >= 10_000 {
		t.Errorf("changes beyond the end = %s, %d, want none and the end", got, end)
	}
}

// The end of the bucket is not found when its record has expired; a new grant is found all the same.
func TestGrantChangesBehindAnExpiredRecord(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		js := connect(t, broker(t))
		if err := space.Ensure(t.Context(), js, lab, nil); err != nil {
			t.Fatal(err)
		}
		grants := space.NewGrants(js, lab)
		must(grants.Create(t.Context(), grantOf(lifecycle("ada"))))(t)
		if err := grants.LogMint(t.Context(), wire.NewUID(), space.Mint{UserKey: "UA", Expires: time.Now().Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		got, next := changes(t, grants, 0)
		if got != "[ada active]" {
			t.Errorf("changes = %s", got)
		}
		must(grants.Create(t.Context(), grantOf(lifecycle("bob"))))(t)
		if got, _ = changes(t, grants, next); got != "[bob active]" {
			t.Errorf("changes = %s", got)
		}
		time.Sleep(time.Second) // the broker writes what it staged of an atomic batch, and then its goroutine ends
	})
}

func TestProgressOfMentions(t *testing.T) {
	t.Parallel()
	p := space.NewProgress(newSpace(t), lab)
	ctx := ctxFor(t)
	sequence, rev, err := p.Get(ctx)
	if err != nil || sequence != 0 || rev != 0 {
		t.Fatalf("get of none = %d, %d, %v", sequence, rev, err)
	}
	rev = must(p.Put(ctx, 7, 0))(t)
	if _, err := p.Put(ctx, 8, 0); !errors.Is(err, wire.ErrConflict) {
		t.Errorf("put over a record = %v, want conflict", err)
	}
	next := must(p.Put(ctx, 9, rev))(t)
	if sequence, rev, err = p.Get(ctx); err != nil || sequence != 9 || rev != next {
		t.Errorf("get = %d, %d, %v, want 9, %d", sequence, rev, err, next)
	}
}
