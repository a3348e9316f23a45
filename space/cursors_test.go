package space_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// drawCursor draws a position below 60 in normal form, and the set of what it has handled.
func drawCursor(t *rapid.T, name string) (space.Cursor, map[uint64]bool) {
	has := map[uint64]bool{}
	c := space.Cursor{Floor: rapid.Uint64Range(0, 20).Draw(t, name+" floor")}
	for _, s := range rapid.SliceOfN(rapid.Uint64Range(1, 59), 0, 25).Draw(t, name+" handled") {
		c = c.Merge(space.Cursor{Handled: []wire.SequenceRange{{From: s, To: min(59, s+s%3)}}})
		for n := s; n <= min(59, s+s%3); n++ {
			has[n] = true
		}
	}
	for n := uint64(1); n <= c.Floor; n++ {
		has[n] = true
	}
	return c, has
}

func TestCursorAgreesWithASetOfSequences(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, inA := drawCursor(t, "a")
		b, inB := drawCursor(t, "b")
		m := a.Merge(b)
		if !cmp.Equal(m, b.Merge(a)) || !m.Equal(m.Merge(a)) {
			t.Fatalf("merging %+v and %+v depends on order or number of times", a, b)
		}
		end := m.Floor
		for _, r := range m.Handled {
			if r.From <= end+1 || r.To < r.From {
				t.Fatalf("%+v is not in normal form", m)
			}
			end = r.To
		}
		for n := uint64(1); n < 70; n++ {
			if want := inA[n] || inB[n]; m.Has(n) != want {
				t.Fatalf("Has(%d) of %+v = %t, want %t", n, m, m.Has(n), want)
			}
			past := n
			for inA[past] || inB[past] {
				past++
			}
			if got := m.Past(n); got != past {
				t.Fatalf("Past(%d) of %+v = %d, want %d", n, m, got, past)
			}
		}
	})
}

func TestCursorComesBackAsItWasPut(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	cursors := space.NewCursors(js, lab)
	ada := lifecycle("ada")
	if c, rev, err := cursors.Get(ctx, ada, "general"); err != nil || rev != 0 || !c.Equal(space.Cursor{}) {
		t.Errorf("Get of nothing = %+v, %d, %v, want the beginning", c, rev, err)
	}
	want := space.Cursor{Floor: 7, Handled: []wire.SequenceRange{{From: 9, To: 9}, {From: 12, To: 40}}}
	rev := must(cursors.Put(ctx, ada, "general", want, 0))(t)
	got, at, err := cursors.Get(ctx, ada, "general")
	if err != nil || at != rev || !got.Equal(want) {
		t.Errorf("Get = %+v, %d, %v, want %+v, %d", got, at, err, want, rev)
	}
	if _, err := cursors.Put(ctx, ada, "general", want, 0); !errors.Is(err, wire.ErrConflict) {
		t.Errorf("Put where there is one = %v, want conflict", err)
	}
	if c, rev, err := cursors.Mentions(ctx, ada); err != nil || rev != 0 || c.Floor != 0 {
		t.Errorf("Mentions = %+v, %d, %v, want the beginning", c, rev, err)
	}
	for _, bad := range []space.Cursor{
		{Floor: 7, Handled: []wire.SequenceRange{{From: 8, To: 9}}},
		{Floor: 7, Handled: []wire.SequenceRange{{From: 12, To: 11}}},
		{Floor: 7, Handled: []wire.SequenceRange{{From: 12, To: 13}, {From: 10, To: 10}}},
	} {
		if _, err := cursors.Put(ctx, ada, "general", bad, rev); err == nil {
			t.Errorf("Put accepted %+v", bad)
		}
	}
	if err := cursors.Remove(ctx, ada, "general", rev); err != nil {
		t.Errorf("Remove = %v", err)
	}
	if err := cursors.Remove(ctx, ada, "general", 0); err != nil {
		t.Errorf("Remove of nothing = %v", err)
	}
}

func TestCursorWithManyHolesKeepsTheFirstRanges(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	cursors := space.NewCursors(js, lab)
	ada := lifecycle("ada")
	var c space.Cursor
	for i := range uint64(space.MaxStoredRanges + 10) {
		c.Handled = append(c.Handled, wire.SequenceRange{From: 1<<53 - 100_000 + 10*i, To: 1<<53 - 100_000 + 10*i + 5})
	}
	must(cursors.Put(ctx, ada, "general", c, 0))(t)
	got, _, err := cursors.Get(ctx, ada, "general")
	if err != nil || len(got.Handled) != space.MaxStoredRanges || got.Handled[0] != c.Handled[0] {
		t.Errorf("Get = %d ranges, %v, want the first %d", len(got.Handled), err, space.MaxStoredRanges)
	}
}
