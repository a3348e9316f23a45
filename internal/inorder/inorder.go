// Package inorder puts numbered things back into the order of their numbers.
//
// What crosses two connections at once, as during a renewal, may come twice or change places, and what is lost with a connection
// never comes. A [Queue] hands on each number once and in order, keeps what comes early, and tells when something is missing; how
// long to wait for it, and what then, is its owner's choice.
package inorder

import "time"

// limit is how many early things a queue keeps. One more is forgotten, and missing later.
const limit = 256

// Queue takes things numbered from 1. The zero value works. It is not safe for concurrent use.
type Queue[T any] struct {
	last  uint64
	early map[uint64]T
	since time.Time
}

// Reset forgets everything; the next number is 1 again.
func (q *Queue[T]) Reset() {
	q.last = 0
	clear(q.early)
}

// Last is the number handed on last, 0 before the first.
func (q *Queue[T]) Last() uint64 { return q.last }

// Put takes v under its number and hands on, to take, all that is in order now. What was handed on already is dropped.
func (q *Queue[T]) Put(n uint64, v T, now time.Time, take func(T)) {
	switch {
	case n <= q.last:
	case n == q.last+1:
		q.last = n
		take(v)
		q.follow(now, take)
	case len(q.early) < limit:
		if q.early == nil {
			q.early = make(map[uint64]T)
		}
		if len(q.early) == 0 {
			q.since = now
		}
		q.early[n] = v
	}
}

// Missing tells since when something has been waited for, and false when nothing is missing.
func (q *Queue[T]) Missing() (since time.Time, missing bool) { return q.since, len(q.early) > 0 }

// Skip gives up what is missing and hands on, to take, what follows it.
func (q *Queue[T]) Skip(now time.Time, take func(T)) {
	if len(q.early) == 0 {
		return
	}
	var first uint64
	for n := range q.early {
		if first == 0 || n < first {
			first = n
		}
	}
	q.last = first - 1
	q.follow(now, take)
}

// follow hands on what was early and is in order now. Taking may reset the queue.
func (q *Queue[T]) follow(now time.Time, take func(T)) {
	for {
		v, ok := q.early[q.last+1]
		if !ok {
			q.since = now // of what is missing next, if anything is
			return
		}
		delete(q.early, q.last+1)
		q.last++
		take(v)
	}
}
