package delivery

import "time"

// Bounds of the messages with mentions that wait; what does not fit is read from the stream when its turn comes.
const (
	maxWaiting      = 1024
	maxWaitingBytes = 8 << 20
)

// candidate is a channel message that may mention somebody; without data it does not.
type candidate struct {
	seq     uint64
	subject string
	data    []byte
	at      time.Time // when it was stored
	heard   time.Time // when its live copy came
}

// window is what was heard live without a gap: every message from a sequence to another one, of which those that may
// mention somebody wait. It is a value: no input or output, no clock. Its zero value has heard nothing.
type window struct {
	from, to uint64 // to is from-1 while it is empty
	waiting  []candidate
	bytes    int
}

// hear takes a live copy and reports whether there is something to do. What was heard before is nothing new; after a gap
// the window begins again, and what is before it has to be read.
func (w *window) hear(c candidate) bool {
	gap := w.from == 0 || c.seq > w.to+1
	switch {
	case gap:
		w.begin(c.seq)
	case c.seq <= w.to:
		return false
	}
	w.to = c.seq
	if c.data == nil {
		return gap
	}
	if len(w.waiting) == maxWaiting || w.bytes+len(c.data) > maxWaitingBytes {
		w.begin(c.seq + 1)
		return true
	}
	w.waiting = append(w.waiting, c)
	w.bytes += len(c.data)
	return true
}

// begin makes it the empty window before a sequence.
func (w *window) begin(seq uint64) { *w = window{from: seq, to: seq - 1} }

// anchor takes the last sequence of the stream: what was not heard of it has to be read. Anew says that the stream counts
// from the start again.
func (w *window) anchor(last uint64, anew bool) {
	if w.from == 0 || last > w.to || anew {
		w.begin(last + 1)
	}
}

// next is what a window wants done.
type next struct {
	readTo  uint64      // read up to this sequence; 0: no need to
	waiting []candidate // else serve these; they stay in the window until they are done
	served  uint64      // else nothing waits up to this sequence
}

// next says what comes after done, up to which all is served.
func (w *window) next(done uint64) next {
	if done+1 < w.from {
		return next{readTo: w.from - 1}
	}
	n := 0
	for ; n < len(w.waiting) && w.waiting[n].seq <= done; n++ {
		w.bytes -= len(w.waiting[n].data)
	}
	if w.waiting = w.waiting[n:]; len(w.waiting) == 0 {
		w.waiting, w.bytes = nil, 0
	}
	return next{waiting: w.waiting, served: max(done, w.to)}
}
