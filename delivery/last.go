package delivery

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
)

// maxProbes bounds the search of lastStart; bisecting 2^64 sequences takes fewer.
const maxProbes = 130

// lastStart returns the sequence at which the last n messages on filter begin, or 0 when there are none. The broker
// reads forward only, so the place is searched: each probe asks how many messages lie at or after a sequence.
func lastStart(ctx context.Context, js jetstream.JetStream, stream, filter string, n int) (uint64, error) {
	s := search{want: uint64(n), probe: func(seq uint64) (first, count uint64, err error) {
		return countFrom(ctx, js, stream, filter, seq)
	}}
	first, total, err := s.probe(1)
	if err != nil || total <= s.want {
		return first, err
	}
	state, err := space.State(ctx, js, stream)
	if err != nil {
		return 0, err
	}
	return s.run(first, total, state.LastSeq)
}

// countFrom returns the first message on filter at or after a sequence, and how many there are from it on; 0 and 0
// when there are none.
func countFrom(ctx context.Context, js jetstream.JetStream, stream, filter string, seq uint64) (first, count uint64, err error) {
	q := space.Query{Filter: filter, From: seq, Limit: 1, MaxBytes: 1, Unreadable: func(int) { count = 1 }}
	rest, err := space.Read(ctx, js, stream, q, func(*space.Stored) error {
		count = 1
		return nil
	})
	if count == 0 {
		return 0, rest.Pending, err
	}
	return rest.Next - 1, count + rest.Pending, err
}

// search finds the sequence from which on want messages lie. probe returns the first message at or after a sequence
// and how many there are from it on, 0 and 0 when there are none.
type search struct {
	want  uint64
	probe func(seq uint64) (first, count uint64, err error)
}

// run searches between first, from which on more than want messages lie, and last, the last sequence of the stream.
func (s search) run(first, total, last uint64) (uint64, error) {
	lo, loCount := first, total      // more than want from lo on
	hi, hiCount := last+1, uint64(0) // fewer than want from hi on
	for i := range maxProbes {
		mid := lo + (hi-lo)/2
		if i%2 == 0 {
			// As if the messages lay evenly; the halving in between bounds the steps when they do not.
			share := float64(s.want-hiCount) / float64(loCount-hiCount)
			mid = min(max(hi-uint64(float64(hi-lo)*share), lo+1), hi-1)
		}
		if mid <= lo {
			return hi, nil // messages went away meanwhile
		}
		at, count, err := s.probe(mid)
		switch {
		case err != nil:
			return 0, err
		case count == s.want:
			return at, nil
		case count == s.want+1:
			return at + 1, nil
		case count > s.want:
			lo, loCount = at, count
		default:
			hi, hiCount = mid, count
		}
	}
	return hi, nil
}
