package space_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// holes is a position with n ranges, each as long as step lets it be.
func holes(floor uint64, n int, step uint64) space.Cursor {
	c := space.Cursor{Floor: floor}
	for i := range uint64(n) {
		at := floor + 2 + i*step
		c.Handled = append(c.Handled, wire.SequenceRange{From: at, To: at + step - 2})
	}
	return c
}

// One life takes less than 256 KiB, with the longest names there are and whatever it reports of however many memberships.
func TestPositionsOfOneLifeAreBounded(t *testing.T) {
	t.Parallel()
	js, ctx := newSpace(t), ctxFor(t)
	s := wire.Space(strings.Repeat("s", wire.MaxToken))
	if err := space.Ensure(ctx, js, s, nil); err != nil {
		t.Fatal(err)
	}
	l := wire.Lifecycle{Principal: wire.Principal{Owner: "u_abcdefghijklmnopqrstuvwxyz", Actor: strings.Repeat("a", 64)}, UID: wire.NewUID()}
	cursors, n := space.NewCursors(js, s), 0
	count := func(context.Context) (int, error) { return n, nil }
	top := holes(1<<62, 500, 1000)
	var shrank []int
	for n = 1; n <= wire.MaxMemberships; n++ {
		pattern := fmt.Sprintf("p.c%d", n)
		rev := must(cursors.Move(ctx, space.Move{Lifecycle: l, Pattern: pattern, To: space.Cursor{Floor: 1 << 62}}))(t)
		must(cursors.Move(ctx, space.Move{
			Lifecycle: l, Pattern: pattern, From: space.Cursor{Floor: 1 << 62}, Revision: rev, To: top, Memberships: count,
		}))(t)
	}
	for i := range wire.MaxMemberships { // once more, with all of them there
		pattern := fmt.Sprintf("p.c%d", i+1)
		from, rev, err := cursors.Get(ctx, l, pattern)
		if err != nil {
			t.Fatal(err)
		}
		must(cursors.Move(ctx, space.Move{Lifecycle: l, Pattern: pattern, From: from, Revision: rev, To: top, Memberships: count}))(t)
		if to, _, err := cursors.Get(ctx, l, pattern); err != nil || len(to.Handled) < len(from.Handled) {
			t.Fatalf("position %q went from %d ranges to %d, %v", pattern, len(from.Handled), len(to.Handled), err)
		}
		if i%170 == 0 {
			shrank = append(shrank, len(from.Handled))
		}
	}
	must(cursors.PutMentions(ctx, l, top, 0))(t)
	st := must(space.State(ctx, js, space.BucketStream(wire.CursorsBucket(s))))(t)
	if st.Msgs != wire.MaxMemberships+1 || st.Bytes > 256<<10 {
		t.Errorf("%d positions take %d bytes, want %d in at most %d", st.Msgs, st.Bytes, wire.MaxMemberships+1, 256<<10)
	}
	if shrank[0] != space.MaxStoredRanges || shrank[3] < 3 {
		t.Errorf("ranges of the first, … and the last position: %d", shrank)
	}
}

