package endpoint

import "hash/maphash"

// seen remembers the last message ids per sender, bounded. It keeps a 64-bit keyed hash of each pair instead of the
// texts: the key is random and private to the process, so nobody can aim for a collision, and a chance one among a
// thousand entries is rarer than a lost disk. Not safe for concurrent use.
type seen struct {
	seed  maphash.Seed
	limit int
	marks map[uint64]mark
	order []uint64 // ring of the keys in marks, oldest at next once it is full
	next  int
}

// mark is what is known of one message.
type mark struct {
	seq     uint64 // the stream sequence it came with
	settled bool   // it needs no second delivery
	gaveUp  bool   // its handler is not asked again
	runs    int    // how often its handler was asked
}

func newSeen(limit int) seen { return seen{seed: maphash.MakeSeed(), limit: limit} }

// key returns the key of a sender's message id, and false for the empty id, which never de-duplicates anything.
func (s *seen) key(sender, id string) (uint64, bool) {
	if id == "" {
		return 0, false
	}
	var h maphash.Hash
	h.SetSeed(s.seed)
	_, _ = h.WriteString(sender)
	_ = h.WriteByte(0) // no principal holds it, so the pair is unambiguous
	_, _ = h.WriteString(id)
	return h.Sum64(), true
}

// find returns what is known of key.
func (s *seen) find(key uint64) (mark, bool) {
	m, ok := s.marks[key]
	return m, ok
}

// put records or replaces what is known of key, forgetting the oldest key when there is no room.
func (s *seen) put(key uint64, m mark) {
	if _, ok := s.marks[key]; ok {
		s.marks[key] = m
		return
	}
	if s.marks == nil {
		s.marks = make(map[uint64]mark)
	}
	if len(s.order) < s.limit {
		s.order = append(s.order, key)
	} else {
		delete(s.marks, s.order[s.next])
		s.order[s.next] = key
		s.next = (s.next + 1) % s.limit
	}
	s.marks[key] = m
}
