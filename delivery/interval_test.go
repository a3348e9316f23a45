package delivery_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func ranges(pairs ...uint64) []wire.SequenceRange {
	var out []wire.SequenceRange
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, wire.SequenceRange{From: pairs[i], To: pairs[i+1]})
	}
	return out
}

func TestWhatOfAnIntervalIsLost(t *testing.T) {
	t.Parallel()
	open := []space.Span{{Generation: 1, Join: 10}}
	twice := []space.Span{{Generation: 1, Join: 10, Leave: 20}, {Generation: 2, Join: 30}}
	for name, c := range map[string]struct {
		spans               []space.Span
		cursor              space.Cursor
		pos, first, through uint64
		seen, want          []wire.SequenceRange
	}{
		"nothing_removed":           {spans: open, pos: 10, first: 1, through: 50},
		"removed_before_the_join":   {spans: open, pos: 10, first: 11, through: 50},
		"the_first_is_gone":         {spans: open, pos: 10, first: 12, through: 50, want: ranges(11, 11)},
		"not_beyond_through":        {spans: open, pos: 10, first: 90, through: 50, want: ranges(11, 50)},
		"not_what_is_behind":        {spans: open, pos: 15, first: 20, through: 50, want: ranges(16, 19)},
		"not_what_is_handled":       {spans: open, cursor: space.Cursor{Floor: 12, Handled: ranges(15, 16)}, pos: 12, first: 20, through: 50, want: ranges(13, 14, 17, 19)},
		"not_what_was_read":         {spans: open, pos: 10, first: 30, through: 50, seen: ranges(25, 50), want: ranges(11, 24)},
		"not_between_the_spans":     {spans: twice, pos: 10, first: 40, through: 50, want: ranges(11, 20, 31, 39)},
		"empty_stream_after_expiry": {spans: open, pos: 10, first: 51, through: 50, want: ranges(11, 50)},
		"stream_without_a_message":  {spans: open, pos: 10, first: 0, through: 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			iv := delivery.IntervalOf(space.Membership{Spans: c.spans}, c.cursor)
			if got := iv.Lost(c.pos, c.first, c.through, c.seen); !cmp.Equal(got, c.want) {
				t.Errorf("lost = %v, want %v", got, c.want)
			}
		})
	}
}

// inRanges reports whether a sequence is in one of some ranges.
func inRanges(rs []wire.SequenceRange, seq uint64) bool {
	for _, r := range rs {
		if r.From <= seq && seq <= r.To {
			return true
		}
	}
	return false
}

func ascending(t *rapid.T, what string, rs []wire.SequenceRange) {
	end := uint64(0)
	for _, r := range rs {
		if r.From <= end || r.To < r.From {
			t.Fatalf("%s %v does not ascend", what, rs)
		}
		end = r.To
	}
}

// drawRanges draws ascending ranges that may touch.
func drawRanges(t *rapid.T, name string) []wire.SequenceRange {
	var out []wire.SequenceRange
	at := uint64(1)
	for range rapid.IntRange(0, 4).Draw(t, name) {
		from := at + rapid.Uint64Range(0, 6).Draw(t, "gap")
		to := from + rapid.Uint64Range(0, 8).Draw(t, "length")
		out = append(out, wire.SequenceRange{From: from, To: to})
		at = to + 1
	}
	return out
}

func TestIntervalAgreesWithASetOfSequences(t *testing.T) {
	t.Parallel()
	const most = 80
	rapid.Check(t, func(t *rapid.T) {
		var spans []space.Span
		at := uint64(0)
		for i := range rapid.IntRange(1, 4).Draw(t, "spans") {
			join := at + rapid.Uint64Range(0, 9).Draw(t, "join")
			leave := join + rapid.Uint64Range(1, 12).Draw(t, "leave")
			spans = append(spans, space.Span{Generation: uint64(i + 1), Join: join, Leave: leave})
			at = leave
		}
		open := rapid.Bool().Draw(t, "open")
		if open {
			spans[len(spans)-1].Leave = 0
		}
		m := space.Membership{Spans: spans}
		c := space.Cursor{Floor: rapid.Uint64Range(0, 20).Draw(t, "floor")}.Merge(space.Cursor{Handled: drawRanges(t, "handled")})
		iv := delivery.IntervalOf(m, c)
		pos := max(iv.Floor(), rapid.Uint64Range(0, 50).Draw(t, "pos"))
		first, through := rapid.Uint64Range(0, 70).Draw(t, "first"), rapid.Uint64Range(0, 70).Draw(t, "through")
		seen := drawRanges(t, "seen")

		ahead, lost := iv.Ahead(pos), iv.Lost(pos, first, through, seen)
		ascending(t, "ahead", ahead)
		ascending(t, "lost", lost)
		over := !open
		for seq := uint64(1); seq <= most; seq++ {
			if want := m.Contains(seq) && seq > pos; inRanges(ahead, seq) != want {
				t.Fatalf("ahead of %d holds %d: %t, want %t", pos, seq, !want, want)
			}
			want := m.Contains(seq) && seq > pos && seq < first && seq <= through && !c.Has(seq) && !inRanges(seen, seq)
			if inRanges(lost, seq) != want {
				t.Fatalf("lost holds %d: %t, want %t", seq, !want, want)
			}
			if m.Contains(seq) && !c.Has(seq) {
				over = false
			}
		}
		if got := iv.Over(); got != over {
			t.Fatalf("over = %t, want %t", got, over)
		}
		if end, closed := iv.End(); closed == open || closed && end != spans[len(spans)-1].Leave {
			t.Fatalf("end = %d, %t", end, closed)
		}
		if n := rapid.IntRange(1, 5).Draw(t, "few"); true {
			some := delivery.Few(lost, n)
			ascending(t, "few", some)
			for seq := uint64(1); seq <= most; seq++ {
				if inRanges(lost, seq) && !inRanges(some, seq) || len(some) > n {
					t.Fatalf("%v in at most %d ranges = %v", lost, n, some)
				}
			}
		}
	})
}

func TestOpenIntervalHasNoEnd(t *testing.T) {
	t.Parallel()
	iv := delivery.IntervalOf(space.Membership{Spans: []space.Span{{Generation: 1, Join: 4}}}, space.Cursor{})
	if got, want := iv.Ahead(9), ranges(10, math.MaxUint64); !cmp.Equal(got, want) {
		t.Errorf("ahead = %v, want %v", got, want)
	}
}

func TestPatternsThatShareAChannel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a", "*", true}, {"a.b", "*", false}, {"a.b", "a.>", true}, {"a", "a.>", false},
		{"a.*", "*.b", true}, {"a.*.c", "a.b.>", true}, {"a.*.c", "b.>", false}, {">", "x.y.z", true}, {"a.b", "a.b.c", false}, {"*.b", "a.c", false},
	} {
		if got := delivery.Overlap(c.a, c.b); got != c.want {
			t.Errorf("overlap of %q and %q = %t, want %t", c.a, c.b, got, c.want)
		}
		if got := delivery.Overlap(c.b, c.a); got != c.want {
			t.Errorf("overlap of %q and %q = %t, want %t", c.b, c.a, got, c.want)
		}
	}
}