// When the bucket is full, positions that are there move on, and what operators clear and the search for mentions are
// noted.
func TestAFullStoreOfPositionsStopsNobody(t *testing.T) {
	t.Parallel()
	js, ctx := connect(t, broker(t)), ctxFor(t)
	if err := space.Ensure(ctx, js, lab, &space.Options{Sizes: space.Sizes{Cursors: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	cursors, progress, ada := space.NewCursors(js, lab), space.NewProgress(js, lab), lifecycle("ada")
	done := must(progress.Put(ctx, 1, 0))(t)
	at := holes(10, 3, 2)
	rev := must(cursors.Put(ctx, ada, "general", at, 0))(t)
	full := func() error {
		for i := range 10_000 {
			if _, err := cursors.Put(ctx, lifecycle(fmt.Sprintf("eve%d", i)), "general", holes(10, space.MaxStoredRanges, 40), 0); err != nil {
				return err
			}
		}
		return nil
	}
	if err := full(); !errors.Is(err, wire.ErrExhausted) || !strings.Contains(err.Error(), "the store of positions is full") {
		t.Fatalf("position in a full bucket = %v, want resource-exhausted that says so", err)
	}
	// To the last byte, by somebody who does not leave the reserve alone.
	for size := 32 << 10; size > 0; {
		if _, err := js.Publish(ctx, wire.RecordPrefix(wire.CursorsBucket(lab))+"x."+string(wire.NewUID()), make([]byte, size)); err != nil {
			size /= 2
		}
	}
	for step := uint64(1); step < 2000; step += 333 {
		next := holes(10+step*1e15, 40, 50)
		rev = must(cursors.Move(ctx, space.Move{Lifecycle: ada, Pattern: "general", From: at, Revision: rev, To: next}))(t)
		got, _, err := cursors.Get(ctx, ada, "general")
		if err != nil || got.Floor != next.Floor || len(got.Handled) == 0 || len(got.Handled) > 3 {
			t.Fatalf("position = %+v, %v, want floor %d and as many ranges as before", got, err, next.Floor)
		}
		at = got
		done = must(progress.Put(ctx, step*1e15, done))(t)
	}
}

func TestClearHistoryFindsRoomAmongFullPositions(t *testing.T) {
	t.Parallel()
	js, ctx := connect(t, broker(t)), ctxFor(t)
	if err := space.Ensure(ctx, js, lab, &space.Options{Sizes: space.Sizes{Cursors: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	cursors := space.NewCursors(js, lab)
	var err error
	for i := 0; err == nil; i++ {
		_, err = cursors.Put(ctx, lifecycle(fmt.Sprintf("eve%d", i)), "general", holes(10, space.MaxStoredRanges, 40), 0)
	}
	long := strings.Repeat("abcdefghi.", 400) + "x"
	for _, channel := range []string{"team", long} {
		post(t, js, channel, 3)
		if n, err := space.ClearHistory(ctx, js, lab, channel); err != nil || n != 3 {
			t.Errorf("ClearHistory = %d, %v, want 3", n, err)
		}
	}
}

func TestStoredPositionsReadBack(t *testing.T) {
	t.Parallel()
	js, ctx := newSpace(t), ctxFor(t)
	cursors := space.NewCursors(js, lab)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		c := space.Cursor{Floor: rapid.Uint64().Draw(rt, "floor")}
		end := c.Floor
		for range rapid.IntRange(0, 20).Draw(rt, "ranges") {
			if end > math.MaxUint64-4 {
				break
			}
			from := rapid.Uint64Range(end+2, math.MaxUint64).Draw(rt, "from")
			end = rapid.Uint64Range(from, math.MaxUint64).Draw(rt, "to")
			c.Handled = append(c.Handled, wire.SequenceRange{From: from, To: end})
		}
		l := lifecycle(fmt.Sprintf("a%d", n))
		must(cursors.Put(ctx, l, "general", c, 0))(t)
		if got, _, err := cursors.Get(ctx, l, "general"); err != nil || !got.Equal(c) {
			rt.Fatalf("read %+v, %v, want %+v", got, err, c)
		}
	})
	key := wire.RecordPrefix(wire.CursorsBucket(lab))
	for i, body := range []string{
		`{"v":1,"floor":7,"handled":[{"from":9,"to":9}]}`, // as the build before wrote it
		`{"v":2,"at":"AAAAAAAAAAc"}`, `{"v":2,"at":"AAAAAAAAAAcA"}`, `{"v":2,"at":"AAAA"}`, `{"v":2,"at":"*"}`, `{"v":2}`, `{"v":3,"floor":7}`,
		`{"v":2,"at":"AAAAAAAAAAf____________AQA"}`, `{"v":2,"at":"_________________wAA"}`, `{"v":1,"floor":7,"handled":[{"from":8,"to":9}]}`,
	} {
		l := lifecycle(fmt.Sprintf("b%d", i))
		must(js.Publish(ctx, key+l.String()+"."+space.PatternKey("general"), []byte(body)))(t)
		if got, _, err := cursors.Get(ctx, l, "general"); (err == nil) != (i < 2) || err == nil && got.Floor != 7 {
			t.Errorf("%s read as %+v, %v", body, got, err)
		}
	}
}
