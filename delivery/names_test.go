package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// other is a lifecycle under an owner that is not local.
func other(actor string) wire.Lifecycle {
	l := lifecycle(actor)
	l.Owner = "u_abcdefghijklmnopqrstuvwxyz"
	return l
}

func TestNamesMeanGrants(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	ada, Bob, dan, dan2, eve, Eve := lifecycle("ada"), lifecycle("Bob"), lifecycle("dan"), other("dan"), lifecycle("eve"), lifecycle("Eve")
	for _, l := range []wire.Lifecycle{ada, Bob, dan, dan2, eve, Eve} {
		m.grant(t, l, "general")
	}
	n := delivery.NewNames(m.grants)
	if err := n.Sync(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		who     wire.Lifecycle
		holders int
	}{
		"ada":                                {ada, 1},
		"bob":                                {Bob, 1},
		"Bob":                                {holders: 0}, // a mention is in lower case
		"dan":                                {holders: 2},
		"local.dan":                          {dan, 1},
		"u_abcdefghijklmnopqrstuvwxyz.dan":   {dan2, 1},
		"local.bob":                          {Bob, 1},
		"eve":                                {holders: 2},
		"local.eve":                          {eve, 1}, // the principal itself, though another looks like it
		"local.nobody":                       {holders: 0},
		"u_abcdefghijklmnopqrstuvwxyz.ada":   {holders: 0},
		"everyone":                           {holders: 0},
		"":                                   {holders: 0},
		"local.":                             {holders: 0},
		"local.ada.x":                        {holders: 0},
		"u_abcdefghijklmnopqrstuvwxyz.dan.x": {holders: 0},
	} {
		if got, holders := n.Resolve(name, time.Now()); got != want.who || holders != want.holders {
			t.Errorf("resolve %q = %v, %d, want %v, %d", name, got, holders, want.who, want.holders)
		}
	}
}

func TestNamesFollowGrants(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	n := delivery.NewNames(m.grants)
	is := func(what string, want wire.Lifecycle, holders int) {
		t.Helper()
		if err := n.Sync(ctxFor(t)); err != nil {
			t.Fatal(err)
		}
		if got, h := n.Resolve("ada", time.Now()); got != want || h != holders {
			t.Errorf("%s: resolve = %v, %d, want %v, %d", what, got, h, want, holders)
		}
	}
	nobody := wire.Lifecycle{}
	is("before", nobody, 0)
	ada := lifecycle("ada")
	g, rev := m.grant(t, ada, "general")
	is("granted", ada, 1)
	second, secondRev := m.grant(t, other("ada"), "general")
	is("shared", nobody, 2)
	update := func(g trust.Grant, rev uint64) uint64 {
		t.Helper()
		rev, err := m.grants.Update(ctxFor(t), g, rev)
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	second.State = trust.GrantRetiring
	secondRev = update(second, secondRev)
	is("the other is retiring", ada, 1)
	soon := time.Now().Add(time.Hour)
	g.ExpiresAt = &soon
	rev = update(g, rev)
	is("limited", ada, 1)
	if _, holders := n.Resolve("ada", soon); holders != 0 {
		t.Errorf("resolve at the end of the grant: %d holders", holders)
	}
	g.State = trust.GrantRetired
	rev = update(g, rev)
	is("retired", nobody, 0)
	again := lifecycle("ada")
	g.UID, g.State, g.ExpiresAt, g.Epoch = again.UID, trust.GrantActive, nil, 2
	update(g, rev)
	is("another life", again, 1)
	if _, err := m.js.Publish(ctxFor(t), wire.RecordPrefix(wire.AuthorityBucket(lab))+"grant.local.ada", []byte("not a grant")); err != nil {
		t.Fatal(err)
	}
	is("unreadable", nobody, 0)
	second.State = trust.GrantActive
	update(second, secondRev)
	is("beside an unreadable one", second.Lifecycle(), 1)
}

// BenchmarkNames is building the names of 10,000 grants, and asking when nothing changed.
func BenchmarkNames(b *testing.B) {
	m := newMesh(b)
	for i := range 10_000 {
		m.grant(b, lifecycle(fmt.Sprintf("a%05d", i)), "general")
	}
	b.Run("built_from_10000_grants", func(b *testing.B) {
		for b.Loop() {
			n := delivery.NewNames(m.grants)
			if err := n.Sync(b.Context()); err != nil || n.Len() != 10_000 {
				b.Fatalf("%d names, %v", n.Len(), err)
			}
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		n := delivery.NewNames(m.grants)
		if err := n.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := n.Sync(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
