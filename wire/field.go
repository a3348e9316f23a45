package wire

import "bytes"

// fieldSet remembers which known fields of an object were seen.
type fieldSet uint32

func (f fieldSet) has(i int) bool { return f&(1<<i) != 0 }

// members reads an object with known fields: read is called for each of them with its place in names, and must consume
// the value. Other fields are skipped, unless their name is a known one in another case.
func (s *scanner) members(names []string, got *fieldSet, read func(field int) bool) bool {
	if !s.open('{', "want an object") {
		return false
	}
	seen := s.seen()
	for first := true; s.more('}', first); first = false {
		key, ok := s.key()
		if !ok {
			return false
		}
		f := indexOf(names, key)
		switch {
		case f < 0 && wrongCase(key, names):
			ok = s.fail("key in the wrong case")
		case f < 0:
			ok = seen.add(s, key) && s.value()
		case got.has(f):
			ok = s.fail("duplicate key")
		default:
			*got |= 1 << f
			ok = read(f)
		}
		if !ok {
			return false
		}
	}
	seen.drop(s)
	return s.err == ""
}

// require fails when one of the first fields of an object was not seen.
func (s *scanner) require(names []string, got fieldSet) bool {
	for i, n := range names {
		if !got.has(i) {
			return s.fail("no " + n)
		}
	}
	return true
}

func indexOf(names []string, key []byte) int {
	for i, n := range names {
		if n == string(key) {
			return i
		}
	}
	return -1
}

// seenKeys remembers the keys of one object: a few by where they stand, many in a set, so that neither a usual object
// allocates nor a hostile one costs the square of its size.
type seenKeys struct {
	base int
	set  map[string]struct{}
}

const fewKeys = 16

// keySpan is where a key stands in the data, without its quotes and still escaped. Positions, not slices: a slice would
// tie the scanner to the heap.
type keySpan struct{ from, to int32 }

// keyStack holds the keys of the open objects that are not in a set.
type keyStack struct {
	n    int
	few  [fewKeys]keySpan
	more []keySpan // beyond few
}

func (st *keyStack) push(k keySpan) {
	if st.n < fewKeys {
		st.few[st.n] = k
	} else {
		st.more = append(st.more[:st.n-fewKeys], k)
	}
	st.n++
}

func (st *keyStack) at(i int) keySpan {
	if i < fewKeys {
		return st.few[i]
	}
	return st.more[i-fewKeys]
}

func (s *scanner) seen() seenKeys { return seenKeys{base: s.keys.n} }

// oldKey returns a remembered key, unescaped.
func (s *scanner) oldKey(i int) []byte {
	k := s.keys.at(i)
	return unescape(s.data[k.from:k.to])
}

// add reports whether the key, the one that was read last, is new.
func (k *seenKeys) add(s *scanner, key []byte) bool {
	if k.set != nil {
		if _, dup := k.set[string(key)]; dup {
			return s.fail("duplicate key")
		}
		k.set[string(key)] = struct{}{}
		return true
	}
	for i := k.base; i < s.keys.n; i++ {
		if bytes.Equal(s.oldKey(i), key) {
			return s.fail("duplicate key")
		}
	}
	s.keys.push(s.lastKey)
	if s.keys.n-k.base >= fewKeys {
		k.set = make(map[string]struct{}, 2*fewKeys)
		for i := k.base; i < s.keys.n; i++ {
			k.set[string(s.oldKey(i))] = struct{}{}
		}
	}
	return true
}

// drop forgets the object's keys.
func (k *seenKeys) drop(s *scanner) { s.keys.n = k.base }

// wrongCase reports whether key is one of the names but for the case of its letters. Names hold the exact spellings.
func wrongCase(key []byte, names []string) bool {
	for _, n := range names {
		if len(key) >= len(n) && len(key) <= 3*len(n) && bytes.EqualFold(key, []byte(n)) {
			return true
		}
	}
	return false
}
