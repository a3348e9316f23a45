package delivery

import (
	"math"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// interval is what of the channel stream concerns a member, and how far it is. It is a value: nothing here asks anybody.
type interval struct {
	spans  []space.Span
	cursor space.Cursor
}

// intervalOf puts a membership and its recorded position together. What lies before the first join is behind.
func intervalOf(m space.Membership, c space.Cursor) interval {
	if len(m.Spans) > 0 {
		c = c.Merge(space.Cursor{Floor: m.Spans[0].Join})
	}
	return interval{m.Spans, c}
}

// over reports whether every span is closed and handled.
func (iv interval) over() bool {
	for _, s := range iv.spans {
		if s.Leave == 0 || iv.cursor.Past(s.Join+1) <= s.Leave {
			return false
		}
	}
	return true
}

// end is the leave cursor, and false while a span is open.
func (iv interval) end() (uint64, bool) {
	if len(iv.spans) == 0 {
		return 0, false
	}
	last := iv.spans[len(iv.spans)-1].Leave
	return last, last != 0
}

// ahead returns the parts of the spans after pos, in order. An open one ends at the last sequence there can be.
func (iv interval) ahead(pos uint64) []wire.SequenceRange {
	var out []wire.SequenceRange
	for _, s := range iv.spans {
		r := wire.SequenceRange{From: max(s.Join, pos) + 1, To: s.Leave}
		if r.To == 0 {
			r.To = math.MaxUint64
		}
		if r.From <= r.To {
			out = append(out, r)
		}
	}
	return out
}

// before returns the parts of the closed spans that lie after the floor.
func (iv interval) before() []wire.SequenceRange {
	out := iv.ahead(iv.cursor.Floor)
	if _, closed := iv.end(); !closed && len(out) > 0 {
		out = out[:len(out)-1]
	}
	return out
}

// lost returns the parts of the spans after pos that may have held messages which nobody can read any more: they lie
// before first, where the stream begins, and at or before through. What is handled is not lost, and what a read went
// through without a hole is not. The ranges of seen ascend.
func (iv interval) lost(pos, first, through uint64, seen []wire.SequenceRange) []wire.SequenceRange {
	if first == 0 || min(first-1, through) <= pos {
		return nil
	}
	rest := clipRanges(iv.ahead(pos), min(first-1, through))
	rest = without(rest, append([]wire.SequenceRange{{From: 1, To: iv.cursor.Floor}}, iv.cursor.Handled...))
	return without(rest, seen)
}

// cleared is what of a clearing lies after pos, at or before through, in a span, and is not handled; false when nothing does.
// How many messages that was is known when all of the clearing is that, or when all of its range was removed.
func (iv interval) cleared(l wire.Loss, pos, through uint64) (wire.Loss, bool) {
	size := l.To - l.From + 1
	rest := iv.lost(max(pos, l.From-1), min(l.To, through)+1, min(l.To, through), nil)
	if len(rest) == 0 {
		return l, false
	}
	l.From, l.To = rest[0].From, rest[len(rest)-1].To
	var unread uint64
	for _, r := range rest {
		unread += r.To - r.From + 1
	}
	l.AtMost = unread < size && l.Count < size
	l.Count = min(l.Count, unread)
	return l, true
}

// merged returns ascending ranges with one more.
func merged(ranges []wire.SequenceRange, r wire.SequenceRange) []wire.SequenceRange {
	all := space.Cursor{Handled: []wire.SequenceRange{r}}.Merge(space.Cursor{Handled: ranges})
	if all.Floor > 0 {
		return append([]wire.SequenceRange{{From: 1, To: all.Floor}}, all.Handled...)
	}
	return all.Handled
}

// clipRanges returns the parts of ascending ranges that lie at or before last.
func clipRanges(ranges []wire.SequenceRange, last uint64) []wire.SequenceRange {
	var out []wire.SequenceRange
	for _, r := range ranges {
		if r.To = min(r.To, last); r.From <= r.To {
			out = append(out, r)
		}
	}
	return out
}

// without returns ascending ranges less other ascending ranges. An empty range has From after To.
func without(ranges, less []wire.SequenceRange) []wire.SequenceRange {
	var out []wire.SequenceRange
	i := 0
	for _, r := range ranges {
		for i < len(less) && less[i].To < r.From {
			i++
		}
		for j := i; j < len(less) && less[j].From <= r.To && r.From <= r.To; j++ {
			if less[j].From > less[j].To {
				continue
			}
			if r.From < less[j].From {
				out = append(out, wire.SequenceRange{From: r.From, To: less[j].From - 1})
			}
			if less[j].To >= r.To {
				r.From, r.To = 1, 0
				break
			}
			r.From = max(r.From, less[j].To+1)
		}
		if r.From <= r.To {
			out = append(out, r)
		}
	}
	return out
}

// few returns at most n ranges that cover what all of them do: the last one spans the rest.
func few(ranges []wire.SequenceRange, n int) []wire.SequenceRange {
	if len(ranges) <= n {
		return ranges
	}
	out := append([]wire.SequenceRange(nil), ranges[:n]...)
	out[n-1].To = ranges[len(ranges)-1].To
	return out
}
