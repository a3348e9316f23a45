//go:build linux || darwin

package seat

import (
	"bytes"
	"strconv"
	"time"
	"unicode"
)

const (
	// unsentStands is how long a line that is not sent keeps the agent from being woken after its last key. Who comes back to a line
	// usually does within minutes; after that it was left, and peers must not wait for ever.
	unsentStands = 10 * time.Minute
	// seqWithin is the longest pause within the bytes of one key. An escape byte that nothing follows in that time was the key Escape.
	seqWithin = 100 * time.Millisecond
	// maxSeq bounds what is kept of a sequence; those that mean something here are shorter.
	maxSeq = 32
)

// unsent is what is known of the line that was typed at the agent's prompt and neither sent nor cleared: how many characters it has,
// never which. It is a guess from the keys alone. What the program makes of them is not known: a key that picks from a menu looks like a
// line of one character, and a line that is taken back by words, or from the history, is not seen to be.
type unsent struct {
	chars int
	keyed time.Time // when a key last changed it

	state keyState
	seq   []byte
	last  time.Time // of all input
}

type keyState int

const (
	plain     keyState = iota
	escaped            // after an escape byte
	inCSI              // in ESC [
	inReport           // in the string of an answer of a terminal: ESC ] and its like
	inPaste            // in text that is marked as pasted; a line end in it sends nothing
	skipOne            // one byte that belongs to the key before
	skipTwo            //
	skipThree          // the button and the place of a mouse
)

// stands reports whether a line waits that somebody is likely to come back to.
func (u *unsent) stands(now time.Time) bool { return u.chars > 0 && now.Sub(u.keyed) < unsentStands }

// typed notes input.
func (u *unsent) typed(data []byte, now time.Time) {
	if u.state != inPaste && now.Sub(u.last) > seqWithin {
		u.state = plain
	}
	u.last = now
	for _, b := range data {
		u.next(b)
	}
}

func (u *unsent) next(b byte) {
	switch u.state {
	case plain:
		u.key(b)
	case escaped:
		u.escape(b)
	case inCSI:
		u.csi(b)
	case inReport:
		if b == 0x07 {
			u.state = plain
		} else if b == 0x1b {
			u.state = escaped // with the backslash that follows it ends
		}
	case inPaste:
		u.paste(b)
	case skipOne:
		u.state = plain
	default:
		u.state--
	}
}

func (u *unsent) key(b byte) {
	switch {
	case b == 0x1b:
		u.state = escaped
	case b == '\r', b == '\n', b == 0x03, b == 0x15: // Enter, ^C, ^U
		u.clear()
	case b == 0x7f, b == 0x08:
		u.back()
	case b >= ' ' && b&0xc0 != 0x80: // the first byte of a character
		u.add()
	}
}

func (u *unsent) add()   { u.chars, u.keyed = u.chars+1, u.last }
func (u *unsent) back()  { u.chars, u.keyed = max(0, u.chars-1), u.last }
func (u *unsent) clear() { u.chars = 0 }

func (u *unsent) escape(b byte) {
	u.state = plain
	switch b {
	case 0x1b:
		u.state = escaped
	case '[':
		u.state, u.seq = inCSI, u.seq[:0]
	case 'O':
		u.state = skipOne
	case ']', 'P', 'X', '^', '_':
		u.state = inReport
	case '\r', '\n': // with Alt, or Shift where the terminal says it so: a line end within the line
		u.add()
	}
}

func (u *unsent) csi(b byte) {
	switch {
	case b < ' ' || b >= 0x7f: // no sequence
		u.state = plain
		u.key(b)
	case b < '@':
		if len(u.seq) < maxSeq {
			u.seq = append(u.seq, b)
		}
	case b == '[' && len(u.seq) == 0: // a function key of the linux console
		u.state = skipOne
	case b == 'M' && len(u.seq) == 0:
		u.state = skipThree
	case b == '~' && string(u.seq) == "200":
		u.state, u.seq = inPaste, u.seq[:0]
	default:
		u.state = plain
		u.coded(b)
	}
}

// pasteEnd is what a paste ends with.
const pasteEnd = "\x1b[201~"

func (u *unsent) paste(b byte) {
	if u.seq = append(u.seq, b); !bytes.HasPrefix([]byte(pasteEnd), u.seq) {
		u.seq = u.seq[:0]
		if b == pasteEnd[0] {
			u.seq = append(u.seq, b)
		} else if b&0xc0 != 0x80 {
			u.add()
		}
	} else if len(u.seq) == len(pasteEnd) {
		u.state = plain
	}
}

// coded reads a key that the terminal gives by its code, since the program asked for that: ESC [ code ; modifiers u, or
// ESC [ 27 ; modifiers ; code ~. All other sequences move or tell something.
func (u *unsent) coded(final byte) {
	fields := bytes.Split(u.seq, []byte(";"))
	number := func(i int, sub int) int {
		if i >= len(fields) {
			return 0
		}
		parts := bytes.Split(fields[i], []byte(":"))
		if sub >= len(parts) {
			return 0
		}
		n, err := strconv.Atoi(string(parts[sub]))
		if err != nil {
			return 0
		}
		return n
	}
	code, mods := number(0, 0), max(0, number(1, 0)-1)
	switch {
	case final == '~' && code == 27 && len(fields) == 3:
		code = number(2, 0)
	case final != 'u' || number(1, 1) == released:
		return
	}
	const shift, alt, ctrl = 1, 2, 4
	switch held := mods & (shift | alt | ctrl); {
	case code == '\r' && held == 0, held == ctrl && (code == 'c' || code == 'u'):
		u.clear()
	case code == 0x7f && held&(alt|ctrl) == 0:
		u.back()
	case code == '\r', held&(alt|ctrl) == 0 && unicode.IsPrint(rune(code)): // keys without a character have codes for private use
		u.add()
	}
}

// released is the event of a key that is let go.
const released = 3
