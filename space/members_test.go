package space_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func membership(l wire.Lifecycle, pattern string, spans ...space.Span) space.Membership {
	return space.Membership{Lifecycle: l, Pattern: pattern, Spans: spans}
}

func TestMembershipComesBackAsItWasPut(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	members := space.NewMembers(js, lab)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	if _, _, err := members.Get(ctx, ada, "team.>"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Get of nothing = %v, want not-found", err)
	}
	rev := must(members.Put(ctx, membership(ada, "team.>").Joined(7), 0))(t)
	must(members.Put(ctx, membership(ada, "general").Joined(8), 0))(t)
	must(members.Put(ctx, membership(bob, "general").Joined(9), 0))(t)

	got, at, err := members.Get(ctx, ada, "team.>")
	if want := membership(ada, "team.>", space.Span{Generation: rev, Join: 7}); err != nil || at != rev || !cmp.Equal(got, want) {
		t.Fatalf("Get = %+v, %d, %v, want %+v, %d", got, at, err, want, rev)
	}
	of := must(members.Of(ctx, ada))(t)
	if len(of) != 2 || of[0].Pattern != "general" || of[1].Pattern != "team.>" {
		t.Errorf("Of = %+v, want the two of ada by pattern", of)
	}
	if n := must(members.Count(ctx, ada))(t); n != 2 {
		t.Errorf("Count = %d, want 2", n)
	}
	if n := must(members.Count(ctx, lifecycle("ada")))(t); n != 0 {
		t.Errorf("Count of another life = %d, want 0", n)
	}
	all := map[string]int{}
	if err := members.All(ctx, func(m space.Membership) error { all[m.Lifecycle.Actor]++; return nil }); err != nil || all["ada"] != 2 || all["bob"] != 1 {
		t.Errorf("All = %v, %v", all, err)
	}
	if got := must(members.OfPrincipal(ctx, bob.Principal))(t); len(got) != 1 || got[0].Lifecycle != bob {
		t.Errorf("OfPrincipal = %+v, want that of bob", got)
	}
}

func TestGenerationIsNeverMetAgain(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	members := space.NewMembers(js, lab)
	ada := lifecycle("ada")
	read := func() (space.Membership, uint64) {
		m, rev, err := members.Get(ctx, ada, "general")
		if err != nil {
			t.Fatal(err)
		}
		return m, rev
	}
	seen := map[uint64]bool{}
	for round := range 3 {
		must(members.Put(ctx, membership(ada, "general").Joined(5), 0))(t)
		m, rev := read()
		first := m.Last().Generation
		must(members.Put(ctx, m.Left(9), rev))(t)
		if m, rev = read(); m.Last().Generation != first {
			t.Fatalf("after leaving: generation %d, want %d", m.Last().Generation, first)
		}
		must(members.Put(ctx, m.Joined(9), rev))(t)
		if m, rev = read(); m.Last().Generation <= first || m.Spans[0].Generation != first {
			t.Fatalf("after joining again: %+v", m)
		}
		for _, s := range m.Spans {
			if seen[s.Generation] {
				t.Errorf("round %d: generation %d was there before", round, s.Generation)
			}
			seen[s.Generation] = true
		}
		if err := members.Remove(ctx, ada, "general", rev); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMembershipIsReplacedOnlyAsItWasRead(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	members := space.NewMembers(js, lab)
	ada := lifecycle("ada")
	first := must(members.Put(ctx, membership(ada, "general").Joined(1), 0))(t)
	second := must(members.Put(ctx, membership(ada, "general").Joined(2), first))(t)
	for name, err := range map[string]error{
		"new where there is one": func() error { _, err := members.Put(ctx, membership(ada, "general").Joined(3), 0); return err }(),
		"put on an old revision": func() error { _, err := members.Put(ctx, membership(ada, "general").Joined(3), first); return err }(),
		"remove an old revision": members.Remove(ctx, ada, "general", first),
	} {
		if !errors.Is(err, wire.ErrConflict) {
			t.Errorf("%s = %v, want conflict", name, err)
		}
	}
	if err := members.Remove(ctx, ada, "general", second); err != nil {
		t.Fatal(err)
	}
	if err := members.Remove(ctx, ada, "general", second); !errors.Is(err, wire.ErrConflict) {
		t.Errorf("remove again = %v, want conflict", err)
	}
	if _, _, err := members.Get(ctx, ada, "general"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Get after removal = %v, want not-found", err)
	}
	state := must(space.State(ctx, js, space.BucketStream(wire.MembersBucket(lab))))(t)
	if state.Msgs != 0 {
		t.Errorf("%d records are left, want none", state.Msgs)
	}
}

func TestOfManyWritersOneWinsEachTurn(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	members := space.NewMembers(js, lab)
	ada := lifecycle("ada")
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := members.Put(ctx, membership(ada, "general").Joined(uint64(i)), 0); err == nil {
				won.Add(1)
			} else if !errors.Is(err, wire.ErrConflict) {
				t.Errorf("Put = %v, want conflict", err)
			}
		})
	}
	wg.Wait()
	if n := won.Load(); n != 1 {
		t.Errorf("%d writers won, want 1", n)
	}
}

func TestMembershipThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	members := space.NewMembers(js, lab)
	ada := lifecycle("ada")
	many := make([]space.Span, space.MaxSpans+1)
	for i := range many {
		many[i] = space.Span{Generation: uint64(i + 1), Join: uint64(10 * i), Leave: uint64(10*i + 5)}
	}
	for name, m := range map[string]space.Membership{
		"no span":           membership(ada, "general"),
		"too many":          membership(ada, "general", many...),
		"open in the midst": membership(ada, "general", space.Span{Generation: 1, Join: 1}, space.Span{Generation: 2, Join: 5}),
		"overlap":           membership(ada, "general", space.Span{Generation: 1, Join: 1, Leave: 9}, space.Span{Generation: 2, Join: 5}),
		"backwards":         membership(ada, "general", space.Span{Generation: 1, Join: 9, Leave: 8}),
		"no pattern":        membership(ada, "a..b", space.Span{Generation: 1, Join: 1}),
		"no life":           membership(wire.Lifecycle{Principal: ada.Principal, UID: "x"}, "general", space.Span{Generation: 1, Join: 1}),
	} {
		if _, err := members.Put(ctx, m, 0); err == nil {
			t.Errorf("%s: Put accepted it", name)
		}
	}
	longest := strings.Repeat("a", wire.MaxChannel)
	if _, err := members.Put(ctx, membership(ada, longest, many[:space.MaxSpans]...), 0); err != nil {
		t.Errorf("the largest record = %v", err)
	}
}

func TestRecordUnderAnotherKeyIsNoMembership(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	members := space.NewMembers(js, lab)
	ada := lifecycle("ada")
	subject := wire.RecordPrefix(wire.MembersBucket(lab)) + ada.String() + "." + space.PatternKey("general")
	for _, body := range []string{
		`{"v":1,"pattern":"secret","spans":[{"join":1}]}`, `{"v":2,"pattern":"general","spans":[{"join":1}]}`,
		`{"stream":"CHAT_lab","seq":7}`, ``, `{"v":1,"pattern":"general","spans":[]}`,
	} {
		must(js.Publish(ctx, subject, []byte(body)))(t)
		if _, _, err := members.Get(ctx, ada, "general"); !errors.Is(err, wire.ErrInternal) {
			t.Errorf("Get of %s = %v, want internal", body, err)
		}
		if of, err := members.Of(ctx, ada); err != nil || len(of) != 0 {
			t.Errorf("Of with %s = %+v, %v, want nothing", body, of, err)
		}
	}
	if err := members.RemoveAll(ctx, ada); err != nil {
		t.Fatal(err)
	}
	if _, _, err := members.Get(ctx, ada, "general"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("after RemoveAll = %v, want not-found", err)
	}
}

func TestRemoveAllLeavesOtherLivesAlone(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	members, cursors := space.NewMembers(js, lab), space.NewCursors(js, lab)
	old, next := lifecycle("ada"), lifecycle("ada")
	for _, l := range []wire.Lifecycle{old, next} {
		for i := range 5 {
			pattern := fmt.Sprintf("c%d", i)
			must(members.Put(ctx, membership(l, pattern).Joined(1), 0))(t)
			must(cursors.Put(ctx, l, pattern, space.Cursor{Floor: 3}, 0))(t)
		}
		must(cursors.PutMentions(ctx, l, space.Cursor{Floor: 4}, 0))(t)
	}
	if err := errors.Join(members.RemoveAll(ctx, old), cursors.RemoveAll(ctx, old)); err != nil {
		t.Fatal(err)
	}
	if n := must(members.Count(ctx, old))(t); n != 0 {
		t.Errorf("%d memberships of the old life, want none", n)
	}
	if n := must(members.Count(ctx, next))(t); n != 5 {
		t.Errorf("%d memberships of the next life, want 5", n)
	}
	if c, rev, err := cursors.Mentions(ctx, old); err != nil || rev != 0 || c.Floor != 0 {
		t.Errorf("mentions of the old life = %+v, %d, %v, want nothing", c, rev, err)
	}
	if c, _, err := cursors.Mentions(ctx, next); err != nil || c.Floor != 4 {
		t.Errorf("mentions of the next life = %+v, %v, want floor 4", c, err)
	}
	n := 0
	if err := cursors.All(ctx, func(k space.CursorKey, c space.Cursor) error { n++; return nil }); err != nil || n != 5 {
		t.Errorf("%d cursors of memberships, %v, want 5", n, err)
	}
}

// TestTenThousandMembershipsAreListedFast holds the reading by batches to its promise.
func TestTenThousandMembershipsAreListedFast(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	const total = 10_000
	for i := range total {
		l := lifecycle(fmt.Sprintf("a%d", i))
		subject := wire.RecordPrefix(wire.MembersBucket(lab)) + l.String() + "." + space.PatternKey("general")
		must(js.PublishAsync(subject, fmt.Appendf(nil, `{"v":1,"pattern":"general","spans":[{"join":%d}]}`, i), jetstream.WithStallWait(time.Minute)))(t)
	}
	<-js.PublishAsyncComplete()
	n, began := 0, time.Now()
	err := space.NewMembers(js, lab).All(context.WithoutCancel(ctx), func(space.Membership) error { n++; return nil })
	if err != nil || n != total {
		t.Fatalf("All = %d, %v, want %d", n, err, total)
	}
	t.Logf("%d memberships listed in %s", n, time.Since(began))
}
