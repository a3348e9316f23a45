package space_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// longLife is one with the longest names there are.
func longLife() wire.Lifecycle {
	return wire.Lifecycle{Principal: wire.Principal{Owner: "u_abcdefghijklmnopqrstuvwxyz", Actor: strings.Repeat("a", wire.MaxToken)}, UID: wire.NewUID()}
}

// longPattern is the i-th pattern of the greatest length.
func longPattern(i int) string {
	head := fmt.Sprintf("p%d.", i)
	return head + strings.Repeat("x", wire.MaxChannel-len(head))
}

// wantExhausted fails unless err gives the figures and says what to do.
func wantExhausted(t *testing.T, err error, allowed int, remedy string) {
	t.Helper()
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Code != wire.CodeResourceExhausted || e.Details["allowed"] != allowed || e.Details["used"] == nil || !strings.Contains(e.Message, remedy) {
		t.Errorf("error %v with %v, want resource-exhausted of at most %d and %q", err, e, allowed, remedy)
	}
}

// One life takes less than 256 KiB, with the longest names and patterns there are, however many of its joins are under way.
func TestMembershipsOfOneLifeAreBounded(t *testing.T) {
	t.Parallel()
	js, ctx := newSpace(t), ctxFor(t)
	s := wire.Space(strings.Repeat("s", wire.MaxToken))
	if err := space.Ensure(ctx, js, s, nil); err != nil {
		t.Fatal(err)
	}
	members := space.NewMembers(js, s)
	weigh := func() (n, size int) {
		st := must(space.State(ctx, js, space.BucketStream(wire.MembersBucket(s))))(t)
		return int(st.Msgs), int(st.Bytes)
	}
	eve := longLife()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var last error
	for worker := range 16 {
		wg.Go(func() {
			for i := range 10 {
				if _, err := members.Put(ctx, membership(eve, longPattern(worker*10+i)).Joined(1), 0); err != nil {
					mu.Lock()
					last = err
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	wantExhausted(t, last, wire.MaxMembershipBytes, "leave one first")
	for i := range 160 { // alone: those that were under way count no more
		_, err := members.Put(ctx, membership(eve, longPattern(200+i)).Joined(1), 0)
		if err != nil {
			wantExhausted(t, err, wire.MaxMembershipBytes, "leave one first")
			break
		}
	}
	if n, size := weigh(); size > wire.MaxMembershipBytes || size < wire.MaxMembershipBytes-8<<10 || n < 50 {
		t.Errorf("%d memberships of the longest patterns take %d bytes, want nearly %d", n, size, wire.MaxMembershipBytes)
	}
	of := must(members.Of(ctx, eve))(t)
	m, rev, err := members.Get(ctx, eve, of[0].Pattern)
	if err != nil {
		t.Fatal(err)
	}
	if err := members.Remove(ctx, eve, m.Pattern, rev); err != nil {
		t.Fatal(err)
	}
	must(members.Put(ctx, membership(eve, longPattern(999)).Joined(1), 0))(t)
	if err := members.RemoveAll(ctx, eve); err != nil {
		t.Fatal(err)
	}

	for i := range wire.MaxMemberships {
		must(members.Put(ctx, membership(eve, fmt.Sprintf("team.channel%d", i)).Joined(math.MaxUint64), 0))(t)
	}
	_, err = members.Put(ctx, membership(eve, "more").Joined(1), 0)
	wantExhausted(t, err, wire.MaxMemberships, "leave one first")
	if n, size := weigh(); n != wire.MaxMemberships || size > wire.MaxMembershipBytes {
		t.Errorf("%d memberships take %d bytes, want %d in at most %d", n, size, wire.MaxMemberships, wire.MaxMembershipBytes)
	}
}

// Whoever joins and leaves in turn, with something waiting each time, is stopped in one membership and in all of them.
func TestJoiningAndLeavingInTurnIsBounded(t *testing.T) {
	t.Parallel()
	js, ctx := newSpace(t), ctxFor(t)
	members, eve := space.NewMembers(js, lab), longLife()
	m, at, rev := membership(eve, longPattern(0)), uint64(0), uint64(0)
	var err error
	for n := 0; ; n++ {
		m = m.Joined(at)
		if rev, err = members.Put(ctx, m, rev); err != nil {
			if n != space.MaxSpans {
				t.Errorf("stopped after %d intervals, want %d", n, space.MaxSpans)
			}
			break
		}
		m.Spans[n].Generation = rev
		at += 2
		m = m.Left(at)
		rev = must(members.Put(ctx, m, rev))(t)
	}
	wantExhausted(t, err, space.MaxSpans, "leave and discard it")

	for i := 1; ; i++ { // the same of the others, up to the last interval
		m.Pattern, m.Spans = fmt.Sprintf("c%d", i), m.Spans[:space.MaxSpans-1]
		if rev, err = members.Put(ctx, m, 0); err != nil {
			break
		}
		if _, err = members.Put(ctx, m.Joined(at), rev); err != nil {
			break
		}
	}
	wantExhausted(t, err, wire.MaxMembershipBytes, "leave one first, and handle or discard")
	for i := 0; ; i++ { // what is left is taken by small ones
		if _, err = members.Put(ctx, membership(eve, fmt.Sprintf("d%d", i)).Joined(at), 0); err != nil {
			break
		}
	}
	wantExhausted(t, err, wire.MaxMembershipBytes, "leave one first")
	m, rev, err = members.Get(ctx, eve, "d0")
	for n := 0; err == nil && n < 20; n++ { // and no interval is added to them then
		m = m.Left(m.Last().Join + 1)
		rev = must(members.Put(ctx, m, rev))(t)
		m = m.Joined(m.Last().Leave)
		rev, err = members.Put(ctx, m, rev)
	}
	wantExhausted(t, err, wire.MaxMembershipBytes, "leave one first")
	if st := must(space.State(ctx, js, space.BucketStream(wire.MembersBucket(lab))))(t); st.Bytes > wire.MaxMembershipBytes {
		t.Errorf("%d memberships take %d bytes, want at most %d", st.Msgs, st.Bytes, wire.MaxMembershipBytes)
	}
}

// When the bucket is full to the last byte, who is a member can leave, and join again once what waited is handled.
func TestAFullStoreOfMembershipsLetsEveryoneLeave(t *testing.T) {
	t.Parallel()
	js, ctx := connect(t, broker(t)), ctxFor(t)
	if err := space.Ensure(ctx, js, lab, &space.Options{Sizes: space.Sizes{Members: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	members, prefix := space.NewMembers(js, lab), wire.RecordPrefix(wire.MembersBucket(lab))
	ada, old := lifecycle("ada"), lifecycle("old")
	must(members.Put(ctx, membership(ada, "general").Joined(7), 0))(t)
	must(js.Publish(ctx, prefix+old.String()+"."+space.PatternKey("general"), []byte(`{"v":1,"pattern":"general","spans":[{"join":7}]}`)))(t)
	lives := 0
	for full := false; !full && lives < 10; lives++ {
		eve := longLife()
		for i := 0; ; i++ {
			if _, err := members.Put(ctx, membership(eve, longPattern(i)).Joined(1), 0); err != nil {
				full = strings.Contains(err.Error(), "the store of memberships is full")
				if !errors.Is(err, wire.ErrExhausted) {
					t.Fatal(err)
				}
				break
			}
		}
	}
	if lives != 4 {
		t.Errorf("%d lives filled a mebibyte, want 4", lives)
	}
	leave := func(l wire.Lifecycle) {
		t.Helper()
		m, rev, err := members.Get(ctx, l, "general")
		if err != nil {
			t.Fatal(err)
		}
		must(members.Put(ctx, m.Left(math.MaxUint64-1), rev))(t)
	}
	leave(old) // what the build before wrote grows into what is spared
	// To the last byte, by somebody who does not leave that alone.
	for size := 32 << 10; size > 0; {
		if _, err := js.Publish(ctx, prefix+"x."+string(wire.NewUID()), make([]byte, size)); err != nil {
			size /= 2
		}
	}
	leave(ada)
	for _, l := range []wire.Lifecycle{ada, old} {
		m, rev, err := members.Get(ctx, l, "general")
		if err != nil || m.Last() != (space.Span{Generation: m.Last().Generation, Join: 7, Leave: math.MaxUint64 - 1}) {
			t.Fatalf("membership = %+v, %v, want that which was left", m, err)
		}
		rev = must(members.Put(ctx, m.Waiting(space.Cursor{Floor: m.Last().Leave}).Joined(m.Last().Leave), rev))(t)
		if err := members.Remove(ctx, l, "general", rev); err != nil {
			t.Error(err)
		}
	}
}

func TestStoredMembershipsReadBack(t *testing.T) {
	t.Parallel()
	js, ctx := newSpace(t), ctxFor(t)
	members := space.NewMembers(js, lab)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		m, end := membership(lifecycle(fmt.Sprintf("a%d", n)), "team.>"), uint64(0)
		for range rapid.IntRange(1, 6).Draw(rt, "spans") {
			s := space.Span{Generation: rapid.Uint64Min(1).Draw(rt, "generation"), Join: rapid.Uint64Range(end, math.MaxUint64-1).Draw(rt, "join")}
			s.Leave = rapid.Uint64Range(s.Join+1, math.MaxUint64).Draw(rt, "leave")
			if m.Spans, end = append(m.Spans, s), s.Leave; end == math.MaxUint64 {
				break
			}
		}
		must(members.Put(ctx, m, 0))(t)
		if got, _, err := members.Get(ctx, m.Lifecycle, m.Pattern); err != nil || !cmp.Equal(got, m) {
			rt.Fatalf("read %+v, %v, want %+v", got, err, m)
		}
	})
	key, one := wire.RecordPrefix(wire.MembersBucket(lab)), "AAAAAAAAAAEAAAAAAAAABwAAAAAAAAAA"
	for i, body := range []string{
		`{"v":1,"pattern":"general","spans":[{"gen":1,"join":7}]}`, // as the build before wrote it
		`{"v":2,"pattern":"general","at":"` + one + `"}`,
		`{"v":2,"pattern":"general","at":"` + one[:30] + `"}`, `{"v":2,"pattern":"general","at":"*"}`, `{"v":2,"pattern":"general"}`,
		`{"v":1,"pattern":"general","at":"` + one + `"}`, `{"v":3,"pattern":"general","at":"` + one + `"}`,
		`{"v":2,"pattern":"general","at":"` + one + `","spans":[{"join":9}]}`,
	} {
		l := lifecycle(fmt.Sprintf("b%d", i))
		must(js.Publish(ctx, key+l.String()+"."+space.PatternKey("general"), []byte(body)))(t)
		got, _, err := members.Get(ctx, l, "general")
		if want := membership(l, "general", space.Span{Generation: 1, Join: 7}); (err == nil) != (i < 2) || err == nil && !cmp.Equal(got, want) {
			t.Errorf("%s read as %+v, %v", body, got, err)
		}
	}
}

func TestHandledIntervalsAreDropped(t *testing.T) {
	t.Parallel()
	m := membership(lifecycle("ada"), "general",
		space.Span{Generation: 1, Join: 2, Leave: 5}, space.Span{Generation: 2, Join: 6, Leave: 8}, space.Span{Generation: 3, Join: 9, Leave: 12}, space.Span{Generation: 4, Join: 12})
	for want, c := range map[string]space.Cursor{
		"[1 2 3 4]": {Floor: 4}, "[2 3 4]": {Floor: 5}, "[1 3 4]": {Handled: []wire.SequenceRange{{From: 7, To: 8}}},
		"[1 2 4]": {Floor: 3, Handled: []wire.SequenceRange{{From: 10, To: 13}}}, "[4]": {Floor: 20},
	} {
		var got []uint64
		for _, s := range m.Waiting(c).Spans {
			got = append(got, s.Generation)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("waiting at %+v: %v, want %s", c, got, want)
		}
	}
}
