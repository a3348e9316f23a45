package term

import (
	"unicode/utf8"
)

// state is where in a sequence the next byte belongs.
type state uint8

const (
	ground state = iota
	escape
	escapeInter // after an intermediate byte of ESC
	csi
	stringOSC // until BEL or ST
	stringAny // DCS, APC, PM, SOS: until ST
	stringEsc // ESC inside either; see Screen.ending
)

const (
	esc = 0x1b
	can = 0x18
	sub = 0x1a
	bel = 0x07
)

func (s *Screen) parse(p []byte) {
	for i := 0; i < len(p); i++ {
		b := p[i]
		switch s.in {
		case ground:
			if b >= ' ' && b < 0x7f && s.partLen == 0 {
				s.print(rune(b))
				continue
			}
			s.groundByte(b)
		case escape, escapeInter:
			s.escapeByte(b)
		case csi:
			s.csiByte(b)
		default:
			s.stringByte(b)
		}
	}
}

func (s *Screen) groundByte(b byte) {
	if s.partLen > 0 || b >= 0x80 {
		s.character(b)
		return
	}
	switch {
	case b == esc:
		s.begin()
	case b < ' ':
		s.control(b)
	}
}

// character takes a byte of a character of several. What is not UTF-8 becomes U+FFFD.
func (s *Screen) character(b byte) {
	if s.partLen > 0 && b&0xc0 != 0x80 {
		s.partLen = 0
		s.print(utf8.RuneError)
		s.parse([]byte{b})
		return
	}
	s.part[s.partLen] = b
	s.partLen++
	if !utf8.FullRune(s.part[:s.partLen]) {
		return
	}
	r, n := utf8.DecodeRune(s.part[:s.partLen])
	rest := s.partLen - n
	var again [utf8.UTFMax]byte
	copy(again[:], s.part[n:s.partLen])
	s.partLen = 0
	s.print(r)
	for _, b := range again[:rest] {
		s.groundByte(b)
	}
}

func (s *Screen) begin() {
	s.in, s.seq, s.tooLong = escape, append(s.seq[:0], esc), false
}

func (s *Screen) keep(b byte) {
	if len(s.seq) >= maxSequence {
		s.tooLong = true
		return
	}
	s.seq = append(s.seq, b)
}

// interrupt handles what ends or interrupts any sequence, and reports whether b was such.
func (s *Screen) interrupt(b byte) bool {
	switch {
	case b == esc:
		s.begin()
	case b == can, b == sub:
		s.in = ground
	case b < ' ':
		s.control(b)
	case b >= 0x7f:
		// Not part of any sequence that is understood; ignored as DEL is.
	default:
		return false
	}
	return true
}

func (s *Screen) escapeByte(b byte) {
	if s.interrupt(b) {
		return
	}
	s.keep(b)
	switch {
	case b < '0':
		s.in = escapeInter
	case s.in == escapeInter:
		s.done(s.designate())
	case b == '[':
		s.in = csi
	case b == ']':
		s.in = stringOSC
	case b == 'P', b == '_', b == '^', b == 'X':
		s.in = stringAny
	default:
		s.done(s.escapeFinal(b))
	}
}

func (s *Screen) csiByte(b byte) {
	if s.interrupt(b) {
		return
	}
	s.keep(b)
	if b >= '@' {
		s.done(!s.tooLong && s.dispatch())
	}
}

func (s *Screen) stringByte(b byte) {
	switch {
	case s.in == stringEsc && b == '\\':
		s.keep(b)
		s.done(s.stringEnd())
	case s.in == stringEsc:
		// A sequence that begins inside a string ends it unheard.
		s.begin()
		s.parse([]byte{b})
	case b == esc:
		s.keep(b)
		s.in = stringEsc
	case b == can, b == sub:
		s.in = ground
	case b == bel && s.seq[1] == ']':
		s.keep(b)
		s.done(s.stringEnd())
	case b >= ' ':
		s.keep(b)
	}
}

// done ends a sequence and hands it on if it may be shown.
func (s *Screen) done(show bool) {
	s.in = ground
	if show {
		s.out = append(s.out, s.seq...)
	}
	if cap(s.seq) > 256 {
		s.seq = nil
	}
}

// param is one number of a sequence. n is -1 when it was left out; sub marks one that a colon ties to the number before.
type param struct {
	n   int
	sub bool
}

type params []param

// at returns parameter i, or def when it is missing.
func (p params) at(i, def int) int {
	if i >= len(p) || p[i].n < 0 {
		return def
	}
	return p[i].n
}

// count is parameter i as a number of times: at least one.
func (p params) count(i int) int { return max(p.at(i, 1), 1) }

// subs are the parameters that colons tie to parameter i.
func (p params) subs(i int) params {
	n := i + 1
	for n < len(p) && p[n].sub {
		n++
	}
	return p[min(i+1, n):n]
}

// maxParams and maxParam bound what a sequence may carry.
const (
	maxParams = 32
	maxParam  = 65535
)

// split takes a CSI sequence apart: its private marker, parameters, intermediate byte and final byte. ok is false for one that
// is not well formed.
func (s *Screen) split(into params) (marker, inter, final byte, p params, ok bool) {
	body := s.seq[2 : len(s.seq)-1]
	final = s.seq[len(s.seq)-1]
	if len(body) > 0 && body[0] >= '<' && body[0] <= '?' {
		marker, body = body[0], body[1:]
	}
	p = into[:0]
	cur, isSub, any := -1, false, false
	for _, b := range body {
		switch {
		case b >= ' ' && b <= '/':
			if inter != 0 {
				return 0, 0, 0, nil, false
			}
			inter = b
		case inter != 0 || b > ';' || len(p) >= maxParams:
			return 0, 0, 0, nil, false
		case b >= '0' && b <= '9':
			cur, any = min(max(cur, 0)*10+int(b-'0'), maxParam), true
		default: // ; or :
			p = append(p, param{cur, isSub})
			cur, isSub, any = -1, b == ':', true
		}
	}
	if any {
		p = append(p, param{cur, isSub})
	}
	return marker, inter, final, p, true
}
