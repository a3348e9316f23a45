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

// seenKeys remembers the keys of one object: a few on the scanner's stack, many in a set, so that neither a usual
// object allocates nor a hostile one costs the square of its size.
type seenKeys struct {
	base int
	set  map[string]struct{}
}

const fewKeys = 16

func (s *scanner) seen() seenKeys { return seenKeys{base: len(s.keys)} }

// add reports whether the key is new.
func (k *seenKeys) add(s *scanner, key []byte) bool {
	if k.set != nil {
		if _, dup := k.set[string(key)]; dup {
			return s.fail("duplicate key")
		}
		k.set[string(key)] = struct{}{}
		return true
	}
	for _, old := range s.keys[k.base:] {
		if bytes.Equal(old, key) {
			return s.fail("duplicate key")
		}
	}
	if s.keys == nil { // most documents have no key to remember
		s.keys = make([][]byte, 0, fewKeys)
	}
	s.keys = append(s.keys, key)
	if len(s.keys)-k.base >= fewKeys {
		k.set = make(map[string]struct{}, 2*fewKeys)
		for _, old := range s.keys[k.base:] {
			k.set[string(old)] = struct{}{}
		}
	}
	return true
}

// drop forgets the object's keys.
func (k *seenKeys) drop(s *scanner) { s.keys = s.keys[:k.base] }

// wrongCase reports whether key is one of the names but for the case of its letters. Names hold the exact spellings.
func wrongCase(key []byte, names []string) bool {
	for _, n := range names {
		if len(key) >= len(n) && len(key) <= 3*len(n) && bytes.EqualFold(key, []byte(n)) {
			return true
		}
	}
	return false
}
