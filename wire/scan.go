package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks JSON once and validates all of it as it goes: grammar, nesting, escapes that are no character, keys that
// repeat within an object. The UTF-8 check of the raw bytes comes first, in begin. The first failure is kept and every
// later call reports false.
type scanner struct {
	data  []byte
	pos   int
	depth int    // containers open
	limit int    // containers allowed
	err   string // what is wrong, "" while nothing is
	at    int    // where

	lastKey keySpan // the key that was read last
	keys    keyStack
}

// begin checks the size and the bytes, and moves to the first token.
func (s *scanner) begin(maxBytes int) bool {
	if len(s.data) > maxBytes {
		s.err = "larger than the limit"
		s.at = maxBytes
		return false
	}
	if !utf8.Valid(s.data) {
		return s.fail("invalid UTF-8")
	}
	s.space()
	return true
}

// end reports whether nothing but space is left.
func (s *scanner) end() bool {
	if s.err != "" {
		return false
	}
	s.space()
	if s.pos != len(s.data) {
		return s.fail("data after the value")
	}
	return true
}

func (s *scanner) fail(what string) bool {
	if s.err == "" {
		s.err, s.at = what, s.pos
	}
	return false
}

// peek returns the next byte, or 0 at the end; a zero byte in the data fits no grammar either.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// value validates and skips one value of any kind. The caller has skipped the space before it.
func (s *scanner) value() bool {
	switch s.peek() {
	case '"':
		_, ok := s.str()
		return ok
	case '{':
		return s.object()
	case '[':
		return s.array()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	_, ok := s.number()
	return ok
}

// span validates and skips one value and returns its bytes.
func (s *scanner) span() ([]byte, bool) {
	start := s.pos
	if !s.value() {
		return nil, false
	}
	return s.data[start:s.pos], true
}

func (s *scanner) literal(word string) bool {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return s.fail("invalid literal")
	}
	s.pos += len(word)
	return true
}

// open enters an object or array; its bracket is the next byte.
func (s *scanner) open(bracket byte, want string) bool {
	if s.peek() != bracket {
		return s.fail(want)
	}
	if s.depth >= s.limit {
		return s.fail("nested too deeply")
	}
	s.depth++
	s.pos++
	s.space()
	return true
}

// more moves to the next element and reports whether there is one. It consumes commas and the closing bracket.
func (s *scanner) more(closing byte, first bool) bool {
	if s.err != "" {
		return false
	}
	if !first {
		s.space()
	}
	c := s.peek()
	if c == closing {
		s.pos++
		s.depth--
		return false
	}
	if first {
		return true
	}
	if c != ',' {
		return s.fail("want a comma or a closing bracket")
	}
	s.pos++
	s.space()
	return true
}

func (s *scanner) array() bool {
	if !s.open('[', "want an array") {
		return false
	}
	for first := true; s.more(']', first); first = false {
		if !s.value() {
			return false
		}
	}
	return s.err == ""
}

func (s *scanner) object() bool {
	if !s.open('{', "want an object") {
		return false
	}
	seen := s.seen()
	for first := true; s.more('}', first); first = false {
		key, ok := s.key()
		if !ok || !seen.add(s, key) || !s.value() {
			return false
		}
	}
	seen.drop(s)
	return s.err == ""
}

// key reads a key and its colon and moves to the value. The bytes are unescaped, and valid while data is.
func (s *scanner) key() ([]byte, bool) {
	from := s.pos + 1
	raw, ok := s.str()
	if !ok {
		return nil, false
	}
	s.lastKey = keySpan{int32(from), int32(from + len(raw))}
	s.space()
	if s.peek() != ':' {
		return nil, s.fail("want a colon")
	}
	s.pos++
	s.space()
	return unescape(raw), true
}

