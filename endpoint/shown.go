package endpoint

import "sync"

// maxShown is how many messages with mentions an endpoint remembers to have shown.
const maxShown = 4096

// shown remembers the channel messages that mention somebody and were shown, so that what comes as a mention and by a
// subscription too is shown once. The zero value is empty.
type shown struct {
	mu    sync.Mutex // guards the fields below
	by    map[claim]bool
	order []claim // ring of the keys of by, oldest at next once it is full
	next  int
}

// claim names a stored message: its sequence, and its time in case the stream was made anew.
type claim struct {
	seq uint64
	ms  int64
}

// claim reports whether d is still to be shown: as a mention if nobody did, and by a subscription if it was not shown as
// a mention.
func (s *shown) claim(d *Delivery, mention bool) bool {
	key := claim{d.Sequence, d.Time.UnixMilli()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if asMention, known := s.by[key]; known {
		return !mention && !asMention
	}
	if s.by == nil {
		s.by = make(map[claim]bool)
	}
	if len(s.order) < maxShown {
		s.order = append(s.order, key)
	} else {
		delete(s.by, s.order[s.next])
		s.order[s.next] = key
		s.next = (s.next + 1) % maxShown
	}
	s.by[key] = mention
	return true
}

// disown takes back the claim of a subscription whose handler failed to handle d, until it tries again if it does.
func (s *shown) disown(d *Delivery) {
	if len(d.Message.Mentions) == 0 {
		return
	}
	key := claim{d.Sequence, d.Time.UnixMilli()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if asMention, known := s.by[key]; known && !asMention {
		delete(s.by, key) // its place in the ring is used up
	}
}
