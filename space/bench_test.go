package space_test

import (
	"fmt"
	"testing"

	"github.com/cotal-go/cotal/space"
)

func BenchmarkEnsure(b *testing.B) {
	js := connect(b, broker(b))
	ctx := ctxFor(b)
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			if err := space.Ensure(ctx, js, lab, nil); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := space.Remove(ctx, js, lab); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	if err := space.Ensure(ctx, js, lab, nil); err != nil {
		b.Fatal(err)
	}
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			if err := space.Ensure(ctx, js, lab, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("durables", func(b *testing.B) {
		for b.Loop() {
			if err := space.EnsureDurables(ctx, js, lab, lifecycle("ada"), "reviewer"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkGrants(b *testing.B) {
	js := connect(b, broker(b))
	ctx := ctxFor(b)
	if err := space.Ensure(ctx, js, lab, nil); err != nil {
		b.Fatal(err)
	}
	grants := space.NewGrants(js, lab)
	g := grantOf(lifecycle("ada"), "general", "team.>")
	rev, err := grants.Create(ctx, g)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("get", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := grants.Get(ctx, g.Principal()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("update", func(b *testing.B) {
		for b.Loop() {
			if rev, err = grants.Update(ctx, g, rev); err != nil {
				b.Fatal(err)
			}
		}
	})
	n := 0
	b.Run("create", func(b *testing.B) {
		for b.Loop() {
			n++
			if _, err := grants.Create(ctx, grantOf(lifecycle(fmt.Sprintf("a%d", n)))); err != nil {
				b.Fatal(err)
			}
		}
	})
}