// text reads a string value.
func (s *scanner) text() (string, bool) {
	raw, ok := s.str()
	if !ok {
		return "", false
	}
	return string(unescape(raw)), true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainBytes returns how many of the eight bytes of w, from the lowest, need no look inside a string: no control
// character, quote or backslash. It may stop early at a byte above 0x7f, never late.
func plainBytes(w uint64) int {
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	stop := (w - ones*0x20) | (quote - ones) | (slash - ones) | w
	return bits.TrailingZeros64(stop&highs) / 8
}

// str validates a string and returns the bytes between its quotes, still escaped.
func (s *scanner) str() ([]byte, bool) {
	if s.peek() != '"' {
		return nil, s.fail("want a string")
	}
	s.pos++
	start := s.pos
	d := s.data
	i := s.pos
	for {
		for i+8 <= len(d) {
			n := plainBytes(binary.LittleEndian.Uint64(d[i:]))
			i += n
			if n < 8 {
				break
			}
		}
		if i >= len(d) {
			s.pos = i
			return nil, s.fail("unfinished string")
		}
		switch c := d[i]; {
		case c == '"':
			s.pos = i + 1
			return d[start:i], true
		case c == '\\':
			s.pos = i
			if !s.escape() {
				return nil, false
			}
			i = s.pos
		case c < 0x20:
			s.pos = i
			return nil, s.fail("control character in a string")
		default:
			for i++; i < len(d) && d[i] >= utf8.RuneSelf; i++ {
			}
		}
	}
}

// escape validates one escape, a surrogate pair as one.
func (s *scanner) escape() bool {
	if s.pos+1 >= len(s.data) {
		return s.fail("unfinished escape")
	}
	switch s.data[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return true
	case 'u':
	default:
		return s.fail("invalid escape")
	}
	r := hex4(s.data[s.pos:])
	if r < 0 {
		return s.fail("invalid escape")
	}
	if !utf16.IsSurrogate(r) {
		s.pos += 6
		return true
	}
	if r >= 0xdc00 || !isLow(hex4(s.data[s.pos+6:])) {
		return s.fail("lone surrogate")
	}
	s.pos += 12
	return true
}

func isLow(r rune) bool { return r >= 0xdc00 && r <= 0xdfff }

// hex4 reads the code unit of a \uXXXX at the start of b, or -1.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unescape decodes the inside of a string that str accepted. Without escapes it returns raw itself.
func unescape(raw []byte) []byte {
	i := bytes.IndexByte(raw, '\\')
	if i < 0 {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i >= 0 {
		out = append(out, raw[:i]...)
		raw = raw[i:]
		n := 2
		switch c := raw[1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(raw)
			n = 6
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hex4(raw[6:]))
				n = 12
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
		raw = raw[n:]
		i = bytes.IndexByte(raw, '\\')
	}
	return append(out, raw...)
}

// number validates a number and returns its bytes.
func (s *scanner) number() ([]byte, bool) {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return nil, s.fail("want a value")
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return nil, s.fail("invalid number")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return nil, s.fail("invalid number")
		}
	}
	return s.data[start:s.pos], true
}

func (s *scanner) digits() bool {
	start := s.pos
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.pos++
	}
	return s.pos > start
}

// maxInteger is the largest integer every JSON implementation keeps exactly.
const maxInteger = 1<<53 - 1

// integer reads a non-negative integer of at most maxInteger, without fraction or exponent.
func (s *scanner) integer() (int64, bool) {
	at := s.pos
	raw, ok := s.number()
	if !ok {
		return 0, false
	}
	var n int64
	for _, c := range raw {
		if c < '0' || c > '9' || n > maxInteger/10 {
			s.pos = at
			return 0, s.fail("want an integer from 0 to 2^53-1")
		}
		n = n*10 + int64(c-'0')
	}
	if n > maxInteger {
		s.pos = at
		return 0, s.fail("want an integer from 0 to 2^53-1")
	}
	return n, true
}

func (s *scanner) boolean() (bool, bool) {
	switch s.peek() {
	case 't':
		return true, s.literal("true")
	case 'f':
		return false, s.literal("false")
	}
	return false, s.fail("want true or false")
}

// someText reads a string that must not be empty: a field given as "" is not the same as none.
func (s *scanner) someText() (string, bool) {
	at := s.pos
	v, ok := s.text()
	if ok && v == "" {
		s.pos = at
		return "", s.fail("want a string that is not empty")
	}
	return v, ok
}

func (s *scanner) texts() ([]string, bool) {
	if !s.open('[', "want an array of strings") {
		return nil, false
	}
	var out []string
	for first := true; s.more(']', first); first = false {
		v, ok := s.text()
		if !ok {
			return nil, false
		}
		out = append(out, v)
	}
	return out, s.err == ""
}

// raw validates one value and returns a copy of its bytes.
func (s *scanner) raw() ([]byte, bool) {
	v, ok := s.span()
	return slices.Clone(v), ok
}
