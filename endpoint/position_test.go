package endpoint_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// TestProgress compares a progress with a set of numbers.
func TestProgress(t *testing.T) {
	const last = 40
	rapid.Check(t, func(rt *rapid.T) {
		var p endpoint.Progress
		var dealt, open [last + 1]bool
		top := uint64(0) // the end of the last range beyond
		mark := func(from, to uint64) {
			for s := from; s <= to; s++ {
				dealt[s] = true
			}
			top = max(top, to)
		}
		seq := rapid.Uint64Range(1, last)
		for range rapid.IntRange(0, 60).Draw(rt, "steps") {
			s := seq.Draw(rt, "seq")
			switch rapid.SampledFrom([]string{"reach", "add", "grow", "begin", "settle"}).Draw(rt, "step") {
			case "reach":
				p.Reach(s)
				mark(1, s)
			case "add":
				to := min(last, s+rapid.Uint64Range(0, 5).Draw(rt, "more"))
				p.Add(s, to)
				mark(s, to)
			case "grow":
				fresh := rapid.Bool().Draw(rt, "fresh")
				p.Grow(s, fresh)
				if beyond := top > 0 && !prefix(dealt[:], top); !fresh && beyond && s > top {
					mark(top, s)
				}
				mark(s, s)
			case "begin":
				if dealt[s] {
					p.Begin(s)
					open[s] = true
				}
			case "settle":
				p.Settle(s)
				open[s] = false
			}
		}
		for s := uint64(1); s <= last; s++ {
			if p.Has(s) != dealt[s] {
				rt.Fatalf("has %d = %v in %+v", s, p.Has(s), p)
			}
		}
		floor, handled := p.Report()
		checkReport(rt, floor, handled, func(s uint64) bool { return dealt[s] && !open[s] }, last)
		if n := len(handled); n > wire.MaxHandledRanges && !p.Full() {
			rt.Fatalf("%d ranges of a position that is not full", n)
		}
	})
}

// prefix reports whether everything up to top is set.
func prefix(dealt []bool, top uint64) bool {
	for _, d := range dealt[1 : top+1] {
		if !d {
			return false
		}
	}
	return true
}

// checkReport checks that a report is in the form that delivery takes, and says what it should.
func checkReport(tb rapid.TB, floor uint64, handled []wire.SequenceRange, want func(uint64) bool, last uint64) {
	tb.Helper()
	before := floor
	for i, r := range handled {
		if r.From > r.To || r.From <= before || i > 0 && r.From <= before+1 {
			tb.Fatalf("floor %d, ranges %v", floor, handled)
		}
		before = r.To
	}
	for s := uint64(1); s <= last; s++ {
		said := s <= floor
		for _, r := range handled {
			said = said || r.From <= s && s <= r.To
		}
		if said != want(s) {
			tb.Fatalf("floor %d, ranges %v: %d is said to be handled: %v", floor, handled, s, said)
		}
	}
}

func TestProgressIsBounded(t *testing.T) {
	var p endpoint.Progress
	p.Reach(10_000)
	for s := uint64(1); !p.Full(); s += 2 {
		p.Begin(s)
	}
	if _, handled := p.Report(); len(handled) > wire.MaxHandledRanges || len(handled) < wire.MaxHandledRanges-2 {
		t.Errorf("a full position reports %d ranges", len(handled))
	}
}
