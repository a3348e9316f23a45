package endpoint

import (
	"slices"

	"github.com/cotal-go/cotal/wire"
)

// progress says which messages of a stream a reader has dealt with. It is a plain value. Everything up to through, and
// the ranges beyond it, was shown or is not the reader's; of all that, what is open was shown and is not settled.
type progress struct {
	through uint64
	beyond  []wire.SequenceRange // above through, ascending, touching neither it nor each other
	open    []uint64             // ascending
}

// has reports whether a message must not be shown as new.
func (p *progress) has(seq uint64) bool {
	if seq <= p.through {
		return true
	}
	_, found := slices.BinarySearchFunc(p.beyond, seq, func(r wire.SequenceRange, seq uint64) int {
		switch {
		case r.To < seq:
			return -1
		case r.From > seq:
			return 1
		}
		return 0
	})
	return found
}

// reach says that everything up to seq is dealt with.
func (p *progress) reach(seq uint64) {
	if seq <= p.through {
		return
	}
	p.through = seq
	n := 0
	for _, r := range p.beyond {
		if r.From > p.through+1 {
			break
		}
		p.through = max(p.through, r.To)
		n++
	}
	p.beyond = slices.Delete(p.beyond, 0, n)
}

// add says that from to to are dealt with, whatever is before them.
func (p *progress) add(from, to uint64) {
	switch {
	case from > to || to <= p.through:
		return
	case from <= p.through+1:
		p.reach(to)
		return
	}
	i := 0 // the first range that touches, or is after
	for i < len(p.beyond) && p.beyond[i].To+1 < from {
		i++
	}
	j := i
	for j < len(p.beyond) && p.beyond[j].From <= to+1 {
		from, to = min(from, p.beyond[j].From), max(to, p.beyond[j].To)
		j++
	}
	p.beyond = slices.Replace(p.beyond, i, j, wire.SequenceRange{From: from, To: to})
}

// grow says that seq, and what lies between it and the last range, is dealt with; fresh says that something between
// may be missing.
func (p *progress) grow(seq uint64, fresh bool) {
	if n := len(p.beyond); n > 0 && !fresh && seq > p.beyond[n-1].To {
		p.beyond[n-1].To = seq
		return
	}
	p.add(seq, seq)
}

// join says that nothing between the ranges is missing.
func (p *progress) join() {
	if n := len(p.beyond); n > 0 {
		p.reach(p.beyond[n-1].To)
	}
}

// trim forgets the oldest range beyond when there are too many to report.
func (p *progress) trim() {
	if p.full() && len(p.beyond) > 0 {
		p.beyond = slices.Delete(p.beyond, 0, 1)
	}
}

// begin notes that seq, which is dealt with otherwise, is not settled.
func (p *progress) begin(seq uint64) {
	if i, found := slices.BinarySearch(p.open, seq); !found {
		p.open = slices.Insert(p.open, i, seq)
	}
}

// settle notes that seq is settled.
func (p *progress) settle(seq uint64) {
	if i, found := slices.BinarySearch(p.open, seq); found {
		p.open = slices.Delete(p.open, i, i+1)
	}
}

// full reports whether one more open message could make the position too long to report.
func (p *progress) full() bool { return len(p.open)+len(p.beyond)+2 > wire.MaxHandledRanges }

// report is the position in the form of an AckRequest: everything up to floor is handled, and so are the ranges above it.
func (p *progress) report() (floor uint64, handled []wire.SequenceRange) {
	floor = p.through
	open := p.open
	take := func(r wire.SequenceRange) {
		for len(open) > 0 && open[0] <= r.To {
			if open[0] > r.From {
				handled = append(handled, wire.SequenceRange{From: r.From, To: open[0] - 1})
			}
			r.From, open = max(r.From, open[0]+1), open[1:]
		}
		if r.From <= r.To {
			handled = append(handled, r)
		}
	}
	if len(open) > 0 && open[0] <= p.through {
		floor = open[0] - 1
		take(wire.SequenceRange{From: open[0], To: p.through})
	}
	for _, r := range p.beyond {
		take(r)
	}
	return floor, handled
}
